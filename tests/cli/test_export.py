"""`ticdc-source export`: rows without Spark, in a file."""

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.local_kafka import produce
from tests.cli.conftest import Command, Done
from tests.fixtures import Kafka
from tests.support.messages import TSO, canal
from ticdc_source.cli import export as command
from ticdc_source.cli.__main__ import main

pytestmark = pytest.mark.broker


@pytest.fixture
def export(broker: Kafka, topic: Callable[..., str], ticdc_source: Command) -> Callable[..., Done]:
    """A function that calls `ticdc-source export` with a topic of three rows, and of other values if there are any."""
    name = topic(2)
    rows = [canal("INSERT", [{"id": str(n)}], None, {"id": "bigint"}, _tidb={"commitTs": TSO + n}) for n in range(3)]
    produce(broker.bootstrap_servers, name, [(n % 2, *row, [], None) for n, row in enumerate(rows)])

    def run(to: Path, *values: bytes) -> Done:
        produce(broker.bootstrap_servers, name, [(0, None, value, [], None) for value in values])
        return ticdc_source("export", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", name, "--to", to)

    return run


def test_rows_are_written(export: Callable[..., Done], tmp_path: Path) -> None:
    done = [export(tmp_path / f"rows{suffix}") for suffix in (".parquet", ".arrow")]

    assert [(each.code, each.out) for each in done] == [
        (0, f"{tmp_path / name}: 3 rows\n") for name in ("rows.parquet", "rows.arrow")
    ]
    parquet = pq.read_table(tmp_path / "rows.parquet")
    with pa.ipc.open_file(tmp_path / "rows.arrow") as file:
        assert parquet.equals(file.read_all())
    assert sorted(parquet.column("id").to_pylist()) == [0, 1, 2]
    assert parquet.column("_commit_timestamp").type == pa.timestamp("us", "UTC")


def test_a_record_that_cannot_be_read_leaves_no_file(export: Callable[..., Done], tmp_path: Path) -> None:
    """Neither under the name nor beside it; a file of before stays."""
    to = tmp_path / "rows.parquet"
    to.write_bytes(b"before")

    done = export(to, b"no message")

    assert done.code != 0
    assert "offset=2" in done.err
    assert to.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [to]


def test_what_cannot_be_written_or_read_is_refused(
    export: Callable[..., Done], ticdc_source: Command, tmp_path: Path
) -> None:
    """The end of the name says which format it has; a folder that is not there is named."""
    assert "ends in .parquet or .arrow" in export(tmp_path / "rows.csv").err
    done = export(tmp_path / "nowhere" / "rows.parquet")
    assert (done.code, "there is no folder" in done.err) == (2, True)
    assert "a local file" in ticdc_source("export", "--subscribe", "t", "--to", "s3://bucket/rows.parquet").err
    done = ticdc_source("export", "--to", tmp_path / "rows.parquet")
    assert (done.code, "--subscribe" in done.err) == (2, True)


def test_an_error_of_reading_is_none_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what goes wrong with the file itself is reported as `--to`."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches())
    monkeypatch.setattr(command, "read_arrow", lambda _: reader)

    with pytest.raises(OSError, match="No route to host"):
        main(["export", "--conf", "path=/x", "--to", str(tmp_path / "rows.parquet")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_full_disk_is_an_error_of_the_file(suffix: str, tmp_path: Path) -> None:
    """Also where the end of the file, which its writer adds when it is closed, does not fit either."""
    code = f"""
import os, resource, signal, sys
import pyarrow as pa
from ticdc_source.cli import export
from ticdc_source.cli.__main__ import main

batch = pa.record_batch({{"id": [os.urandom(100_000)]}})
export.read_arrow = lambda _: pa.RecordBatchReader.from_batches(batch.schema, iter([batch] * 5))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))
sys.exit(main(["export", "--conf", "path=/x", "--to", {str(tmp_path / f"rows{suffix}")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"--to {tmp_path / f'rows{suffix}'}: " in done.stderr
    assert not list(tmp_path.iterdir())
