"""What must hold of merge_into with a real engine: rows, columns, types, commits and bad input.

    python -m lakehouse.tests.targets.scenario ENGINE FOLDER

Needs PySpark and the dependencies of the package, but no pytest. Its last line of output is a report in JSON.
"""

import argparse
import datetime
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakehouse.tests.engines.engines import ENGINES, Engine
from lakehouse.tests.targets.cost_scenario import CostScenario
from lakehouse.tests.targets.maintenance_scenario import MaintenanceScenario
from ticdc_lakehouse import MergeReport, append_log, commits_of, merge_into, purge_deleted, resolved_ts_of
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.names import Layout, Suffix
from ticdc_lakehouse.targets.opening import ENGINES as ENGINES_OF_TARGETS
from ticdc_lakehouse.targets.opening import open_target
from ticdc_lakehouse.targets.sessions import origin
from ticdc_lakehouse.targets.target import KNOWN_BATCHES, CommitFacts, Merged, NewColumn, Target, Upsert
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.schema.change_order import SEQUENCE
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import TYPES, VARIANT
from ticdc_source.spark.schema import to_spark

Change = tuple[Any, ...]  # change type, commit-ts, offset, then the values of the columns


class Scenario:
    """What must hold, with an engine, a session and a folder."""

    def __init__(self, engine: Engine, spark: SparkSession, folder: Path) -> None:
        self.engine = engine
        self.spark = spark
        self.folder = folder

    # Rows

    def soft_deletes(self) -> None:
        """Deleted rows stay with a flag; the others are TiDB's, whatever comes twice or late."""
        target = self._name("soft")
        created = self._merge(target, HISTORY[:3], deletes="soft")
        equal((created.created, created.images, created.repeated), (True, 3, False))
        for part in (HISTORY[3:6], HISTORY[6:]):
            self._merge(target, part)
        equal(self._rows(target, "NOT _is_deleted"), AT_THE_END)
        equal(self._rows(target, "_is_deleted"), [(2, "b"), (4, "d")])
        for part in (HISTORY, [*HISTORY[:5], ("insert", 5, 90, 2, "late"), ("insert", 5, 91, 4, "late")]):
            self._merge(target, part)
        equal(self._rows(target, "NOT _is_deleted"), AT_THE_END)
        self._merge(target, [("insert", 40, 50, 2, "again")])
        equal(self._rows(target, "NOT _is_deleted"), sorted([*AT_THE_END, (2, "again")]))
        self._merge(target, [("delete", 41, 51, 2, None)])  # of a changefeed whose deletes have the key only
        equal(self._rows(target, "_is_deleted"), [(2, "again"), (4, "d")])
        purge_deleted(self.spark, target, before=41)
        equal(self._rows(target, "_is_deleted"), [(2, "again")])

    def hard_deletes(self) -> None:
        """Deleted rows leave the target; their keys keep late inserts out, until they are purged."""
        target, aside = self._name("hard"), deleted_keys_of(self._name("hard"))
        self._merge(target, HISTORY, deletes="hard")
        equal(self._rows(target), AT_THE_END)
        equal(self.spark.table(target).columns, ["id", "v", "_sequence"])
        self._merge(target, [*HISTORY[:5], ("insert", 5, 90, 2, "late"), ("insert", 5, 91, 4, "late")])
        equal(self._rows(target), AT_THE_END)
        equal(sorted(row["id"] for row in self.spark.table(aside).collect()), [2, 4])
        self._merge(target, [("insert", 40, 50, 2, "again")])
        equal(self._rows(target), sorted([*AT_THE_END, (2, "again")]))
        self._merge(target, [("delete", 41, 51, 2, None)])
        equal(self._rows(target), AT_THE_END)
        purge_deleted(self.spark, target, before=41)
        equal([tuple(row) for row in self.spark.table(aside).select("id", "_sequence.commit_ts").collect()], [(2, 41)])
        self._merge(target, [("insert", 5, 91, 4, "late")])  # nobody remembers it now
        equal(self._rows(target), sorted([*AT_THE_END, (4, "late")]))

    def a_crash_before_the_rows(self) -> None:
        """If the keys of deleted rows were written and the rows were not, the repeated micro-batch completes both."""
        target = self._name("crash")
        self._merge(target, HISTORY[:3], deletes="hard", app_id="a", batch_id=1)
        batch = [("delete", 30, 60, 1, "a"), ("insert", 31, 61, 7, "g")]
        with crashing_before_rows(self.engine.name, target):
            refused(TargetError, CRASH, lambda: self._merge(target, batch, app_id="a", batch_id=2))
        equal(self._rows(target), [(1, "a"), (2, "b"), (4, "d")])
        equal([row["id"] for row in self.spark.table(deleted_keys_of(target)).collect()], [1])
        report = self._merge(target, batch, app_id="a", batch_id=2)
        equal((self._rows(target), report.repeated), ([(2, "b"), (4, "d"), (7, "g")], False))
        equal(self._merge(target, batch, app_id="a", batch_id=2).repeated, True)

    def repeated_batches(self) -> None:
        """The last micro-batch makes no commit if it comes again; other changes are merged, whatever their number."""
        target = self._name("repeated")
        facts = [(1, 100), (2, None), (3, 300)]
        for batch_id, resolved_ts in facts:
            changes = [("insert", 10 + batch_id, batch_id, batch_id, "x")]
            report = self._merge(target, changes, app_id="me", batch_id=batch_id, resolved_ts=resolved_ts)
            equal(report.repeated, False)
        before = commits_of(self.spark, target)
        report = self._merge(target, [("insert", 13, 3, 3, "x")], app_id="me", batch_id=3, resolved_ts=300)
        equal((report.repeated, report.rows), (True, 0))
        equal(commits_of(self.spark, target), before)
        recorded = [(one.facts.batch_id, one.facts.resolved_ts) for one in reversed(before) if one.facts.app_id]
        equal(recorded, facts)
        equal(resolved_ts_of(self.spark, target), 300)
        settings = ("spark.databricks.delta.write.txnVersion", "spark.sql.iceberg.snapshot-property.ticdc.batch_id")
        equal([self.spark.conf.get(name, None) for name in settings], [None, None])
        self._merge(target, [("insert", 50, 50, 1, "y")], app_id="another", batch_id=1)
        equal(self._rows(target, "id = 1"), [(1, "y")])
        self._merge(target, [("insert", 70, 70, 70, "new")], app_id="me", batch_id=4)
        remembered, version = KNOWN_BATCHES.pop((origin(self.spark), target, "me"))
        equal((remembered.batch_id, bool(version)), (4, True))

    def a_log_whose_micro_batches_come_again(self) -> None:
        """Each Kafka record is in a log once, in whatever micro-batch it comes again, also after a restore."""
        log = self._name("log_again")

        def append(batch_id: int, first: int, last: int) -> None:
            changes = [("insert", 10 + place, place, place, "x") for place in range(first, last)]
            append_log(self._frame(changes, "id int, v string"), log, format=self.engine.name, app_id="me",
                       batch_id=batch_id)  # fmt: skip

        append(1, 0, 2)
        append(2, 2, 4)
        version = commits_of(self.spark, log)[1].version
        for batch_id, first, last in [(2, 2, 4), (2, 2, 6), (1, 0, 3), (3, 6, 7), (1, 1, 8)]:
            append(batch_id, first, last)
        found = sorted(row["id"] for row in self.spark.table(log).select("id").collect())
        equal(found, [*range(8)])
        self._restore(log, version)
        append(1, 1, 8)  # the first one that is undone
        equal(sorted(row["id"] for row in self.spark.table(log).select("id").collect()), [*range(8)])

    def a_restored_table(self) -> None:
        """After a restore, a micro-batch that was lost is applied again, and one behind it is refused."""
        target = self._name("restored")
        for batch_id in (1, 2):
            self._merge(target, [("insert", batch_id, batch_id, batch_id, "x")], app_id="me", batch_id=batch_id)
        version = commits_of(self.spark, target)[1].version
        lost: list[Change] = [("insert", 2, 2, 2, "x")]
        self._restore(target, version)
        new = [("insert", 3, 3, 3, "x")]
        self._refused(target, new, "it was restored to an older version", app_id="me", batch_id=3)
        self._refused(target, new, "had micro-batch 2", app_id="me", batch_id=3, after_batch=2)
        self._merge(target, lost, app_id="me", batch_id=2)
        self._merge(target, new, app_id="me", batch_id=3, after_batch=2)
        equal(self._rows(target), [(1, "x"), (2, "x"), (3, "x")])

    def _restore(self, target: str, version: int) -> None:
        """Put a version back, as a user does it while this process keeps its session."""
        if self.engine.name == "delta":
            self.spark.sql(f"RESTORE TABLE {target} TO VERSION AS OF {version}").collect()
        else:
            self.spark.sql(f"CALL lake.system.rollback_to_snapshot('{target.removeprefix('lake.')}', {version})")

    # Columns

    def wider_columns(self) -> None:
        """Types widen as far as the engine can; narrower values are cast; nothing else is tried."""
        target = self._name("wider")
        self._merge(target, [("insert", 10, 0, 1, 7, 0.5, Decimal("1.25"))], "id int, n int, f float, d decimal(10,2)")
        wide = [("insert", 11, 1, 2**40, 2**40, 0.1, Decimal("123456789012.25"))]
        report = self._merge(target, wide, "id bigint, n bigint, f double, d decimal(14,2)")
        equal(report.widened, ("id", "n", "f", "d"))
        self._merge(
            target, [("insert", 12, 2, 3, 9, 0.25, Decimal("2.50"))], "id int, n smallint, f float, d decimal(5,2)"
        )
        ones = [(1, 7, 0.5, Decimal("1.25")), (3, 9, 0.25, Decimal("2.50"))]
        equal(self._rows(target), [*ones, (2**40, 2**40, 0.1, Decimal("123456789012.25"))])
        scaled: list[Change] = [("insert", 13, 3, 4, 1, 1.0, Decimal("1.2345"))]
        if self.engine.name == "delta":
            unsigned: list[Change] = [("insert", 13, 3, 4, Decimal(1), 1.0, Decimal("1.2345"))]
            report = self._merge(target, unsigned, "id bigint, n decimal(20,0), f double, d decimal(10,4)")
            equal(report.widened, ("n", "d"))
            equal(self._rows(target, "id = 4"), [(4, 1, 1.0, Decimal("1.2345"))])
        else:
            self._refused(
                target,
                scaled,
                "decimal(14,2) in the target and decimal(10,4)",
                "id bigint, n bigint, f double, d decimal(10,4)",
            )
        self._refused(
            target,
            [("insert", 14, 4, 5, "x", 1.0, None)],
            "column n is",
            "id bigint, n string, f double, d decimal(14,2)",
        )

    def every_type(self) -> None:
        """A value of every type of the table of types comes back as it was; a TIME as its microseconds."""
        arrows = {f"c_{name}": row.arrow for name, row in TYPES.items()}
        arrows |= {f"u_{name}": row.unsigned for name, row in TYPES.items() if row.unsigned is not None}
        arrows |= {"c_bit1": pa.bool_(), "c_decimal38": pa.decimal128(38, 10), "c_labels": pa.string()}
        missing = {str(arrow) for arrow in arrows.values()} - VALUES.keys()
        equal(missing, set())
        values = {name: VALUES[str(arrow)] for name, arrow in arrows.items()}
        types = to_spark(pa.schema([pa.field("id", pa.int32()), *(pa.field(*one) for one in arrows.items())]))
        target = self._name("types")
        rows = [("insert", 10, 0, 1, *values.values()), ("insert", 10, 1, 2, *(None for _ in values))]
        self._merge(target, rows, types)
        by_id = {row["id"]: plain(row) for row in self.spark.table(target).collect()}
        expected = {
            name: value // MICROSECOND if isinstance(value, datetime.timedelta) else value
            for name, value in values.items()
        }
        equal({name: by_id[1][name] for name in values}, expected)
        equal([name for name in values if by_id[2][name] is not None], [])
        interval = "make_dt_interval(0, 0, 0, CAST(c_time / 1000000 AS DECIMAL(18, 6)))"
        back = self.spark.table(target).where("id = 1").select(F.expr(interval)).collect()
        equal(back[0][0], values["c_time"])
        later = [("insert", 11, 2, 3, *values.values())]
        self._merge(target, later, types)
        one = plain(self.spark.table(target).where("id = 3").collect()[0])
        equal({name: one[name] for name in values}, expected)

    def variants(self) -> None:
        """VARIANT is stored where the engine has it; Iceberg says from which format version on."""
        target = self._name("variant")
        frame = self._frame([("insert", 10, 0, 1, '{"a": [1]}')]).withColumn("v", F.parse_json("v"))
        properties = {"format-version": "3"} if self.engine.name == "iceberg" else {}
        if properties:
            refused(TargetError, "format version 3", lambda: merge_into(frame, target, keys=["id"]))
            equal(open_target(self.spark, target, self.engine.name).exists(), False)
        merge_into(frame, target, keys=["id"], format=self.engine.name, properties=properties)
        equal([row[0] for row in self.spark.table(target).select(F.to_json("v")).collect()], ['{"a":[1]}'])
        equal(VARIANT in [row.arrow for row in TYPES.values()], False)

    def a_key_of_several_columns(self) -> None:
        """Field metadata names several keys, of a TIME too, and NULL; the changes may have another prefix."""
        target = self._name("keys")
        fields = [
            StructField("a b", to_spark(pa.schema([pa.field("x", pa.duration("us"))]))["x"].dataType, metadata=MARKED),
            StructField("`q`", to_spark(pa.schema([pa.field("x", pa.string())]))["x"].dataType, metadata=MARKED),
            StructField(
                "v", to_spark(pa.schema([pa.field("x", pa.string())]))["x"].dataType, metadata={"comment": "It's"}
            ),
        ]
        hour = datetime.timedelta(hours=-1, microseconds=-1)
        rows = [("insert", 10, 0, hour, None, "1"), ("insert", 10, 1, hour, "x", "2")]
        frame = self._frame(rows, StructType(fields))
        renamed = frame.toDF(
            *(name.replace("_", "cdc_", 1) if name.startswith("_") else name for name in frame.columns)
        )
        for column, field in zip(renamed.schema, frame.schema, strict=True):
            equal(column.metadata, field.metadata)
        merge_into(renamed, target, format=self.engine.name)
        merge_into(self._frame([("update_postimage", 11, 2, hour, None, "3")], StructType(fields)), target)
        stored = sorted((row["a b"], row["`q`"] or "", row["v"]) for row in self.spark.table(target).collect())
        equal(stored, [(-3_600_000_001, "", "3"), (-3_600_000_001, "x", "2")])
        described = {row["col_name"]: row["comment"] for row in self.spark.sql(f"DESCRIBE {target}").collect()}
        equal((described["v"], described["a b"]), ("It's", "TIME, in microseconds"))
        properties = open_target(self.spark, target).properties()
        equal(json.loads(properties["ticdc.keys"]), ["a b", "`q`"])

    # DDL

    def older_rows(self) -> None:
        """Older rows get a default and the values of a renamed column once, and TRUNCATE removes them."""
        target = self._name("old_rows")
        self._merge(target, [("insert", 5, 0, 1, "a"), ("insert", 6, 1, 2, "b")], batch_id=0, **DDL)
        added = [ddl("ALTER TABLE t ADD COLUMN C decimal(10,2) NOT NULL DEFAULT '1.5'", 10)]
        self._merge(target, [], StructType([]), ddl=added, batch_id=1, **DDL)
        late: list[Change] = [
            ("insert", 22, 2, 3, None, Decimal(3), "r"),
            ("update_postimage", 8, 3, 2, "late", None, None),
        ]
        renamed = [ddl("ALTER TABLE t RENAME COLUMN v TO w", 20)]
        for batch_id in (2, 2, 3):  # repeated; and sent again with the next micro-batch
            self._merge(target, late, "id int, v string, C decimal(10,2), w string", ddl=renamed, batch_id=batch_id,
                        **DDL)  # fmt: skip
            rows = [tuple(row) for row in self.spark.table(target).select("id", "w", "C").orderBy("id").collect()]
            equal(rows, [(1, "a", Decimal("1.50")), (2, "late", Decimal("1.50")), (3, "r", Decimal("3.00"))])
        emptied: list[Change] = [("insert", 28, 4, 4, "gone"), ("insert", 31, 5, 5, "after")]
        for _ in range(2):
            self._merge(target, emptied, "id int, w string", ddl=[ddl("TRUNCATE TABLE t", 30)], batch_id=4, **DDL)
            equal([row["id"] for row in self.spark.table(target).where("NOT _is_deleted").collect()], [5])

    def a_table_of_the_same_name(self) -> None:
        """DROP and CREATE with another key and a narrower column; keys of deleted rows begin anew, and are renamed."""
        target = self._name("created_again")
        self._merge(target, [("insert", 5, 0, 1, "a"), ("delete", 7, 1, 2, None)], deletes="hard", batch_id=0, **DDL)
        again = [ddl("DROP TABLE t", 10), ddl("CREATE TABLE t (code varchar(10) NOT NULL PRIMARY KEY, v int)", 11)]
        changes = [("insert", 12, 2, "a", 5), ("insert", 12, 3, "b", 6), ("delete", 13, 4, "b", 6)]
        keyed: dict[str, Any] = {**DDL, "keys": ["code"]}
        for _ in range(2):
            self._merge(target, changes, "code string, v int", ddl=again, batch_id=1, **keyed)
            rows = self.spark.table(target).select("code", "v").collect()
            equal([tuple(row) for row in rows], [("a", 5)])
        equal(open_target(self.spark, target).columns()["v"], IntegerType())
        moved = [("insert", 12, 5, "b", None, 6), ("insert", 22, 6, None, "c", 7), ("delete", 23, 7, None, "a", None)]
        renamed = [ddl("ALTER TABLE t RENAME COLUMN code TO name", 20)]
        for _ in range(2):
            self._merge(target, moved, "code string, name string, v int", ddl=renamed, batch_id=2,
                        **{**DDL, "keys": ["name"]})  # fmt: skip
            equal([row["name"] for row in self.spark.table(target).collect()], ["c"])
        deleted = self.spark.table(deleted_keys_of(target)).where("name IS NOT NULL")  # of this key
        equal(sorted(row["name"] for row in deleted.collect()), ["a", "b"])

    # Bad input

    def bad_input(self) -> None:
        """What only the engine can tell is refused before anything is written, and the error says what to do."""
        good = self._frame([("insert", 10, 0, 1, "a")])
        self.spark.sql("CREATE TABLE IF NOT EXISTS plain (id int, v string) USING parquet")
        merge = partial(merge_into, good, keys=["id"])
        refused(TargetError, "a table of parquet", lambda: merge("spark_catalog.default.plain"))
        refused(TargetError, "cannot be opened", lambda: merge("nowhere.a.b.c", format="delta"))
        if self.engine.name == "delta":
            folder = self.folder / "no table"
            self.spark.range(3).write.parquet(str(folder))
            refused(TargetError, "has files but is not a Delta table", lambda: merge(f"delta.`{folder}`"))
        else:
            refused(TargetError, "format='delta' or", lambda: merge("default.nothing"))
        other = self._name("other")
        self.spark.sql(f"CREATE TABLE {other} (id int, v string) USING {self.engine.name}")
        self._refused(other, [("insert", 10, 0, 1, "a")], "needs to order changes")
        refused(TargetError, "did not create it", lambda: purge_deleted(self.spark, other, before=1))

    def hostile_names(self) -> None:
        """Tables and columns may have any name; a target that could be outside its warehouse is refused."""
        delta = self.engine.name == "delta"
        layout = Layout("delta", root=str(self.folder / "named")) if delta else Layout("iceberg", catalog="lake")
        table = TableName("../../esc", "a`b.c/d:😀")
        fields = [StructField("id", IntegerType(), metadata={"ticdc.key": "true", "ticdc.table": str(table)})]
        fields += [StructField(name, StringType(), metadata={"ticdc.table": str(table)}) for name in HOSTILE_COLUMNS]
        rows: list[Change] = [("insert", 10, 0, 1, *HOSTILE_COLUMNS), ("delete", 10, 1, 2, *HOSTILE_COLUMNS)]
        target = layout.target(table)
        self._merge(target, rows, StructType(fields), deletes="hard")
        append_log(self._frame(rows, StructType(fields)), layout.target(table, "__log"), format=self.engine.name)
        ids_of: dict[Suffix, list[int]] = {"": [1], "__deleted": [2], "__log": [1, 2]}
        for suffix, ids in ids_of.items():
            name = layout.target(table, suffix)
            equal(sorted(row["id"] for row in self.spark.table(name).collect()), ids)
            equal(open_target(self.spark, name).properties()["ticdc.table"], str(table))
        stored = self.spark.table(target).collect()[0]
        equal([stored[name] for name in HOSTILE_COLUMNS], HOSTILE_COLUMNS)

        sql = 'lake.shop.`it\'s a "t``"`' if not delta else f'delta.`{self.folder}/it\'s a "t``"`'
        others = [layout.target(TableName("2024", name)) for name in ("2024", "_hidden", "a__log")]
        for name in (sql, layout.own("_ticdc_sync"), *others):
            open_target(self.spark, name, self.engine.name).create([NewColumn("id", IntegerType())], {"a": "b"})
            equal(open_target(self.spark, name).columns(), {"id": IntegerType()})
        before = sorted(self.folder.parent.glob("*"))
        frame = self._frame([("insert", 10, 0, 1, "a")])
        for name in ("lake.`../../esc`", "lake.shop.`..`", "delta.`shop/orders`", "spark_catalog.`my-shop`.t"):
            refused(TargetError, "The target ", partial(merge_into, frame, name, keys=["id"], format="delta"))
        equal(sorted(self.folder.parent.glob("*")), before)
        equal([row[0] for row in self.spark.sql("SHOW NAMESPACES IN spark_catalog").collect()], ["default"])

    # Tools

    def _name(self, name: str) -> str:
        return f"delta.`{self.folder}/delta/{name}`" if self.engine.name == "delta" else f"lake.shop.{name}"

    def _frame(self, changes: Iterable[Change], columns: str | StructType = "id int, v string") -> DataFrame:
        fields = StructType.fromDDL(columns) if isinstance(columns, str) else columns
        schema = StructType([*METADATA.fields, *getattr(fields, "fields", ())])
        rows = []
        for change in changes:
            kind, ts, offset = change[:3]
            rank = 0 if kind in ("delete", "update_preimage") else 1
            rows.append((kind, ts, None, (ts, rank, 0, offset, 0), *change[3:]))
        return self.spark.createDataFrame(rows, schema)

    def _merge(
        self, target: str, changes: Iterable[Change], columns: str | StructType = "id int, v string", **options: Any
    ) -> MergeReport:
        frame = self._frame(changes, columns)
        return merge_into(frame, target, **{"keys": ["id"], "format": self.engine.name, **options})

    def _refused(
        self,
        target: str,
        changes: Iterable[Change],
        text: str,
        columns: str | StructType = "id int, v string",
        **options: Any,
    ) -> None:
        """Merging raises a TargetError with a text, and leaves the target as it was."""
        before = (commits_of(self.spark, target), self.spark.table(target).schema)
        refused(TargetError, text, lambda: self._merge(target, changes, columns, **options))
        equal((commits_of(self.spark, target), self.spark.table(target).schema), before)

    def _rows(self, target: str, where: str = "true") -> list[tuple[Any, ...]]:
        frame = self.spark.table(target).where(where)
        names = [f"`{name}`" for name in frame.columns if not name.startswith("_")]
        return sorted((tuple(row) for row in frame.select(*names).collect()), key=lambda row: row[0])


METADATA = to_spark(
    pa.schema([
        ("_change_type", pa.string()), ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")), ("_sequence", SEQUENCE),
    ])
)  # fmt: skip
HOSTILE_COLUMNS = [
    "${env:PATH}", "${system:java.home}", "${spark.app.name}",
    "`", "a`b", "a.b", "a,b", "a'b", 'a"b', "😀", " a", "a%b", "a;b", "a{b}", "(a)", "a\nb", "a\tb", "a=b", "2024",
    "select", "a/b", "a:b", "é", "k0", "c0", "seq", "gone", "s", "t",
]  # fmt: skip
DDL: dict[str, Any] = {"app_id": "test", "on_destructive_ddl": "apply"}
MARKED = {"ticdc.key": "true", "ticdc.table": "shop.orders"}
CRASH = "as though the driver died"
MICROSECOND = datetime.timedelta(microseconds=1)

# Rows 1 to 6 of a table: an update, deletes, a key update, an insert after a delete. The offsets are not in order.
HISTORY: list[Change] = [
    ("insert", 10, 0, 1, "a"), ("insert", 10, 1, 2, "b"), ("insert", 10, 2, 4, "d"),
    ("update_preimage", 11, 3, 1, "a"), ("update_postimage", 11, 3, 1, "A"), ("delete", 12, 9, 2, "b"),
    ("insert", 13, 4, 6, "f"), ("delete", 14, 5, 6, "f"), ("insert", 14, 6, 6, "F"),
    ("update_preimage", 15, 7, 4, "d"), ("update_postimage", 15, 7, 5, "e"),
    (None, 20, 8, None, None),
]  # fmt: skip
AT_THE_END = [(1, "A"), (5, "e"), (6, "F")]

# A value of each Arrow type in the table of types.
VALUES: dict[str, Any] = {
    "int8": -128, "int16": -(2**15), "int32": -(2**31), "int64": 2**63 - 1, "bool": True,
    "float": 0.10000000149011612, "double": 1e300, "string": "é'\\",
    "binary": b"\x00\xff", "date32[day]": datetime.date(1000, 1, 1),
    "timestamp[us]": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 (a DATETIME has no zone)
    "timestamp[us, tz=UTC]": datetime.datetime(2038, 1, 19, 3, 14, 7, 999999),  # noqa: DTZ001 (the session's zone)
    "duration[us]": -datetime.timedelta(hours=838, minutes=59, seconds=59, microseconds=1),
    "decimal128(20, 0)": Decimal(2**64 - 1), "decimal128(38, 18)": Decimal("-99999999999999999999.999999999999999999"),
    "decimal128(38, 10)": Decimal("-0.0000000001"), "list<element: float>": [0.5, -1.0],
}  # fmt: skip


@contextmanager
def crashing_before_rows(engine: str, target: str) -> Iterator[None]:
    """Let a MERGE into this target fail, as though the driver died; into its table of deleted keys it works."""
    kind = ENGINES_OF_TARGETS[engine]
    merge = kind.merge

    def crash(self: Target, upsert: Upsert, facts: CommitFacts) -> Merged:
        if self.name == target:
            raise TargetError(CRASH)
        return merge(self, upsert, facts)

    with mock.patch.object(kind, "merge", crash):
        yield


def ddl(query: str, commit_ts: int) -> DDLEvent:
    return DDLEvent(position=0, index=0, commit_ts=commit_ts, table=TableName("shop", "t"), query=query, type="")


def plain(row: Row) -> dict[str, Any]:
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.asDict().items()}


def refused(error: type[TiCDCSourceError], text: str, attempt: Callable[[], object]) -> None:
    """Raise AssertionError unless the attempt raises this error with this text."""
    try:
        attempt()
    except error as raised:
        if text in str(raised):
            return
        message = f"found {raised!r}, expected {text!r} in it"
    else:
        message = f"nothing was raised, expected {error.__name__} with {text!r}"
    raise AssertionError(message)


def equal(actual: object, expected: object) -> None:
    """Raise AssertionError unless both are equal."""
    if actual != expected:
        raise AssertionError(f"found {actual!r}, expected {expected!r}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lakehouse.tests.targets.scenario")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("folder", type=Path, help="where the tables are")
    arguments = parser.parse_args()
    engine = ENGINES[arguments.engine]
    seconds: dict[str, float] = {}
    with engine.session(arguments.folder) as spark:
        scenario = Scenario(engine, spark, arguments.folder)
        parts: list[Callable[[], None]] = [
            scenario.soft_deletes, scenario.hard_deletes, scenario.a_crash_before_the_rows, scenario.repeated_batches,
            scenario.a_restored_table, scenario.a_log_whose_micro_batches_come_again,
            scenario.wider_columns, scenario.every_type, scenario.variants, scenario.a_key_of_several_columns,
            scenario.older_rows, scenario.a_table_of_the_same_name, scenario.bad_input, scenario.hostile_names,
            *CostScenario(engine.name, spark, scenario._name, equal).parts(),
            *MaintenanceScenario(engine.name, spark, scenario._name, equal, refused).parts(),
        ]  # fmt: skip
        for part in parts:
            began = time.monotonic()
            part()
            seconds[part.__name__] = round(time.monotonic() - began, 1)
            print(part.__name__, seconds[part.__name__], flush=True)  # noqa: T201
    print(json.dumps({"pyspark": pyspark.__version__, "engine": arguments.engine, "seconds": seconds}))  # noqa: T201


if __name__ == "__main__":
    main()
