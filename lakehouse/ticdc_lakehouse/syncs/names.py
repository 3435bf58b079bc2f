"""Where the tables of a sync are, in a folder or a catalog, and their names there, from any MySQL name.

Names of ASCII letters, digits and `_` stay as they are. Every other run of characters becomes `_x…_`, with its UTF-8
bytes in hex: `my-table` is `my_x2d_table`. So whatever the name, its place has no other characters, and every file
system, catalog and SQL parser takes it: none hides a leading `_` or `.`, decodes a `%`, or has a second form of an `é`.
A name that would be too long for a file becomes a hash.
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

# What follows the place of a table in the places of what belongs to it. Some are only reserved: the place of a user's
# table must not change when one of them comes into use.
Suffix: TypeAlias = Literal["", "__current", "__deleted", "__history", "__log", "__quarantine"]
SUFFIXES: tuple[Suffix, ...] = get_args(Suffix)[1:]
_OWN = "_ticdc"  # the namespace of the sync's own tables: no place of a MySQL name begins with `_`
CATALOG_OF_A_FOLDER = "lake"

# A file name has at most 255 bytes, and few catalogs allow more.
_LONGEST = 255 - max(map(len, SUFFIXES))
_FLAGS = re.ASCII | re.IGNORECASE  # catalogs and file systems may ignore case
_PLAIN = re.compile("[a-z0-9_]", _FLAGS)
_HASHED = "xx_"  # begins the hash of a name
# Harmless characters that would mean something where they stand: a hidden file, an escape, a hash, a suffix, or
# Spark's namespace of global temporary views.
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
        return self._in_sql(_encoded(table.database), _encoded(table.table), suffix)

    def own(self, name: str) -> str:
        """Return the name in SQL of a table that the sync keeps for itself, such as `_ticdc_sync`.

        No table of MySQL has its place: those never begin with `_`.
        """
        if self._opens_paths:
            return f"{self.engine}.{quoted(f'{self.folder}/{name}')}"
        return f"{self.catalog or CATALOG_OF_A_FOLDER}.{_OWN}.{name}"

    def refused(self, tables: Iterable[TableName]) -> dict[TableName, TargetError]:
        """Return the tables that cannot have a target, with the reasons.

        Of two names that become one, the first is accepted. They become one if they differ in case only: TiDB and many
        file systems and catalogs ignore it, but MySQL may not.
        """
        found: dict[TableName, TargetError] = {}
        owners: dict[object, TableName] = {}
        for table in dict.fromkeys(tables):
            try:
                target = self.target(table)
            except TargetError as error:
                found[table] = error
                continue
            keys = (_bare(target), tuple(part.lower() for part in table))
            owner = next((owners[key] for key in keys if key in owners), None)
            if owner is None:
                owners |= dict.fromkeys(keys, table)
                continue
            msg = (
                f"{table} has the same target as {owner}, {self.target(owner)}: their names differ in case only. "
                "Rename one of the tables, or leave one out"
            )
            found[table] = TargetError(msg)
        return found

    @property
    def _opens_paths(self) -> bool:
        return ENGINES[self.engine].opens_paths and self.catalog is None

    @property
    def folder(self) -> str:
        """The folder, as Delta needs it: without a scheme, from the root on."""
        root = self.root or ""
        return (root if _SCHEME.match(root) else str(Path(root).absolute())).rstrip("/")

    def _in_sql(self, database: str, table: str, suffix: Suffix) -> str:
        if self._opens_paths:
            return f"{self.engine}.{quoted(f'{self.folder}/{database}/{table}{suffix}')}"
        parts = (part if _NEEDS_NO_QUOTES.fullmatch(part) else quoted(part) for part in (database, f"{table}{suffix}"))
        return ".".join((self.catalog or CATALOG_OF_A_FOLDER, *parts))


@lru_cache(maxsize=1 << 14)  # each micro-batch asks for all tables
def _encoded(name: str) -> str:
    if not name:
        raise TargetError("A table without a name, or without a database, has no target")
    escaped = {match.start() for pattern in _SPECIAL for match in pattern.finditer(name)}
    escaped |= {number for number, character in enumerate(name) if not _PLAIN.match(character)}
    runs = ((is_escaped, "".join(name[number] for number in numbers))
            for is_escaped, numbers in groupby(range(len(name)), escaped.__contains__))  # fmt: skip
    text = "".join(f"_x{run.encode('utf-8', 'surrogatepass').hex()}_" if escape else run for escape, run in runs)
    text = text[1:] if 0 in escaped else text
    if len(text) <= _LONGEST:
        return text
    return f"{_HASHED}{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=20).hexdigest()}"


def _bare(target: str) -> str:
    """Return a target as catalogs and file systems that ignore case compare it."""
    return target.replace("`", "").lower()
