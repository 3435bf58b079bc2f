"""merge_into over tables in memory: which rows win, what is repeated, and what DDL does to older rows."""

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DecimalType, IntegerType, StringType, StructField, StructType

from lakehouse.tests.targets.changes import LONG_PRICE, OPEN, PRICE, SEQUENCE, TARGET, Change, Writer, ddl, frame_of
from lakehouse.tests.targets.memory import CrashError, Lake
from tests.support.messages import TSO, Message, canal
from ticdc_lakehouse import MergeReport, commits_of, merge_into, purge_deleted, resolved_ts_of
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.target_names import deleted_keys_of
from ticdc_source import SyncState, tables
from ticdc_source.errors import OptionError, SchemaError

TOMBSTONES = deleted_keys_of(TARGET)
HISTORY: list[Change] = [
    ("insert", 10, 1, "a"),
    ("insert", 11, 2, "b"),
    ("update_preimage", 12, 1, "a"),
    ("update_postimage", 12, 1, "A"),
    ("delete", 13, 2, "b"),
    ("insert", 14, 3, "c"),
    ("update_preimage", 15, 3, "c"),  # its key changes
    ("update_postimage", 15, 4, "c"),
]
AT_THE_END = [(1, "A"), (4, "c")]


@pytest.mark.parametrize(
    "deletes", ["soft", pytest.param("hard", marks=pytest.mark.slow("as with soft deletes, once more"))]
)
def test_any_order_of_micro_batches_gives_the_same_rows(lake: Lake, deletes: str) -> None:
    """However changes are mixed and repeated over micro-batches, the rows are those of the newest image of each key."""
    chance = random.Random(7)
    arrivals = [*HISTORY, *HISTORY[:5]]
    chance.shuffle(arrivals)
    writer = Writer(lake, deletes=deletes)

    reports = [writer.merge(batch, arrivals[batch::3]) for batch in range(3)]

    assert lake.rows(TARGET) == AT_THE_END
    assert [report.created for report in reports] == [True, False, False]
    if deletes == "soft":
        assert sorted(row["id"] for row in lake.tables[TARGET].rows if row["_is_deleted"]) == [2, 3]
    else:
        assert "_is_deleted" not in lake.tables[TARGET].schema.names
        assert {(2,), (3,)} <= set(lake.rows(TOMBSTONES, "id"))


def test_a_delete_with_its_key_only_keeps_the_values(lake: Lake) -> None:
    """A soft-deleted row keeps its last values, also if the changefeed sends only the key; purging forgets it."""
    writer = Writer(lake)
    writer.merge(0, HISTORY[:2])
    writer.merge(1, [("delete", 20, 1, None)])

    assert [(row["v"], row["_is_deleted"]) for row in lake.tables[TARGET].rows if row["id"] == 1] == [("a", True)]
    purge_deleted(lake.spark, TARGET, before=20)
    assert len(lake.tables[TARGET].rows) == 2
    purge_deleted(lake.spark, TARGET, before=21)
    assert [row["id"] for row in lake.tables[TARGET].rows] == [2]


@pytest.mark.slow("some merges")
def test_a_hard_delete_is_remembered_until_it_is_purged(lake: Lake) -> None:
    """A late insert of a deleted row stays out while its tombstone is there; a newer insert comes in."""
    writer = Writer(lake, deletes="hard")
    writer.merge(0, [*HISTORY[:2], ("delete", 13, 2, None), ("delete", 14, 5, None)])
    writer.merge(1, [("insert", 12, 2, "late"), ("insert", 15, 5, "again")])
    assert lake.rows(TARGET) == [(1, "a"), (5, "again")]

    with pytest.raises(OptionError, match="has no time zone"):
        purge_deleted(lake.spark, TARGET, before=datetime(2026, 1, 1))  # noqa: DTZ001 (that is the mistake)
    purge_deleted(lake.spark, TARGET, before=14)
    assert lake.rows(TOMBSTONES, "id") == [(5,)]
    writer.merge(2, [("insert", 12, 2, "late")])
    assert lake.rows(TARGET) == [(1, "a"), (2, "late"), (5, "again")]


def test_a_micro_batch_is_merged_once(lake: Lake) -> None:
    """The last micro-batch makes no commit when it comes again; other changes are merged, whatever their number is."""
    writer = Writer(lake)
    writer.merge(0, HISTORY[:1], resolved_ts=10)
    writer.merge(1, HISTORY[1:2], resolved_ts=None)
    before = list(lake.writes)

    report = writer.merge(1, HISTORY[1:2])

    assert (report.repeated, report.rows, lake.writes) == (True, 0, before)
    assert writer.merge(0, [("insert", 30, 9, "new")]).rows == 1
    assert writer.merge(0, [("insert", 31, 10, "new")], app_id="another").rows == 1
    assert resolved_ts_of(lake.spark, TARGET) == 10
    assert [(one.facts.app_id, one.facts.batch_id) for one in commits_of(lake.spark, TARGET)] == [
        ("another", 0), ("me", 0), ("me", 1), ("me", 0),
    ]  # fmt: skip


def test_the_target_decides_the_type_of_a_column_with_nulls_only(lake: Lake) -> None:
    """NULLs of a column whose type is not decided take any type that the target has: no error, and no widening."""
    writer = Writer(lake)
    columns = "id int, price decimal(10,2), note binary, day date"
    writer.merge(0, [("insert", 10, 1, Decimal("1.50"), b"a", date(2026, 1, 2))], columns)
    day = StructField("day", DecimalType(38, 18), metadata={"ticdc.undecided": "true"})

    nulls: list[Change] = [("insert", 11, 2, None, None, None), ("update_postimage", 12, 1, None, None, None)]
    report = writer.merge(1, nulls, StructType([*OPEN, day]))

    assert (report.widened, report.added, report.undecided) == ((), (), ())
    types = {field.name: field.dataType.simpleString() for field in lake.tables[TARGET].schema}
    assert (types["price"], types["note"], types["day"]) == ("decimal(10,2)", "binary", "date")
    assert lake.rows(TARGET, "id", "price", "note", "day") == [(1, None, None, None), (2, None, None, None)]


@pytest.mark.parametrize(
    "deletes", [pytest.param("soft", marks=pytest.mark.slow("as with hard deletes, once more")), "hard"]
)
def test_a_target_does_not_get_a_column_before_a_value_tells_its_type(lake: Lake, deletes: str) -> None:
    """A column with NULLs only is left out of the target, and comes with the type of its first value."""
    writer = Writer(lake, deletes=deletes)
    first = writer.merge(0, [("insert", 10, 1, None, None)], OPEN)
    names = [*lake.tables[TARGET].schema.names]
    second = writer.merge(1, [("insert", 11, 2, Decimal("1.50"))], "id int, price decimal(38,2)")

    assert (first.created, first.undecided) == (True, ("price", "note"))
    assert not {"price", "note"} & set(names)
    assert second.added == ("price",)
    assert lake.rows(TARGET, "id", "price") == [(1, None), (2, Decimal("1.50"))]


@pytest.mark.slow("some merges")
def test_values_that_the_sample_did_not_have_are_kept(lake: Lake) -> None:
    """If the changes have values in such a column, the target's type must hold them, and a new one has the default."""
    value = Decimal("1.500000000000000001")
    report = Writer(lake).merge(0, [("insert", 10, 1, value)], PRICE)

    assert report.undecided == ()
    assert lake.rows(TARGET, "id", "price") == [(1, value)]
    lake.tables.clear()
    writer = Writer(lake)
    writer.merge(0, [("insert", 10, 1, Decimal("1.50"))], "id int, price decimal(10,2)")
    fits = writer.merge(1, [("insert", 11, 2, Decimal("2.50"))], PRICE)
    assert (fits.widened, lake.rows(TARGET, "price")) == ((), [(Decimal("1.50"),), (Decimal("2.50"),)])
    too_long = writer.merge(2, [("insert", 12, 3, value), ("insert", 12, 4, Decimal(123456789))], PRICE)
    assert too_long.widened == ("price",)
    assert [value, Decimal(123456789)] == [price for _, price in lake.rows(TARGET, "id", "price")][2:]


@pytest.mark.slow("some merges")
def test_a_precision_that_nothing_states_widens_no_target(lake: Lake) -> None:
    """A target keeps its precision while values of an unstated one fit, and widens when one does not."""
    new = Writer(lake).merge(0, [("insert", 10, 1, Decimal("1.50"))], LONG_PRICE)
    assert (new.created, lake.tables[TARGET].schema["price"].dataType) == (True, DecimalType(38, 2))
    lake.tables.clear()
    writer = Writer(lake)
    writer.merge(0, [("insert", 10, 1, Decimal("1.50"))], "id int, price decimal(10,2)")

    fits = writer.merge(1, [("insert", 11, 2, Decimal("99999999.99")), ("insert", 11, 3, Decimal("2.50"))], LONG_PRICE)

    assert (fits.widened, fits.undecided) == ((), ())
    assert lake.tables[TARGET].schema["price"].dataType == DecimalType(10, 2)
    assert lake.rows(TARGET, "price") == [(Decimal(text),) for text in ("1.50", "2.50", "99999999.99")]
    assert writer.merge(2, [("insert", 12, 4, Decimal("100000000.00"))], LONG_PRICE).widened == ("price",)


@pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")
@pytest.mark.slow("several micro-batches of two protocols")
def test_micro_batches_agree_on_a_type_and_a_key(lake: Lake, tmp_path: Path) -> None:
    """From messages to a target: a decimal comes with its first value and keeps its type, and DDL states the key."""
    create = "CREATE TABLE t (id int NOT NULL UNIQUE, price decimal)"
    made = canal("CREATE", None, None, None, isDdl=True, sql=create, _tidb={"commitTs": TSO - 9})
    undeclared = {"id": "int", "price": "decimal", "rate": "decimal"}  # DDL tells the type of the price

    def message(number: int, rate: str | None) -> Message:
        row = {"id": str(number), "price": None, "rate": rate}
        return canal("INSERT", [row], None, undeclared, None, pkNames=[], _tidb={"commitTs": TSO + number})

    state = SyncState(str(tmp_path))
    reports = []
    for batch_id, messages in enumerate([[made, message(1, None)], [message(2, "1.50")], [message(3, None)]]):
        records = lake.spark.createDataFrame(
            [(value, "topic", 0, 10 * batch_id + offset) for offset, (_, value) in enumerate(messages)],
            "value binary, topic string, partition int, offset bigint",
        )
        changes = tables(records, state=state, batch_id=batch_id)
        reports.append(merge_into(changes["test.t"], TARGET, app_id="me", batch_id=batch_id))

    assert [report.undecided for report in reports] == [("rate",), (), ()]
    assert (reports[1].added, reports[2].widened) == (("rate",), ())
    types = {field.name: field.dataType.simpleString() for field in lake.tables[TARGET].schema}
    assert (types["price"], types["rate"]) == ("decimal(10,0)", "decimal(38,2)")
    assert lake.tables[TARGET].properties["ticdc.keys"] == '["id"]'
    assert lake.rows(TARGET, "id", "rate") == [(1, None), (2, Decimal("1.50")), (3, None)]


def test_columns_come_and_widen_and_stay(lake: Lake) -> None:
    """New columns are added, types widen as far as they can, and what changes lack stays as it is."""
    writer = Writer(lake)
    writer.merge(0, [("insert", 10, 1, 7)], "id int, n int")

    report = writer.merge(
        1, [("update_postimage", 11, 1, 2**40, Decimal("1.5"))], "id int, n bigint, `a b` decimal(4,2)"
    )
    writer.merge(2, [("insert", 12, 2, 3)], "id int, N smallint")

    assert (report.added, report.widened) == (("a b",), ("n",))
    assert lake.rows(TARGET) == [(1, 2**40, Decimal("1.50")), (2, 3, None)]
    before = list(lake.writes)
    with pytest.raises(TargetError, match=r"column n is bigint in the target and string.*schemaHints=\"n bigint\""):
        writer.merge(3, [("insert", 13, 3, "x")], "id int, n string")
    assert lake.writes == before


def test_field_metadata_tells_the_table_and_its_key(lake: Lake) -> None:
    """The key is the marked column and is remembered; changes of another table are refused."""

    def columns(table: str, **metadata: str) -> StructType:
        marked = {"ticdc.table": f"shop.{table}", "ticdc.key": "true", **metadata}
        return StructType([StructField("id", IntegerType(), metadata=marked), StructField("v", StringType())])

    first = merge_into(frame_of(lake.spark, HISTORY[:2], columns("t")), TARGET, column_prefix="_cdc_")

    assert first == MergeReport(target=TARGET, created=True, images=2, rows=2, content=first.content)
    assert first.content is not None
    assert {"_cdc_sequence", "_cdc_is_deleted"} < set(lake.tables[TARGET].schema.names)
    with pytest.raises(TargetError, match=r"the target of shop\.t"):
        merge_into(frame_of(lake.spark, HISTORY[:1], columns("u")), TARGET)
    with pytest.raises(TargetError, match="the key of the target is id, and that of the changes is v"):
        merge_into(frame_of(lake.spark, HISTORY[:1], "id int, v string"), TARGET, keys=["v"])
    with pytest.raises(TargetError, match="created with deletes='soft'"):
        merge_into(frame_of(lake.spark, HISTORY[:1], columns("T")), TARGET, deletes="hard")


@pytest.mark.parametrize(("given", "error", "text"), [
    ({"deletes": "never"}, OptionError, "deletes='never': it must be 'soft' or 'hard'"),
    ({"on_destructive_ddl": "skip"}, OptionError, "it must be one of 'apply', 'fail', 'warn', 'ignore'"),
    ({"keys": None}, SchemaError, "no column is marked as a key"),
    ({"keys": ["nothing"]}, SchemaError, "the changes lack the key column nothing"),
    ({"column_prefix": "v_", "columns": "id int, v_sequence string"}, TargetError, "a column that merge_into adds"),
])  # fmt: skip
def test_what_is_refused(lake: Lake, given: dict[str, Any], error: type[Exception], text: str) -> None:
    """Arguments and frames that cannot be merged are refused before anything is written."""
    with pytest.raises(error, match=text):
        Writer(lake).merge(0, HISTORY[:1], **given)
    assert not lake.writes


def test_older_rows_get_defaults_and_renamed_values_once(lake: Lake) -> None:
    """DDL fills rows that are older, whenever they come, and a repeated micro-batch changes nothing more."""
    writer = Writer(lake)
    writer.merge(0, [("insert", 10, 1, 1), ("insert", 11, 2, 2)], "id int, m int")
    add = [ddl("ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 7", 20)]
    late: list[Change] = [("insert", 15, 3, 3, None), ("insert", 21, 4, None, 1)]
    for _ in range(2):
        writer.merge(1, late, "id int, m int, n int", ddl=add)
        assert lake.rows(TARGET) == [(1, 1, 7), (2, 2, 7), (3, 3, 7), (4, None, 1)]

    swap = [ddl("ALTER TABLE t RENAME COLUMN m TO n, RENAME COLUMN n TO m", 30)]
    for batch in (2, 3):  # TiCDC may send it twice
        writer.merge(batch, [], ddl=swap)
        assert lake.rows(TARGET) == [(1, 7, 1), (2, 7, 2), (3, 7, 3), (4, 1, None)]


@pytest.mark.slow("some merges")
def test_columns_of_different_types_that_exchange_their_names_are_exchanged_by_hand(lake: Lake) -> None:
    """The error says what to do; then the target has the new names, and changes from before get them too."""
    writer = Writer(lake)
    before, after = "id int, m int, n string", "id int, m string, n int"
    writer.merge(0, [("insert", 10, 1, 1, "a")], before)
    swap = [ddl("ALTER TABLE t RENAME COLUMN m TO n, RENAME COLUMN n TO m", 30)]

    text = r"renamed column \w to \w, .*SET TBLPROPERTIES \('ticdc.handled_ddl_ts' = '30'\)"
    for changes, columns in (([], before), ([("insert", 31, 2, "b", 2)], after), ([("insert", 20, 3, 3, "c")], before)):
        with pytest.raises(TargetError, match=text):
            writer.merge(1, changes, columns, ddl=swap)

    table = lake.tables[TARGET]
    renamed = {"m": "n", "n": "m"}
    table.schema = StructType([StructField(renamed.get(one.name, one.name), one.dataType) for one in table.schema])
    table.rows = [Row(**{renamed.get(name, name): value for name, value in row.asDict().items()}) for row in table.rows]
    table.properties["ticdc.handled_ddl_ts"] = "30"
    writer.merge(1, [("insert", 20, 3, 3, "c")], before, ddl=swap)
    writer.merge(2, [("insert", 31, 2, "b", 2)], after, ddl=swap)

    assert lake.rows(TARGET, "id", "m", "n") == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]


@pytest.mark.slow("some merges")
def test_an_emptied_table_keeps_late_rows_out(lake: Lake) -> None:
    """TRUNCATE deletes older rows, also those that come later, and the target is complete up to its commit-ts."""
    writer = Writer(lake)
    writer.merge(0, [("insert", 5, 1, "a"), ("insert", 31, 2, "b")])

    writer.merge(1, [("insert", 28, 3, "gone")], ddl=[ddl("TRUNCATE TABLE t", 30)], resolved_ts=32)
    writer.merge(2, [("insert", 29, 1, "late"), ("insert", 33, 4, "after")])

    assert lake.rows(TARGET) == [(2, "b"), (4, "after")]
    assert [one.facts.resolved_ts for one in commits_of(lake.spark, TARGET) if one.facts.resolved_ts] == [32, 30]


@pytest.mark.slow("a merge for each moment of a crash")
def test_a_crash_before_any_write_is_mended_by_the_repeated_micro_batch(lake: Lake) -> None:
    """A micro-batch with deletes, a renamed key and a new column is whole if the driver died before each write."""
    writer = Writer(lake, deletes="hard")
    writer.merge(0, [("insert", 5, 1, "a"), ("insert", 6, 2, "b"), ("delete", 7, 2, None)])
    before, writes = lake.copy().tables, len(lake.writes)
    columns = "id int, nid int, v string, n int"
    changes: list[Change] = [
        ("insert", 5, 2, None, "late", None),
        ("insert", 12, None, 3, "c", 1),
        ("delete", 13, None, 1, None, None),
    ]
    events = [ddl("ALTER TABLE t RENAME COLUMN id TO nid", 10), ddl("ALTER TABLE t ADD n int DEFAULT 7", 11)]
    writer.merge(1, changes, columns, ddl=events, keys=["nid"])
    whole = lake.writes[writes:]

    lake.tables, lake.writes = before, []
    for number in range(1, len(whole)):  # each time one write further
        lake.crash_at = number
        with pytest.raises(CrashError):
            writer.merge(1, changes, columns, ddl=events, keys=["nid"])
    lake.crash_at = None
    writer.merge(1, changes, columns, ddl=events, keys=["nid"])

    tombstones = ("merge", TOMBSTONES)  # merged again, as only the merge of the target says that all is done
    at = whole.index(tombstones)
    assert lake.writes == [*whole[:at], tombstones, *whole[at:]]
    assert lake.rows(TARGET, "nid", "v", "n") == [(3, "c", 1)]
    assert lake.rows(TOMBSTONES, "nid") == [(1,), (2,)]


def test_ddl_alone_is_remembered_for_rows_that_come_later(lake: Lake) -> None:
    """DDL before the first row makes a target without columns, because rows of other partitions may be older."""
    writer = Writer(lake)

    report = writer.merge(0, [], ddl=[ddl("ALTER TABLE t ADD COLUMN n int DEFAULT 3", 10)])
    writer.merge(1, [("insert", 5, 1, None), ("insert", 15, 2, None)], "id int, n int")

    assert (report.created, lake.rows(TARGET)) == (True, [(1, 3), (2, None)])


def test_ddl_alone_completes_its_micro_batch(lake: Lake) -> None:
    """After DDL without rows a commit records the resolved ts, and the micro-batch that comes next is not skipped."""
    writer = Writer(lake)
    writer.merge(0, HISTORY[:1], resolved_ts=20)
    writer.merge(1, [], ddl=[ddl("ALTER TABLE t ADD INDEX i (v)", 25)], resolved_ts=30)

    assert lake.tables[TARGET].commits[-1].resolved_ts == 30
    assert lake.rows(TARGET) == [(1, "a")]
    assert not writer.merge(1, HISTORY[1:2], resolved_ts=30).repeated
    assert lake.rows(TARGET) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("word", ["warn", "fail"])
def test_what_only_tidb_knows_is_told_or_refused(lake: Lake, word: Any) -> None:
    """At a default that TiDB computes, another key or a lossy type, `fail` writes nothing, and `warn` goes on."""
    writer = Writer(lake, on_doubtful_ddl=word)
    writer.merge(0, [("insert", 10, 1, "a")], StructType([
        StructField("id", IntegerType()), StructField("v", StringType(), metadata={"ticdc.mysql_type": "varchar(20)"}),
    ]))  # fmt: skip
    for number, text in enumerate(("ADD c datetime DEFAULT now()", "ADD PRIMARY KEY (v)", "MODIFY v varchar(5)")):
        query = f"ALTER TABLE t {text}"
        if word == "warn":
            with pytest.warns(UserWarning, match="ALTER TABLE t"):
                writer.merge(number + 1, [], ddl=[ddl(query, 20 + number)])
        else:
            with pytest.raises(SchemaError, match="Read the table again from TiDB"):
                writer.merge(number + 1, [], ddl=[ddl(query, 20 + number)])
    assert lake.rows(TARGET) == [(1, "a")]
    with pytest.raises(OptionError, match="on_doubtful_ddl='no': it must be 'fail' or 'warn'"):
        writer.merge(9, HISTORY[:1], on_doubtful_ddl="no")


@pytest.mark.parametrize("policy", ["warn", "ignore"])
def test_a_policy_that_leaves_the_target_alone(lake: Lake, policy: str, recwarn: pytest.WarningsRecorder) -> None:
    """At TRUNCATE `warn` and `ignore` keep the rows, and only `warn` says so."""
    writer = Writer(lake, on_destructive_ddl=policy)
    writer.merge(0, HISTORY[:1])

    writer.merge(1, [], ddl=[ddl("TRUNCATE TABLE t", 30)])

    assert lake.rows(TARGET) == [(1, "a")]
    said = [str(one.message) for one in recwarn if "TRUNCATE" in str(one.message)]
    assert len(said) == (policy == "warn")


def test_a_frame_that_is_no_changelog_is_refused(lake: Lake) -> None:
    """A stream is not a micro-batch, which the error shows, and changes need an order."""
    changes = frame_of(lake.spark, HISTORY[:1])
    unordered = changes.withColumn("_sequence", F.lit(None).cast(SEQUENCE))
    for frame, text in (
        (lake.spark.readStream.format("rate").load(), "foreachBatch"),
        (changes.drop("_sequence"), "outputFormat=changelog"),
        (unordered, "without a _sequence"),
    ):
        with pytest.raises(SchemaError, match=text):
            merge_into(frame, TARGET, keys=["id"])
    with pytest.raises(TargetError, match="There is no table"):
        resolved_ts_of(lake.spark, TARGET)
