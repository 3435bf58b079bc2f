"""The places of a sync's tables, in a folder or a catalog, and their names there, from any MySQL name.

Names of ASCII letters, digits and `_` stay as they are. Every other run of characters becomes `_x…_`, with its UTF-8
bytes in hex: `my-table` is `my_x2d_table`. So every file system, catalog and SQL parser takes every name: none hides a
leading `_` or `.`, decodes a `%`, or has a second form of an `é`. A name that is too long for a file becomes a hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.opening import ENGINES
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import TableName

# What follows a table's name in the names of what belongs to it. Some are only reserved, so that the name of a user's
# table need not change when they come into use.
Suffix: TypeAlias = Literal["", "__current", "__deleted", "__history", "__log", "__quarantine"]
SUFFIXES: tuple[Suffix, ...] = get_args(Suffix)[1:]
_OWN = "_ticdc"  # the namespace of the sync's own tables: no name from MySQL begins with `_`
CATALOG_OF_A_FOLDER = "lake"

# A file name has at most 255 bytes, and few catalogs allow more.
_LONGEST = 255 - max(map(len, SUFFIXES))
_FLAGS = re.ASCII | re.IGNORECASE  # catalogs and file systems may ignore case
_PLAIN = re.compile("[a-z0-9_]", _FLAGS)
_HASHED = "xx_"  # prefix of the hash of a name
# Plain characters that would have a meaning where they stand: of a hidden file, an escape, a hash, a suffix, or Spark's
# namespace of global temporary views.
_SPECIAL = tuple(
    re.compile(pattern, _FLAGS)
    for pattern in (
        "^_",
        "(?:^x|_(?=x))(?=x?(?:[0-9a-f]{2})+[^0-9a-z])",
        "^x(?=x[^0-9a-z])",
        rf"(?<=[^0-9a-z])_(?=(?:{'|'.join(suffix[2:] for suffix in SUFFIXES)})\Z)",
        r"^g(?=lobal_temp\Z)",
    )
)
_NEEDS_NO_QUOTES = re.compile("[a-z_][a-z0-9_]*", _FLAGS)
_SCHEME = re.compile("[a-z][a-z0-9+.-]*:", _FLAGS)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the tables of a sync are: in a folder, or in a catalog of the session."""

    engine: str
    # the folder; the files of a table are in `<root>/<database>/<table>`. Delta opens them by that path, Iceberg by the
    # catalog `lake`, which the session must have as a hadoop catalog with this warehouse.
    root: str | None = None
    catalog: str | None = None  # the catalog, as SQL has it: `lake`, or `lake.raw` for a namespace in it

    def target(self, table: TableName, suffix: Suffix = "") -> str:
        """Return the name in SQL of the target of a table, as `merge_into` takes it, or of what belongs to it."""
        names = (_encoded(table.database), f"{_encoded(table.table)}{suffix}")
        if self._opens_paths:
            return f"{self.engine}.{quoted('/'.join((self.folder, *names)))}"
        parts = (name if _NEEDS_NO_QUOTES.fullmatch(name) else quoted(name) for name in names)
        return ".".join((self.catalog or CATALOG_OF_A_FOLDER, *parts))

    def own(self, name: str) -> str:
        """Return the name in SQL of a table of the sync itself, such as `_ticdc_sync`."""
        if self._opens_paths:
            return f"{self.engine}.{quoted(f'{self.folder}/{name}')}"
        return f"{self.catalog or CATALOG_OF_A_FOLDER}.{_OWN}.{name}"

    def refused(self, tables: Iterable[TableName]) -> dict[TableName, TargetError]:
        """Return the tables that cannot have a target, with the reasons.

        Of two names that differ in case only, the first is accepted: TiDB and many file systems and catalogs ignore
        case, but MySQL may not.
        """
        found: dict[TableName, TargetError] = {}
        owners: dict[object, TableName] = {}
        for table in dict.fromkeys(tables):
            try:
                target = self.target(table)
            except TargetError as error:
                found[table] = error
                continue
            # The place as catalogs and file systems that ignore case compare it.
            keys = (target.replace("`", "").lower(), tuple(part.lower() for part in table))
            owner = next((owners[key] for key in keys if key in owners), None)
            if owner is None:
                owners |= dict.fromkeys(keys, table)
                continue
            found[table] = TargetError(
                f"{table} has the same target as {owner}, {self.target(owner)}: their names differ in case only. "
                "Rename one of the tables, or leave one out with skip = true"
            )
        return found

    @property
    def _opens_paths(self) -> bool:
        return ENGINES[self.engine].opens_paths and self.catalog is None

    @property
    def folder(self) -> str:
        """The folder as Delta needs it: a URI or an absolute path."""
        root = self.root or ""
        return (root if _SCHEME.match(root) else str(Path(root).absolute())).rstrip("/")


@lru_cache(maxsize=1 << 14)  # each micro-batch asks for all tables
def _encoded(name: str) -> str:
    if not name:
        raise TargetError("A table needs a name and a database to have a target")
    escaped = {match.start() for pattern in _SPECIAL for match in pattern.finditer(name)}
    escaped |= {number for number, character in enumerate(name) if not _PLAIN.match(character)}
    runs = ((is_escaped, "".join(name[number] for number in numbers))
            for is_escaped, numbers in groupby(range(len(name)), escaped.__contains__))  # fmt: skip
    text = "".join(f"_x{run.encode('utf-8', 'surrogatepass').hex()}_" if escape else run for escape, run in runs)
    text = text[1:] if 0 in escaped else text
    if len(text) <= _LONGEST:
        return text
    return f"{_HASHED}{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=20).hexdigest()}"
