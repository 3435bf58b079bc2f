"""Every row event of the corpus decodes to the SQL truth beside it.

`make test` reads each table from the records about it, one table from each whole file, and streams around their DDL;
`make test-all` reads every table from whole files and whole streams.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.captured import Captured, Sizes, events_of, load, random_sizes, single, whole
from tests.support.corpus import names_in, read_file, scenario, scenarios, streamed
from tests.support.losses import LOSSES, MISSING
from tests.support.truth import TrueRow, expected, has_commit_ts, is_left, tables_with_rows, true_rows

pytestmark = pytest.mark.filterwarnings(
    "ignore:The messages of .*:UserWarning"
)  # inference's notes are tested elsewhere

MATRICES = [
    f"{scenario}.{matrix}"
    for scenario in (
        "open-protocol.default",
        "canal-json.plain",
        "canal-json.tidb-extension",
        "canal-json.content-compatible",
        "debezium.default",
        "debezium.disable-schema",
        "simple.json",
        "simple.avro",
    )
    for matrix in ("types", "ops")
]
STREAMS = ["stream.open-protocol", "stream.canal-json.tidb-extension", "stream.debezium.tidb-extension.disable-schema"]
# Messages too large for Kafka: tests/protocols/test_large_messages.py reads them.
LARGE = [
    f"{scenario}{compression}.large"
    for scenario in (
        "canal-json.claim-check",
        "canal-json.claim-check-raw-value",
        "canal-json.handle-key-only",
        "open-protocol.claim-check",
        "open-protocol.handle-key-only",
        "simple.claim-check",
        "simple.claim-check-raw-value",
        "simple.handle-key-only",
    )
    for compression in ("", ".lz4", ".snappy")
]
# Avro behind the ids of a schema registry.
REGISTERED = [name for name in scenarios() if name.startswith(("avro.", "debezium-avro."))]
# Those whose rows differ from those of another one in fields of the header only.
SAME_ROWS = {
    "avro.include-before-value",
    "avro.include-before-value.tidb-extension",
    "avro.string-modes",
    "avro.tidb-extension",
    "avro.tidb-extension.string-modes",
    "avro.tidb-extension.tz-shanghai",
    "avro.watermark",
    "debezium-avro.watermark",
}
# Settings that change how TiCDC writes messages, and not what a read returns, except losses (tests/support/losses.py).
VARIANTS = [name for name in scenarios() if name not in {*MATRICES, *REGISTERED, *STREAMS, *LARGE}]
SEED = 20261121


def quoted(database: str, table: str) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in (database, table))


def options_of(captured: Captured) -> dict[str, str]:
    """Return the options that a user must set for a changefeed: the time zone of the TiCDC server."""
    return {"timeZone": captured.header["time_zone"]}


def differences(header: Mapping[str, Any], true: TrueRow, row: dict[str, Any], losses: Counter[str]) -> list[str]:
    """Return a line for everything that differs from the truth."""
    out = []
    sequence = row["_sequence"]
    index = sequence["index"] & 0x7FFFFFFF  # that of old rows is negative without a commit-ts
    address = (sequence["partition"], sequence["offset"], index)
    if address != (true.partition, true.offset, true.index):
        out.append(f"address {address}")
    if row["_change_type"] != true.change_type:
        out.append(f"_change_type {row['_change_type']}")
    is_known = has_commit_ts(true.change_type, header)
    if is_known and row["_commit_version"] not in (true.commit_ts, true.commit_ts >> 18 << 18):
        out.append(f"_commit_version {row['_commit_version']}, not {true.commit_ts}")
    for name, truth in true.values.items():
        left, loss = expected(header["protocol"], true.columns[name], truth)
        if loss is not None:
            losses[loss.name] += 1
        if name not in row and left is None:  # a table of which only deletes by key are there
            continue
        value = row[name]
        if not is_left(value, left, true.columns[name]["mysql_type"]):
            out.append(f"{name} {true.columns[name]['mysql_type']}: {value!r}, not {left!r} ({truth!r})")
    return out


def compare(captured: Captured, sizes: Sizes, tables: list[tuple[str, str]], *, cut: bool = False) -> int:
    """Read tables and compare each row with its truth.

    Args:
        captured: the records, of these and of other tables.
        sizes: sizes of the chunks.
        tables: database and name of each table.
        cut: whether to read each table from the records about it alone.

    Returns:
        How many rows were compared.
    """
    count = 0
    for database, table in tables:
        records = captured.only(database, table) if cut else captured
        rows = records.read(tables=quoted(database, table), sizes=sizes, **options_of(captured)).to_pylist()
        true = list(true_rows(records, database, table))
        assert len(rows) == len(true), f"{table}: {len(rows)} rows, not {len(true)}"
        for row, truth in zip(rows, true, strict=True):
            wrong = differences(captured.header, truth, row, Counter())
            assert not wrong, f"{table} {truth.partition}/{truth.offset}: {wrong}"
        count += len(rows)
    return count


@pytest.mark.parametrize("scenario", MATRICES)
def test_every_row_of_a_matrix_is_the_sql_truth(scenario: str) -> None:
    """Types and operations decode to the truth, in chunks of any size."""
    captured = load(scenario)

    assert compare(captured, random_sizes(SEED), tables_with_rows(captured), cut=True) > 0


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.long("the types of a matrix again")) if name.endswith(".types") else name
        for name in VARIANTS
    ],
)
def test_every_row_of_a_variant_is_the_sql_truth(scenario: str) -> None:
    """Dispatchers, batch sizes, the extension and partial old rows give the same truth."""
    captured = load(scenario)

    assert compare(captured, whole, tables_with_rows(captured), cut=True) > 0


@pytest.mark.parametrize(
    "scenario",
    [*MATRICES, *(pytest.param(name, marks=pytest.mark.long("the records are a matrix's")) for name in VARIANTS)],
)
def test_a_table_is_read_from_the_records_of_all_tables(scenario: str) -> None:
    """The records of other tables change nothing: the table with the most rows decodes to its truth."""
    captured = load(scenario)
    tables = tables_with_rows(captured)
    largest = max(tables, key=lambda table: sum(1 for _ in true_rows(captured, *table)))

    assert compare(captured, random_sizes(SEED), [largest]) > 0


@pytest.mark.parametrize("scenario", [
    name if name == "avro.default" else
    pytest.param(name, marks=(pytest.mark.long if name in SAME_ROWS else pytest.mark.slow)("fastavro reads each row"))
    for name in REGISTERED
])  # fmt: skip
def test_every_row_of_registered_avro_is_the_sql_truth(scenario: str) -> None:
    """Avro behind a schema id decodes to the truth, in chunks of any size, beside the records of all other tables."""
    captured = load(scenario)

    assert compare(captured, random_sizes(SEED), tables_with_rows(captured)) > 0


# One matrix a wire is read record by record in CI; `test_every_row_of_a_matrix_is_the_sql_truth` cuts all anywhere.
ONE_BY_ONE = {
    f"{name}.types"
    for name in (
        "open-protocol.default",
        "canal-json.tidb-extension",
        "debezium.disable-schema",
        "simple.json",
        "simple.avro",
    )
}


@pytest.mark.parametrize(
    ("scenario", "sizes"),
    [
        pytest.param(
            name,
            sizes,
            marks=(pytest.mark.slow if sizes is single and name in ONE_BY_ONE else pytest.mark.long)(
                "reads a file once for each of its tables"
            ),
            id=f"{name}-{sizes.__name__}",
        )
        for name in MATRICES
        for sizes in (whole, single)
    ],
)
def test_every_table_of_a_matrix_is_read_from_the_whole_file(scenario: str, sizes: Sizes) -> None:
    """Every table decodes to the truth between the records of all others, however these are cut into chunks."""
    captured = load(scenario)

    assert compare(captured, sizes, tables_with_rows(captured)) > 0


@pytest.mark.slow("unpacks the whole corpus")
def test_the_bundle_is_the_corpus(corpus: Path) -> None:
    """The copy in this repository equals the corpus; streams end with the last message of the demo's data."""
    assert scenarios() == names_in(corpus)
    for name in scenarios():
        assert scenario(name) == streamed(name, read_file(corpus, name)), name


@pytest.mark.parametrize(
    "scenario", [STREAMS[0], *(pytest.param(one, marks=pytest.mark.slow("the same in it")) for one in STREAMS[1:])]
)
@pytest.mark.parametrize(
    "sizes",
    [pytest.param(single, marks=pytest.mark.long("a read of each record")), random_sizes(SEED)],
    ids=["single", f"random-{SEED}"],
)
def test_every_row_of_a_stream_around_its_ddl_is_the_sql_truth(scenario: str, sizes: Sizes) -> None:
    """Changes before and after each DDL decode to the truth, however the records are cut into chunks."""
    captured = load(scenario).around_ddl(50)

    assert compare(captured, sizes, tables_with_rows(captured)) > 1000


@pytest.mark.slow("20,000 rows a stream")
@pytest.mark.parametrize("scenario", STREAMS)
def test_every_row_of_a_stream_is_the_sql_truth(scenario: str) -> None:
    """Twenty thousand changes over three tables with schema changes and replays decode to the truth."""
    captured = load(scenario)

    assert compare(captured, random_sizes(SEED), tables_with_rows(captured)) > 20_000


def test_every_loss_occurs() -> None:
    """The corpus has each loss that the tests accept, and updates for each setting that leaves out old rows."""
    # The corpus has no files of CSV: its losses are those that tests/sources/storage accepts.
    never = {(each.protocol, each.name) for each in (*LOSSES, *MISSING) if each.protocol != "csv"}
    for name in scenarios():
        header = scenario(name).header
        protocol = header["protocol"]
        if name in STREAMS or protocol not in {protocol for protocol, _ in never}:
            continue
        captured = load(name)
        for row in (row for table in tables_with_rows(captured) for row in true_rows(captured, *table)):
            lost = (expected(protocol, row.columns[column], truth)[1] for column, truth in row.values.items())
            never -= {(protocol, loss.name) for loss in lost if loss is not None}
        records = (record for records in captured.partitions.values() for record in records)
        if any(event["op"] == "update" for record in records for event in events_of(record.truth)):
            never -= {(protocol, each.name) for each in MISSING if each.applies(header["config"])}

    assert never == set()
