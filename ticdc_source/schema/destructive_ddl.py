"""DDL that removes rows upstream without a delete event for any of them."""

from __future__ import annotations

import re

from ticdc_source.events import DDLEvent, TableName

__all__ = ["removes_rows_of"]

# TiDB's ActionType (pkg/meta/model/job.go): drop schema, drop table, truncate table, drop table partition,
# truncate table partition, exchange partition; reorganizing and altering partitions keep the rows.
_CODES = frozenset({2, 4, 11, 20, 23, 42})

# What may stand between the words of a statement, blanks and comments; and a name. Each pattern matches a text in only
# one way: with more ways, the time to find that nothing matches would double with each comment.
_GAP = r"(?:\s|/\*(?:[^*]|\*(?!/))*\*/|(?:#|--(?=\s))[^\n]*\n)+"
_NAME = r"(?:`(?:[^`]|``)*`|[^\s`.(,;]+)"
_TABLE = rf"({_NAME})(?:\s*\.\s*({_NAME}))?"
_REMOVES = re.compile(
    rf"^(?:{_GAP})?(?:"
    rf"DROP{_GAP}(?:DATABASE|SCHEMA)\b"
    rf"|DROP{_GAP}(?:TEMPORARY{_GAP})?TABLE\b"
    rf"|TRUNCATE\b"
    rf"|ALTER{_GAP}TABLE{_GAP}{_TABLE}\s.*?\b(?:DROP|TRUNCATE|EXCHANGE){_GAP}PARTITION\b"
    r")",
    re.IGNORECASE | re.DOTALL,
)
_EXCHANGED = re.compile(
    rf"^(?:{_GAP})?ALTER{_GAP}TABLE{_GAP}{_TABLE}\s.*?\bEXCHANGE{_GAP}PARTITION{_GAP}{_NAME}{_GAP}WITH{_GAP}TABLE{_GAP}{_TABLE}",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL)
_WORDS = frozenset({"TRUNCATE", "ERASE"})  # the types of such events, for protocols that have names for them


def removes_rows_of(event: DDLEvent, table: TableName) -> bool:
    """Return whether a DDL event removes rows of a table, or may remove them: those of a partition."""
    by_code = event.type_code in _CODES
    if not (by_code or event.type in _WORDS or _REMOVES.match(_QUOTED.sub("`x`", event.query))):
        return False
    if not event.table.table:  # it removes a whole database
        return event.table.database.lower() == table.database.lower()
    return any(named.is_same(table) for named in (event.table, *_exchanged(event)))


def _exchanged(event: DDLEvent) -> list[TableName]:
    """Return both tables of an EXCHANGE PARTITION: the event names only one of them (docs/wire.md, items 46 and 51)."""
    found = _EXCHANGED.match(event.query)
    if found is None:
        return []
    return [
        TableName(_bare(first) if second else event.table.database, _bare(second or first))
        for first, second in (found.group(1, 2), found.group(3, 4))
    ]


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
