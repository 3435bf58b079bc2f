"""The keys and definitions of a snapshot's records.

A row's key names its table and the TSO. The columns are a record of their own, without a key (`Definition`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ticdc_source.schema.json_text import loads
from ticdc_source.schema.model import Column, ColumnFacts
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type


class RowKey(NamedTuple):
    """The table of a row, and its TSO."""

    table: TableName
    tso: int


def key_of(table: TableName, tso: int) -> bytes:
    return json.dumps({"database": table.database, "table": table.table, "tso": tso}, ensure_ascii=False).encode()


# The whole key of a row, or the beginning of a definition, exactly as they are written here.
_NAME = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_BEGIN = re.compile(rb'\{"database": %b, "table": %b, "tso": \d+(\}\Z|, "columns": \[)' % (_NAME, _NAME))


def is_of_snapshot(key: bytes | None, value: bytes | None) -> bool:
    """Whether a record is a row or a definition. Changefeeds never write such bytes: their JSON has no blanks."""
    found = _BEGIN.match(value or b"" if key is None else key)
    return found is not None and (found[1] == b"}") == (key is not None)


@lru_cache(maxsize=256)
def parsed_key(key: bytes) -> RowKey:
    """Parse a row's key; raises ValueError, TypeError or KeyError for others."""
    parsed = loads(key)
    return RowKey(TableName(str(parsed["database"]), str(parsed["table"])), int(parsed["tso"]))


@dataclass(frozen=True, slots=True)
class Definition:
    """The columns of a table as of a TSO, in order, as TiCDC sends them.

    Attributes:
        clustered: the columns of the clustered primary key, in its order; empty if rows are stored by `_tidb_rowid`.
            Messages lack it.
    """

    table: TableName
    tso: int
    columns: tuple[Column, ...]
    clustered: tuple[Column, ...] = ()

    def message(self) -> bytes:
        columns = [
            {"name": column.name, "type": str(column.type), "facts": _stated(column.facts)} for column in self.columns
        ]
        members = {"database": self.table.database, "table": self.table.table, "tso": self.tso, "columns": columns}
        return json.dumps(members, ensure_ascii=False).encode()

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Definition:
        """Read the parsed JSON of `message()`; raises ValueError, TypeError, KeyError or AttributeError for others."""
        table = TableName(str(message["database"]), str(message["table"]))
        return cls(table, int(message["tso"]), tuple(map(_column, message["columns"])))


def _stated(facts: ColumnFacts) -> dict[str, object]:
    return {name: value for name, value in asdict(facts).items() if value is not None}


def _column(member: Mapping[str, Any]) -> Column:
    facts = ColumnFacts(**member["facts"])
    return Column(str(member["name"]), parse_type(str(member["type"])), key=bool(facts.handle_key), facts=facts)
