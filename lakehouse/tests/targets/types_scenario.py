"""Columns and keys that change in TiDB, with a real engine: parts of `lakehouse.tests.targets.scenario`.

Each story is a table whose rows and DDL become messages. The stories run side by side: a micro-batch has the next
chapter of each, so that the whole takes as many micro-batches as the longest story.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from lakehouse.tests.targets.altered_table import DATABASE, RECORDS, AlteredTable, Record
from ticdc_lakehouse import append_log, is_merged, merge_into
from ticdc_lakehouse.targets.opening import open_target
from ticdc_source import SyncState, tables
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.schema.ddl_event import DDLEvent

Rows: TypeAlias = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Expected:
    """What must hold after a micro-batch.

    Attributes:
        columns: the columns, as a SELECT has them.
        rows: the rows that are not deleted, sorted.
        error: what the error says; "" if there is none.
        types: the types of some columns of the target.
    """

    columns: str = ""
    rows: Rows = field(default_factory=list)
    error: str = ""
    types: dict[str, str] = field(default_factory=dict)


NewTable: TypeAlias = Callable[..., AlteredTable]
Chapters: TypeAlias = Iterator[Expected | None]
Story: TypeAlias = Callable[[NewTable], Chapters]
ANYTHING = None  # what is yielded if nothing is to be checked


def only_nulls_in_a_decimal(new: NewTable) -> Chapters:
    """A micro-batch with only NULL in a DECIMAL, before and after those with values, and without CREATE."""
    table = new({"id": "int NOT NULL", "price": "decimal(10,2)", "tax": "decimal(10,2)"}, created=False)
    table.insert(id="1", tax="0.50")
    yield Expected("id, tax", [(1, Decimal("0.50"))])
    table.insert(id="2", price="1.50")
    rows = [(1, None, Decimal("0.50")), (2, Decimal("1.50"), None)]
    yield Expected("id, price, tax", rows)
    table.insert(id="3")
    yield Expected("id, price, tax", [*rows, (3, None, None)])
    table.insert(id="4", price="12345678.25", tax="0.25")
    yield Expected("id, price, tax", [*rows, (3, None, None), (4, Decimal("12345678.25"), Decimal("0.25"))])


def a_decimal_gets_digits(new: NewTable) -> Chapters:
    """MODIFY DECIMAL(10,2) to DECIMAL(12,2), of a table whose CREATE is not in the topic."""
    table = new({"id": "int NOT NULL", "v": "decimal(10,2)"}, created=False)
    table.insert(id="1", v="1.50")
    yield ANYTHING
    table.alter("MODIFY v decimal(12,2)", v="decimal(12,2)")
    table.insert(id="2", v="2.12")
    rows = [(1, Decimal("1.50")), (2, Decimal("2.12"))]
    yield Expected("id, v", rows)
    table.insert(id="3")
    yield Expected("id, v", [*rows, (3, None)])
    table.insert(id="4", v="1234567890.01")
    yield Expected("id, v", [*rows, (3, None), (4, Decimal("1234567890.01"))])


def a_column_begins_anew(new: NewTable) -> Chapters:
    """DROP COLUMN, and ADD again."""
    table = new({"id": "int NOT NULL", "v": "int"})
    table.insert(id="1", v="1")
    yield ANYTHING
    table.alter("DROP COLUMN v", gone=["v"])
    table.alter("ADD COLUMN v int DEFAULT 7", v="int")
    yield Expected("id", [(1,)])
    table.insert(id="2", v="5")
    yield Expected("id, v", [(1, 7), (2, 5)], types={"v": "int"})


def a_name_that_another_column_had(new: NewTable) -> Chapters:
    """RENAME v TO w, then ADD v."""
    table = new({"id": "int NOT NULL", "v": "varchar(10)"})
    table.insert(id="1", v="abc")
    table.insert(id="9", v="gone")
    yield ANYTHING
    table.alter("RENAME COLUMN v TO w", gone=["v"], w="varchar(10)")
    table.alter("ADD COLUMN v varchar(10) DEFAULT '7'", v="varchar(10)")
    table.insert(id="2", w="w", v="5")
    table.delete(id="9", w="gone", v="7")
    yield Expected("id, w, v", [(1, "abc", "7"), (2, "w", "5")])
    table.insert(id="3", w="x", v="6")
    yield Expected("id, w, v", [(1, "abc", "7"), (2, "w", "5"), (3, "x", "6")])


def types_become_wider(new: NewTable) -> Chapters:
    """MODIFY and CHANGE to types that hold all values of the old ones."""
    table = new({"id": "int NOT NULL", "a": "int", "b": "decimal(10,2)", "c": "varchar(10)", "d": "float", "e": "int"})
    table.insert(id="1", a="7", b="1.50", c="x", d="0.5", e="3")
    yield ANYTHING
    for name, text in {"a": "bigint", "b": "decimal(12,2)", "c": "varchar(20)", "d": "double"}.items():
        table.alter(f"MODIFY {name} {text}", **{name: text})
    table.alter("CHANGE e f bigint", gone=["e"], f="bigint")
    table.insert(id="2", a=str(2**40), b="1234567890.25", c="y" * 20, d="0.25", f=str(2**41))
    one, two = (1, 7, Decimal("1.50"), "x", 0.5, 3), (2, 2**40, Decimal("1234567890.25"), "y" * 20, 0.25, 2**41)
    yield Expected("id, a, b, c, d, f", [one, two], types={"a": "bigint", "d": "double", "f": "bigint"})


def another_type(new: NewTable) -> Chapters:
    """MODIFY to a type of another kind: only TiDB knows the values, so the table is refused before it is written."""
    table = new({"id": "int NOT NULL", "v": "varchar(10)"})
    table.insert(id="1", v="12")
    yield ANYTHING
    table.alter("MODIFY v int", v="int")
    table.insert(id="2", v="5")
    yield Expected(error="MODIFY v int of shop.another_type")
    yield Expected("id, v", [(1, "12")], types={"v": "string"})


def a_new_name_and_another_type(new: NewTable) -> Chapters:
    """CHANGE v w int: the same."""
    table = new({"id": "int NOT NULL", "v": "varchar(10)"})
    table.insert(id="1", v="12")
    yield ANYTHING
    table.alter("CHANGE v w int", gone=["v"], w="int")
    table.insert(id="2", w="5")
    yield Expected(error="makes column w int, which was varchar(10)")
    yield Expected("id, v", [(1, "12")], types={"v": "string"})


def a_table_with_another_key(new: NewTable) -> Chapters:
    """DROP TABLE, and CREATE with another key."""
    table = new({"id": "int NOT NULL", "v": "varchar(10)"})
    table.insert(id="1", v="abc")
    table.insert(id="2", v="x")
    yield ANYTHING
    table.delete(id="2", v="x")
    yield Expected("id, v", [(1, "abc")])
    table.drop()
    table.create({"code": "varchar(10) NOT NULL", "v": "int"}, ["code"])
    table.insert(code="a", v="5")
    table.insert(code="b", v="6")
    table.delete(code="b", v="6")
    yield Expected("code, v", [("a", 5)], types={"v": "int"})
    table.insert(code="c", v="7")
    yield Expected("code, v", [("a", 5), ("c", 7)])


def a_key_of_another_type(new: NewTable) -> Chapters:
    """DROP TABLE, and CREATE with a key of the same name and another type; deleted keys are told by it too."""
    table = new({"id": "int NOT NULL", "v": "int"})
    table.insert(id="1", v="1")
    table.insert(id="2", v="2")
    table.delete(id="2", v="2")
    yield ANYTHING
    table.drop()
    table.create({"id": "varchar(10) NOT NULL", "v": "int"}, ["id"])
    table.insert(id="a", v="5")
    table.insert(id="b", v="6")
    table.delete(id="b", v="6")
    yield Expected("id, v", [("a", 5)], types={"id": "string"})
    table.delete(id="a", v="5")
    table.insert(id="c", v="7")
    yield Expected("id, v", [("c", 7)])


def a_key_is_dropped(new: NewTable) -> Chapters:
    """DROP PRIMARY KEY: the table is refused."""
    table = new({"id": "int NOT NULL", "v": "int"})
    table.insert(id="1", v="1")
    yield ANYTHING
    table.alter("DROP PRIMARY KEY")
    table.key = []
    table.insert(id="1", v="2")
    yield Expected(error="key")
    yield Expected("id, v", [(1, 1)])


def a_key_is_added(new: NewTable) -> Chapters:
    """ADD PRIMARY KEY: the table is refused, because its rows until now are in the log."""
    table = new({"id": "int NOT NULL", "v": "int"}, key=[])
    table.insert(id="1", v="1")
    yield ANYTHING
    table.alter("ADD PRIMARY KEY (id)")
    table.key = ["id"]
    table.insert(id="2", v="2")
    yield Expected(error="has a key now, and its rows until now are in")


STORIES: list[Story] = [
    only_nulls_in_a_decimal, a_decimal_gets_digits, a_column_begins_anew, a_name_that_another_column_had,
    types_become_wider, another_type, a_new_name_and_another_type, a_table_with_another_key, a_key_of_another_type,
    a_key_is_dropped, a_key_is_added,
]  # fmt: skip
# Those in which it matters how messages write types.
OF_MESSAGES: list[Story] = [only_nulls_in_a_decimal, a_decimal_gets_digits, types_become_wider, another_type]
LOGGED = (only_nulls_in_a_decimal, a_column_begins_anew, a_name_that_another_column_had, types_become_wider)
HARD = (a_table_with_another_key, a_key_of_another_type, a_name_that_another_column_had)


class TypesScenario:
    """What must hold of types and keys that change.

    Args:
        engine: the name of the engine.
        spark: the session.
        name: returns the name of a target.
        folder: a folder for what the micro-batches remember.
        equal: raises if two values differ.
    """

    def __init__(
        self,
        engine: str,
        spark: SparkSession,
        name: Callable[[str], str],
        folder: Path,
        equal: Callable[[object, object], None],
    ) -> None:
        self.engine, self.spark, self.name, self.folder, self.equal = engine, spark, name, folder, equal

    def parts(self) -> list[Callable[[], None]]:
        """Return everything."""
        return [self.types_in_canal_json, self.types_in_open_protocol]

    def types_in_canal_json(self) -> None:
        """Targets and logs follow the types and keys of tables in canal-json."""
        self._tell("canal-json", STORIES)

    def types_in_open_protocol(self) -> None:
        """Targets and logs follow the types of tables in open-protocol, whose messages say other things of them."""
        self._tell("open-protocol", OF_MESSAGES)

    def _tell(self, protocol: str, stories: Sequence[Story]) -> None:
        """Run stories side by side, a chapter in each micro-batch."""
        runs = [_Run(story, protocol, protocol.replace("-", "_")) for story in stories]
        state = SyncState(f"{self.folder}/state-{protocol}")
        for batch_id in count():
            expected = [run.next() for run in runs]
            if all(run.ended for run in runs):
                return
            for run, one, said in zip(runs, expected, self._micro_batch(runs, protocol, state, batch_id), strict=True):
                self._check(run, one, said)

    def _micro_batch(self, runs: "Sequence[_Run]", protocol: str, state: SyncState, batch_id: int) -> list[str]:
        """Write the records of a chapter; return what the error of each table says."""
        frame = self.spark.createDataFrame([record for run in runs for record in run.records()], RECORDS)

        def write(run: "_Run") -> str:
            name = f"{DATABASE}.{run.name}"
            return self._write(run, changes[name], batch_id, changes.ddl.get(name, ())) if name in changes else ""

        options: dict[str, Any] = {"protocol": protocol, "timeZone": "UTC", "on_table_error": "report"}
        with tables(frame, state=state, batch_id=batch_id, **options) as changes, ThreadPoolExecutor(4) as pool:
            self.equal(changes.errors, {})
            return list(pool.map(write, runs))

    def _write(self, run: "_Run", frame: DataFrame, batch_id: int, ddl: Sequence[DDLEvent]) -> str:
        """Merge or log a micro-batch of a table; return what an error says."""
        target, log = self.name(run.name), self.name(f"{run.name}__log")
        try:
            if is_merged(frame, target, log):
                merge_into(frame, target, format=self.engine, app_id="me", batch_id=batch_id, ddl=ddl,
                           deletes="hard" if run.story in HARD else "soft", on_destructive_ddl="apply")  # fmt: skip
            else:
                append_log(frame, log, format=self.engine, app_id="me", batch_id=batch_id, ddl=ddl)
            if run.story in LOGGED:
                aside = self.name(f"log_of_{run.name}")
                append_log(frame, aside, format=self.engine, app_id="me", batch_id=batch_id, ddl=ddl)
        except TiCDCSourceError as error:
            return str(error)
        return ""

    def _check(self, run: "_Run", expected: Expected | None, said: str) -> None:
        error = "" if expected is None else expected.error
        if error not in said or (said and not error):
            msg = f"{run.name}: said {said!r}, expected {error!r}"
            raise AssertionError(msg)
        if expected is None or error:
            return
        target = self.name(run.name)
        frame = self.spark.table(target)
        frame = frame.where("NOT _is_deleted") if "_is_deleted" in frame.columns else frame
        rows = sorted(
            tuple(_plain(value) for value in row) for row in frame.selectExpr(*_split(expected.columns)).collect()
        )
        self.equal((run.name, rows), (run.name, expected.rows))
        if run.story in LOGGED:
            logged = self.spark.table(self.name(f"log_of_{run.name}")).where("_change = 'insert'")
            self.equal(logged.count() >= len(rows), True)
        columns = {name: type_.simpleString() for name, type_ in open_target(self.spark, target).columns().items()}
        self.equal((run.name, {name: columns[name] for name in expected.types}), (run.name, expected.types))


class _Run:
    """A story that is told, chapter by chapter."""

    def __init__(self, story: Story, protocol: str, suffix: str) -> None:
        self.story = story
        self.name = f"{story.__name__}_{suffix}"
        self.ended = False
        self._tables: list[AlteredTable] = []
        self._chapters = story(partial(self._new, protocol))

    def _new(self, protocol: str, *args: Any, **more: Any) -> AlteredTable:
        self._tables.append(AlteredTable(protocol, *args, name=self.name, **more))
        return self._tables[-1]

    def next(self) -> Expected | None:
        """Go on by a chapter."""
        try:
            return next(self._chapters)
        except StopIteration:
            self.ended = True
            return ANYTHING

    def records(self) -> list[Record]:
        """Return the records of the chapter."""
        return [record for table in self._tables for record in table.take()]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _split(columns: str) -> list[str]:
    return columns.split(", ")
