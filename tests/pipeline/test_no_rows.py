"""What holds no rows is no error: messages of other kinds, ranges of markers only, and tables that have no row yet."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from tests.support.captured import Captured, make_options, rows_of, single, whole
from tests.support.messages import TSO, Message, canal, debezium, debezium_ddl, declared, simple_definition
from ticdc_source.errors import OptionError, SchemaError
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.pipeline.context import BatchScope, ReadContext
from ticdc_source.pipeline.record_frames import survey
from ticdc_source.planning import partitions
from ticdc_source.planning.frame_sample import find_tables, frame_options
from ticdc_source.protocols import recognized
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk

TYPES = {"id": "int"}
ROW = canal("INSERT", [{"id": "1"}], None, TYPES)


def without_rows(kind: str, sql: str = "") -> Message:
    return canal(kind, None, None, None, database="", table="", pkNames=None, sql=sql, gtid="")


OTHERS = [
    without_rows("QUERY", "INSERT INTO t (id) VALUES (1)"),
    without_rows("QUERY", "/* from a program */ update t set id = 2"),
    *map(without_rows, ("GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT")),
]


@pytest.mark.parametrize("protocol", ["auto", "canal-json"])
@pytest.mark.parametrize(("output", "count"), [("changelog", 1), ("envelope", 1), ("event", 1), ("record", 7)])
def test_messages_without_rows_are_skipped(protocol: str, output: str, count: int) -> None:
    """Official Canal's messages of other kinds give no rows in any output, and fail none."""
    captured = Captured.of(*OTHERS, ROW)

    for sizes in (whole, single):
        assert captured.read(sizes=sizes, protocol=protocol, outputFormat=output).num_rows == count


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("TRUNCATE", "truncate table t"),
        ("TRUNCATE", ""),
        ("ALTER", "alter table t add c int"),
        ("CINDEX", "create index i on t (id)"),
        ("QUERY", "drop database test"),
    ],
)
def test_ddl_needs_no_mark(kind: str, sql: str) -> None:
    """DDL whose message says `isDdl: false`, as official Canal may write it, is DDL."""
    events = Captured.of(ROW, canal(kind, None, None, None, sql=sql)).read(outputFormat="event").to_pylist()

    (ddl,) = [row for row in events if row["_event_type"] == "ddl"]
    assert (ddl["ddl_type"], ddl["ddl_query"]) == (kind, sql)


def test_messages_without_rows_have_no_table() -> None:
    """`tables` finds the tables of a micro-batch beside them, and an unmarked TRUNCATE among their DDL."""
    options = frame_options({"protocol": "canal-json", "outputFormat": "changelog"})
    truncate = canal("TRUNCATE", None, None, None, sql="truncate table t")
    (records,) = survey([rows_of(Captured.of(*OTHERS, ROW, truncate))], options)

    there = find_tables(records, records.slice(0, 0), options)

    assert list(there.schemas) == list(there.ddl) == [TableName("test", "t")]
    assert there.corrupt is None


# Ranges with markers only

BEGIN = b'{"status":"BEGIN","id":"571","event_count":null,"data_collections":null,"ts_ms":1486500577691}'
END = (
    b'{"status":"END","id":"571","event_count":1,"data_collections":[{"data_collection":"s.a","event_count":1}],'
    b'"ts_ms":1486500577691}'
)
IN_SCHEMA = json.dumps(
    {
        "schema": {"type": "struct", "fields": [], "name": "io.debezium.connector.common.TransactionMetadataValue"},
        "payload": json.loads(BEGIN),
    }
).encode()
HEARTBEAT = b'{"ts_ms":1486500577691}'


@pytest.mark.parametrize(
    "values",
    [[BEGIN, END], [END, BEGIN], [IN_SCHEMA], [HEARTBEAT], [BEGIN, HEARTBEAT, END]],
    ids=["boundaries", "the end first", "with schema", "heartbeat", "all"],
)
def test_a_range_of_markers_has_no_event(values: list[bytes]) -> None:
    """Debezium's heartbeats and boundaries of transactions alone are no events, with protocol=auto too."""
    captured = Captured.of(*((b"{}", value) for value in values))

    assert captured.read(outputFormat="event").num_rows == 0


def test_other_json_is_no_marker() -> None:
    """JSON with a member like a marker's is not taken for debezium."""
    for value in (b'{"status":"END","id":1}', b'{"ts_ms":1,"v":2}', b'{"id":1,"status":"BEGIN","event_count":1}'):
        assert recognized(None, value) is None


class Fetching:
    """A fetcher of given values."""

    library = None

    def __init__(self, values: list[bytes | None]) -> None:
        self.values = values

    def fetch(self, wanted: OffsetRange) -> Iterable[Chunk]:
        count = len(self.values)
        if count:
            yield Chunk(wanted.topic, 0, [*range(count)], [0] * count, [None] * count, self.values)


@pytest.mark.parametrize("values", [[], [None, b""]], ids=["no record", "no value"])
def test_offsets_without_records_have_no_rows(values: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of Kafka's own markers has offsets and no record: no rows, though nothing told the protocol."""
    assert _read_on_worker(values, monkeypatch) == 0
    with pytest.raises(SchemaError, match="the protocol is unknown"):
        _read_on_worker([*values, b"x"], monkeypatch)


def _read_on_worker(values: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> int:
    @contextmanager
    def fetcher(*_: object, **__: object) -> Iterator[Fetching]:
        yield Fetching(values)

    monkeypatch.setattr(partitions, "task_fetcher", fetcher)
    options = make_options(outputFormat="event")
    schema = Captured.of().schema(outputFormat="event")
    partition = partitions.Partition([OffsetRange("t", 0, 0, 2)], ReadContext(), BatchScope())
    return sum(batch.num_rows for batch in partitions.read_partition(partition, schema, options))


# Tables without rows

CREATE = "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(5,1))"
DECLARED = [declared("id", "INT"), declared("d", "DECIMAL", length=5, scale=1)]
DEFINED: dict[str, dict[str, Any]] = {
    "id": {"mysqlType": "int"},
    "d": {"mysqlType": "decimal", "length": 5, "decimal": 1},
}


@pytest.mark.parametrize("output", ["changelog", "envelope"])
@pytest.mark.parametrize(
    "ddl",
    [
        canal("CREATE", None, None, None, isDdl=True, sql=CREATE, _tidb={"commitTs": TSO}),
        debezium_ddl(TSO, CREATE, DECLARED),
        simple_definition("BOOTSTRAP", DEFINED),
    ],
    ids=["canal-json", "debezium", "simple"],
)
def test_ddl_is_enough_to_start(ddl: Message, output: str) -> None:
    """A table whose DDL is all that a topic has gives no rows, with the types of the DDL."""
    for tables in ("*.*", "test.t"):
        table = Captured.of(ddl).read(outputFormat=output, tables=tables)

        fields = table.schema if output == "changelog" else table.schema.field("after").type
        assert table.num_rows == 0
        assert {name: fields.field(name).type for name in ("id", "d")} == {"id": pa.int32(), "d": pa.decimal128(5, 1)}


def test_table_ddl_is_enough_to_start() -> None:
    """`tableDDL` alone types a table without rows, also one of an empty topic whose protocol is given."""
    watermark = canal("TIDB_WATERMARK", _tidb={"watermarkTs": TSO})
    for captured in (Captured.of(watermark), Captured.of()):
        schema = captured.schema(protocol="canal-json", tables="test.t", tableDDL=CREATE)

        assert schema.field("d").type == pa.decimal128(5, 1)
        assert schema.field("id").metadata[b"ticdc.key"] == b"true"
    other = canal("INSERT", [{"id": "1"}], None, TYPES, table="u")
    assert Captured.of(other).read(tables="test.t", tableDDL=CREATE).num_rows == 0


def test_an_alter_is_not_enough_to_start() -> None:
    """Without the columns that the table had before, an ALTER does not start a read of it; a name must be right."""
    alter = canal("ALTER", None, None, None, isDdl=True, sql="ALTER TABLE t ADD c INT", _tidb={"commitTs": TSO})
    with pytest.raises(SchemaError, match="No row"):
        Captured.of(alter).schema()
    with pytest.raises(OptionError, match=r"No row of test\.tt"):
        Captured.of(ROW).schema(tables="test.tt")


# Columns of rows before the DDL that adds them


@pytest.mark.parametrize("has_column", [True, False])
def test_a_row_before_its_add_column_has_the_type_of_the_ddl(has_column: bool) -> None:
    """A column whose type messages leave open has the type of the DDL that adds it, in rows before that too."""
    cells = {"id": "1", "c": "1.50"} if has_column else {"id": "1"}
    early = canal("INSERT", [cells], None, {"id": "int", "c": "decimal"}, _tidb={"commitTs": TSO - 20})
    late = canal("INSERT", [{"id": "2", "c": None}], None, {"id": "int", "c": "decimal"}, _tidb={"commitTs": TSO})
    alter = canal("ALTER", isDdl=True, sql="ALTER TABLE t ADD c DECIMAL(10,2)", _tidb={"commitTs": TSO - 10})

    for messages in ((early, alter), (early, alter, late)) if has_column else ((early, alter, late),):
        table = Captured.of(*messages).read()

        assert table.schema.field("c").type == pa.decimal128(10, 2)
        assert str(table.to_pylist()[0]["c"]) == ("1.50" if has_column else "None")


def test_a_debezium_row_before_its_add_column_has_the_type_of_the_ddl() -> None:
    """So has a column of debezium without schemas, if earlier DDL describes the table without it."""
    create = debezium_ddl(TSO - 30, "CREATE", [declared("id", "INT")])
    add = debezium_ddl(TSO - 10, "ALTER", [declared("id", "INT"), declared("c", "DATETIME", length=3)], kind="ALTER")
    row = debezium("c", None, {"id": 1, "c": 1_700_000_000_123}, source={"commit_ts": TSO - 20})

    table = Captured.of(create, row, add).read()

    assert table.schema.field("c").type == pa.timestamp("us")
    assert str(table.to_pylist()[0]["c"]) == "2023-11-14 22:13:20.123000"


def test_a_column_that_was_dropped_before_is_another_one() -> None:
    """A column of that name that ended before says nothing of the new one's type."""
    early = canal(
        "INSERT", [{"id": "1", "c": "1.5"}], None, {"id": "int", "c": "decimal"}, _tidb={"commitTs": TSO - 20}
    )
    ddl = [
        canal("ALTER", isDdl=True, sql=f"ALTER TABLE t {action}", _tidb={"commitTs": TSO - 10 + number})
        for number, action in enumerate(("DROP c", "ADD c DECIMAL(10,1)"))
    ]

    assert Captured.of(early, *ddl).schema().field("c").type == pa.decimal128(38, 1)
