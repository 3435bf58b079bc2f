"""append_log and scd2_view over tables in memory: all changes, and every version of every row."""

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakehouse.tests.targets.changes import LONG_PRICE, OPEN, PRICE, Change, ddl, frame_of
from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse import LogReport, append_log, scd2_view
from ticdc_lakehouse.errors import TargetError
from ticdc_source.errors import SchemaError
from ticdc_source.schema.model import KEY

LOG = "lake.shop.t__log"
FIRST: list[Change] = [
    ("insert", 10, 1, "a"),
    ("insert", 10, 2, "b"),
    ("update_preimage", 12, 1, "a"),
    ("update_postimage", 12, 1, "A"),
]


def append(
    lake: Lake, batch_id: int, changes: list[Change], columns: str | StructType = "id int, v string", **options: Any
) -> LogReport:
    """Append a micro-batch to the log."""
    frame = frame_of(lake.spark, changes, columns, first=100 * batch_id)
    return append_log(frame, LOG, app_id="me", batch_id=batch_id, **options)


def test_each_version_of_a_row_is_there_once(lake: Lake) -> None:
    """A change that TiCDC sends again is in the log twice and in the view once; TRUNCATE ends all versions."""
    for _ in range(2):  # Spark repeats the micro-batch
        append(lake, 0, FIRST)
    assert len(lake.tables[LOG].rows) == 3  # without the pre-image
    append(lake, 1, [*FIRST, ("delete", 14, 2, "b")], ddl=[ddl("TRUNCATE TABLE t", 30)], resolved_ts=30)
    assert lake.tables[LOG].commits[-1].resolved_ts == 30
    report = append(lake, 2, [("insert", 35, 1, "again", 7)], "id int, v string, n int")

    view = scd2_view(lake.spark, LOG, "history_of_t", keys=["id"])

    names = "id, v, n, _valid_from_ts, _valid_to_ts, _is_current"
    rows = lake.spark.sql(f"SELECT {names} FROM history_of_t").collect()  # noqa: S608 (ours)
    assert sorted(map(tuple, rows)) == [
        (1, "A", None, 12, 30, False),
        (1, "a", None, 10, 12, False),
        (1, "again", 7, 35, None, True),
        (2, "b", None, 10, 14, False),
    ]
    assert report.added == ("n",)
    assert "_change" not in view.columns
    with pytest.raises(SchemaError, match="without a key"):
        scd2_view(lake.spark, LOG)


@pytest.mark.slow("eight jobs of Spark")
def test_a_key_that_is_called_otherwise_needs_a_decision(lake: Lake) -> None:
    """The versions of before have their key in the old column, so the view asks which columns identify a row."""

    def keyed(changes: list[Change], columns: str) -> DataFrame:
        key = columns.split(maxsplit=1)[0]
        return frame_of(lake.spark, changes, columns).withMetadata(key, {KEY: "true"})

    append_log(keyed([("insert", 10, 1, "a")], "id int, v string"), LOG, app_id="me", batch_id=0)
    append_log(keyed([("insert", 11, 2, "b")], "ID int, v string"), LOG, app_id="me", batch_id=1)
    assert scd2_view(lake.spark, LOG).count() == 2
    append_log(keyed([("insert", 20, 3, "c")], "number int, v string"), LOG, app_id="me", batch_id=2)

    with pytest.raises(SchemaError, match="has changed from id to number"):
        scd2_view(lake.spark, LOG)
    assert scd2_view(lake.spark, LOG, keys=["v"]).count() == 3


def test_a_kafka_record_is_in_a_log_once(lake: Lake) -> None:
    """A stream whose checkpoint was put back cuts its records anew: what the log has is not added, the rest is."""

    def append_records(batch_id: int, first: int, last: int) -> None:
        rows = [("insert", 10 + place, place, "x") for place in range(first, last)]
        append_log(frame_of(lake.spark, rows, first=first), LOG, app_id="me", batch_id=batch_id,
                   ddl=[ddl("TRUNCATE TABLE t", 9)] if first == 0 else ())  # fmt: skip

    append_records(1, 0, 2)
    append_records(2, 2, 4)
    before = len(lake.writes)
    append_records(2, 2, 4)
    assert len(lake.writes) == before
    for batch_id, first, last in [(2, 2, 6), (1, 0, 3), (3, 6, 7), (1, 0, 8), (9, 8, 9)]:
        append_records(batch_id, first, last)

    found = sorted((row["_change"], row["id"] or 0) for row in lake.tables[LOG].rows)
    assert found == [*(("insert", number) for number in range(9)), ("truncate", 0)]


@pytest.mark.slow("some merges")
def test_only_nulls_decide_no_type_of_a_log(lake: Lake) -> None:
    """A log gets a column whose type is not decided with its first value; once it has it, the log's type decides."""
    first = append(lake, 0, [("insert", 10, 1, None, None)], OPEN)
    append(lake, 1, [("insert", 11, 2, Decimal("1.50"), b"a")], "id int, price decimal(10,2), note binary")
    third = append(lake, 2, [("insert", 12, 3, None, None)], OPEN)
    value = append(lake, 3, [("insert", 13, 4, Decimal("0.125"))], PRICE)

    assert (first.undecided, third.undecided, third.widened) == (("price", "note"), (), ())
    assert value.widened == ("price",)
    prices = [None, Decimal("1.50"), None, Decimal("0.125")]
    assert [row["price"] for row in lake.tables[LOG].rows] == prices


@pytest.mark.slow("some merges")
def test_a_precision_that_nothing_states_widens_no_log(lake: Lake) -> None:
    """A log keeps its decimal type while values without a stated precision fit, and widens when one does not."""
    append(lake, 0, [("insert", 10, 1, Decimal("1.50"))], "id int, price decimal(10,2)")
    fits = append(lake, 1, [("insert", 11, 2, Decimal("2.50"))], LONG_PRICE)
    too_long = append(lake, 2, [("insert", 12, 3, Decimal("100000000.00"))], LONG_PRICE)

    assert (fits.widened, fits.undecided, too_long.widened) == ((), (), ("price",))
    prices = [Decimal("1.50"), Decimal("2.50"), Decimal("100000000.00")]
    assert [row["price"] for row in lake.tables[LOG].rows] == prices


def test_what_a_log_cannot_take_is_refused(lake: Lake) -> None:
    """Nothing is written if a type does not fit, the log is older, a name is taken, or the table is no log."""
    assert append(lake, 0, [], "").missing
    with pytest.raises(TargetError, match="which is also a column that the log adds"):
        append(lake, 0, [("insert", 10, 1, "x")], "id int, _change string")
    assert not lake.writes
    append(lake, 5, [("insert", 10, 1, "a")])
    writes = list(lake.writes)

    with pytest.raises(TargetError, match="column id is int in the log and string"):
        append(lake, 6, [("insert", 11, "x", "a")], "id string, v string")
    with pytest.raises(TargetError, match="had micro-batch 6"):
        append(lake, 7, [("insert", 11, 2, "b")], after_batch=6)
    del lake.tables[LOG].properties["ticdc.log"]
    with pytest.raises(TargetError, match="not a log that append_log created"):
        append(lake, 6, [("insert", 11, 2, "b")])
    with pytest.raises(TargetError, match="not a log that append_log created"):
        scd2_view(lake.spark, LOG, keys=["id"])
    assert lake.writes == writes
