"""What a load must find again if it was killed: its TSO, and the ranges of each table, in a folder that Spark reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_lakehouse.snapshots.jdbc import Range
from ticdc_lakehouse.syncs.checkpoint import text_of_file
from ticdc_source.developer_api import TableName, loads
from ticdc_source.errors import CheckpointError

_TSO = "tso"


class Plan(NamedTuple):
    """How a table is read: its ranges, in groups that are one commit each."""

    groups: tuple[tuple[Range, ...], ...]

    @staticmethod
    def of(ranges: Sequence[Range], size: int) -> Plan:
        """Put ranges into groups of at most so many."""
        return Plan(tuple(tuple(ranges[start : start + size]) for start in range(0, len(ranges), size)))

    @property
    def rows(self) -> int:
        """About how many rows the table has."""
        return rows_in(self.groups)

    @property
    def digest(self) -> str:
        """What tells it from other plans: the number of a group means nothing in another one."""
        return _digest(self.groups)[:8]


def rows_in(groups: Sequence[Sequence[Range]]) -> int:
    """Return about how many rows groups of ranges have."""
    return sum(one.rows for group in groups for one in group)


class LoadFolder:
    """A folder that Spark reads and writes.

    The number of a group is the number of its commit in the target. So a table that is continued must have the groups
    with which it began: TiDB may have split its regions since.
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")

    def tso(self, spark: SparkSession) -> int | None:
        """Return the TSO of the load that began here; None if none did.

        Raises:
            CheckpointError: the folder holds something else.
        """
        text = self._read(spark, _TSO)
        if text is None or text.isdigit():
            return None if text is None else int(text)
        raise self._unreadable(_TSO)

    def keep_tso(self, spark: SparkSession, at: int) -> None:
        self._write(spark, _TSO, str(at))

    def plan(self, spark: SparkSession, table: TableName, at: int) -> Plan | None:
        """Return how a table is read as of a TSO; None if that was not planned yet.

        Raises:
            CheckpointError: the folder holds something else.
        """
        place = _place(table, at)
        text = self._read(spark, place)
        if text is None:
            return None
        try:
            groups = loads(text)["groups"]
            return Plan(tuple(tuple(Range(str(clause), int(rows)) for clause, rows in group) for group in groups))
        except (ValueError, KeyError, TypeError):
            raise self._unreadable(place) from None

    def keep_plan(self, spark: SparkSession, table: TableName, at: int, plan: Plan, create: str = "") -> None:
        """Remember how a table is read, and the `CREATE TABLE` of that moment; only then is it read."""
        kept = {"database": table.database, "table": table.table, "create": create, "groups": plan.groups}
        self._write(spark, _place(table, at), json.dumps(kept))

    def _read(self, spark: SparkSession, name: str) -> str | None:
        text = text_of_file(spark, f"{self.path}/{name}*")
        return None if text is None else text.strip()

    def _write(self, spark: SparkSession, name: str, text: str) -> None:
        row = spark.range(1, numPartitions=1).select(F.lit(text).alias("value"))
        row.write.mode("overwrite").text(f"{self.path}/{name}")

    def _unreadable(self, name: str) -> CheckpointError:
        msg = (
            f"{self.path}/{name} does not hold what a load has written there. Remove the folder {self.path}, and load "
            "again: rows that are in their targets change nothing"
        )
        return CheckpointError(msg)


def created_tables(spark: SparkSession, folder: str, at: int) -> list[tuple[TableName, str]]:
    """Return the tables whose load as of a TSO has begun in a folder, with the `CREATE TABLE` of that moment."""
    try:
        rows = spark.read.text(f"{folder}/{at}/*/", wholetext=True).collect()
    except AnalysisException:  # none has
        return []
    plans = [loads(row[0]) for row in rows]
    return [(TableName(plan["database"], plan["table"]), plan["create"]) for plan in plans if plan.get("create")]


def _place(table: TableName, at: int) -> str:
    """Return the folder of a table: a name in TiDB may have any character."""
    return f"{at}/{_digest([table.database.lower(), table.table.lower()])[:24]}"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
