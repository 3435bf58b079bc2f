"""The start-ts of a row's transaction: `_start_ts`, and `source.start_ts` of `outputFormat=envelope`."""

import json
from typing import Any

import pytest

from tests.support.captured import Captured, Record, Sizes, load, random_sizes, single, whole
from tests.support.messages import TSO, debezium
from ticdc_source.errors import DecodeError

SEED = 20261123
WITH, WITHOUT = "debezium.include-start-ts", "debezium.default"
ID = [{"type": "int32", "optional": False, "field": "id"}]
PATHS = pytest.mark.parametrize("native_code", ["auto", "off"])


def stated(captured: Captured, row: dict[str, Any]) -> int | None:
    at = row["_sequence"]
    message = json.loads(captured.partitions[at["partition"]][at["offset"]].value or b"")
    start_ts: int | None = message["payload"]["source"].get("start_ts")
    return start_ts


def mixed(table: str) -> Captured:
    """Return the rows of a table, every other one as a changefeed without `debezium-include-start-ts` wrote it."""
    each = [load(f"{scenario}.types").only("types_a", table).partitions for scenario in (WITH, WITHOUT)]
    both = [[record for records in parts.values() for record in records] for parts in each]
    return Captured(load(f"{WITH}.types").header, {0: [record for pair in zip(*both, strict=True) for record in pair]})


@PATHS
@pytest.mark.parametrize("sizes", [whole, single, random_sizes(SEED)], ids=["whole", "single", "random"])
@pytest.mark.parametrize("name", ["t_num", "t_time"])
def test_each_row_has_the_start_ts_of_its_message(name: str, sizes: Sizes, native_code: str) -> None:
    """Each image of a row has the start-ts in its message, and NULL if there is none, on both paths."""
    captured = mixed(name)

    rows = captured.read(sizes=sizes, includeMetadata="all", nativeCode=native_code).to_pylist()

    assert [row["_start_ts"] for row in rows] == [stated(captured, row) for row in rows]
    assert {row["_start_ts"] is None for row in rows} == {True, False}
    assert all(row["_start_ts"] is None or row["_start_ts"] < row["_commit_version"] for row in rows)


@pytest.mark.parametrize("output", ["event", "envelope"])
def test_other_outputs_have_it(output: str) -> None:
    """Row events have `_start_ts`, rows of an envelope `source.start_ts`; DDL and watermarks carry none."""
    captured = load(f"{WITH}.ops").only("ops", "acct")

    rows = captured.read(outputFormat=output, tables="ops.acct").to_pylist()

    found = [row["_start_ts"] if output == "event" else row["source"]["start_ts"] for row in rows]
    assert found == [stated(captured, row) for row in rows]
    is_row = [row.get("_event_type", "row") == "row" for row in rows]
    assert [start_ts is not None for start_ts in found] == is_row
    assert any(is_row)


def test_it_tells_transactions_of_one_commit_ts_apart() -> None:
    """Two transactions may share a commit-ts (docs/wire.md, item 98); their rows have two start-ts."""
    starts = {1: TSO - 9, 2: TSO - 8, 3: TSO - 9}
    messages = [debezium("c", None, {"id": id_}, ID, {"start_ts": start}) for id_, start in starts.items()]

    rows = Captured.of(*messages).read(includeMetadata="all").to_pylist()

    assert {row["_commit_version"] for row in rows} == {TSO}
    assert {row["id"]: row["_start_ts"] for row in rows} == starts


@PATHS
@pytest.mark.parametrize(("written", "start_ts"), [
    (b"null", None), (b"0", None), (b"1", 1), (b"%d" % (2**63 - 1), 2**63 - 1),
    (b"-1", "a timestamp -1"), (b"%d" % 2**63, "a timestamp 9223372036854775808"), (b'"5"', "a timestamp '5'"),
    (b"1.0", "a timestamp 1.0"), (b"true", "a timestamp True"),
])  # fmt: skip
def test_what_is_no_start_ts_is_an_error(written: bytes, start_ts: int | str | None, native_code: str) -> None:
    """Null and 0 stand for none; what is no TSO makes the message a bad record with its address."""
    good = load(f"{WITH}.types").only("types_a", "t_num")
    records = [record for records in good.partitions.values() for record in records][:4]
    value = records[-1].value or b""
    own = json.loads(value)["payload"]["source"]["start_ts"]
    changed = value.replace(b'"start_ts":%d,' % own, b'"start_ts":%b,' % written)
    captured = Captured(good.header, {0: [*records, Record(records[-1].key, changed), *records[:2]]})
    schema = Captured(good.header, {0: records}).schema(includeMetadata="all")

    if isinstance(start_ts, str):
        with pytest.raises(DecodeError, match=start_ts) as raised:
            captured.read(schema=schema, includeMetadata="all", nativeCode=native_code)
        assert raised.value.address.offset == 4
    else:
        rows = captured.read(schema=schema, includeMetadata="all", nativeCode=native_code).to_pylist()
        assert {row["_start_ts"] for row in rows if row["_offset"] == 4} == {start_ts}
