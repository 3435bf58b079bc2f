"""The encoders of the tests write what TiCDC writes: they rebuild its messages from their truth."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from io import BytesIO
from typing import Any

import cramjam
import fastavro
import pytest

from tests.encoders.avro import Avro, DebeziumAvro
from tests.encoders.canal_json import CanalJSON
from tests.encoders.debezium import Debezium
from tests.encoders.open_protocol import OpenProtocol
from tests.encoders.simple import Simple
from tests.encoders.tables import Event, Record, Table, keys_only, table_of
from tests.support.captured import Captured, events_of, load, sanitized
from tests.support.corpus import STREAMS, scenarios
from tests.support.registry import schemas_of, written_schema
from ticdc_source.protocols.registry_framing import body_of, has_header
from ticdc_source.protocols.simple.avro import is_avro, parse_avro

# What a message has and the truth does not: (protocol, path) → why the comparison leaves it out.
IGNORED: Mapping[tuple[str, str], str] = {
    ("open-protocol", "ccl"): "the file of a row that is too large for Kafka: a random name",
    ("canal-json", "_tidb.claimCheckLocation"): "the file of a row that is too large for Kafka: a random name",
    ("canal-json", "ts"): "the wall clock when TiCDC encoded the message",
    ("canal-json", "_tidb.rowkey"): "TiKV's own key of the row (output-row-key=true)",
    ("debezium", "payload.ts_ms"): "the wall clock when TiCDC encoded the message",
    ("debezium", "payload.tableChanges"): "compared only for views, whose columns the truth does not have",
    ("debezium", "payload.tableChanges.table.defaultCharsetName"): "empty if the statement created several tables",
    (
        "debezium",
        "payload.tableChanges.table.columns.comment",
    ): "present or not depending on the statement, not on the table",
    ("debezium", "payload.tableChanges.table.columns.defaultValueExpression"): "spelled as in the statement",
    ("debezium", "payload.source.start_ts"): "the transaction's start (debezium-include-start-ts=true)",
    ("simple", "buildTs"): "the wall clock when TiCDC encoded the message",
    ("simple", "tableID"): "TiDB's number of the table or of its partition",
    ("simple", "claimCheckLocation"): "the file of a row that is too large for Kafka: a random name",
    ("simple", "checksum"): "tests of checksums compute it",
    ("simple", "preTableSchema"): "the other table of an EXCHANGE PARTITION, as its own DDL describes it",
    ("simple", "tableSchema.tableID"): "TiDB's number of the table",
    ("simple", "tableSchema.columns.default"): "spelled as in the statement",
    ("simple", "tableSchema.columns.dataType.collate"): "the truth does not have it",
    ("simple", "tableSchema.columns.dataType.length"): "of ENUM and SET, and of types without one",
    ("simple", "tableSchema.indexes"): "the truth has their columns only; tests/protocols/test_simple.py compares keys",
}


def encoder_of(captured: Captured) -> Any:
    header = captured.header
    config, zone = header["config"], header["time_zone"]
    on = {name: True for name, value in config.items() if value is True}
    codec = config.get("large-message-handle-compression", "none")
    if header["protocol"] == "open-protocol":
        return OpenProtocol(
            old_value=config.get("open.output-old-value", True),
            only_updated="only-output-updated-columns" in on,
            delete_handle_key="delete-only-output-handle-key-columns" in on,
            compression=codec,
            time_zone=zone,
        )
    if header["protocol"] == "simple":
        return Simple(compression=codec, avro=config.get("encoding-format") == "avro", time_zone=zone)
    if header["protocol"] == "avro":
        return Avro(
            extension="enable-tidb-extension" in on,
            before="avro-include-before-value" in on,
            watermarks="avro-enable-watermark" in on,
            decimals_as_text=config.get("avro-decimal-handling-mode") == "string",
            unsigned_as_text=config.get("avro-bigint-unsigned-handling-mode") == "string",
            glue="glue-schema-registry" in on,
            time_zone=zone,
        )
    if header["protocol"] == "debezium-avro":
        return DebeziumAvro(
            extension="enable-tidb-extension" in on,
            old_value=config.get("debezium.output-old-value", True),
            numbers_as_text=config.get("avro-decimal-handling-mode") == "string",
            glue="glue-schema-registry" in on,
            time_zone=zone,
        )
    if header["protocol"] == "debezium":
        return Debezium(
            schema="debezium-disable-schema" not in on,
            extension="enable-tidb-extension" in on,
            old_value=config.get("debezium.output-old-value", True),
            compression=codec,
            start_ts="debezium-include-start-ts" in on,
            time_zone=zone,
        )
    return CanalJSON(
        extension="enable-tidb-extension" in on,
        content_compatible="content-compatible" in on,
        only_updated="only-output-updated-columns" in on,
        delete_handle_key="delete-only-output-handle-key-columns" in on,
        compression=codec,
        time_zone=zone,
    )


def plain(data: bytes, codec: str) -> bytes:
    if codec == "snappy":
        return bytes(cramjam.snappy.decompress_raw(data))
    return bytes(cramjam.lz4.decompress(data)) if codec == "lz4" else data


MOST = 4096  # events in a message
# fastavro writes no text that is not UTF-8; tests write no checksums in Avro.
NOT_REBUILT = {"simple.avro.invalid-utf8", "avro.checksum"}


class Pairs(list[Any]):
    """A JSON object as its members in order, including repeated ones."""


def parsed(data: bytes) -> Any:
    """Parse JSON without losing anything: members in order, bytes that are not UTF-8 as lone surrogates."""
    return json.loads(data.decode(errors="surrogateescape"), object_pairs_hook=Pairs)


def frames(data: bytes) -> Iterator[bytes]:
    while data:
        length = int.from_bytes(data[:8], "big")
        yield data[8 : 8 + length]
        data = data[8 + length :]


def parsed_open(record: Record, codec: str) -> Any:
    key, value = record
    heads = [compared(parsed(frame), "open-protocol") for frame in frames((key or b"")[8:])]
    bodies = [parsed(plain(frame, codec)) if frame else frame for frame in frames(value or b"")]
    return (key or b"")[:8], heads, bodies


def unordered(value: Any) -> Any:
    """Return objects as dicts: Go writes their members in random order."""
    if isinstance(value, Pairs):
        return {name: unordered(member) for name, member in value}
    return [unordered(item) for item in value] if isinstance(value, list) else value


def without(value: Pairs, path: str) -> Pairs:
    name, _, rest = path.partition(".")
    out = Pairs()
    for member, content in value:
        if member == name and rest and isinstance(content, Pairs):
            out.append((member, without(content, rest)))
        elif member == name and rest and isinstance(content, list):
            out.append((member, [without(item, rest) for item in content]))
        elif member != name or rest:
            out.append((member, content))
    return out


def compared(message: Pairs, protocol: str) -> Pairs:
    """Return a message without what the truth does not have."""
    payload = dict(dict(message).get("payload") or ())
    keep = {} if " view " in payload.get("ddl", "").lower() else {"payload.tableChanges"}
    if " view " in dict(message).get("sql", "").lower():
        message = without(message, "tableSchema")  # its columns, which the truth does not have
    for one, path in IGNORED:
        if one == protocol and path not in keep:
            message = without(message, path)
    return message


def parsed_canal(record: Record, codec: str) -> Any:
    """Parse a canal-json record; mysqlType is written in random order."""
    key, value = record
    message = compared(parsed(plain(value or b"", codec)), "canal-json")
    return key, [(name, unordered(part) if name in ("mysqlType", "sqlType") else part) for name, part in message]


def parsed_debezium(record: Record, codec: str) -> Any:
    """Parse a debezium record; the order of members has no meaning in its schemas."""
    parts = [compared(parsed(plain(part or b"", codec)), "debezium") for part in record]
    return [[(name, unordered(part) if name == "schema" else part) for name, part in message] for message in parts]


def parsed_simple(record: Record, codec: str) -> Any:
    key, value = record
    text = plain(value or b"", codec)
    if not is_avro(text):
        return key, compared(parsed(text), "simple")
    message = parsed(json.dumps(parse_avro(text), default=lambda cell: cell.hex()).encode())
    for path in (
        "tableSchema.columns.dataType.unsigned",
        "tableSchema.columns.dataType.zerofill",
        "tableSchema.columns.dataType.decimal",
        "tableSchema.columns.dataType.elements",
    ):
        message = without(message, path)  # null or false where the JSON has nothing
    in_any_order = ("data", "old")  # a map of Go
    return key, [
        (name, unordered(part) if name in in_any_order else part) for name, part in compared(message, "simple")
    ]


PARSERS: Mapping[str, Callable[[Record, str], Any]] = {
    "open-protocol": parsed_open,
    "canal-json": parsed_canal,
    "debezium": parsed_debezium,
    "simple": parsed_simple,
}


def tables_of(captured: Captured) -> dict[tuple[str, str, int], Table]:
    return {
        (entry["schema"], entry["table"], entry["table_version"]): table_of(entry)
        for entry in captured.header["tables"]
    }


def version_of(event: Event, tables: Mapping[tuple[str, str, int], Table]) -> Table | None:
    """Return the version of an event's table; for a DDL event the version that it created."""
    database, name = event.get("schema", ""), event.get("table", "")
    if event["op"] not in ("ddl", "bootstrap"):
        return tables.get((database, name, event.get("table_version", 0)))
    if event.get("ddl_type") == "exchange partition":
        database, name = event["old_schema"], event["old_table"]
    versions = sorted(key for key in tables if (key[0], key[1].lower()) == (database, name.lower()))
    made = [key for key in versions if key[2] <= event.get("commit_ts", 0)]
    if event["op"] == "bootstrap":
        made = versions[-1:]
    elif versions and not made:  # the streams have a simulated clock: CREATE made the first version, ALTER the last
        made = [versions[0 if event.get("ddl_type") == "create table" else -1]]
    return tables[made[-1]] if made else None


def registered(record: Record, schema_of: Callable[[str], str]) -> Any:
    """Parse a record in Avro behind the ids of its schemas: names and types of fields, and the row."""
    return [None if part is None else _registered(part, schema_of) for part in record]


def _registered(data: bytes, schema_of: Callable[[str], str]) -> Any:
    if not has_header(data):
        if data[:1] != b"\x01":
            return data
        return [(name, sanitized(part) if name in ("schema", "table") else part) for name, part in parsed(data[1:])]
    schema_id, start = body_of(data)
    text = schema_of(str(schema_id))
    read = fastavro.schemaless_reader(BytesIO(data[start:]), parsed_schema(text), None, handle_unicode_errors="replace")
    assert isinstance(read, dict)
    read.pop("ts_ms", None)  # the wall clock when TiCDC encoded the message
    return _fields(json.loads(text)), read


@cache
def parsed_schema(text: str) -> Any:
    """Return a schema for fastavro, without the defaults that are no Avro."""
    return fastavro.parse_schema(json.loads(re.sub(r'"default":("[^"]*"|[^,{}\[\]]+),', "", text)))


def _fields(type_: Any) -> Any:
    """Return what a schema says without defaults, which are no Avro, and without what only Kafka Connect reads."""
    if isinstance(type_, list):
        kinds = [_fields(each) for each in type_]
        return sorted(json.dumps(kind, sort_keys=True) for kind in kinds)
    if not isinstance(type_, dict):
        return type_
    if type_.get("type") == "record":
        return {field["name"]: _fields(field["type"]) for field in type_["fields"]}
    kept = {name: type_[name] for name in ("logicalType", "precision", "scale", "connect.type") if name in type_}
    named = {name: type_[name] for name in ("connect.name", "connect.parameters") if type_.get(name)}
    return {**kept, **named, "type": type_["type"]} if kept or named else type_["type"]


def parsers_of(captured: Captured, codec: str) -> tuple[Callable[[Record], Any], Callable[[Record], Any]]:
    """Return what parses a message that a test has written, and one of TiCDC."""
    if captured.header["protocol"] in ("avro", "debezium-avro"):
        schemas = schemas_of(captured.header)
        return lambda record: registered(record, written_schema), lambda record: registered(record, schemas.__getitem__)
    parse = PARSERS[captured.header["protocol"]]
    return lambda record: parse(record, codec), lambda record: parse(record, codec)


def compare(captured: Captured) -> tuple[int, list[str]]:
    """Rebuild every message; return how many there are, and a line for each that differs."""
    encoder, tables = encoder_of(captured), tables_of(captured)
    parse_rebuilt, parse_real = parsers_of(captured, getattr(encoder, "compression", "none"))
    kept = captured.header["config"].get("large-message-handle-option") == "claim-check"
    address = "file:///somewhere" if kept else ""
    count, wrong = 0, []
    for partition, records in captured.partitions.items():
        for offset, record in enumerate(records):
            marked = zip(events_of(record.truth), record.large or [False] * MOST, strict=False)
            events = [keys_only(event, address) if large else event for event, large in marked]
            versions = [version_of(event, tables) for event in events]
            if captured.header["protocol"] == "debezium-avro" and events[0]["op"] == "ddl":
                continue  # tests write none
            rebuilt = parse_rebuilt(encoder.message(events, versions))
            real = parse_real((record.key, record.value))
            count += 1
            if rebuilt != real:
                wrong.append(f"{partition}/{offset} {events[0].get('table')}: {difference(rebuilt, real)}")
    return count, wrong


def difference(rebuilt: Any, real: Any, path: str = "") -> str:
    """Return where two parsed messages differ."""
    both = (list, tuple)
    if isinstance(rebuilt, dict) and isinstance(real, dict) and rebuilt.keys() == real.keys():
        rebuilt, real = list(rebuilt.items()), list(real.items())
        real = sorted(real, key=lambda item: [name for name, _ in rebuilt].index(item[0]))
    if isinstance(rebuilt, both) and isinstance(real, both) and len(rebuilt) == len(real):
        for index, (left, right) in enumerate(zip(rebuilt, real, strict=True)):
            if left != right:
                named = isinstance(left, tuple) and len(left) == 2 and isinstance(left[0], str)
                return difference(left, right, f"{path}/{left[0] if named else index}")
    return f"{path}: rebuilt {str(rebuilt)[:300]}, TiCDC {str(real)[:300]}"


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.slow("types once more"))
        if name.endswith((".lz4.types", ".snappy.types", "columns.types", "key.types", "off.types", "ts.types"))
        else name
        for name in sorted({*scenarios()} - {*STREAMS} - NOT_REBUILT)
    ],
)
def test_an_encoder_rebuilds_what_ticdc_wrote(scenario: str) -> None:
    """An encoder rebuilds each message of a capture from its truth: members, order, types, flags and values."""
    count, wrong = compare(load(scenario))

    assert not wrong, f"{len(wrong)} of {count}: " + "\n".join(wrong[:5])
    assert count > 0


@pytest.mark.slow("50,000 messages")
@pytest.mark.parametrize("scenario", STREAMS)
def test_an_encoder_rebuilds_a_whole_stream(scenario: str) -> None:
    """An encoder rebuilds all messages of a stream."""
    count, wrong = compare(load(scenario))

    assert not wrong, f"{len(wrong)} of {count}: " + "\n".join(wrong[:5])
    assert count > 1000
