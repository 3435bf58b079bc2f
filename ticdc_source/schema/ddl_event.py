"""DDL events: their time, their kind, and whether they remove rows without delete events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeAlias

from ticdc_source.schema.lexer import Reader, Token, scan
from ticdc_source.schema.table_name import TableName

_BEHIND = 1 << 31  # every partition


class Moment(NamedTuple):
    """The position of a change among its table's rows: its commit-ts, then its place in the topic partition.

    Without a place, it comes after every row of its commit-ts: a row with a DDL event's commit-ts belongs to the schema
    before it (docs/wire.md, item 31). If a time replaces the commit-ts, the place decides.
    """

    commit_ts: int
    partition: int = _BEHIND
    offset: int = 0

    @property
    def last_before(self) -> int:
        """The last commit-ts whose rows are all before this moment."""
        return self.commit_ts - (self.partition < _BEHIND)


START = Moment(0)


# A wire format's own description of tables after a DDL event, parsed JSON; the decoder of the same protocol reads it.
TableChanges: TypeAlias = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DDLEvent:
    """A DDL event.

    Attributes:
        position, index: its record in the chunk, and its index in that message, from 0.
        commit_ts: its commit-ts; None if the wire format has none.
        table: the table; its name is empty for DDL of a database.
        table_changes: the wire format's description of the table afterwards, as parsed JSON; None without one.
        place: its partition and offset, which order it among changes with its commit-ts if that is a time; None if it
            has its own commit-ts.
    """

    position: int
    index: int
    commit_ts: int | None
    table: TableName
    query: str
    type: str
    type_code: int | None = None
    table_changes: TableChanges | None = None
    build_ts: int | None = None
    cluster_id: str | None = None
    place: tuple[int, int] | None = None

    @property
    def moment(self) -> Moment:
        """Its position among rows; at 0 without a commit-ts."""
        return Moment(self.commit_ts or 0, *(self.place or ()))

    @property
    def identity(self) -> str:
        """The same for its copies in other topic partitions, and those that TiCDC sends again.

        If a time replaces the commit-ts, it is distinct for each event, as different ones may share text and time.
        """
        text = f"{self.table.database}\0{self.table.table}\0{self.query}"
        text += "" if self.place is None else f"\0{self.place}"
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
        return f"{self.commit_ts}-{digest.hexdigest()}"


_OTHER = "other"

# The kind of each of TiDB's ActionTypes (pkg/meta/model/job.go) …
_KIND_OF_CODE = {
    1: "create_database", 2: "drop_database", 3: "create_table", 4: "drop_table", 11: "truncate_table",
    14: "rename_table", 20: "drop_partition", 21: "create_view", 23: "truncate_partition", 24: "drop_view",
    25: "recover_table", 26: "alter_database", 34: "create_sequence", 35: "alter_sequence", 36: "drop_sequence",
    42: "exchange_partition", 47: "rename_table", 55: "alter_database", 60: "create_table", 63: "recover_database",
    77: "alter_database",
}  # fmt: skip
# … and of those that change a table and keep its rows: MySQL too takes CREATE INDEX for an ALTER TABLE.
_ALTERS_TABLE = frozenset(
    {5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 18, 19, 22, 30, 31, 32, 33, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 54}
    | {56, 57, 58, 59, 61, 64, 65, 67, 71, 72, 73, 74, 75}
)
KINDS = (*sorted({*_KIND_OF_CODE.values(), "alter_table"}), _OTHER)
# The kind by the wire format's own word, for an event without a code whose text does not say it.
_KIND_OF_WORD = {
    "CREATE": "create_table", "ALTER": "alter_table", "RENAME": "rename_table", "ERASE": "drop_table",
    "TRUNCATE": "truncate_table", "CINDEX": "alter_table", "DINDEX": "alter_table",
}  # fmt: skip
_REMOVES_ROWS = frozenset(
    {"drop_database", "drop_table", "truncate_table", "drop_partition", "truncate_partition", "exchange_partition"}
)

# Longer texts are not parsed, so that no message slows a read down. The longest sensible ones are of tables with
# thousands of partitions.
LONGEST_TEXT = 512 << 10  # characters

INDEX_WORDS = frozenset({"VECTOR", "COLUMNAR"})  # …INDEX: not reserved words, so they may name a column too

# What replaces tokens other than words in a statement's words.
_NO_WORDS = {"name": "x", "text": "''", "bad": "''"}
_TABLE = r"\S+(?: \. \S+)?"
_ALTER_TABLE = r"ALTER (?:(?:ONLINE|OFFLINE|IGNORE) )*TABLE "
# The kind by the first words of a statement, each of which ends with a space; the first pattern that matches counts.
_KIND_OF_TEXT = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        *((rf"{verb} (?:DATABASE|SCHEMA) ", f"{verb.lower()}_database") for verb in ("CREATE", "ALTER", "DROP")),
        (r"CREATE (?:OR REPLACE )?(?:GLOBAL )?(?:TEMPORARY )?TABLE ", "create_table"),
        (r"DROP (?:GLOBAL )?(?:TEMPORARY )?TABLES? ", "drop_table"),
        (r"TRUNCATE ", "truncate_table"),
        (r"RENAME TABLES? ", "rename_table"),
        # FIRST PARTITION LESS THAN drops the older partitions of TiDB's interval partitioning; MERGE keeps their rows.
        (rf"{_ALTER_TABLE}{_TABLE} MERGE FIRST PARTITION ", "alter_table"),
        (rf"{_ALTER_TABLE}{_TABLE} FIRST PARTITION LESS ", "drop_partition"),
        *(
            (rf"{_ALTER_TABLE}{_TABLE} (?:.* )?{verb} PARTITION ", f"{verb.lower()}_partition")
            for verb in ("DROP", "TRUNCATE", "EXCHANGE")
        ),
        (rf"{_ALTER_TABLE}{_TABLE} RENAME (?!COLUMN |INDEX |KEY )", "rename_table"),
        (_ALTER_TABLE, "alter_table"),
        (rf"CREATE (?:(?:UNIQUE|FULLTEXT|SPATIAL|{'|'.join(INDEX_WORDS)}) )?INDEX ", "alter_table"),
        (r"DROP INDEX ", "alter_table"),
        (r"CREATE (?:VIEW|(?:OR REPLACE|ALGORITHM|DEFINER|SQL) .*?\bVIEW) ", "create_view"),
        (r"DROP VIEW ", "drop_view"),
        *((rf"{verb} SEQUENCE ", f"{verb.lower()}_sequence") for verb in ("CREATE", "ALTER", "DROP")),
        (r"(?:RECOVER|FLASHBACK) TABLE ", "recover_table"),
        (r"FLASHBACK (?:DATABASE|SCHEMA) ", "recover_database"),
    )
)

_FIRST_WORDS = 24
# Statements whose later words may say what they do: the partitions of a table, a view's options.
_SAY_IT_LATER = ("ALTER ", "CREATE OR ", "CREATE ALGORITHM ", "CREATE DEFINER ", "CREATE SQL ")


def ddl_kind(event: DDLEvent) -> str:
    """Return the kind of a DDL event, from TiDB's code, else its text, else the wire format's word.

    The wire formats' words come last: one calls DROP INDEX a DROP, another CREATE DATABASE a QUERY (docs/wire.md, items
    38, 74 and 83).
    """
    if event.type_code is not None:
        kind = _KIND_OF_CODE.get(event.type_code)
        if kind is not None or event.type_code in _ALTERS_TABLE:
            return kind or "alter_table"
    if is_too_long(event):
        return _KIND_OF_WORD.get(event.type, _OTHER)
    return _kind_of_text(event.query) or _KIND_OF_WORD.get(event.type, _OTHER)


def is_ddl_text(query: str) -> bool:
    """Whether a statement is DDL, by its words; False for a text too long to be parsed."""
    return len(query) <= LONGEST_TEXT and _kind_of_text(query) is not None


@lru_cache(maxsize=16)  # a read asks several times about each event
def _kind_of_text(query: str) -> str | None:
    """Return a statement's kind by its words, usually the first ones; None if unknown."""
    tokens = scan(query)
    text = _words(islice(tokens, _FIRST_WORDS))
    if text.startswith(_SAY_IT_LATER):
        text += _words(tokens)
    return next((kind for pattern, kind in _KIND_OF_TEXT if pattern.match(text)), None)


def _words(tokens: Iterable[Token]) -> str:
    return "".join(f"{_NO_WORDS.get(token.type, token.text)} " for token in tokens)


def database_of(query: str) -> str:
    for word, name in pairwise(islice(scan(query), _FIRST_WORDS)):
        if word.text in ("DATABASE", "SCHEMA", "EXISTS") and (name.type == "name" or name.text not in ("IF", "NOT")):
            return name.plain if name.type in ("name", "word") else ""
    return ""


def is_too_long(event: DDLEvent) -> bool:
    return len(event.query) > LONGEST_TEXT


def removes_rows_of(event: DDLEvent, table: TableName) -> bool:
    """Whether a DDL event removes, or may remove, rows of a table, maybe only of a partition."""
    kind = ddl_kind(event)
    if kind not in _REMOVES_ROWS:
        return False
    if not event.table.table:  # it removes a whole database
        return event.table.database.lower() == table.database.lower()
    return event.table.is_same(table) or (
        kind == "exchange_partition" and any(exchanged.is_same(table) for exchanged in _exchanged(event))
    )


def _exchanged(event: DDLEvent) -> list[TableName]:
    """Return both tables of an EXCHANGE PARTITION, of which the event names one (docs/wire.md, items 46 and 51)."""
    if is_too_long(event):
        return []
    reader = Reader(list(scan(event.query)), event.table.database)
    try:
        reader.seek("TABLE")
        partitioned = reader.table()
        reader.seek("EXCHANGE", "PARTITION")
        reader.name()
        reader.need("WITH", "TABLE")
        return [partitioned, reader.table()]
    except ValueError:
        return []
