"""A TiDB that is frames of Spark, for tests of a load that need no TiDB; and no pytest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.errors import DataLossError, OptionError
from ticdc_source.options.topics import TableFilter
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import of_ms
from ticdc_source.sources.tidb.source import Cut

AT = of_ms(1_767_225_600_000)
ADDRESS = TiDBConfig(url="tidb:4000", user="reader", rows_per_range=2)
ORDERS, ITEMS, EVENTS = (TableName("shop", name) for name in ("orders", "items", "events"))
SEQUENCE = "struct<commit_ts:bigint,rank:int,partition:int,offset:bigint,index:int>"
_SCHEMA = f"_change_type string, _sequence {SEQUENCE}, id int, v string"
KEY = {"ticdc.key": "true"}


class TiDB:
    """A TiDB of three tables, of which `events` has no key; it counts what is asked of it.

    Attributes:
        reads: the ranges that were read, in order.
        life_time: for how many seconds it keeps a moment, and for how many more that of the load.
        is_gone: whether garbage collection has passed it.
    """

    def __init__(self) -> None:
        self.rows = {name: [(number, f"v{number}") for number in range(10)] for name in (ORDERS, ITEMS, EVENTS)}
        self.reads: list[tuple[TableName, str]] = []
        self.life_time = (86400.0, 86400.0)
        self.is_gone = False

    def serve(self, setattr_: Callable[[object, str, object], None] = setattr) -> None:
        setattr_(TiDBConfig, "now", lambda _: AT)
        setattr_(TiDBConfig, "tables_at", lambda _, selected, at: self.tables_at(selected))  # noqa: ARG005
        setattr_(TiDBConfig, "life_time", lambda *_: self.kept())
        setattr_(TiDBConfig, "table", lambda _, name, at, **__: self.table(name))  # noqa: ARG005

    def tables_at(self, selected: TableFilter) -> list[TableName]:
        return [name for name in self.rows if selected.matches(name)]

    def kept(self) -> tuple[float, float]:
        if self.is_gone:
            raise DataLossError("TiDB no longer keeps the past. SET GLOBAL tidb_gc_life_time = '24h'")
        return self.life_time

    def table(self, name: TableName) -> Rows:
        if name not in self.rows:
            raise OptionError(f"TiDB had no table {name}")
        return Rows(self, name)


class Rows:
    """The rows of a table, as `SnapshotTable` gives them."""

    def __init__(self, tidb: TiDB, name: TableName) -> None:
        self.tidb, self.name = tidb, name

    def about(self) -> int:
        return len(self.tidb.rows[self.name])

    def create_sql(self) -> str:
        key = "" if self.name == EVENTS else ", PRIMARY KEY (id)"
        return f"CREATE TABLE `{self.name.database}`.`{self.name.table}` (id int NOT NULL, v varchar(30){key})"

    def ranges(self, size: int, after: tuple[str, ...] | None, most: int) -> list[Cut]:
        starts = range(0 if after is None else int(after[0]), self.about(), size)
        ends = [start + size if start + size < self.about() else None for start in starts]
        return [
            Cut(str(start), min(size, self.about() - start), None if end is None else (str(end),))
            for start, end in zip(starts, ends, strict=True)
        ][:most]

    def frame(self, spark: SparkSession, ranges: Sequence[Cut]) -> DataFrame:
        clauses = [f"id >= {start} AND id < {int(start) + each.rows}" for each in ranges for start in [each.sql]]
        self.tidb.reads += [(self.name, clause) for clause in clauses]
        rows = [("insert", (AT, 1, -1, -1, -1), *row) for row in self.tidb.rows[self.name]]
        frame = spark.createDataFrame(rows, _SCHEMA).where(" OR ".join(clauses) or "false")
        return frame if self.name == EVENTS else frame.withMetadata("id", KEY)
