"""Records that come as rows of a DataFrame are decoded as those that come from Kafka."""

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from tests.corpus.test_corpus import MATRICES, STREAMS, VARIANTS, options_of, quoted
from tests.support.captured import Captured, Record, in_order, load, rows_of, whole
from tests.support.messages import TSO, canal, debezium_ddl, open_message
from tests.support.truth import tables_with_rows
from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.pipeline.packed_records import PACKED
from ticdc_source.pipeline.record_frames import RECORD, decode_rows, decode_structs, survey
from ticdc_source.planning.frame_sample import (
    context_of_records,
    ddl_copies_in,
    frame_options,
    sample_of_records,
    schema_of_sample,
)
from ticdc_source.planning.read_schema import format_schema
from ticdc_source.protocols.decoding import Decoder
from ticdc_source.protocols.events import TableEvents
from ticdc_source.schema.model import TableSchema, merge_schemas

pytestmark = pytest.mark.filterwarnings("ignore:The messages of .*:UserWarning")
MORE = pytest.mark.long("all variants of the corpus")
OPERATIONS, TYPES = (
    [f"{name}.{matrix}" for name in ("open-protocol.default", "canal-json.tidb-extension", "debezium.disable-schema")]
    for matrix in ("ops", "types")
)
SEED = 20261122
BATCH = 1000  # rows


def batches_of(rows: pa.RecordBatch, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def decoded(rows: pa.RecordBatch, given: dict[str, str], tasks: int = 1) -> pa.Table:
    """Infer and decode, as `decode` does on some tasks, without Spark."""
    options = frame_options(given)
    size = -(-rows.num_rows // tasks)
    pieces = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
    kept = [batch for piece in pieces for batch in survey(batches_of(piece), options)]
    found = sample_of_records(kept, options)
    schema = schema_of_sample(found, options)
    context = context_of_records(schema, found, options)
    scope = BatchScope(ddl_copies=ddl_copies_in(found))
    read = [batch for piece in pieces for batch in decode_rows(batches_of(piece), schema, options, context, scope)]
    return pa.Table.from_batches(read, schema)


@pytest.mark.parametrize("cuts", [(0, 0), (0, 0, 7, 7, 40), (1, 2, 3), ()])
def test_lists_have_all_rows_however_a_frame_is_cut(cuts: tuple[int, ...]) -> None:
    """In a pipeline, each array of whole rows is answered with as many lists; an empty array holds no rows."""
    captured = load("canal-json.tidb-extension.ops")
    database, table = max(tables_with_rows(captured))
    given = {"tables": quoted(database, table), "protocol": "canal-json", **options_of(captured)}
    rows, options = rows_of(captured), frame_options(given)
    found = sample_of_records(survey(batches_of(rows), options), options)
    schema = schema_of_sample(found, options)
    context = context_of_records(schema, found, options)
    bounds = (0, *cuts, rows.num_rows)
    arrays = [rows.slice(begin, end - begin).to_struct_array() for begin, end in pairwise(bounds)]

    lists = list(decode_structs(arrays, schema, options, context))

    assert sum(map(len, lists)) == rows.num_rows
    parts = [pa.RecordBatch.from_struct_array(each.flatten()) for each in lists]
    assert pa.Table.from_batches(parts).to_pylist() == decoded(rows, given).to_pylist()


def test_negative_offsets_are_not_unknown_ones() -> None:
    """Records may come from elsewhere than Kafka; only those without an offset have NULL."""
    captured = load("canal-json.tidb-extension.ops")
    rows = rows_of(captured).slice(0, 60)
    options = {"tables": quoted(*tables_with_rows(captured)[0]), "includeMetadata": "all"}
    place = RECORD.get_field_index("offset")
    moved = pa.array([None if offset % 4 == 0 else offset - 100 for offset in range(60)], pa.int64())

    expected = decoded(rows, options).column("_offset").to_pylist()
    found = decoded(rows.set_column(place, RECORD.field(place), moved), options).column("_offset").to_pylist()

    assert sorted(filter(None, found)) == sorted(offset - 100 for offset in expected if offset % 4)
    assert found.count(None) == sum(offset % 4 == 0 for offset in expected) > 0


def test_a_warning_names_no_unknown_place(caplog: pytest.LogCaptureFixture) -> None:
    """Avro's delete in a table without a key, in a DataFrame of values: the row's number is all that is known."""
    bare = pa.RecordBatch.from_pylist([{"value": b""}], schema=RECORD)
    options = frame_options({"protocol": "avro", "outputFormat": "event", "tables": "a.b"})
    context = context_of_records(format_schema(options), None, options)

    assert list(decode_rows([bare], format_schema(options), options, context, BatchScope())) == []
    assert "the messages do not say which (from offset=0 on)" in caplog.text


def facts_of(schema: pa.Schema) -> list[tuple[str, pa.DataType, dict[bytes, bytes]]]:
    """Return what a schema says of each column, but for a fact that depends on which messages are sampled together.

    A table gets another key by DDL. Of messages before and after it, the sample's first decides what is still said.
    """
    regrouped = b"ticdc.handle_key"
    return [
        (field.name, field.type, {name: value for name, value in (field.metadata or {}).items() if name != regrouped})
        for field in schema
    ]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("protocol", ["open-protocol", "debezium"])
def test_a_frame_has_each_ddl_of_which_it_has_a_copy(protocol: str, tasks: int) -> None:
    """A DDL event comes from the lowest partition that has a copy in the frame, however tasks share the records."""

    def ddl(commit_ts: int, query: str) -> Record:
        if protocol == "debezium":
            return Record(*debezium_ddl(commit_ts, query, []))
        head = {"ts": commit_ts, "scm": "test", "tbl": "t", "t": 2}
        return Record(*open_message((head, {"q": query, "t": 11})))

    truncate, drop, create = ddl(TSO, "truncate table t"), ddl(TSO + 1, "drop table t"), ddl(TSO + 2, "create table t")
    captured = Captured({}, {1: [drop], 2: [truncate, drop, create], 3: [truncate, drop]})

    table = decoded(rows_of(captured), {"outputFormat": "event", "protocol": protocol}, tasks)

    rows = [(row["_sequence"]["partition"], row["ddl_query"]) for row in table.to_pylist()]
    assert sorted(rows) == [(1, "drop table t"), (2, "create table t"), (2, "truncate table t")]


@pytest.mark.parametrize("name", [
    *OPERATIONS,
    *(pytest.param(name, marks=pytest.mark.slow("tables of each type")) for name in TYPES),
    *(pytest.param(name, marks=MORE) for name in (*MATRICES, *VARIANTS, *STREAMS) if name not in OPERATIONS + TYPES),
])  # fmt: skip
def test_a_frame_is_read_as_a_topic(name: str) -> None:
    """The rows and the schema of every table of a capture are those that a read of Kafka gives."""
    captured = load(name)
    rows = rows_of(captured)
    compared = 0
    for database, table in tables_with_rows(captured):
        options = {"tables": quoted(database, table), "includeMetadata": "all", **options_of(captured)}
        expected, found = captured.read(sizes=whole, schema=None, **options), decoded(rows, options, 2)
        assert facts_of(found.schema) == facts_of(expected.schema), table
        assert in_order(found).equals(in_order(expected)), table
        compared += len(found)
    assert compared


@pytest.mark.parametrize("output", ["event", "envelope", "record"])
def test_the_other_outputs_are_the_same(output: str) -> None:
    """All events, the envelope of a table and the records are those that a read of Kafka gives."""
    captured = load("open-protocol.default.ops")
    database, table = tables_with_rows(captured)[0]
    options = {"outputFormat": output, "tables": quoted(database, table)}
    expected, found = captured.read(sizes=whole, schema=None, **options), decoded(rows_of(captured), options, 2)
    assert found.schema == expected.schema
    if output == "record":
        order = [("_partition", "ascending"), ("_offset", "ascending")]
        assert found.sort_by(order).equals(expected.sort_by(order))
    else:
        assert in_order(found).equals(in_order(expected))
    assert len(found)


def test_rows_in_any_order_are_decoded() -> None:
    captured = load("canal-json.tidb-extension.ops")
    options = {"tables": quoted(*tables_with_rows(captured)[0])}
    rows = rows_of(captured)
    expected = decoded(rows, options)
    shuffled = list(range(rows.num_rows))
    random.Random(SEED).shuffle(shuffled)
    assert in_order(decoded(rows.take(pa.array(shuffled)), options)).equals(in_order(expected))
    twice = decoded(rows.take(pa.array(sorted(shuffled * 2))), options)
    assert in_order(twice).equals(in_order(pa.concat_tables([expected, expected])))


def test_unknown_parts_of_the_sequence_are_null() -> None:
    """A DataFrame with values alone, even packed, gives the same rows, without topic, partition and offset."""
    captured = load("canal-json.tidb-extension.ops")
    rows = rows_of(captured)
    options = {"tables": quoted(*tables_with_rows(captured)[0]), "includeMetadata": "all"}
    bare = pa.RecordBatch.from_arrays(
        [column if name == "value" else pa.nulls(len(column), column.type)
         for name, column in zip(RECORD.names, rows.columns, strict=True)], schema=RECORD,
    )  # fmt: skip
    parsed = frame_options(options)
    found = sample_of_records(survey([bare], parsed), parsed)
    schema = schema_of_sample(found, parsed)
    context = context_of_records(schema, found, parsed)
    table = pa.Table.from_batches(decode_rows([bare], schema, parsed, context, BatchScope()), schema)
    records = frame_options({"outputFormat": "record"})
    packed = list(decode_rows([bare], PACKED, records, context_of_records(PACKED, None, records), BatchScope()))
    assert pa.Table.from_batches(decode_rows(packed, schema, parsed, context, BatchScope()), schema).equals(table)
    expected = decoded(rows, options)
    assert len(table) == len(expected) > 0
    for name in ("_topic", "_partition", "_offset", "_timestamp", "_key"):
        assert table.column(name).null_count == len(table)
    sequence = table.column("_sequence").combine_chunks()
    assert sequence.field("offset").null_count == sequence.field("partition").null_count == len(table)
    assert sequence.field("commit_ts").null_count == 0
    data = [name for name in schema.names if not name.startswith("_")]
    assert table.select(data).to_pylist() == expected.select(data).to_pylist()


def test_the_survey_keeps_what_is_new() -> None:
    """Of a long stream the driver gets a few records of each table, and yet every column and the widest types."""
    captured = load("stream.canal-json.tidb-extension")
    rows = rows_of(captured)
    options = frame_options({})
    kept = list(survey(batches_of(rows), options))
    assert sum(batch.num_rows for batch in kept) < rows.num_rows / 10


CELLS: dict[str, list[str | None]] = {
    "decimal": [None, "0", "-0.5", "12.50", "-00012.5", "123456789012345678", "0.0000001", "-1"],
    "set": [None, "0", "3", "9223372036854775807", "9223372036854775808", "18446744073709551615", "a,b"],
    "int": [None, "1", "-1"],
    "varchar(10)": [None, "", "12.5", "x"],
    "": [None, "1", "x"],
}


def canal_messages(seed: int) -> list[Record]:
    """Return messages of one table whose columns come and go; few values tell the types."""
    chosen = random.Random(seed)
    types = {f"c{number}": chosen.choice(list(CELLS)) for number in range(5)}
    few = {name: chosen.sample(CELLS[type_], 2) for name, type_ in types.items()}
    messages = []
    for number in range(300):
        if chosen.random() < 0.01:
            types[f"c{chosen.randrange(7)}"] = chosen.choice(list(CELLS))
        some = CELLS if chosen.random() < 0.01 else {}
        row: dict[str, Any] = {"id": str(number)}
        for name, type_ in types.items():
            row[name] = chosen.choice(some.get(type_) or few.get(name) or [None])
        if chosen.random() < 0.01:
            row["c0"] = 7  # no text, as another program may write it
        old = {"c1": chosen.choice(CELLS[types["c1"]])} if chosen.random() < 0.3 else None
        known = {"id": "int", **{name: type_ for name, type_ in types.items() if type_}}
        operation = "INSERT" if old is None else "UPDATE"
        messages.append(Record(*canal(operation, [row], None if old is None else [old], known, database="d", table="t",
                                      sqlType=dict.fromkeys(known, 12), _tidb={"commitTs": TSO})))  # fmt: skip
    return messages


@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_native_code_finds_what_is_new(seed: int) -> None:
    """The survey of native code tells the same schema as that of the general path, and needs few records for it."""
    rows = rows_of(Captured({}, {0: canal_messages(seed)}))
    schemas, counts = [], []
    for native_code in ("off", "auto"):
        options = frame_options({"nativeCode": native_code, "protocol": "canal-json"})
        kept = list(survey(batches_of(rows, 50), options))
        counts.append(sum(batch.num_rows for batch in kept))
        found = sample_of_records(kept, options)
        assert found is not None
        merged = merge_schemas([schema for part in found.rows.values() for schema in described(found.decoder, part)])
        schemas.append(merged)
    assert schemas[0] == schemas[1], f"seed {seed}"
    assert counts[1] <= 2 * counts[0] + 10, f"seed {seed}: {counts}"


@pytest.mark.parametrize(("type_", "usual", "telling"), [
    ("decimal", "1.5", "-12.5"), ("decimal", "1.5", "1.25"), ("decimal", None, "0"), ("", None, "x"),
    ("set", "1", "9223372036854775808"), ("set", None, "18446744073709551615"), ("int", "1", None),
])  # fmt: skip
def test_one_telling_value_is_found(type_: str, usual: str | None, telling: str | None) -> None:
    """A record in the middle whose value alone tells its column's type is kept, and hardly another."""
    types = {"id": "int", "c": type_} if type_ else {"id": "int"}
    cells = [telling if number == 500 else usual for number in range(1000)]
    records = [Record(*canal("INSERT", [{"id": str(number), "c": cell}], None, types, dict.fromkeys(types, 4),
                             _tidb={"commitTs": TSO})) for number, cell in enumerate(cells)]  # fmt: skip
    kept = pa.Table.from_batches(survey(batches_of(rows_of(Captured({}, {0: records}))), frame_options({})))

    wanted = [0] if type_ == "int" else [0, 500]
    assert kept["offset"].to_pylist() == wanted


def described(decoder: Decoder, parts: Iterable[TableEvents]) -> list[TableSchema]:
    return [schema for part in parts for schema in decoder.describe(part)]


def test_a_frame_without_records_has_no_schema() -> None:
    with pytest.raises(SchemaError, match="Pass it as `schema`"):
        schema_of_sample(sample_of_records([], frame_options({})), frame_options({}))


@pytest.mark.parametrize("given", [
    {"kafka.bootstrap.servers": "broker:9092"}, {"subscribe": "topic"}, {"startingOffsets": "earliest"},
    {"metricsPath": "metrics"}, {"endingCommitTs": "resolved"}, {"outputFormt": "event"},
])  # fmt: skip
def test_options_about_kafka_are_refused(given: dict[str, str]) -> None:
    """Options that say which records to fetch are an error, as are misspelt ones: nothing is ignored silently."""
    with pytest.raises(OptionError, match=next(iter(given))):
        frame_options(given)


def test_a_commit_ts_in_milliseconds_is_a_warning() -> None:
    """As with `format("ticdc")`: a DataFrame has no Kafka timestamps, but commits."""
    with pytest.warns(UserWarning, match="'startingCommitTs' takes a commit-ts .* did you mean"):
        frame_options({"startingCommitTs": "1790000040000"})
