"""Random tables and rows, written as each protocol writes them, are read as they were written.

Every run writes the same rows. `TICDC_SEED=random` writes other rows; `TICDC_SEED=<number>` repeats such a run.
"""

import base64
import json
import os
import random
import re
import tempfile
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.test_corpus import differences, quoted
from tests.encoders.avro import Avro, DebeziumAvro
from tests.encoders.canal_json import CanalJSON
from tests.encoders.debezium import Debezium
from tests.encoders.open_protocol import OpenProtocol
from tests.encoders.random_tables import Changes
from tests.encoders.simple import Simple
from tests.encoders.tables import Event, Table, changed, images, keys_only, table_of
from tests.support.captured import Captured, Record, as_spelt, random_sizes, sanitized
from tests.support.truth import TrueRow, expected, tables_with_rows, true_rows
from ticdc_source.errors import TiCDCSourceError

pytestmark = pytest.mark.filterwarnings(
    "ignore:The messages of .*:UserWarning"
)  # inference's notes are tested elsewhere

SEED = 20261121
FEW_ROWS = 300
# Rows of each protocol, in each run.
ROWS = [
    FEW_ROWS,
    pytest.param(2_000, marks=pytest.mark.slow("2,000 rows a protocol")),
    pytest.param(10_000, marks=pytest.mark.long("10,000 rows a protocol")),
]
PARTITIONS = 2
REGISTERED = ("avro", "debezium-avro")


TEXT_KINDS = frozenset({
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year", "date",
    "datetime", "timestamp", "time", "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json",
})  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """One way to write a protocol.

    Attributes:
        name: for the report.
        encoder: writes the messages.
        config: the settings of the changefeed that change what a read must return.
        time_zone: of the TiCDC server.
        batch: rows in a message at most.
        ddl_batches: whether DDL and watermarks are batched too.
        families: families of types; all if empty.
        large: large-message-handle-option for every fifth row; "raw" is claim-check with claim-check-raw-value.
    """

    name: str
    encoder: Any
    config: Mapping[str, Any] = field(default_factory=dict)
    time_zone: str = "UTC"
    batch: int = 1
    ddl_batches: bool = False
    families: tuple[str, ...] = ()
    large: str = ""


_EXTENSION, _BEFORE = {"enable-tidb-extension": True}, {"avro-include-before-value": True}
_DELETE_KEYS = {"delete-only-output-handle-key-columns": True}
VARIANTS: Mapping[str, Sequence[Variant]] = {
    "open-protocol": (
        Variant("default", OpenProtocol(), batch=16),
        Variant("max-batch-size 1", OpenProtocol()),
        Variant("output-old-value off", OpenProtocol(old_value=False), {"open.output-old-value": False}, batch=16),
        Variant("only-output-updated-columns", OpenProtocol(only_updated=True), batch=5),
        Variant("delete-only-output-handle-key-columns", OpenProtocol(delete_handle_key=True), _DELETE_KEYS, batch=16),
        Variant("v4.0 batches", OpenProtocol(), batch=4096, ddl_batches=True),
        Variant("snappy", OpenProtocol(compression="snappy"), batch=3, large="claim-check"),
        Variant("handle-key-only", OpenProtocol(), batch=4, large="handle-key-only"),
        Variant("lz4", OpenProtocol(compression="lz4", time_zone="Asia/Shanghai"), time_zone="Asia/Shanghai", batch=3),
    ),
    "canal-json": (
        Variant("plain", CanalJSON()),
        Variant("enable-tidb-extension", CanalJSON(extension=True)),
        Variant("content-compatible", CanalJSON(extension=True, content_compatible=True)),
        Variant("only-output-updated-columns", CanalJSON(only_updated=True)),
        Variant("delete-only-output-handle-key-columns", CanalJSON(delete_handle_key=True), _DELETE_KEYS),
        Variant("before v5.4", CanalJSON(before_v5_4=True)),
        Variant("official Canal", CanalJSON(official=True), batch=7),
        Variant("snappy", CanalJSON(extension=True, compression="snappy"), large="claim-check"),
        Variant("claim-check-raw-value", CanalJSON(extension=True), large="raw"),
        Variant("handle-key-only", CanalJSON(extension=True), large="handle-key-only"),
        Variant("lz4", CanalJSON(compression="lz4", time_zone="America/New_York"), time_zone="America/New_York"),
    ),
    "simple": (
        Variant("default", Simple()),
        Variant("avro", Simple(avro=True)),
        Variant("avro and snappy", Simple(avro=True, compression="snappy"), large="claim-check"),
        Variant("avro and lz4", Simple(avro=True, compression="lz4"), large="handle-key-only"),
        Variant("snappy", Simple(compression="snappy"), large="claim-check"),
        Variant("claim-check-raw-value", Simple(), large="raw"),
        Variant("handle-key-only", Simple(), large="handle-key-only"),
        Variant("lz4", Simple(compression="lz4", time_zone="Asia/Shanghai"), time_zone="Asia/Shanghai"),
    ),
    "debezium": (
        Variant("default", Debezium()),
        Variant("debezium-disable-schema", Debezium(schema=False)),
        Variant("enable-tidb-extension", Debezium(extension=True)),
        Variant("both", Debezium(schema=False, extension=True)),
        Variant("output-old-value off", Debezium(old_value=False), {"debezium.output-old-value": False}),
        Variant("snappy", Debezium(extension=True, compression="snappy")),
        Variant("lz4", Debezium(schema=False, compression="lz4")),
    ),
    "avro": (
        Variant("default", Avro()),
        Variant("enable-tidb-extension", Avro(extension=True), _EXTENSION),
        Variant("avro-include-before-value", Avro(before=True), _BEFORE),
        Variant("both", Avro(extension=True, before=True), _EXTENSION | _BEFORE),
        Variant(
            "string modes and watermarks",
            Avro(extension=True, watermarks=True, decimals_as_text=True, unsigned_as_text=True),
            _EXTENSION,
        ),
        Variant("AWS Glue", Avro(before=True, glue=True, time_zone="Asia/Shanghai"), _BEFORE, "Asia/Shanghai"),
    ),
    "debezium-avro": (
        Variant("default", DebeziumAvro()),
        Variant("enable-tidb-extension", DebeziumAvro(extension=True)),
        Variant("string modes", DebeziumAvro(extension=True, numbers_as_text=True)),
        Variant("output-old-value off", DebeziumAvro(old_value=False), {"debezium.output-old-value": False}),
        Variant("AWS Glue", DebeziumAvro(glue=True)),
    ),
}


@dataclass
class Topic:
    """What was written: the capture, and the versions of tables."""

    captured: Captured
    tables: dict[tuple[str, str, int], Table]


def header_of(protocol: str, variant: Variant, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "scenario": variant.name, "protocol": protocol, "config": dict(variant.config),
        "time_zone": variant.time_zone, "tables": entries,
    }  # fmt: skip


def written(protocol: str, variant: Variant, seed: int, tables: int, changes: int) -> Topic:
    chance = random.Random(seed)
    made = Changes(seed, variant.families, defaults=protocol == "debezium")
    queues: dict[int, list[tuple[Event, Table | None]]] = defaultdict(list)
    versions: dict[tuple[str, str, int], Table] = {}
    files: dict[str, bytes] = {}
    captured = Captured(header_of(protocol, variant, []), {partition: [] for partition in range(PARTITIONS)}, files)

    def flush(partition: int) -> None:
        for part in _batches(queues.pop(partition, []), variant):
            events, its = [event for event, _ in part], [table for _, table in part]
            sent = [cut(*each, variant, files, chance) for each in part] if variant.large else events
            key, value = variant.encoder.message(sent, its)
            whole = [known(event, cut_, variant) for event, cut_ in zip(events, sent, strict=True)]
            truth = truth_of(whole)
            if protocol == "avro" and its[0] is not None:
                truth = {**truth, "primary_key": its[0].primary_key}
            captured.partitions[partition].append(Record(key, value, as_spelt(truth) if protocol == "avro" else truth))

    has_ddl = protocol in ("debezium", "simple") or chance.random() < 0.5  # DDL in the topic gives types
    for event in made.run(tables, changes):
        if event["op"] in ("ddl", "watermark"):
            table = None
            if event["op"] == "ddl":
                (entry,) = [t.versions[-1] for t in made.tables if t.name == event["table"]]
                captured.header["tables"].append(as_spelt(entry) if protocol == "avro" else entry)
                table = versions[event["schema"], event["table"], entry["table_version"]] = table_of(entry)
            elif protocol not in ("open-protocol", "simple") and not getattr(variant.encoder, "extension", False):
                continue  # no watermarks
            if protocol in REGISTERED and not getattr(variant.encoder, "watermarks", False):
                continue
            if event["op"] == "ddl" and not has_ddl:
                continue
            first_only = protocol == "canal-json" and event["op"] == "ddl"
            for partition in range(1 if first_only else PARTITIONS):
                queues[partition].append((event, table))
                if not variant.ddl_batches or len(queues[partition]) >= 3:
                    flush(partition)
            continue
        table = versions[event["schema"], event["table"], event["table_version"]]
        partition = chance.randrange(PARTITIONS)
        if cannot_be_written(event, table, variant.encoder, versions.values()):
            continue
        queues[partition].append((event, table))
        if len(queues[partition]) >= variant.batch or chance.random() < 0.1:
            flush(partition)
    for partition in range(PARTITIONS):
        flush(partition)
    return Topic(captured, versions)


def cut(event: Event, table: Table | None, variant: Variant, files: dict[str, bytes], chance: random.Random) -> Event:
    """Treat every fifth row as too large for Kafka; put the whole row into claim-check storage."""
    if event["op"] in ("ddl", "watermark") or not event["handle_key"] or chance.random() < 0.8:
        return event
    if variant.large == "handle-key-only":
        return keys_only(event)
    name = f"{uuid.UUID(int=chance.getrandbits(128))}.json"
    key, value = variant.encoder.message([event], [table])
    armoured = [None if not part else base64.b64encode(part).decode() for part in (key, value)]
    files[name] = value if variant.large == "raw" else json.dumps({"key": armoured[0], "value": armoured[1]}).encode()
    return keys_only(event, f"file:///elsewhere/{name}")


def known(event: Event, sent: Event, variant: Variant) -> Event:
    """Return the truth of a row as far as its message has it: only the handle key for handle-key-only."""
    if sent is event or variant.large != "handle-key-only":
        return event
    columns = [
        {**column, "left_out": True, **{side: None for side in ("before", "after") if side in column}}
        if column["name"] not in event["handle_key"]
        else column
        for column in event["columns"]
    ]
    return {**event, "columns": columns}


def truth_of(events: Sequence[Event]) -> Event:
    return events[0] if len(events) == 1 else {"op": "batch", "events": events}


def cannot_be_written(event: Event, table: Table, encoder: Any, tables: Iterable[Table]) -> bool:
    if isinstance(encoder, OpenProtocol):
        return _fits_none(event, table, encoder)
    if not isinstance(encoder, (Avro, DebeziumAvro)):
        return False
    names = [sanitized(column.name) for column in table.columns]
    spelt_alike = {(one.schema, one.name) for one in tables if spelt_name(one) == spelt_name(table)}
    if len(set(names)) < len(names) or len(spelt_alike) > 1:
        return True
    values = [column.get(side) for column in event["columns"] for side in ("before", "after")]
    if any(isinstance(value, dict) and value.get("label") == "" and value["number"] == 0 for value in values):
        return True  # TiCDC cannot write the ENUM of 0; the SET of 0 would do
    virtual = [column for column in table.columns if column.generated == "VIRTUAL"]
    if isinstance(encoder, DebeziumAvro):
        wide = [column for column in event["columns"] if column["mysql_type"].startswith("bigint")]
        big = [column for column in wide for side in ("before", "after") if int(column.get(side) or 0) >= 1 << 63]
        return bool(virtual) or (bool(big) and not encoder.numbers_as_text)
    return not all(column.nullable for column in virtual)


def spelt_name(table: Table) -> tuple[str, str]:
    return sanitized(table.schema), sanitized(table.name)


def _fits_none(event: Event, table: Table, encoder: OpenProtocol) -> bool:
    """Return whether TiCDC refuses to write a delete: handle key only, of a table without one."""
    return event["op"] == "delete" and encoder.delete_handle_key and not table.handle_key


def _batches(queue: list[tuple[Event, Table | None]], variant: Variant) -> Iterator[list[tuple[Event, Table | None]]]:
    """Split a queue into messages: rows as the variant batches them, other events one a message (except v4.0)."""
    part: list[tuple[Event, Table | None]] = []
    for each in queue:
        if part and (len(part) >= variant.batch or _batch_key(each, variant) != _batch_key(part[-1], variant)):
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def _batch_key(each: tuple[Event, Table | None], variant: Variant) -> tuple[Any, ...]:
    """Return what all events of a message have in common."""
    event, table = each
    if event["op"] in ("ddl", "watermark"):
        return event["op"], *(() if variant.ddl_batches else (event["commit_ts"],))
    if isinstance(variant.encoder, CanalJSON):  # official Canal: one statement's rows, one time
        return event["op"], table, event["commit_ts"] >> 18
    return ("row",)


def expected_rows(topic: Topic, variant: Variant, database: str, table: str) -> list[TrueRow]:
    rows = list(true_rows(topic.captured, database, table))
    if not (isinstance(variant.encoder, OpenProtocol) and variant.encoder.only_updated):
        return rows
    lost = {
        (partition, offset, index)
        for partition, records in topic.captured.partitions.items()
        for offset, record in enumerate(records)
        for index, event in enumerate(record.truth.get("events", [record.truth]))
        if event["op"] == "update" and ways(event, topic.tables, variant.encoder) > 1
    }
    return [
        row
        for row in rows
        if row.change_type != "update_preimage" or (row.partition, row.offset, row.index) not in lost
    ]


def ways(event: Event, tables: Mapping[tuple[str, str, int], Table], encoder: OpenProtocol) -> int:
    """Count how many ways there are to assign old values without names to columns (a release bug: NULL became "")."""
    table = tables[event["schema"], event["table"], event["table_version"]]
    before, after = images(event)
    assert before is not None
    assert after is not None
    nameless = [name for name in changed(before, after) if after[name] is None]
    nulls = [name for name in after if after[name] is None]

    def like(name: str) -> tuple[Any, ...]:
        cell = encoder.cell(table, name, None)
        return cell["t"], cell.get("f"), cell.get("h")

    counts = [1] + [0] * len(nameless)
    for null in nulls:
        for index in range(len(nameless), 0, -1):
            if like(nameless[index - 1]) == like(null):
                counts[index] += counts[index - 1]
    return counts[-1]


def readable_as_text(column: Mapping[str, Any], variant: Variant) -> bool:
    """Return whether a column that is read as string must equal the truth's text to the last digit."""
    type_name = re.split(r"[( ]", column["mysql_type"])[0]
    if type_name in ("enum", "set"):  # the number, if the labels are not known
        return isinstance(variant.encoder, (Debezium, Avro, DebeziumAvro))
    if isinstance(variant.encoder, DebeziumAvro) and type_name in ("datetime", "timestamp", "time"):
        return False  # and no DDL has it either
    if isinstance(variant.encoder, DebeziumAvro) and column["mysql_type"].startswith("float("):
        return False  # a double
    return type_name in TEXT_KINDS and not (type_name == "timestamp" and variant.time_zone != "UTC")


def faults(topic: Topic, variant: Variant, sizes_seed: int, *, as_text: bool) -> Iterator[tuple[TrueRow | None, str]]:
    """Read every table; yield what is wrong, with the row if it is known."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in topic.captured.files.items():
            (Path(folder) / name).write_bytes(content)
        yield from _faults(topic, variant, sizes_seed, folder, as_text=as_text)


def _faults(
    topic: Topic, variant: Variant, sizes_seed: int, folder: str, *, as_text: bool
) -> Iterator[tuple[TrueRow | None, str]]:
    captured = topic.captured
    for database, table in tables_with_rows(captured):
        true = expected_rows(topic, variant, database, table)
        options = {"tables": quoted(database, table), "timeZone": variant.time_zone}
        if variant.large:
            options |= {"claimCheckLocation": folder, "onHandleKeyOnly": "null"}
        texts = sorted({name for row in true for name in row.values if readable_as_text(row.columns[name], variant)})
        if as_text and texts:
            options["schemaHints"] = ", ".join(f"`{name.replace('`', '``')}` string" for name in texts)
        try:
            read = captured.read(sizes=random_sizes(sizes_seed), **options)
        except TiCDCSourceError as error:
            yield None, f"{database}.{table}: {type(error).__name__}: {error}"
            continue
        rows = read.to_pylist()
        if len(rows) != len(true):
            yield None, f"{database}.{table}: {len(rows)} rows, not {len(true)}"
            continue
        data = {item.name for item in read.schema if item.metadata and b"ticdc.table" in item.metadata}
        nowhere = {name for row in true for name in row.values} - sent(true, captured.header["protocol"])
        for cells, truth in zip(rows, true, strict=True):
            row = {**dict.fromkeys(nowhere), **cells}  # no message has such a column, so the schema may not know it
            wrong = differences(captured.header, truth, row, Counter())
            foreign = sorted(name for name in data - truth.values.keys() if row[name] is not None)
            wrong += [f"{name} is {row[name]!r}: the row has no such column" for name in foreign]
            if wrong:
                yield truth, "; ".join(wrong)


def sent(rows: Sequence[TrueRow], protocol: str) -> set[str]:
    """Return the names of the columns that at least one message has: some messages have the handle key alone."""
    return {
        name
        for row in rows
        for name, truth in row.values.items()
        if not row.columns[name].get("left_out")
        and getattr(expected(protocol, row.columns[name], truth)[1], "name", None) != "delete-keys-only"
    }


def event_of(topic: Topic, row: TrueRow) -> Event:
    truth = topic.captured.partitions[row.partition][row.offset].truth
    events: Sequence[Event] = truth.get("events", [truth])
    return events[row.index]


def report(topic: Topic, variant: Variant, row: TrueRow | None, what: str, *, as_text: bool) -> str:
    """Return a reproduction: the table's DDL, the row and the message; with one column alone if that fails too."""
    if row is None:
        return what
    event = event_of(topic, row)
    (entry,) = [e for e in topic.captured.header["tables"] if e["table_version"] == event["table_version"]]
    for column in entry["columns"]:
        if column["name"] not in what:
            continue
        small = {**entry, "columns": [c for c in entry["columns"] if c is column or c["name"] in entry["handle_key"]]}
        names = {c["name"] for c in small["columns"]}
        little = {**event, "columns": [c for c in event["columns"] if c["name"] in names]}
        alone = alone_topic(topic.captured.header["protocol"], variant, small, little)
        found = next(iter(faults(alone, variant, 0, as_text=as_text)), None)
        if found is not None:
            event, what, topic, entry = little, found[1], alone, small
            break
    key, value = variant.encoder.message([event], [table_of(entry)])
    return f"{what}\n{entry['ddl']}\n{json.dumps(event, ensure_ascii=False)}\nkey {key!r}\nvalue {value!r}"


def alone_topic(protocol: str, variant: Variant, entry: dict[str, Any], event: Event) -> Topic:
    table = table_of(entry)
    ddl = {
        "op": "ddl", "commit_ts": entry["table_version"], "schema": entry["schema"], "table": entry["table"],
        "ddl_query": entry["ddl"], "ddl_type": "create table", "ddl_type_code": 3,
    }  # fmt: skip
    records = []
    for one in (event,) if protocol in REGISTERED else (ddl, event):
        key, value = variant.encoder.message([one], [table])
        records.append(Record(key, value, truth_of([one])))
    captured = Captured(header_of(protocol, variant, [entry]), {0: records})
    return Topic(captured, {(entry["schema"], entry["table"], entry["table_version"]): table})


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("protocol", VARIANTS)
def test_what_is_written_comes_back(protocol: str, rows: int) -> None:
    """Random rows of all variants of a protocol, in random chunks, are read as they were written."""
    wanted = os.environ.get("TICDC_SEED") or SEED
    seed = random.SystemRandom().randrange(2**31) if wanted == "random" else int(wanted)
    print(f"TICDC_SEED={seed} repeats the {protocol} round trip")  # noqa: T201 (pytest shows it if the test fails)
    count, case = 0, 0
    while count < rows:
        for variant in VARIANTS[protocol]:
            case += 1
            topic = written(protocol, variant, seed + case, tables=3, changes=rows // 25)
            as_text = case % 3 == 0
            found = next(faults(topic, variant, seed + case, as_text=as_text), None)
            if found is not None:
                what = report(topic, variant, *found, as_text=as_text)
                pytest.fail(f"TICDC_SEED={seed}, {protocol}, {variant.name}, as text {as_text}: {what}")
            count += sum(len(expected_rows(topic, variant, *table)) for table in tables_with_rows(topic.captured))


def test_a_fault_is_reported_with_a_reproduction() -> None:
    """The report of a wrong value has the table, a row of the one column, and its message."""
    variant = Variant("integers", CanalJSON(extension=True), families=("integer",))
    topic = written("canal-json", variant, seed=1, tables=2, changes=60)
    for records in topic.captured.partitions.values():
        for record in records:
            for column in record.truth.get("columns", ()):
                if column.get("after") is not None:
                    column["after"] = str(int(column["after"]) ^ 1)  # the message has been written

    found = next(faults(topic, variant, 0, as_text=False))
    text = report(topic, variant, *found, as_text=False)

    assert re.search(r"int.*: .*, not ", text)
    assert "CREATE TABLE" in text
    assert '"op": ' in text
    assert "\nvalue b'" in text
