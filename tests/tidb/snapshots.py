"""Snapshots of tables, read as tasks of Spark read them, without Spark."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from tests.tidb.server import TiDB
from tests.tidb.sql import Session
from ticdc_source.options.options import Options
from ticdc_source.planning.load import batch_options, load_schema, plan_batch
from ticdc_source.planning.partitions import Partition, read_partition
from ticdc_source.sources.tidb import client


def planned(given: Mapping[str, str]) -> tuple[pa.Schema, list[Partition]]:
    """Return the schema of a read, and its plan."""
    schema = load_schema(given)
    return schema, plan_batch(schema, batch_options(given))


def partitions_of(given: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield the rows of each input partition."""
    schema, parts = planned(given)
    for part in parts:
        yield pa.Table.from_batches(list(read_partition(part, schema, batch_options(given))), schema)


def rows_of(given: Mapping[str, str]) -> pa.Table:
    """Return all rows of a snapshot."""
    return pa.concat_tables(partitions_of(given))


def address(host: str, port: int, **others: str) -> dict[str, str]:
    """Return the options that say where TiDB is, and others, whose names have underscores for dots."""
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {"snapshot": "only", "tidb.url": f"{host}:{port}", "tidb.user": "root", **named}


class TextSession(Session):
    """A session by the connector's own client; each value as MySQL's text."""

    def __init__(self, opened: client.Session) -> None:
        super().__init__(None)
        self._opened = opened

    def run(self, *statements: str) -> None:
        """Run statements, one after the other; each DML is a transaction of its own."""
        for sql in statements:
            self._opened.rows(sql)

    def rows(self, sql: str) -> list[tuple[str | None, ...]]:
        """Return the rows of a query."""
        return self._opened.rows(sql)


@contextmanager
def text_session(server: TiDB, user: str = "root") -> Iterator[TextSession]:
    """Open a session in which zero dates may be written."""
    given = {**address(server.host, server.port), "tidb.user": user}
    with client.Session(Options.of(given)) as opened:
        session = TextSession(opened)
        session.run("SET sql_mode = 'ALLOW_INVALID_DATES'", "SET autocommit = 1")
        yield session
