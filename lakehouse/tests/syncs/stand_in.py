"""A TiDB that is frames of Spark, for tests of a load that need no TiDB; and no pytest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from ticdc_lakehouse.snapshots.gc import GCState
from ticdc_lakehouse.snapshots.jdbc import Range
from ticdc_lakehouse.snapshots.queries import TiDBAddress
from ticdc_lakehouse.syncs import loading
from ticdc_source.errors import SchemaError
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.tso import of_ms

AT = of_ms(1_767_225_600_000)
ADDRESS = TiDBAddress(url="jdbc:mysql://tidb:4000/")
ORDERS, ITEMS, EVENTS = (TableName("shop", name) for name in ("orders", "items", "events"))
SEQUENCE = "struct<commit_ts:bigint,rank:int,partition:int,offset:bigint,index:int>"
_SCHEMA = f"_change_type string, _sequence {SEQUENCE}, id int, v string"
KEY = {"ticdc.key": "true"}


class TiDB:
    """A TiDB of three tables, of which `events` has no key; it counts what is asked of it.

    Attributes:
        rows: the rows of each table: id and v.
        reads: the ranges that were read, in order.
        state: what garbage collection keeps.
        looks: how often it was asked for that.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.rows = {name: [(number, f"v{number}") for number in range(10)] for name in (ORDERS, ITEMS, EVENTS)}
        self.reads: list[tuple[TableName, str]] = []
        self.state = GCState(AT, AT, 86400.0, None)
        self.looks = 0
        self.region_size = 2

    def serve(self, setattr_: Callable[[object, str, object], None] = setattr) -> None:
        """Stand for the TiDB that a load reads."""
        setattr_(loading, "SnapshotRows", self)
        setattr_(loading, "gc_state_of", self.gc)
        setattr_(loading, "tables_at", lambda *known, **_: [*filter(known[2].matches, self.rows)])
        setattr_(loading, "current_tso", lambda *_, **__: AT)

    def gc(self, *_: object) -> GCState:
        """Return what garbage collection keeps."""
        self.looks += 1
        return self.state

    def of(self, spark: SparkSession, _tidb: TiDBAddress, table: str, **_: object) -> Rows:
        """Return the rows of a table."""
        name = TableName(*table.replace("`", "").split("."))
        if name not in self.rows:
            msg = f"TiDB had no table {name}"
            raise SchemaError(msg)
        return Rows(self, name, spark)


class Rows:
    """The rows of a table, as `SnapshotRows` gives them."""

    def __init__(self, tidb: TiDB, name: TableName, spark: SparkSession) -> None:
        self.tidb, self.name, self.spark = tidb, name, spark

    @property
    def table(self) -> Rows:
        """What says how the table was created."""
        return self

    def create_sql(self) -> str:
        """Return its `CREATE TABLE`."""
        key = "" if self.name == EVENTS else ", PRIMARY KEY (id)"
        return f"CREATE TABLE `{self.name.database}`.`{self.name.table}` (id int NOT NULL, v varchar(30){key})"

    def ranges_of(self, _rows: int) -> list[Range]:
        """Return ranges of as many rows as a region has now."""
        size = self.tidb.region_size
        starts = range(0, len(self.tidb.rows[self.name]), size)
        return [Range(f"id >= {start} AND id < {start + size}", size) for start in starts]

    def frame(self, clauses: Sequence[str] = ()) -> DataFrame:
        """Return rows as changes."""
        self.tidb.reads += [(self.name, clause) for clause in clauses]
        rows = [("insert", (AT, 1, -1, -1, -1), *row) for row in self.tidb.rows[self.name]]
        frame = self.spark.createDataFrame(rows, _SCHEMA)
        if self.name != EVENTS:
            frame = frame.withMetadata("id", KEY)
        return frame.where(" OR ".join(clauses)) if clauses else frame
