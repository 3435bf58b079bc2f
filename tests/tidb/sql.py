"""SQL statements for the test TiDB, sent by the JDBC driver that is in Spark's JVM: no other client is needed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

# Before a session may read the past, TiKV's garbage collector must have said what it has removed.
SAFE_POINT = "REPLACE INTO mysql.tidb (variable_name, variable_value, comment) VALUES ('tikv_gc_safe_point', '{}', '')"


class Session:
    """A session of one user, in UTC, in which zero dates may be written."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, *statements: str) -> None:
        """Run statements, one after the other; each DML is a transaction of its own."""
        statement = self._connection.createStatement()
        for sql in statements:
            statement.execute(sql)
        statement.close()

    def rows(self, sql: str) -> list[tuple[str | None, ...]]:
        """Return the rows of a query, each value as MySQL's text."""
        statement = self._connection.createStatement()
        result = statement.executeQuery(sql)
        width = range(1, result.getMetaData().getColumnCount() + 1)
        rows = []
        while result.next():
            rows.append(tuple(result.getString(column) for column in width))
        statement.close()
        return rows

    def last_commit_ts(self) -> int:
        """Return the commit-ts of the last transaction."""
        return int(json.loads(self.rows("SELECT @@tidb_last_txn_info")[0][0] or "{}")["commit_ts"])

    def tso(self) -> int:
        """Return TiDB's TSO of this moment."""
        self.run("BEGIN")
        found = self.rows("SELECT @@tidb_current_ts")[0][0]
        self.run("ROLLBACK")
        return int(found or 0)


@contextmanager
def session(spark: SparkSession, jdbc_url: str) -> Iterator[Session]:
    """Open a session as root."""
    jvm: Any = spark._jvm
    settings = jvm.java.util.Properties()
    for name, value in {
        "user": "root",
        "sessionVariables": "time_zone='+00:00',sql_mode='ALLOW_INVALID_DATES'",
        "jdbcCompliantTruncation": "false",  # else the driver adds STRICT_TRANS_TABLES
    }.items():
        settings.setProperty(name, value)
    connection = jvm.com.mysql.cj.jdbc.Driver().connect(jdbc_url, settings)
    try:
        yield Session(connection)
    finally:
        connection.close()
