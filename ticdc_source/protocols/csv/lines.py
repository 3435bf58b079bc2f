r"""Rows of CSV as TiCDC's storage sink writes them: cut out of a file, and cut into fields.

With a quote, every text is in quotes, and quotes in it are doubled; NULL and numbers have no quotes. Without one, a
backslash precedes backslashes and each character of the delimiter, and line ends are `\r` and `\n` (pingcap/ticdc
pkg/sink/codec/csv/csv_message.go, formatWithQuotes and formatWithEscapes).

An update with its old row is two consecutive rows, which are one message here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import orjson

from ticdc_source.protocols.messages import parse_object, text, tso
from ticdc_source.sources.storage.file_format import FileSettings

_HEADER = b"ticdc-meta$operation"  # begins the first line of a file with `output-field-header`
_COMMIT_TS, _IS_UPDATE = "ticdc-meta$commit-ts", "ticdc-meta$is-update"
OWN_FIELDS = 3  # operation, table and schema
_TRUE = "true"
_BOOLEANS = (_TRUE, "false")
_UNESCAPED = {"n": "\n", "r": "\r"}
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


class Key(NamedTuple):
    """What a row itself does not tell.

    Attributes:
        header: the first line of its file, if it is a header.
        is_cut: whether the file ends in the row, so that its last field may be cut short.
    """

    version: int
    header: str | None = None
    is_cut: bool = False


class CSVCutter:
    """Cuts a file into messages; see `FileCutter`."""

    def __init__(self, version: int, settings: FileSettings) -> None:
        self._settings = settings
        self._terminator = settings.end_of_row
        self._quote = settings.quote.encode()
        self._deleted = self._quote + b"D" + self._quote + settings.delimiter.encode()
        self._left = b""
        self._rows = _Rows(settings)
        self._old: bytes | None = None  # the old row of an update
        self._is_first = True
        self._facts: dict[str, object] = {"TableVersion": version}
        self.key: bytes | None = orjson.dumps(self._facts)

    def cut(self, block: bytes) -> list[bytes]:
        pieces = (self._left + block).split(self._terminator)
        self._left = pieces.pop()
        return self._messages(pieces)

    def rest(self) -> list[bytes]:
        """Return an incomplete last row: TiCDC ends each row with a terminator, and each old row has a new one."""
        left, self._left = self._left, b""
        messages = self._messages([left])
        self.key = orjson.dumps({**self._facts, "cut": True})
        return messages + [each for each in (self._old, self._rows.rest()) if each]

    def _messages(self, pieces: list[bytes]) -> list[bytes]:
        messages = []
        if self._is_first and pieces:
            self._is_first = False
            if pieces[0].startswith(_HEADER):  # before rows are cut: no quotes are around its names
                header = pieces.pop(0).decode()
                self._facts["header"] = header
                self.key = orjson.dumps(self._facts)
                self._settings = with_header(self._settings, header)
        for row in self._rows.whole(pieces):
            if not row:
                continue
            if self._old is not None:
                messages.append(self._old + self._terminator + row)
                self._old = None
            elif row.startswith(self._deleted) and self._is_of_update(row):
                self._old = row
            else:
                messages.append(row)
        return messages

    def _is_of_update(self, row: bytes) -> bool:
        may_say_true = _TRUE.encode() in row or (not self._quote and b"\\" in row)
        if self._settings.output_old_value is False or not may_say_true:
            return False
        at = OWN_FIELDS + self._settings.include_commit_ts
        fields = fields_of(row, self._settings, at + 1)
        return fields.says_is_update and fields.texts[at] == _TRUE


class _Rows:
    """Joins rows whose texts contain the terminator."""

    def __init__(self, settings: FileSettings) -> None:
        self._quote, self._terminator = settings.quote.encode(), settings.end_of_row
        self._begun: list[bytes] = []  # the pieces of a row with an open text

    def whole(self, pieces: list[bytes]) -> list[bytes]:
        """Return the rows completed by the next pieces."""
        if not self._quote:
            return pieces
        rows = []
        for piece in pieces:
            ends_text = piece.count(self._quote) % 2 == 1
            if self._begun:
                self._begun.append(piece)
                if ends_text:
                    rows.append(self.rest())
            elif ends_text:  # it begins one
                self._begun.append(piece)
            else:
                rows.append(piece)
        return rows

    def rest(self) -> bytes:
        """Return the incomplete row; empty without one."""
        row = self._terminator.join(self._begun)
        self._begun = []
        return row


def has_is_update(fields: Fields, settings: FileSettings) -> bool:
    """Return whether rows have the field is-update.

    A bare `true` or `false` after the commit-ts is that field, because TiCDC quotes text, and writes booleans as
    numbers.

    Raises:
        ValueError: csv.outputOldValue is on, but the field is neither `true` nor `false`; or it must be set, because
            without quotes text looks the same.
    """
    if settings.output_old_value and not fields.says_is_update:
        raise ValueError(
            "the field after the commit-ts is neither true nor false: set csv.outputOldValue as in the changefeed"
        )
    if settings.output_old_value is not None or not fields.says_is_update:
        return bool(settings.output_old_value)
    if not settings.quote:
        raise ValueError("without quotes it is unknown whether output-old-value is on: set csv.outputOldValue")
    return True


def rows_of(message: bytes, settings: FileSettings) -> list[bytes]:
    """Return the rows of a message: one, or the old and the new row of an update."""
    if settings.end_of_row not in message:
        return [message]
    rows = _Rows(settings)
    whole = rows.whole(message.split(settings.end_of_row))
    return [*whole, *filter(None, [rows.rest()])]


class Fields(NamedTuple):
    """The fields of a row.

    Attributes:
        says_is_update: whether the field after the commit-ts is a bare `true` or `false`.
    """

    texts: list[str | None]
    quotes: list[str]
    says_is_update: bool


def fields_of(row: bytes, settings: FileSettings, max_fields: int | None = None) -> Fields:
    """Return the first `max_fields` fields of a row, or all.

    Raises:
        ValueError: a quote is not closed or misplaced, or an escape has no end.
    """
    text, null = row.decode("utf-8", "surrogateescape"), settings.null
    if settings.quote:
        quotes, fields = _quoted_fields(text, settings, max_fields)
        texts = [None if not quote and field == null else field for quote, field in zip(quotes, fields, strict=True)]
    else:
        fields = _escaped_fields(text, settings, max_fields)
        quotes = [""] * len(fields)
        texts = [None if field == null else _ESCAPE.sub(_unescaped, field) for field in fields]
    at = OWN_FIELDS + settings.include_commit_ts
    return Fields(texts, quotes, len(texts) > at and not quotes[at] and texts[at] in _BOOLEANS)


def _quoted_fields(text: str, settings: FileSettings, max_fields: int | None) -> tuple[list[str], list[str]]:
    """Return each field's quote ("" without one), and the fields."""
    quote, delimiter = settings.quote, settings.delimiter
    quotes: list[str] = []
    fields: list[str] = []
    pieces = text.split(quote)  # every other one stands in quotes
    last, begin = len(pieces) - 1, 1
    for index in range(0, last + 1, 2):
        piece = pieces[index]
        if not piece and 0 < index < last:
            continue  # between the two quotes that stand for one
        if index:
            quotes.append(quote)
            fields.append(quote.join(pieces[begin:index:2]))
        begin = index + 1
        between = piece.split(delimiter)
        ends = (between.pop(0) if index else "") + (between.pop() if between and index < last else "")
        if max_fields is None and (ends or last % 2):
            raise ValueError(
                "a quote in a row of CSV is not closed, or misplaced: set terminator and csv.quote as in the "
                f"changefeed ({text[:40]!r})"
            )
        quotes += [""] * len(between)
        fields += between
        if max_fields is not None and len(fields) >= max_fields:
            break
    return quotes[:max_fields], fields[:max_fields]


def _escaped_fields(text: str, settings: FileSettings, max_fields: int | None) -> list[str]:
    delimiter = settings.delimiter
    if "\\" not in text:
        return text.split(delimiter)[:max_fields]
    fields: list[str] = []
    start = 0
    for match in re.finditer(rf"\\.|{re.escape(delimiter)}", text, re.DOTALL):
        if match[0] == delimiter:
            fields.append(text[start : match.start()])
            start = match.end()
            if len(fields) == max_fields:
                break
    return [*fields, text[start:]][:max_fields]


def _unescaped(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if not escaped:
        raise ValueError("a row of CSV ends in a backslash: set terminator and csv.quote as in the changefeed")
    return _UNESCAPED.get(escaped, escaped)


@lru_cache(maxsize=256)
def with_header(settings: FileSettings, header: str | None) -> FileSettings:
    if header is None:
        return settings
    own = header.split(settings.delimiter)[: OWN_FIELDS + 2]
    return replace(settings, include_commit_ts=_COMMIT_TS in own, output_old_value=_IS_UPDATE in own)


@lru_cache(maxsize=256)
def columns_of(header: str, settings: FileSettings, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indexes of a table's columns that a header names, in its order and without quotes.

    Raises:
        ValueError: it names another column.
    """
    own = OWN_FIELDS + settings.include_commit_ts + bool(settings.output_old_value)
    delimiter = settings.delimiter
    rest, indexes = delimiter.join(header.split(delimiter)[own:]) + delimiter, []
    for index, name in enumerate(names):
        if rest[: len(name)].lower() == name.lower() and rest.startswith(delimiter, len(name)):
            rest = rest[len(name + delimiter) :]
            indexes.append(index)
    if rest:
        raise ValueError(
            f"the file's header names a column that the table version lacks: {rest[: -len(delimiter)]:.80}"
        )
    return tuple(indexes)


@lru_cache(maxsize=256)
def parsed_key(key: bytes) -> Key:
    """Parse the key of a row's message.

    Raises:
        ValueError, TypeError, KeyError: it is not one of a row.
    """
    parsed = parse_object(key)
    header = parsed.get("header")
    return Key(tso(parsed["TableVersion"]), None if header is None else text(header), parsed.get("cut") is True)
