"""What analysts choose of a target: the commit's time as a column, and TIME as a number or as text."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.types import DayTimeIntervalType, IntegerType, StringType, StructField, StructType

from lakehouse.tests.targets.changes import TARGET, Change, Writer, ddl, frame_of
from lakehouse.tests.targets.memory import CrashError, Lake
from ticdc_lakehouse import append_log
from ticdc_lakehouse.errors import TargetError
from ticdc_source.errors import OptionError
from ticdc_source.schema.tso import of_ms

LOG = "lake.shop.t__log"
FIRST, SECOND, THIRD = (of_ms(1_767_225_600_000 + 1000 * number) for number in range(3))
CHANGES: list[Change] = [("insert", FIRST, 1, "a"), ("insert", FIRST, 2, "b")]
LATER: list[Change] = [("delete", SECOND, 1, None), ("update_postimage", THIRD, 2, "B")]
TIMES = StructType([
    StructField("id", IntegerType()),
    StructField("plain", DayTimeIntervalType(), metadata={"ticdc.mysql_type": "time(0)"}),
    StructField("exact", DayTimeIntervalType(), metadata={"ticdc.mysql_type": "time(3)"}),
    StructField("unknown", DayTimeIntervalType()),
])  # fmt: skip
VALUES = (
    timedelta(hours=838, minutes=59, seconds=59),
    -timedelta(hours=1, milliseconds=20),
    timedelta(seconds=7, microseconds=250_000),
)


def moments(lake: Lake) -> dict[int, Any]:
    rows = lake.spark.createDataFrame(lake.tables[TARGET].rows, lake.tables[TARGET].schema)
    return {row["id"]: row["ms"] for row in rows.selectExpr("id", "unix_millis(_committed_at) AS ms").collect()}


def ms(*commits: int) -> list[int]:
    return [one >> 18 for one in commits]


def test_a_row_has_the_time_of_its_last_commit(lake: Lake) -> None:
    """New, changed and deleted rows have it, also one of which the delete brought only the key."""
    writer = Writer(lake, commit_time=True)
    writer.merge(0, CHANGES)
    writer.merge(1, LATER)
    writer.merge(2, [("update_postimage", SECOND, 2, "late")], commit_time=False)

    assert list(moments(lake).values()) == ms(SECOND, THIRD)
    assert isinstance(lake.tables[TARGET].rows[0]["_committed_at"], datetime)


@pytest.mark.slow("a merge for each moment of a crash")
def test_rows_of_before_get_the_time_too(lake: Lake) -> None:
    """A target that gets the column later has it in all rows, whenever the process was killed; and then keeps it."""
    Writer(lake).merge(0, CHANGES)
    crashes = 0
    for crash in range(8):
        example = lake.copy()
        example.writes.clear()
        example.crash_at = crash
        writer = Writer(example, commit_time=True)
        with pytest.MonkeyPatch.context() as patch:
            example.serve(patch)
            try:
                writer.merge(1, [LATER[1]])
            except CrashError:
                crashes += 1
                example.crash_at = None
                writer.merge(1, [LATER[1]])
            example.crash_at = None
            writer.merge(2, [("insert", SECOND, 3, "c")], commit_time=False)
            assert list(moments(example).values()) == ms(FIRST, THIRD, SECOND)
    assert 1 < crashes < 8


def test_a_column_of_this_name_is_refused(lake: Lake) -> None:
    """A table that has a column `_committed_at` needs another prefix."""
    with pytest.raises(TargetError, match="column_prefix"):
        Writer(lake, commit_time=True).merge(0, [("insert", FIRST, 1, "x")], "id int, _committed_at string")


@pytest.mark.slow("jobs of Spark")
@pytest.mark.parametrize(
    ("time_as", "stored"),
    [(None, (3_020_399_000_000, -3_600_020_000, 7_250_000)), ("text", ("838:59:59", "-01:00:00.020", "00:00:07.25"))],
)
def test_time_is_a_number_or_text(lake: Lake, time_as: str | None, stored: tuple[Any, ...]) -> None:
    """Text is what TiDB writes; the target and its log remember which it is, and NULL stays NULL."""
    rows: list[Change] = [("insert", FIRST, 1, *VALUES), ("insert", FIRST, 2, None, None, None)]
    more: list[Change] = [("insert", FIRST, 3, *VALUES)]
    writer = Writer(lake, time_as=time_as)
    writer.merge(0, rows, TIMES)
    writer.merge(1, more, TIMES, time_as=None)
    for number, one in enumerate((rows, more)):
        append_log(frame_of(lake.spark, one, TIMES, first=10 * number), LOG, app_id="me", batch_id=number,
                   time_as=time_as if number == 0 else None)  # type: ignore[arg-type]  # fmt: skip

    assert lake.rows(TARGET) == [(1, *stored), (2, None, None, None), (3, *stored)]
    assert lake.rows(LOG) == lake.rows(TARGET)


@pytest.mark.slow("some merges")
def test_a_default_of_a_time_is_stored_as_the_others_are(lake: Lake) -> None:
    """Older rows have the default of a new TIME column as text too."""
    columns = StructType([TIMES["id"], StructField("t", DayTimeIntervalType(), metadata=TIMES["exact"].metadata)])
    writer = Writer(lake, time_as="text")
    writer.merge(0, [("insert", FIRST, 1)], "id int")
    event = ddl("ALTER TABLE t ADD COLUMN t TIME(3) DEFAULT '-1:02:03.5'", SECOND)
    writer.merge(1, [("insert", THIRD, 2, VALUES[2])], columns, ddl=[event])

    assert lake.rows(TARGET) == [(1, "-01:02:03.500"), (2, "00:00:07.250")]
    assert lake.tables[TARGET].schema["t"].dataType == StringType()


def clock(digits: str) -> StructType:
    """Return the columns of a table with a TIME, whose MySQL type has these digits."""
    metadata = {"ticdc.mysql_type": f"time{digits}"}
    return StructType([TIMES["id"], StructField("t", DayTimeIntervalType(), metadata=metadata)])


def test_text_of_a_time_has_the_digits_of_its_type(lake: Lake) -> None:
    """MODIFY TIME(3) of a text is refused, as older rows have another text; a log keeps what was written."""
    whole, part = timedelta(hours=-10), timedelta(seconds=7, milliseconds=250)
    first: list[Change] = [("insert", FIRST, 1, whole), ("insert", FIRST, 2, None)]
    writer = Writer(lake, time_as="text")
    writer.merge(0, first, clock("(0)"))
    append_log(frame_of(lake.spark, first, clock("(0)")), LOG, app_id="me", batch_id=0, time_as="text")
    later: list[Change] = [("insert", THIRD, 3, part)]

    wider = ddl("ALTER TABLE t MODIFY t TIME(3)", SECOND)
    with pytest.raises(TargetError, match=r"changes column t from time\(0\) to time\(3\)"):
        writer.merge(1, later, clock("(3)"), ddl=[wider])
    append_log(frame_of(lake.spark, later, clock("(3)")), LOG, app_id="me", batch_id=1, ddl=[wider])

    assert lake.rows(TARGET) == [(1, "-10:00:00"), (2, None)]
    assert [text for _, text in lake.rows(LOG)] == ["-10:00:00", None, "00:00:07.250"]


@pytest.mark.slow("some merges")
def test_time_is_not_stored_in_two_ways(lake: Lake) -> None:
    """A target keeps what it was created with: the other one is an error if there is a TIME, and so is a wrong word."""
    writer = Writer(lake)
    writer.merge(0, [("insert", FIRST, 1, *VALUES)], TIMES)

    with pytest.raises(TargetError, match=r"was created with time_as='micros', .* column plain is TIME"):
        writer.merge(1, [("insert", FIRST, 2, *VALUES)], TIMES, time_as="text")
    writer.merge(1, [("insert", FIRST, 2)], "id int", time_as="text")
    with pytest.raises(OptionError, match="'micros' or 'text'"):
        writer.merge(2, CHANGES, time_as="minutes")
