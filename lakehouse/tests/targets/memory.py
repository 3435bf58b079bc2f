"""Targets in memory: the contract of `targets/target.py` in Python, without an engine's jars.

lake = Lake(spark)
lake.serve(monkeypatch)                 # merge_into, append_log and the others find their tables in it
merge_into(changes, "lake.shop.orders", format="delta")
lake.rows("lake.shop.orders")
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType, DayTimeIntervalType, LongType, StringType, StructType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs import checkpoint, following, kept_records, micro_batch, resuming, status
from ticdc_lakehouse.targets import log, maintenance, merge
from ticdc_lakehouse.targets.column_types import delta_can_widen
from ticdc_lakehouse.targets.data_layout import check_not_laid_out_by
from ticdc_lakehouse.targets.delta import DeltaTarget
from ticdc_lakehouse.targets.target import Commit, CommitFacts, LastBatch, Merged, NewColumn, Upsert
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source.schema.tso import seconds
from ticdc_source.spark.sync_state import check_permission


class CrashError(Exception):
    """The driver died."""


@dataclass
class Table:
    """A table, and what its commits recorded."""

    schema: StructType  # its columns
    properties: dict[str, str]  # its properties
    rows: list[Row] = field(default_factory=list)  # its rows
    commits: list[CommitFacts] = field(default_factory=list)  # what each commit recorded, oldest first
    # what those recorded that were rolled back last, and that the properties do not know to be
    undone: list[CommitFacts] = field(default_factory=list)
    history: list[CommitFacts] = field(default_factory=list)  # what each commit recorded, also if it was undone


class Lake:
    """Tables by name.

    Attributes:
        writes: what was written, in order: the method and the table.
        layouts: the layout of each table, as SQL has it.
        kept: for how long each table keeps its versions.
        crash_at: the number of the write before which the driver dies; None if it lives.
        blocked: the tables to which nothing can be written.
        faults: how many more writes to a table its store refuses.
        writing: is called with the method and the table before a write.
        committed: is called with the name of a table after a commit; what it raises, the writer sees.
        restores_rows_only: whether a table that is put back keeps its columns and properties, as in Iceberg.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.tables: dict[str, Table] = {}
        self.writes: list[tuple[str, str]] = []
        self.layouts: dict[str, str] = {}
        self.kept: dict[str, datetime.timedelta] = {}
        self.crash_at: int | None = None
        self.blocked: set[str] = set()
        self.faults: dict[str, int] = {}
        self.writing: Callable[[str, str], None] = lambda *_: None
        self.committed: Callable[[str], None] = lambda _: None
        self.restores_rows_only = False

    def serve(self, patch: pytest.MonkeyPatch) -> None:
        """Let the public functions open their targets here."""
        for module in (merge, log, micro_batch, kept_records, status):
            patch.setattr(module, "open_target", self.open)
        for module in (maintenance, log, resuming, following, checkpoint):
            patch.setattr(module, "existing_target", self.existing)

    def open(self, spark: SparkSession, name: str, engine: str | None = None) -> MemoryTarget:
        return MemoryTarget(self, spark, name, engine or "delta")

    def existing(self, spark: SparkSession, name: str) -> MemoryTarget | None:
        return self.open(spark, name) if name in self.tables else None

    def copy(self) -> Lake:
        lake = Lake(self.spark)
        lake.tables = deepcopy(self.tables)
        return lake

    def state(self, *names: str) -> dict[str, Table]:
        return {name: deepcopy(self.tables[name]) for name in names if name in self.tables}

    def put_back(self, name: str, state: Table) -> None:
        """Put back a table as it was."""
        now = self.tables[name]
        self.tables[name] = deepcopy(state)
        self.tables[name].history = now.history
        if self.restores_rows_only:
            self.tables[name].schema, self.tables[name].properties = now.schema, now.properties
            self.tables[name].undone = now.commits[len(state.commits) :]
            target = self.open(self.spark, name)
            target._fill([row.asDict() for row in state.rows])

    def release(self, name: str) -> None:
        """Free the lease in a status table: its process is dead."""
        self.tables[name].properties.pop("ticdc.lease", None)

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return the rows that are not deleted, sorted: these columns, or all but the package's own."""
        table = self.tables[name]
        names = columns or tuple(one for one in table.schema.names if not one.startswith("_"))
        alive = [row for row in table.rows if not row.asDict().get("_is_deleted")]
        return sorted(tuple(row[one] for one in names) for row in alive)

    def written(self, method: str, name: str) -> None:
        """Note a write, or die before it."""
        self.writing(method, name)
        check_permission()
        if self.crash_at == len(self.writes):
            raise CrashError
        if self.faults.get(name, 0):
            self.faults[name] -= 1
            raise OSError("503 Slow Down")
        if name in self.blocked:
            raise TargetError(f"{name} cannot take the changes")
        self.writes.append((method, name))


class MemoryTarget(DeltaTarget):
    """A table of a lake, as the engines have it."""

    def __init__(self, lake: Lake, spark: SparkSession, name: str, engine: str) -> None:
        super().__init__(spark, name)
        self.lake = lake
        self.engine = engine  # type: ignore[misc]  # one class stands for both

    @property
    def table(self) -> Table:
        """The table, which exists."""
        return self.lake.tables[self.name]

    def exists(self) -> bool:
        return self.name in self.lake.tables

    def frame(self) -> DataFrame:
        return self.spark.createDataFrame(self.table.rows, self.table.schema)

    def deleted_keys(self) -> MemoryTarget:
        return self.lake.open(self.spark, deleted_keys_of(self.name), self.engine)

    def columns(self) -> dict[str, DataType]:
        return {one.name: one.dataType for one in self.table.schema}

    def properties(self) -> dict[str, str]:
        return dict(self.table.properties)

    def stored(self, type_: DataType) -> DataType:
        if isinstance(type_, DayTimeIntervalType):
            return StringType() if self.time_as == "text" else LongType()
        return type_

    def can_widen(self, old: DataType, new: DataType) -> bool:
        return delta_can_widen(old, new)

    def create(
        self, columns: Sequence[NewColumn], properties: Mapping[str, str], *, layout: str = "", replaces: bool = False
    ) -> None:
        assert replaces == self.exists()
        self.lake.written("create", self.name)
        self.lake.layouts[self.name] = layout
        self.lake.tables[self.name] = Table(StructType(), dict(properties))
        self._change([*columns], [])

    def add_columns(self, columns: Sequence[NewColumn]) -> None:
        self.lake.written("add_columns", self.name)
        self._change(columns, [row.asDict() for row in self.table.rows])

    def _change(self, columns: Sequence[NewColumn], rows: Sequence[Mapping[str, Any]]) -> None:
        for column in columns:
            self.table.schema.add(column.name, column.type, metadata={"comment": column.comment})
        self._fill(rows)

    def _fill(self, rows: Sequence[Mapping[str, Any]]) -> None:
        names = self.table.schema.names
        self.table.rows = [Row(*names)(*(row.get(name) for name in names)) for row in rows]

    def widen_column(self, name: str, type_: DataType) -> None:
        self.lake.written("widen_column", self.name)
        self.table.schema[name].dataType = type_

    def check_drop(self, names: Sequence[str]) -> None:
        check_not_laid_out_by(names, self.name, self.properties())

    def drop_columns(self, names: Sequence[str]) -> None:
        self.lake.written("drop_columns", self.name)
        rows = [row.asDict() for row in self.table.rows]
        self.table.schema = StructType([one for one in self.table.schema if one.name not in names])
        self._fill(rows)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self.lake.written("set_properties", self.name)
        self.table.properties |= properties

    def remove_properties(self, names: Sequence[str]) -> None:
        self.lake.written("remove_properties", self.name)
        for name in names:
            self.table.properties.pop(name, None)

    def update_rows(self, values: Mapping[str, str], where: str, facts: CommitFacts) -> None:
        self.lake.written("update_rows", self.name)
        old = {name: F.col("`" + name.replace("`", "``") + "`") for name in self.table.schema.names}
        new = {name: F.when(F.expr(where), F.expr(value)).otherwise(old[name]) for name, value in values.items()}
        changed = self.frame().select(*(column.alias(name) for name, column in {**old, **new}.items()))
        self.table.rows = changed.collect()
        self._commit(facts)

    def delete_rows(self, where: str, facts: CommitFacts) -> None:
        self.lake.written("delete_rows", self.name)
        self.table.rows = self.frame().where(f"NOT coalesce({where}, false)").collect()
        self._commit(facts)

    def merge(self, upsert: Upsert, facts: CommitFacts) -> Merged:
        images = upsert.images.collect()
        self.lake.written("merge", self.name)
        rows = {tuple(row[name] for name in upsert.keys): row.asDict() for row in self.table.rows}
        own_names = (upsert.sequence, upsert.deleted)
        changed = 0
        for image in images:
            key = tuple(image[f"k{number}"] for number in range(len(upsert.keys)))
            row = rows.get(key)
            if (row is None and upsert.removes and image["gone"]) or _is_older(image, key, row, upsert):
                continue
            changed += 1
            if image["gone"] and upsert.removes:
                del rows[key]
                continue
            own = {name: value for name, value in zip(own_names, (image["seq"], image["gone"]), strict=True) if name}
            if upsert.committed_at is not None:
                commit_s = seconds(image["seq"]["commit_ts"])
                own[upsert.committed_at] = datetime.datetime.fromtimestamp(commit_s, datetime.timezone.utc)
            values = {name: image[f"c{number}"] for number, name in enumerate(upsert.values)}
            keeps = row is not None and image["bare"]
            rows[key] = {**dict(zip(upsert.keys, key, strict=True)), **(row or {}), **({} if keeps else values), **own}
        self._fill(list(rows.values()))
        self._commit(facts)
        return Merged(changed, is_commit=changed > 0)

    def append(self, rows: DataFrame, facts: CommitFacts) -> Merged:
        new = [row.asDict() for row in rows.collect()]
        self.lake.written("append", self.name)
        self._fill([*(row.asDict() for row in self.table.rows), *new])
        self._commit(facts)
        return Merged(is_commit=True)

    def overwrite(self, rows: DataFrame, facts: CommitFacts) -> None:
        new = [row.asDict() for row in rows.collect()]
        self.lake.written("overwrite", self.name)
        self._fill(new)
        self._commit(facts)

    def _commit(self, facts: CommitFacts) -> None:
        self.table.commits.append(facts)
        self.table.history.append(facts)
        self.table.undone = []
        self.lake.committed(self.name)

    def compact(self) -> None:
        self.lake.written("compact", self.name)

    def forget_versions(self, keep: datetime.timedelta) -> None:
        self.lake.written("forget_versions", self.name)
        self.lake.kept[self.name] = keep

    def undone(self) -> list[CommitFacts]:
        return self.table.undone

    def history(self) -> list[tuple[Commit, bool]]:
        return [(Commit(version, facts), True) for version, facts in enumerate(self.table.commits)][::-1]

    def last_batch(self, app_id: str) -> LastBatch | None:
        last = [one for one in self.table.commits if one.app_id == app_id and one.batch_id is not None]
        undone = [one.batch_id for one in self.table.history if one.app_id == app_id and one.batch_id is not None]
        return LastBatch(last[-1]) if last else LastBatch(None, min(undone)) if undone else None


def _is_older(image: Row, key: tuple[Any, ...], row: dict[str, Any] | None, upsert: Upsert) -> bool:
    """Return whether an image is not newer than its row, or older than the tombstone of its key."""
    if row is not None and not image["seq"] > row[upsert.sequence]:
        return True
    if upsert.tombstones is None or image["gone"]:
        return False
    buried = {
        tuple(one[name] for name in upsert.keys): one[upsert.sequence] for one in upsert.tombstones.frame().collect()
    }
    return key in buried and buried[key] > image["seq"]
