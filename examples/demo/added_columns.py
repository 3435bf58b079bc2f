"""The columns that `ALTER TABLE … ADD COLUMN` added during a stream, from the DDL messages of the stream."""

from collections.abc import Iterable
from typing import NamedTuple

from examples.data import Message
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.schema.mysql_ddl.old_rows import Added, old_row_changes
from ticdc_source.sources.chunk import Chunk


class AddedColumn(NamedTuple):
    """A column, its value in older rows, the commit-ts from which rows have it, and the DDL."""

    table: str
    name: str
    default: str | None
    commit_ts: int
    query: str


def added_columns(protocol: str, messages: Iterable[Message]) -> list[AddedColumn]:
    """Find the added columns in the messages of a stream.

    Some protocols send a DDL to every partition; each column is listed once.
    """
    added = {}
    for message in messages:
        record = Chunk("", message.partition, [0], [-1], [message.key], [message.value])
        for event in PROTOCOLS[protocol].split(record).ddl:
            for change in old_row_changes(event):
                if isinstance(change, Added):
                    added[event.table, change.column] = AddedColumn(
                        str(event.table), change.column, change.value, event.commit_ts or 0, event.query
                    )
    return list(added.values())
