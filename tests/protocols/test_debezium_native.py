"""What native Debezium writes differently from TiCDC, by the documentation of its MySQL connector."""

import datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.support.captured import Captured, rows
from tests.support.messages import Message, debezium
from ticdc_source.errors import DecodeError, UnsupportedTypeError

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

KEY = {"type": "int32", "optional": False, "field": "id"}
MYSQL = {"connector": "mysql", "commit_ts": None, "cluster_id": None}
MOMENT = datetime.datetime(2018, 6, 20, 6, 37, 3)  # noqa: DTZ001 (DATETIME has no zone)
CONNECT = "org.apache.kafka.connect.data"


def message(value: Any, literal: str, name: str | None = None, op: str = "c", **more: Any) -> Message:
    """Make a row with id and x as Debezium's MySQL connector writes it."""
    field = {"type": literal, "optional": True, "field": "x", **({} if name is None else {"name": name}), **more}
    row = {"id": 1, "x": value}
    return debezium(op, None, row, [KEY, field], source=MYSQL)


@pytest.mark.parametrize(("value", "literal", "name", "parameters", "decoded"), [
    ("AYag", "bytes", f"{CONNECT}.Decimal", {"scale": "2", "connect.decimal.precision": "10"}, Decimal("1000.00")),
    ("/w==", "bytes", f"{CONNECT}.Decimal", {"scale": "3", "connect.decimal.precision": "5"}, Decimal("-0.001")),
    (12.5, "bytes", f"{CONNECT}.Decimal", {"scale": "2", "connect.decimal.precision": "10"}, Decimal("12.50")),
    ("AP//////////", "bytes", f"{CONNECT}.Decimal", {"scale": "0"}, Decimal(2**64 - 1)),
    (17_000, "int32", f"{CONNECT}.Date", {}, datetime.date(2016, 7, 18)),
    (3_600_001, "int32", f"{CONNECT}.Time", {}, datetime.timedelta(hours=1, milliseconds=1)),
    (3_600_000_001, "int64", f"{CONNECT}.Time", {}, datetime.timedelta(hours=1, microseconds=1)),
    (1_529_476_623_123, "int64", f"{CONNECT}.Timestamp", {}, MOMENT + datetime.timedelta(milliseconds=123)),
    (3_600_001, "int32", "io.debezium.time.Time", {}, datetime.timedelta(hours=1, milliseconds=1)),
    (-1000, "int64", "io.debezium.time.NanoTime", {}, datetime.timedelta(microseconds=-1)),
    (1_529_476_623_000_001_000, "int64", "io.debezium.time.NanoTimestamp", {},
     MOMENT + datetime.timedelta(microseconds=1)),
    ([1, 2.5], "array", "io.debezium.data.FloatVector", {}, [1.0, 2.5]),
    ("AAEC", "bytes", None, {}, b"\x00\x01\x02"),
    ("AAEC", "string", None, {}, "AAEC"),
    ("1000.00", "string", None, {}, "1000.00"),
])  # fmt: skip
def test_a_semantic_type_is_read_as_documented(
    value: Any, literal: str, name: str | None, parameters: dict[str, str], decoded: Any
) -> None:
    """decimal.handling.mode, bigint.unsigned.handling.mode, binary.handling.mode and time.precision.mode."""
    assert rows(message(value, literal, name, parameters=parameters))[0]["x"] == decoded
    assert rows(message(None, literal, name, parameters=parameters))[0]["x"] is None


@pytest.mark.parametrize("name", ["io.debezium.data.geometry.Geometry", "io.debezium.data.geometry.Point"])
def test_a_spatial_column_is_refused_by_name(name: str) -> None:
    """TiDB has no such type: the error names it, and a hint of string reads its JSON."""
    spatial = message({"srid": None, "wkb": "AQEA"}, "struct", name)

    with pytest.raises(UnsupportedTypeError, match=rf"(?i)Column x .*{name}"):
        rows(spatial)
    assert rows(spatial, schemaHints="x string")[0]["x"] == '{"srid": null, "wkb": "AQEA"}'


@pytest.mark.parametrize(("value", "name"), [
    ("no base64", f"{CONNECT}.Decimal"), ("1", "io.debezium.time.Time"), (1.5, f"{CONNECT}.Time"),
    ([1, "a"], "io.debezium.data.FloatVector"),
])  # fmt: skip
def test_a_value_of_another_type_is_an_error(value: Any, name: str) -> None:
    """The error names the column."""
    with pytest.raises(DecodeError, match="column=x"):
        rows(message(value, "bytes", name, parameters={"scale": "2", "connect.decimal.precision": "10"}))


@pytest.mark.parametrize("snapshot", ["true", "first", "last", "incremental", True])
def test_rows_of_a_snapshot_are_inserts(snapshot: object) -> None:
    """A row with op `r` is an insert, with a lower bound of the commit-ts."""
    key, value = debezium("r", None, {"id": 1}, [KEY], source={**MYSQL, "snapshot": snapshot, "ts_ms": 1_000})

    row = rows((key, value))[0]

    assert (row["_change_type"], row["id"], row["_commit_version"]) == ("insert", 1, 1_000 << 18)


def test_tombstones_and_truncate_are_no_rows() -> None:
    """The tombstone of a delete and a TRUNCATE TABLE event give no row."""
    gone = debezium("d", {"id": 1}, None, [KEY], source=MYSQL)
    truncate = debezium("t", None, None, [KEY], source=MYSQL)

    decoded = Captured.of(debezium("c", None, {"id": 1}, [KEY], source=MYSQL), gone, (gone[0], None), truncate).read()

    assert decoded.column("_change_type").to_pylist() == ["insert", "delete"]


def test_a_hint_of_binary_does_not_decode_strings() -> None:
    """Nothing says whether binary.handling.mode was base64 or hex: the result is the bytes of the text."""
    assert rows(message("6162", "string"), schemaHints="x binary")[0]["x"] == b"6162"


def test_a_decimal_read_as_text_has_its_own_scale() -> None:
    """Two versions of a column with different scales are each read with the digits that MySQL prints."""
    parameters = [{"scale": str(scale), "connect.decimal.precision": "10"} for scale in (1, 3)]
    both = [message("AA==", "bytes", f"{CONNECT}.Decimal", parameters=each) for each in parameters]

    assert [row["x"] for row in rows(*both, schemaHints="x string")] == ["0.0", "0.000"]
