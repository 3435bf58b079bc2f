"""The native path has the results of the general path: the same rows, or the same errors."""

import json
import random
from dataclasses import replace
from itertools import islice

import pyarrow as pa
import pytest

from benchmarks.corpus import WORKS
from benchmarks.corpus import messages as benchmark_messages
from tests.support.captured import Captured, Record, Sizes, load, random_sizes, single, whole
from tests.support.messages import TSO, Message, canal, cell, debezium, framed, open_message, open_row
from tests.support.mutations import MUTATIONS
from tests.support.truth import tables_with_rows
from ticdc_source.errors import TiCDCSourceError
from ticdc_source.kernels.native import native
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.protocols import PROTOCOLS, decoder_of
from ticdc_source.protocols.base import Decoded, Learned
from ticdc_source.protocols.plan import Plan

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")

SEED = 20261121
ROUNDS = 2  # of 40 messages each; tests/fuzz has more
SCENARIOS = [
    "open-protocol.default",
    "open-protocol.only-output-updated-columns",
    "open-protocol.delete-only-output-handle-key-columns",
    "open-protocol.output-old-value-off",
    "canal-json.plain",
    "canal-json.tidb-extension",
    "canal-json.content-compatible",
    "canal-json.only-output-updated-columns",
    "canal-json.delete-only-output-handle-key-columns",
    "canal-json.output-row-key",
    "debezium.default",
    "debezium.disable-schema",
    "debezium.tidb-extension",
    "debezium.include-start-ts",
    "debezium.output-old-value-off",
    "simple.json",
]
STREAMS = ["stream.open-protocol", "stream.canal-json.tidb-extension", "stream.debezium.tidb-extension.disable-schema"]
MANGLED = ["open-protocol.default", "canal-json.plain", "canal-json.tidb-extension", "debezium.default",
           "debezium.disable-schema", "debezium.include-start-ts", "simple.json"]  # fmt: skip


def outcome(captured: Captured, schema: pa.Schema, sizes: Sizes, *, native_path: bool, **given: str) -> pa.Table | str:
    """Read all records, with the native path or without; return the rows, or the error's text."""
    options = captured.options(**given)
    context = captured.context(schema, options)
    spec = read_spec(schema, options, context)
    spec = replace(spec, plan=replace(spec.plan, native_path=native_path))
    state = ReadState.of(spec)
    try:
        batches = [
            batch
            for offset_range in captured.ranges()
            for batch in read(captured.fetch(offset_range, sizes), spec, state)
        ]
    except TiCDCSourceError as error:
        return f"{type(error).__name__}: {error}"
    return pa.Table.from_batches(batches, schema)


WHOLE_FILES = ["records of the table", pytest.param("whole file", marks=pytest.mark.long("reads a file once a table"))]
# One variant of each protocol in `make test`, where tests/corpus/test_corpus.py compares all with the truth.
FIRST = {"open-protocol.default", "canal-json.tidb-extension", "debezium.disable-schema"}
EACH_VARIANT = [
    name if name in FIRST else pytest.param(name, marks=pytest.mark.long("reads each table thrice"))
    for name in SCENARIOS
]
WHOLE_STREAMS = ["around DDL", pytest.param("whole stream", marks=pytest.mark.long("20,000 rows a stream"))]


@pytest.mark.parametrize("matrix", ["types", "ops"])
@pytest.mark.parametrize("scenario", EACH_VARIANT)
@pytest.mark.parametrize("part", WHOLE_FILES)
def test_the_native_path_has_the_rows_of_the_general_path(scenario: str, matrix: str, part: str) -> None:
    """Every table of a matrix has the rows of the general path on the native path, however chunks are cut."""
    captured = load(f"{scenario}.{matrix}")

    for database, table in tables_with_rows(captured):
        records = captured if part == "whole file" else captured.only(database, table)
        given = {"tables": f"`{database}`.`{table}`", "includeMetadata": "all"}
        schema = records.schema(**given)
        expected = outcome(records, schema, whole, native_path=False, **given)
        for sizes in (whole, random_sizes(SEED), single)[: 3 if matrix == "ops" else 2]:
            assert outcome(records, schema, sizes, native_path=True, **given) == expected


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow("as with fewer images, once more")),
        {"preimages": "false", "operations": "insert,update"},
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("part", WHOLE_STREAMS)
def test_the_native_path_has_the_rows_of_a_stream(stream: str, options: dict[str, str], part: str) -> None:
    """The native path has the rows of the general path for streams with DDL and duplicates, also with fewer images."""
    captured = load(stream) if part == "whole stream" else load(stream).around_ddl(50)

    for database, table in tables_with_rows(captured):
        given = {"tables": f"`{database}`.`{table}`", **options}
        schema = captured.schema(**given)
        expected = outcome(captured, schema, random_sizes(SEED), native_path=False, **given)
        assert outcome(captured, schema, random_sizes(SEED), native_path=True, **given) == expected


def plan_for(captured: Captured, **given: str) -> Plan:
    options = captured.options(**given)
    context = captured.context(captured.schema(**given), options)
    return read_spec(captured.schema(**given), options, context).plan


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("work", WORKS)
def test_ticdcs_own_messages_take_the_native_path(work: str) -> None:
    """The native path reads all of TiCDC's own messages once a template is learned, with the general path's values."""
    messages = list(islice(benchmark_messages(work), 300))
    captured = Captured.of(*((message.key, message.value) for message in messages))
    given = WORKS[work].options
    plan = plan_for(captured, **given)
    decoder = decoder_of(WORKS[work].protocol, captured.options(**given))
    (chunk,) = captured.fetch(captured.ranges()[0])
    (table_events,) = decoder.split(chunk).tables.values()
    known = captured.context(captured.schema(**given), captured.options(**given)).definitions
    learned = Learned(definitions=known)
    general = decoder.decode(table_events, replace(plan, native_path=False), Learned(definitions=known))
    decoder.decode(table_events, plan, learned)

    found = decoder.decode(table_events, plan, learned)

    assert general.parsed == len(general.change_types) == sum(message.rows for message in messages)
    assert not found.parsed
    assert found.columns == general.columns
    for attribute in ("change_types", "events", "indexes", "commit_ts", "start_ts", "build_ts", "cluster_id"):
        assert getattr(found, attribute) == getattr(general, attribute)


@pytest.mark.parametrize("scenario", MANGLED)
def test_the_native_path_has_the_errors_of_the_general_path(scenario: str) -> None:
    """Each mangled message among whole ones has the rows, or the corrupt record, of the general path."""
    captured = load(f"{scenario}.types")
    chooser = random.Random(f"{SEED} {scenario}")
    name = "types_a.t_all"
    given = {"tables": name, "mode": "PERMISSIVE", "onSchemaDrift": "rescue", "includeMetadata": "all"}
    schema = captured.schema(**given)
    about = [record for records in captured.partitions.values() for record in records if b"t_all" in _bytes(record)]
    bad, differing = 0, []

    for _ in range(ROUNDS):
        mutants = []
        for _ in range(40):
            record = chooser.choice(about)
            key, value = record.key, record.value or b""
            if chooser.random() < 0.5:
                value = chooser.choice(MUTATIONS)(value, chooser)
            mutants.append(Record(key, value))
        mixed = Captured({}, {0: mutants})
        general = outcome(mixed, schema, whole, native_path=False, **given)
        if outcome(mixed, schema, whole, native_path=True, **given) != general:
            differing.append(mutants)
        bad += general.column("_corrupt_record").drop_null().length() if isinstance(general, pa.Table) else 0

    assert not differing, (SEED, scenario, differing[0])
    assert bad > 2 * ROUNDS


def _bytes(record: Record) -> bytes:
    return (record.key or b"") + (record.value or b"")


@pytest.mark.parametrize("garbage", [("[1", "2]", "3,4"), ('"a', 'b"', "1,2"), ('{"a":1', '"b":2}', "1,2")])
def test_values_that_are_json_only_together_are_bad(garbage: tuple[str, ...]) -> None:
    """Three events whose values are JSON only when put together are three bad events, on both paths."""
    template = open_message(open_row({"u": {"id": cell(3, 1, 11), "v": cell(3, 5, 64)}}))
    bad = [
        open_message(open_row(f'{{"u":{{"id":{{"t":3,"f":11,"v":1}},"v":{{"t":3,"f":64,"v":{text}}}}}}}'.encode()))
        for text in garbage
    ]
    captured = Captured.of(*[template] * 5, *bad, *[template] * 5)
    schema = Captured.of(template).schema(mode="PERMISSIVE")

    found, general = (
        outcome(captured, schema, whole, native_path=native_path, mode="PERMISSIVE") for native_path in (True, False)
    )

    assert isinstance(found, pa.Table)
    assert isinstance(general, pa.Table)
    assert found.equals(general)
    assert found["_corrupt_record"].null_count == 10


# Bytes of an update, or of one message and the next, and what replaces them: too many rows here and too few there,
# other ops, and members that TiCDC does not write.
FORMS = [
    ((b'},"after":{', b'},"after":{'), (b'},"after":{"x":1},"after":{', b',"after":{')),
    ((b'},"after":{', b'},"after":{'), (b'}\n{"id":1},"after":{', b"}")),
    ((b'},"after":{',), (b'},"after":null,"x":{',)),
    ((b'"op":"u"',), (b'"op":"c"',)),
    ((b'"op":"u"',), (b'"op":"r"',)),
    ((b'"op":"u"',), (b'"op":"d"',)),
    ((b'"before":{',), (b'"befora":{',)),
    ((b'"before":{',), (b'"xfter":{',)),
    ((b'"before":{',), (b'"before":null,"after":{',)),
    ((b'"before":{',), (b'"after":null,"before":{',)),
    ((b'"before":{',), (b'"before": {',)),
    ((b'"before":{',), (b'\n"before":{',)),
    ((b'}},"',), (b'},"x":{}},"',)),
    ((b'}},"',), (b'}null},"',)),
    ((b'}},"',), (b'}\n{}},"',)),
    ((b'}},"',), (b'}\n},"',)),
    ((b'"note":"',), (b'"note":"\n',)),
    ((b'"note":"',), (b'"note":"},\\"after\\":{',)),
    ((b'"note":"',), (b'"note":"\\":null',)),
]


@pytest.mark.parametrize(("parts", "others"), FORMS, ids=[str(number) for number in range(len(FORMS))])
def test_misplaced_rows_have_the_results_of_the_general_path(
    parts: tuple[bytes, ...], others: tuple[bytes, ...]
) -> None:
    """Updates of debezium whose rows are framed in another way have the results of the general path."""
    messages = list(islice(benchmark_messages("debezium, schema"), 300))
    values = [message.value or b"" for message in messages]
    updates = [index for index, value in enumerate(values) if b'"op":"u"' in value]
    captured_whole = Captured.of(*((message.key, message.value) for message in messages))
    plan = plan_for(captured_whole, includeMetadata="all")
    general, learned = replace(plan, native_path=False), Learned()
    decoder = PROTOCOLS["debezium"]

    def decoded(plan: Plan, values: list[bytes]) -> Decoded:
        captured = Captured.of(*((None, value) for value in values))
        (chunk,) = captured.fetch(captured.ranges()[0])
        (table_events,) = decoder.split(chunk).tables.values()
        return decoder.decode(table_events, plan, learned if plan.native_path else None)

    decoded(plan, values)
    assert native is None or not decoded(plan, values).parsed
    for index, part, other in zip(updates[3:], parts, others, strict=False):
        assert part in values[index]
        values[index] = values[index].replace(part, other, 1)

    assert outcome_of(decoded(plan, values)) == outcome_of(decoded(general, values))


def outcome_of(decoded: Decoded | str) -> object:
    if isinstance(decoded, str):
        return decoded
    failures = {event: str(error) for event, error in decoded.failures.items()}
    times = [array.take(decoded.events) for array in (decoded.commit_ts, decoded.start_ts, decoded.build_ts)]
    images = (decoded.change_types, decoded.events, decoded.indexes, decoded.columns)
    return images, decoded.replaced, failures, times


def with_unsigned(chooser: random.Random, number: int) -> bytes:
    """Return an insert whose unsigned columns have wide values, with their own `sqlType`, in a random combination."""
    wide = [chooser.random() < 0.5 for _ in range(5)]
    names = [f"u{index}" for index in range(len(wide))]
    codes = ",".join(f'"{name}":{3 if big else -5}' for name, big in zip(names, wide, strict=True))
    types = [f'"{name}":"bigint unsigned"' for name in names] + ['"id":"bigint"']
    chooser.shuffle(types)
    values = ",".join(
        f'"{name}":"{(1 << 63) + number if big else number}"' for name, big in zip(names, wide, strict=True)
    )
    return (
        f'{{"id":0,"database":"a","table":"b","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1795247640910,'
        f'"ts":1795247640915,"sql":"","sqlType":{{"id":-5,{codes}}},"mysqlType":{{{",".join(types)}}},'
        f'"old":null,"data":[{{"id":"{number}",{values}}}],"_tidb":{{"commitTs":470613397578743808}}}}'
    ).encode()


_ROWS = {"id": cell(3, 1, 11, h=True), "v": cell(3, 5, 64), "n": cell(3, 7, 0), "b": cell(1, 2, 1)}
_FIELDS = [
    {"type": "int32", "optional": False, "field": "id", "tidb_type": "INT"},
    {"type": "int32", "optional": True, "field": "v", "default": 0, "tidb_type": "INT"},
    {"type": "string", "optional": True, "name": "io.debezium.data.Bits", "parameters": {"length": 8}, "field": "b"},
]
_GOOD = {
    "open-protocol": open_message(open_row({"u": _ROWS})),
    "canal-json": canal(
        data=[{"id": "1", "v": "5"}], mysql_type={"id": "int"}, sql_type={"id": 4, "v": 1}, _tidb={"commitTs": TSO}
    ),
    "debezium": debezium(after={"id": 1, "v": 5, "b": "Bw=="}, fields=_FIELDS),
}
_OTHER_FORMS = {
    "open-protocol": [
        *((b'"f":64', b'"f":' + form) for form in (b"64.0", b"6.4e1", b"64E0")),
        *(
            (b'"f":0', b'"f":' + form)
            for form in (b"-0", b"0.0", b"-0.0", b"false", b"0e0", b"null", b"1e400", b"-1e400")
        ),
        *((b'"f":1,', b'"f":%b,' % form) for form in (b"true", b"1.0")),
        *((b'"t":3', b'"t":' + form) for form in (b"3.0", b"0.3e1")),
        *((b'"t":1,', b'"t":%b,' % form) for form in (b"true", b"1.0")),
        *((b'"h":true', b'"h":' + form) for form in (b"1", b"1.0", b"false", b"0", b"null")),
        *((b'"v":5', b'"v":' + form) for form in (b"5.0", b"0.5e1", b"true")),
    ],
    "canal-json": [
        *((b'"sqlType":{"id":4', b'"sqlType":{"id":' + form) for form in (b"4.0", b"0.4e1")),
        *((b'"v":1}', b'"v":%b}' % form) for form in (b"1.0", b"true")),
        *((b'"isDdl":false', b'"isDdl":' + form) for form in (b"0", b"-0", b"0.0")),
        (b'"es":%d' % (TSO >> 18), b'"es":%d.0' % (TSO >> 18)),
        (b'"commitTs":%d' % TSO, b'"commitTs":%d.0' % TSO),
    ],
    "debezium": [
        *((b'"optional":true', b'"optional":' + form) for form in (b"1", b"1.0")),
        *((b'"optional":false', b'"optional":' + form) for form in (b"0", b"-0", b"0.0")),
        *((b'"default":0', b'"default":' + form) for form in (b"-0", b"0.0", b"false")),
        *((b'"length":8', b'"length":' + form) for form in (b"8.0", b"0.8e1")),
        *((b'"v":5', b'"v":' + form) for form in (b"5.0", b"0.5e1", b"true")),
        (b'"commit_ts":%d' % TSO, b'"commit_ts":%d.0' % TSO),
    ],
}


def _each_alone(table: pa.Table | str, messages: int) -> list[object]:
    assert isinstance(table, pa.Table)
    found: list[list[object]] = [[] for _ in range(messages)]
    for row in table.to_pylist():
        bad = row.pop("_corrupt_record")
        values = {name: value for name, value in row.items() if name not in ("_offset", "_timestamp", "_sequence")}
        found[row["_offset"]].append(json.loads(bad)["reason"] if bad else values)
    return list(found)


@pytest.mark.parametrize(
    ("protocol", "part", "form"),
    [(protocol, *forms) for protocol, pairs in _OTHER_FORMS.items() for forms in pairs],
    ids=lambda value: value if isinstance(value, str) else value.decode(),
)
def test_numbers_of_equal_value_in_another_form_are_read_alike(protocol: str, part: bytes, form: bytes) -> None:
    """A message with 64.0, 6.4e1, -0 or true for a number has one result on both paths, whatever stands before it."""
    key, value = _GOOD[protocol]
    assert value is not None
    assert part in value
    good, other = (key, value), (key, value.replace(part, form))
    if protocol == "open-protocol":  # the length of the frame
        other = (key, framed(value[8:].replace(part, form)))
    given = {"mode": "PERMISSIVE", "includeMetadata": "kafka", "protocol": protocol}
    schema = Captured.of(good).schema(**given)

    def read_all(*messages: Message) -> set[str]:
        outcomes = set()
        for native_path in (False, True):
            for sizes in (whole, single):
                captured = Captured.of(*messages)
                table = outcome(captured, schema, sizes, native_path=native_path, **given)
                outcomes.add(repr(_each_alone(table, len(messages))))
        return outcomes

    (of_good,), (of_other,) = read_all(good), read_all(other)
    one, another = of_good[1:-1], of_other[1:-1]
    for order in ("og", "gggoog"):
        expected = ", ".join(one if letter == "g" else another for letter in order)
        assert read_all(*(good if letter == "g" else other for letter in order)) == {f"[{expected}]"}


@pytest.mark.usefixtures("native_path")
def test_unseen_combinations_of_wide_values_take_the_native_path() -> None:
    """Unseen combinations of `sqlType` are read natively if their parts were seen, and have the same rows."""
    chooser = random.Random(SEED)
    captured = Captured.of(*((b"", with_unsigned(chooser, number)) for number in range(600)))
    schema = captured.schema()
    expected = outcome(captured, schema, whole, native_path=False)
    assert outcome(captured, schema, random_sizes(SEED), native_path=True) == expected

    plan, decoder, learned = plan_for(captured), PROTOCOLS["canal-json"], Learned()
    (chunk,) = captured.fetch(captured.ranges()[0])
    parts = [chunk.part(0, 20), chunk.part(20, 600)]
    tables = [next(iter(decoder.split(part).tables.values())) for part in parts]
    first, second = (decoder.decode(table_events, plan, learned) for table_events in tables)
    assert first.parsed
    assert not second.parsed


def without_mysql_types(number: int, codes: dict[str, int], values: dict[str, str]) -> bytes:
    listed, row = (
        ",".join(f'"{name}":{json.dumps(value, ensure_ascii=False)}' for name, value in members.items())
        for members in (codes, values)
    )
    return (
        f'{{"id":0,"database":"a","table":"b","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1795247640910,'
        f'"ts":1795247640915,"sql":"","sqlType":{{"id":-5,{listed}}},"mysqlType":{{"id":"bigint"}},'
        f'"old":null,"data":[{{"id":"{number}",{row}}}],"_tidb":{{"commitTs":470613397578743808}}}}'
    ).encode()


@pytest.mark.parametrize("mixed", [False, True], ids=["one-sqlType", "sqlType-by-value"])
def test_columns_that_mysql_type_lacks_have_the_rows_of_the_general_path(mixed: bool) -> None:
    """Columns of which only the `sqlType` is known take the native path, also if it changes, with the same rows."""
    chooser = random.Random(SEED)
    codes = {"t": -6, "b": 2004, "d": 3, "v": 12, "w": 93}
    values = {"t": "7", "b": "\x01ÿ", "d": "-1.50", "v": "ä", "w": "2020-02-29 12:00:00.5"}
    wide = ({**codes, "t": 5}, {**values, "t": "200"})
    written = [wide if mixed and chooser.random() < 0.3 else (codes, values) for _ in range(300)]
    captured = Captured.of(*((b"", without_mysql_types(number, *each)) for number, each in enumerate(written)))
    schema = captured.schema()

    expected = outcome(captured, schema, whole, native_path=False)

    assert isinstance(expected, pa.Table)
    assert set(expected["b"].to_pylist()) == {b"\x01\xff"}
    assert outcome(captured, schema, whole, native_path=True) == expected
    assert outcome(captured, schema, random_sizes(SEED), native_path=True) == expected
    plan, decoder, learned = plan_for(captured), PROTOCOLS["canal-json"], Learned()
    (chunk,) = captured.fetch(captured.ranges()[0])
    for part, parsed in ((chunk.part(0, 20), True), (chunk.part(20, 300), False)):
        (table_events,) = decoder.split(part).tables.values()
        assert native is None or bool(decoder.decode(table_events, plan, learned).parsed) == parsed
