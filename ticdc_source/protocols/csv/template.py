"""What the rows of one version of a table in CSV have in common, for the native path."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ticdc_source.kernels.contract import Branch, Const, CSVDialect, CSVRow, Image, Number, Program, Slot, Step, Way
from ticdc_source.protocols.templates import COMMIT_TS, DELETE, INSERT, MOST_TSO, UPDATE, Template
from ticdc_source.sources.storage.file_format import FileSettings

_TRUE, _FALSE = b"true", b"false"
_PLAIN = re.compile(rb"[0-9A-Za-z\\\-\x80-\xff]")  # what numbers, words and escapes are made of
_ANOTHER_COMMIT_TS = Number(Slot.IGNORED, MOST_TSO)  # of the second row of an update; the first one counts


def begin_of(operation: str, head: bytes, settings: FileSettings) -> bytes:
    """Return what a row of a table begins with; `head` is as for `template_of`."""
    return f"{settings.quote}{operation}{settings.quote}{settings.delimiter}".encode() + head


def template_of(head: bytes, quoted: Sequence[bool], settings: FileSettings) -> Template | None:
    """Return the template of a table's rows; None if native code might read them otherwise than the general path.

    Args:
        head: the table and the schema, as rows name them behind their operation.
        quoted: for each column, whether its values stand in quotes.
    """
    delimiter, quote = settings.delimiter.encode(), settings.quote.encode()
    null, terminator = settings.null.encode(), settings.end_of_row
    # Bytes with two meanings; without quotes, a text that may be the field is-update.
    if _PLAIN.search(delimiter + quote + terminator) or set(quote) & set(delimiter + terminator):
        return None
    if set(delimiter) & set(terminator) or (not quote and (settings.output_old_value is None or null.endswith(b"\\"))):
        return None
    if null in (_TRUE, _FALSE, b"I", b"U", b"D") or null.isdigit() or (quote and quote in null):
        return None
    if not quote and terminator in head:
        return None
    dialect = CSVDialect(delimiter, quote, null, terminator)
    preimage, row = (CSVRow(image, quoted, dialect) for image in Image)
    between: list[Step] = [Const(delimiter)] if settings.include_commit_ts else []

    def way(operation: str, plain: Sequence[Step], updated: Sequence[Step]) -> Way:
        ways = [] if settings.output_old_value is False else [Way(_FALSE + delimiter, plain)]
        ways += [Way(_TRUE + delimiter, updated)] if ways and updated else []
        ways += [] if settings.output_old_value else [Way(b"", plain)]
        return Way(begin_of(operation, head, settings), [*([COMMIT_TS] if between else []), *between, Branch(ways)])

    new_row = [
        Const(terminator + begin_of("I", head, settings)),
        *([_ANOTHER_COMMIT_TS] if between else []),
        *between,
        Const(_TRUE + delimiter),
        row,
    ]
    branch = Branch(
        [
            way("I", [INSERT, row], []),
            way("U", [UPDATE, row], []),
            way("D", [DELETE, row], [UPDATE, preimage, *new_row]),
        ]
    )
    program = Program([branch], heads=(), tail=b"", partial=False)
    return Template(identity=head, program=lambda _: program, placed=not settings.include_commit_ts)
