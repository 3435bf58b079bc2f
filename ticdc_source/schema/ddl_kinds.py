"""What a DDL statement does, in one word for all wire formats; and which ones remove rows without delete events."""

from __future__ import annotations

import re

from ticdc_source.events import DDLEvent, TableName

__all__ = ["KINDS", "LONGEST_TEXT", "ddl_kind", "is_too_long", "removes_rows_of"]

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

# A longer text is not looked into: a read must not be slow because of one message. TiDB's longest that are sensible are
# those of tables with thousands of partitions.
LONGEST_TEXT = 512 << 10  # characters

# What is no word of a statement: comments, texts and names in quotes. Each also ends with the whole text: a search that
# began again behind every quote that is not closed would take the square of the time.
_NO_WORDS = re.compile(
    r"(/\*T?!(?:\[[\w,]*\]|\d*)|\*/)"  # 1: around a comment that TiDB or MySQL executes
    r"|(/\*(?:[^*]|\*(?!/))*(?:\*/|\Z)|(?:#|--(?=\s))[^\n]*)"  # 2: a comment
    r"|(`(?:[^`]|``)*(?:`|\Z))"  # 3: a name
    r"|'(?:[^'\\]|\\(?:.|\Z)|'')*(?:'|\Z)"
    r"|\"(?:[^\"\\]|\\(?:.|\Z)|\"\")*(?:\"|\Z)",
    re.DOTALL,
)
_QUOTED_NAME = 3  # the group
_NAME = r"(?:`(?:[^`]|``)*`|[^\s`.(,;]+)"
_TABLE = rf"({_NAME})(?:\s*\.\s*({_NAME}))?"
_EXCHANGED = re.compile(
    rf"\s*ALTER\s+TABLE\s+{_TABLE}\s.*?\bEXCHANGE\s+PARTITION\s+{_NAME}\s+WITH\s+TABLE\s+{_TABLE}",
    re.IGNORECASE | re.DOTALL,
)
_ALTER_TABLE = r"ALTER\s+(?:(?:ONLINE|OFFLINE|IGNORE)\s+)*TABLE\s+"
# The kind by the first words of a text whose quoted parts are all `x`; the first pattern that matches counts.
_KIND_OF_TEXT = tuple(
    (re.compile(rf"\s*{pattern}", re.IGNORECASE | re.DOTALL), kind)
    for pattern, kind in (
        *((rf"{verb}\s+(?:DATABASE|SCHEMA)\b", f"{verb.lower()}_database") for verb in ("CREATE", "ALTER", "DROP")),
        (r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMPORARY\s+)?TABLE\b", "create_table"),
        (r"DROP\s+(?:GLOBAL\s+)?(?:TEMPORARY\s+)?TABLES?\b", "drop_table"),
        (r"TRUNCATE\b", "truncate_table"),
        (r"RENAME\s+TABLES?\b", "rename_table"),
        # FIRST PARTITION LESS THAN drops the older partitions of TiDB's interval partitioning; MERGE keeps their rows.
        (rf"{_ALTER_TABLE}{_TABLE}\s+MERGE\s+FIRST\s+PARTITION\b", "alter_table"),
        (rf"{_ALTER_TABLE}{_TABLE}\s+FIRST\s+PARTITION\s+LESS\b", "drop_partition"),
        *(
            (rf"{_ALTER_TABLE}{_TABLE}\s.*?\b{verb}\s+PARTITION\b", f"{verb.lower()}_partition")
            for verb in ("DROP", "TRUNCATE", "EXCHANGE")
        ),
        (rf"{_ALTER_TABLE}{_TABLE}\s+RENAME\b(?!\s+(?:COLUMN|INDEX|KEY)\b)", "rename_table"),
        (_ALTER_TABLE, "alter_table"),
        (r"CREATE\s+(?:(?:UNIQUE|FULLTEXT|SPATIAL|VECTOR|COLUMNAR)\s+)?INDEX\b", "alter_table"),
        (r"DROP\s+INDEX\b", "alter_table"),
        (r"CREATE\s+(?:VIEW|(?:OR\s+REPLACE|ALGORITHM|DEFINER|SQL)\b.*?\bVIEW)\b", "create_view"),
        (r"DROP\s+VIEW\b", "drop_view"),
        *((rf"{verb}\s+SEQUENCE\b", f"{verb.lower()}_sequence") for verb in ("CREATE", "ALTER", "DROP")),
        (r"(?:RECOVER|FLASHBACK)\s+TABLE\b", "recover_table"),
        (r"FLASHBACK\s+(?:DATABASE|SCHEMA)\b", "recover_database"),
    )
)


def ddl_kind(event: DDLEvent) -> str:
    """Return what a DDL event does: TiDB's code of it says so, else its text, else the wire format's own word for it.

    The wire formats' own words do not serve: one calls DROP INDEX a DROP, another CREATE DATABASE a QUERY
    (docs/wire.md, items 38, 74 and 83).
    """
    if event.type_code is not None:
        kind = _KIND_OF_CODE.get(event.type_code)
        if kind is not None or event.type_code in _ALTERS_TABLE:
            return kind or "alter_table"
    if is_too_long(event):
        return _KIND_OF_WORD.get(event.type, _OTHER)
    text = _words(event.query, keep_names=False)
    found = next((kind for pattern, kind in _KIND_OF_TEXT if pattern.match(text)), None)
    return found or _KIND_OF_WORD.get(event.type, _OTHER)


def is_too_long(event: DDLEvent) -> bool:
    """Return whether a DDL event's text is too long to be looked into."""
    return len(event.query) > LONGEST_TEXT


def _words(query: str, *, keep_names: bool) -> str:
    """Return a text without comments, and `x` for each text in quotes, also for names unless they are kept."""

    def replaced(found: re.Match[str]) -> str:
        if found.lastindex is None or found.lastindex == _QUOTED_NAME:
            return f" {found[0] if keep_names and found.lastindex else '`x`'} "
        return " "

    return _NO_WORDS.sub(replaced, query)


def removes_rows_of(event: DDLEvent, table: TableName) -> bool:
    """Return whether a DDL event removes rows of a table, or may remove them: those of a partition."""
    if ddl_kind(event) not in _REMOVES_ROWS:
        return False
    if not event.table.table:  # it removes a whole database
        return event.table.database.lower() == table.database.lower()
    return any(named.is_same(table) for named in (event.table, *_exchanged(event)))


def _exchanged(event: DDLEvent) -> list[TableName]:
    """Return both tables of an EXCHANGE PARTITION: the event names only one of them (docs/wire.md, items 46 and 51)."""
    found = None if is_too_long(event) else _EXCHANGED.match(_words(event.query, keep_names=True))
    if found is None:
        return []
    return [
        TableName(_bare(first) if second else event.table.database, _bare(second or first))
        for first, second in (found.group(1, 2), found.group(3, 4))
    ]


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
