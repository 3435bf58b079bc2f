"""The columns that `ALTER TABLE … ADD COLUMN` added during a stream, from the DDL messages of the stream."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlglot
from sqlglot import expressions as sql

from examples.data import Message
from ticdc_source.events import Chunk
from ticdc_source.protocols import PROTOCOLS


class AddedColumn(NamedTuple):
    """A column, its value in older rows, the commit-ts from which rows have it, and the DDL."""

    table: str
    name: str
    default: Any
    commit_ts: int
    query: str


def added_columns(protocol: str, messages: Iterable[Message]) -> list[AddedColumn]:
    """Find the added columns in the messages of a stream.

    Some protocols send a DDL to every partition; each column is listed once.
    """
    found = {}
    for message in messages:
        record = Chunk("", message.partition, [0], [-1], [message.key], [message.value])
        for event in PROTOCOLS[protocol].split(record).ddl:
            for name, default in _added_by(event.query):
                found[event.table, name] = AddedColumn(
                    str(event.table), name, default, event.commit_ts or 0, event.query
                )
    return list(found.values())


def _added_by(query: str) -> Iterable[tuple[str, Any]]:
    """Return the columns that a DDL adds, each with its default."""
    statement = sqlglot.parse_one(query, dialect="mysql")
    if isinstance(statement, sql.Alter):
        for column in statement.args["actions"]:
            if isinstance(column, sql.ColumnDef):
                default = column.find(sql.DefaultColumnConstraint)
                yield column.name, None if default is None else default.this.to_py()
