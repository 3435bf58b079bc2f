"""What the tests accept as lost is not in the messages: small parsers of their own show it."""

import base64
import datetime
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import fastavro
import pytest

from tests.support.captured import Captured, Record, load
from tests.support.corpus import STREAMS, scenario, scenarios
from tests.support.losses import LOSSES, MISSING, kind
from tests.support.registry import schemas_of
from tests.support.truth import TrueRow, expected, tables_with_rows, true_rows

# The corpus has no files of CSV: its losses are those that tests/storage accepts.
IN_CORPUS = [each for each in LOSSES if each.protocol != "csv"]
MISSING_IN_CORPUS = [each for each in MISSING if each.protocol != "csv"]
Cells = Mapping[str, Any]
Image = Mapping[str, Cells]


def frames(data: bytes) -> Iterator[Any]:
    """Yield the JSON of open-protocol's frames."""
    while data:
        size = 8 + int.from_bytes(data[:8], "big")
        yield json.loads(data[8:size].decode(errors="surrogateescape"))
        data = data[size:]


def avro(header: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the Avro behind the id of a schema, by the schemas in the header of the file."""
    start = 18 if data[:1] == b"\x03" else 5
    schema_id = str(UUID(bytes=data[2:18])) if start > 5 else str(int.from_bytes(data[1:5], "big"))
    schema = parsed(schemas_of(header)[schema_id])
    row = fastavro.schemaless_reader(BytesIO(data[start:]), schema, None, handle_unicode_errors="replace")
    assert isinstance(row, dict)
    return row


@cache
def parsed(schema: str) -> Any:
    """Return a schema for fastavro, without the defaults that are no Avro."""
    return fastavro.parse_schema(json.loads(re.sub(r'"default":("[^"]*"|[^,{}\[\]]+),', "", schema)))


def avro_rows(header: Mapping[str, Any], record: Record) -> dict[str, Any]:
    """Return the cells of the event of a record in avro."""
    value = record.value or b""
    if len(value) in (0, 9):
        return {"deleted": avro(header, record.key)} if record.key else {}
    row = avro(header, value)
    op, before = row.get("_tidb_op"), row.pop("_ticdc_before", None)
    return {"deleted": row} if op == "d" else {"new": row, **({"old": before} if before else {})}


def as_json(cells: Cells) -> Cells:
    """Return cells as JSON has them: bytes in base64."""
    return {name: base64.b64encode(cell).decode() if isinstance(cell, bytes) else cell for name, cell in cells.items()}


def wire_rows(header: Mapping[str, Any], record: Record) -> list[dict[str, Any]]:
    """Return the cells of each event of a record: of `new`, `old` and `deleted`, as far as they exist."""
    value, protocol = record.value or b"", header["protocol"]
    if protocol == "avro":
        return [avro_rows(header, record)]
    if protocol == "open-protocol":
        parts = {"u": "new", "p": "old", "d": "deleted"}
        return [
            {
                parts[part]: {name: cell["v"] if isinstance(cell, dict) else cell for name, cell in cells.items()}
                for part, cells in event.items()
            }
            for event in frames(value)
        ]
    if protocol == "debezium-avro":
        payload = avro(header, value)
        rows = {image: as_json(payload[image]) for image in ("before", "after") if payload[image] is not None}
        return [_debezium_rows({**payload, **rows})]
    message = json.loads(value.decode(errors="surrogateescape"))
    if protocol == "canal-json":
        (data,) = message["data"]
        if message["type"] == "DELETE":
            return [{"deleted": data}]
        return [{"new": data, **({"old": message["old"][0]} if message["old"] else {})}]
    if protocol == "simple":
        old = "deleted" if message["type"] == "DELETE" else "old"
        parts = {"data": "new", "old": old}
        return [{parts[part]: _texts(message[part]) for part in parts if part in message}]
    payload = message["payload"]
    return [_debezium_rows(payload)]


def _debezium_rows(payload: Mapping[str, Any]) -> dict[str, Any]:
    parts = {"after": "new", "before": "deleted" if payload["op"] == "d" else "old"}
    return {name: payload[part] for part, name in parts.items() if payload.get(part) is not None}


def _texts(row: Cells) -> Cells:
    """Return the cells of a row of simple; of a TIMESTAMP its wall clock."""
    return {name: cell["value"] if isinstance(cell, dict) else cell for name, cell in row.items()}


def wire_cells(captured: Captured, row: TrueRow) -> Cells:
    """Return the cells of a row in its message."""
    images = wire_rows(captured.header, captured.partitions[row.partition][row.offset])[row.index]
    if row.change_type == "update_preimage":
        return {**images["new"], **images["old"]}
    cells: Cells = images["deleted" if row.change_type == "delete" else "new"]
    return cells


_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (DATETIME has no zone)


def debezium_text(cell: Any, mysql_type: str) -> str:
    """Write a cell of debezium as MySQL would."""
    name = kind({"mysql_type": mysql_type})
    if name == "date":
        return str((_EPOCH + datetime.timedelta(days=cell)).date())
    if name == "datetime":
        micros = cell if int((re.findall(r"\d+", mysql_type) or [0])[0]) > 3 else cell * 1000
        return str(_EPOCH + datetime.timedelta(microseconds=micros))
    if name == "timestamp":
        return str(cell).replace("T", " ").removesuffix("Z")
    if name == "time":
        return str(datetime.timedelta(microseconds=cell)).rjust(8, "0")
    if name in ("binary", "varbinary"):
        return base64.b64decode(cell).hex()
    if name == "bit":
        return str(int(cell) if isinstance(cell, bool) else int.from_bytes(base64.b64decode(cell), "little"))
    return str(cell)


def is_left(cell: Any, left: Any, column: Mapping[str, Any], protocol: str) -> bool:
    """Return whether a cell is what a loss leaves of a value."""
    if cell is None or left is None:
        return cell is left
    if not protocol.startswith("debezium"):
        return bool(cell == left) or (kind(column) == "timestamp" and cell in _local(column, left))
    text = debezium_text(cell, column["mysql_type"])
    if isinstance(left, dict):
        if "double" in left:
            return bool(float(text) == left["double"])
        return text == str(left.get("label") or left.get("hex") or left.get("number"))
    if kind(column) in ("datetime", "timestamp"):
        return text.partition(".")[0] == str(left).partition(".")[0]
    if re.fullmatch(r"-?\d+(\.\d+)?", left):
        return Decimal(text) == Decimal(left)
    return text == str(left)


def _local(column: Mapping[str, Any], text: str) -> str:
    """Return a moment as text in TiCDC's zone."""
    moment = datetime.datetime.fromisoformat(text[:19]).replace(tzinfo=datetime.timezone.utc)
    return moment.astimezone(ZoneInfo(column["time_zone"])).strftime("%Y-%m-%d %H:%M:%S") + text[19:]


def is_plain(config: Mapping[str, Any]) -> bool:
    """Return whether a changefeed writes whole rows without compression, which the parsers here can read."""
    compressed = config.get("large-message-handle-compression", "none") != "none"
    claimed = config.get("large-message-handle-option") == "claim-check"
    in_avro = config.get("encoding-format") == "avro"
    return not (compressed or claimed or in_avro or config.get("only-output-updated-columns"))


@cache
def losses_met() -> Counter[tuple[str, str]]:
    """Check each loss of the corpus against its message; return how often each occurs."""
    met: Counter[tuple[str, str]] = Counter()
    for name in scenarios():
        if name in STREAMS or not is_plain(scenario(name).header["config"]):
            continue
        captured = load(name)
        protocol = captured.header["protocol"]
        for database, table in tables_with_rows(captured):
            for row in true_rows(captured, database, table):
                lost = {
                    column: (loss, left)
                    for column, truth in row.values.items()
                    for left, loss in [expected(protocol, row.columns[column], truth)]
                    if loss is not None
                }
                cells = wire_cells(captured, row) if lost else {}
                for column, (loss, left) in lost.items():
                    where = f"{name} {table}.{column} {row.partition}/{row.offset}: {cells.get(column)!r}, not {left!r}"
                    assert is_left(cells.get(column), left, row.columns[column], protocol), where
                    if loss.name in ("delete-keys-only", "handle-key-only"):
                        assert column not in cells, where
                    met[protocol, loss.name] += 1
    return met


@pytest.mark.parametrize("loss", IN_CORPUS, ids=lambda loss: f"{loss.protocol} {loss.name}")
def test_a_loss_is_in_the_message(loss: Any) -> None:
    """Wherever the tests accept a loss, the message has only what the loss leaves."""
    assert losses_met()[loss.protocol, loss.name] > 0


@pytest.mark.parametrize("scenario", ["open-protocol.default", "canal-json.plain", "debezium.default", "simple.json"])
def test_two_moments_share_what_the_wire_says(scenario: str) -> None:
    """Both moments of an hour that comes twice have equal cells."""
    captured = load(f"{scenario}.tz-shanghai")
    cells = {
        row.values["c_timestamp"]: wire_cells(captured, row)["c_timestamp"]
        for row in true_rows(captured, "types_a", "t_time")
        if str(row.values["c_timestamp"]).startswith("1988-09-10 1")
    }

    assert len(cells) == 2
    assert len(set(cells.values())) == 1


@pytest.mark.slow("reads whole streams")
@pytest.mark.parametrize("missing", MISSING_IN_CORPUS, ids=lambda missing: f"{missing.protocol} {missing.name}")
def test_old_rows_are_not_on_the_wire(missing: Any) -> None:
    """With such a setting, no update has its old row."""
    updates = 0
    for name in scenarios():
        header = scenario(name).header
        if header["protocol"] != missing.protocol or not missing.applies(header["config"]):
            continue
        for records in load(name).partitions.values():
            for record in records:
                events = record.truth.get("events", [record.truth])
                if events[0]["op"] in ("insert", "update", "delete"):
                    updates += sum(event["op"] == "update" for event in events)
                    assert not any("old" in parts for parts in wire_rows(header, record))
    assert updates > 0
