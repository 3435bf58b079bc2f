"""What must hold of DDL, and of logs, with a real engine: parts of `lakehouse.tests.targets.scenario`."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ticdc_lakehouse import MergeReport, append_log, commits_of, merge_into, scd2_view
from ticdc_lakehouse.common.errors import TargetError
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source.errors import SchemaError
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName

Change = tuple[Any, ...]  # change type, commit-ts, then the values of the columns
_SEQUENCE = "struct<commit_ts:bigint,rank:int,partition:int,offset:bigint,index:int>"
_DELETES = ("delete", "update_preimage")


class DDLScenario:
    """What must hold of DDL and of logs.

    Args:
        engine: the name of the engine.
        spark: the session.
        name: returns the name of a target.
        equal: raises if two values differ.
        refused: raises unless a call raises an error with a text.
    """

    def __init__(
        self,
        engine: str,
        spark: SparkSession,
        name: Callable[[str], str],
        equal: Callable[[object, object], None],
        refused: Callable[[Any, str, Callable[[], object]], None],
    ) -> None:
        self.engine, self.spark, self.name, self.equal, self.refused = engine, spark, name, equal, refused
        self._offset = 0

    def parts(self) -> list[Callable[[], None]]:
        """Return everything."""
        return [
            self.old_rows,
            self.a_renamed_key,
            self.emptied_tables,
            self.ddl_before_rows,
            self.removed_partitions,
            self.history,
        ]

    def old_rows(self) -> None:
        """Older rows get a default, and the values of renamed columns, once, and whenever they come."""
        target = self.name("old_rows")
        self._merge(target, 0, [("insert", 5, 1, "a"), ("insert", 6, 2, "b")])
        self._merge(target, 1, [], ddl=["ALTER TABLE t ADD COLUMN C decimal(10,2) NOT NULL DEFAULT '1.5'", 10])
        self.equal(self._rows(target, "id, v"), [(1, "a"), (2, "b")])
        wider = "id int, v string, C decimal(10,2)"
        late = [("insert", 12, 3, "new", Decimal("3.00")), ("update_postimage", 8, 2, "late", None)]
        filled = [(1, "a", Decimal("1.50")), (2, "late", Decimal("1.50")), (3, "new", Decimal("3.00"))]
        for _ in range(2):
            self._merge(target, 2, late, wider)
            self.equal(self._rows(target, "id, v, C"), filled)
        self._merge(target, 3, [("insert", 7, 4, "later"), ("delete", 13, 1, None)])  # a frame without the column
        self.equal(self._rows(target, "id, v, C")[-1], (4, "later", Decimal("1.50")))

        renamed = "id int, v string, C decimal(10,2), w string, nid int"
        ddl = ["ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN id TO nid", 20]
        moved: list[Change] = [
            ("update_postimage", 22, None, None, None, "r", 2),
            ("update_postimage", 15, 3, "x", None, None, None),
        ]
        for batch in (4, 4, 5):  # repeated; and sent again with the next micro-batch
            self._merge(target, batch, moved, renamed, ddl=ddl, keys=["nid"])
            self.equal(self._rows(target, "nid, w"), [(2, "r"), (3, "x"), (4, "later")])

    def a_renamed_key(self) -> None:
        """With hard deletes, the keys of deleted rows are renamed too: late rows of either name stay deleted."""
        target = self.name("renamed_key")
        self._merge(target, 0, [("insert", 5, 1, "a"), ("insert", 6, 2, "b"), ("delete", 7, 2, None)], deletes="hard")
        both = "id int, nid int, v string"
        changes = [("insert", 5, 2, None, "late"), ("insert", 12, None, 3, "c"), ("delete", 13, None, 1, None)]
        ddl = ["ALTER TABLE t RENAME COLUMN id TO nid", 10]
        for _ in range(2):
            self._merge(target, 1, changes, both, ddl=ddl, keys=["nid"])
            self.equal(self._rows(target, "nid, v"), [(3, "c")])
        deleted = self.spark.table(deleted_keys_of(target)).select("nid").collect()
        self.equal(sorted(row[0] for row in deleted), [1, 2])
        self._merge(target, 2, [("insert", 6, 2, "late"), ("insert", 8, 4, "d")], keys=["nid"])
        self.equal(self._rows(target, "nid, v"), [(3, "c"), (4, "d")])

        alone = self.name("renamed_key_alone")  # the DDL is in a micro-batch without changes
        self._merge(alone, 0, [("insert", 5, 1, "a"), ("insert", 6, 2, "b")])
        self._merge(alone, 1, [], ddl=ddl, keys=None)
        self._merge(alone, 2, [("insert", 12, 3, "c"), ("delete", 13, 1, None)], "nid int, v string", keys=["nid"])
        self.equal(self._rows(alone, "nid, v"), [(2, "b"), (3, "c")])

    def emptied_tables(self) -> None:
        """TRUNCATE TABLE removes older rows, keeps late ones out, and is complete up to its commit-ts."""
        for deletes in ("soft", "hard"):
            target = self.name(f"emptied_{deletes}")
            self._merge(target, 0, [("insert", 5, 1, "a"), ("insert", 31, 2, "b")], deletes=deletes)
            changes = [("insert", 28, 3, "gone"), ("insert", 31, 4, "after")]
            for _ in range(2):
                self._merge(target, 1, changes, ddl=["TRUNCATE TABLE t", 30], resolved_ts=32)
                self.equal(self._rows(target, "id, v"), [(2, "b"), (4, "after")])
            self._merge(target, 2, [("insert", 29, 1, "late")])
            self.equal(self._rows(target, "id, v"), [(2, "b"), (4, "after")])
            recorded = [commit.facts.resolved_ts for commit in commits_of(self.spark, target)]
            self.equal([ts for ts in recorded if ts is not None], [32, 30])

    def ddl_before_rows(self) -> None:
        """DDL that comes before the first row of a table is remembered: rows of other partitions may be older."""
        target = self.name("ddl_before_rows")
        self._merge(target, 0, [], ddl=["ALTER TABLE t ADD COLUMN c int DEFAULT 3", 10])
        self._merge(target, 1, [("insert", 5, 1, None), ("insert", 15, 2, None)], "id int, c int")
        self.equal(self._rows(target, "id, c"), [(1, 3), (2, None)])

    def removed_partitions(self) -> None:
        """DROP PARTITION is refused before anything is written, until somebody says that it was done by hand."""
        target = self.name("removed_partitions")
        self._merge(target, 0, [("insert", 5, 1, "a")])
        before = commits_of(self.spark, target)
        drop: dict[str, Any] = {"ddl": ["ALTER TABLE t DROP PARTITION p", 10]}
        self.refused(SchemaError, "'ticdc.handled_ddl_ts' = '10'",
                     lambda: self._merge(target, 1, [("insert", 11, 2, "b")], **drop))  # fmt: skip
        self.equal(commits_of(self.spark, target), before)
        self.spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('ticdc.handled_ddl_ts' = '10')")
        self._merge(target, 1, [("insert", 11, 2, "b")], **drop)
        self.equal(self._rows(target, "id, v"), [(1, "a"), (2, "b")])

    def history(self) -> None:
        """A log has each micro-batch once, and its view each version of a row once, also after TiCDC's repetitions."""
        log = self.name("history")
        first = [("insert", 10, 1, "a"), ("insert", 10, 2, "b"), ("update_preimage", 12, 1, "a"),
                 ("update_postimage", 12, 1, "A")]  # fmt: skip
        for _ in range(2):
            self._append(log, 0, first)
        self.equal(self.spark.table(log).count(), 3)
        self._append(log, 1, [*first, ("delete", 14, 2, "b"), ("insert", 14, 3, "c")], resolved_ts=15)
        self._append(log, 2, [("delete", 16, 3, "c", 0), ("insert", 16, 3, "C", 7)], "id int, v string, n int")
        self._append(log, 3, [("insert", 35, 1, "again")], ddl=["TRUNCATE TABLE t", 30])
        self.equal(self.spark.table(log).count(), 12)
        self.equal([one.facts.resolved_ts for one in commits_of(self.spark, log) if one.facts.resolved_ts], [15])

        view = scd2_view(self.spark, log, "history_of_t", keys=["id"])

        names = "id, v, _valid_from_ts, _valid_to_ts, _is_current"
        versions = sorted(tuple(row) for row in self.spark.sql(f"SELECT {names} FROM history_of_t").collect())  # noqa: S608
        self.equal(versions, [
            (1, "A", 12, 30, False), (1, "a", 10, 12, False), (1, "again", 35, None, True), (2, "b", 10, 14, False),
            (3, "C", 16, 30, False), (3, "c", 14, 16, False),
        ])  # fmt: skip
        self.equal("n" in view.columns, True)
        self.refused(SchemaError, "without a key", lambda: scd2_view(self.spark, log))
        self.refused(
            TargetError, "is int there and string", lambda: self._append(log, 4, [("insert", 40, "x")], "id string")
        )

    def _frame(self, changes: Iterable[Change], columns: str) -> DataFrame:
        rows = []
        for change_type, commit_ts, *values in changes:
            self._offset += 1
            rank = 0 if change_type in _DELETES else 1
            rows.append((change_type, (commit_ts, rank, 0, self._offset, 0), *values))
        schema = f"_change_type string, _sequence {_SEQUENCE}{', ' if rows else ''}{columns if rows else ''}"
        return self.spark.createDataFrame(rows, schema)

    def _merge(
        self, target: str, batch_id: int, changes: list[Change], columns: str = "id int, v string", **options: Any
    ) -> MergeReport:
        given = {"keys": ["id"], "format": self.engine, "app_id": "test", "on_destructive_ddl": "apply", **options}
        return merge_into(self._frame(changes, columns), target, batch_id=batch_id, **_with_events(given))

    def _append(
        self, log: str, batch_id: int, changes: list[Change], columns: str = "id int, v string", **options: Any
    ) -> None:
        given = {"format": self.engine, "app_id": "test", **options}
        append_log(self._frame(changes, columns), log, batch_id=batch_id, **_with_events(given))

    def _rows(self, target: str, columns: str) -> list[tuple[Any, ...]]:
        frame = self.spark.table(target)
        frame = frame.where("NOT _is_deleted") if "_is_deleted" in frame.columns else frame
        return sorted(tuple(row) for row in frame.selectExpr(*columns.split(", ")).collect())


def _with_events(options: dict[str, Any]) -> dict[str, Any]:
    if "ddl" not in options:
        return options
    query, commit_ts = options["ddl"]
    event = DDLEvent(position=0, index=0, commit_ts=commit_ts, table=TableName("shop", "t"), query=query, type="")
    return {**options, "ddl": [event]}
