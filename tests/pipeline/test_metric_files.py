"""Metric files are whole or not there, in a folder and in stores, and never fail a read nor show a secret."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyarrow import fs

from tests.support.s3 import s3_server
from ticdc_source.errors import OptionError
from ticdc_source.options.options import Options
from ticdc_source.pipeline.metric_files import MetricFiles

SECRET = "s3cr3t/+key"
LINES = [{"a": 1}, {"b": 2}]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "FILE://{}"])
def test_a_task_writes_one_file(tmp_path: Path, form: str) -> None:
    """A task writes its lines to one file, in a folder that it makes, and leaves no other file behind."""
    files = MetricFiles(form.format(tmp_path / "deep" / "down"))
    assert files.names() == []

    files.write("task", LINES)

    (file,) = (tmp_path / "deep" / "down").iterdir()
    assert [json.loads(line) for line in file.read_text().splitlines()] == LINES
    assert files.names() == [file.name]
    assert files.read(file.name) == LINES


def test_files_that_are_being_written_are_not_listed(tmp_path: Path) -> None:
    """Drafts, and files of others, are no metric files."""
    for name in (".a.jsonl.tmp", ".b.jsonl", "c.crc", "d.jsonl"):
        (tmp_path / name).write_text("{}\n")

    assert MetricFiles(str(tmp_path)).names() == ["d.jsonl"]


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that cannot be made is logged once, is left alone for a minute, and is then tried again."""
    blocked, clock = tmp_path / "file", Clock()
    blocked.write_text("")
    files = MetricFiles(str(blocked), clock)

    for clock.now in (0.0, 30.0, 70.0):
        files.write("task", LINES)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be written" in caplog.text
    blocked.unlink()
    clock.now = 71.0
    files.write("task", LINES)
    assert not blocked.exists()
    clock.now = 131.0
    files.write("task", LINES)
    assert len(files.names()) == 1


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, neither a part of a file nor a draft is left."""

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    MetricFiles(str(tmp_path)).write("task", LINES)

    assert list(tmp_path.iterdir()) == []


class Renaming(MetricFiles):
    """Metric files in a store that is no object store, such as HDFS: pyarrow's own stand-in."""

    def __init__(self, *, moves: bool = True) -> None:
        super().__init__("hdfs://nn/metrics")
        self.system = Recorded(moves=moves)
        self._opened = fs.PyFileSystem(self.system), "metrics"


class Recorded(fs.FSSpecHandler):  # type: ignore[misc]
    """A file system in memory that keeps the names of its calls, and can refuse to move files."""

    def __init__(self, *, moves: bool) -> None:
        from fsspec.implementations.memory import MemoryFileSystem

        memory = MemoryFileSystem(skip_instance_cache=True)
        memory.store, memory.pseudo_dirs = {}, [""]
        super().__init__(memory)
        self.moves = moves
        self.calls: list[tuple[str, ...]] = []

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        self.calls.append(("open", path))
        return super().open_output_stream(path, metadata)

    def move(self, src: str, dest: str) -> None:
        self.calls.append(("move", src, dest))
        if not self.moves:
            raise OSError("no quota")
        super().move(src, dest)


def test_a_store_whose_files_grow_gets_a_draft_first() -> None:
    """Where a file is visible while it is written, as in HDFS, it is written under a hidden name and then moved."""
    files = Renaming()

    files.write("task", LINES)

    (name,) = files.names()
    assert files.system.calls == [("open", f"metrics/.{name}.tmp"), ("move", f"metrics/.{name}.tmp", f"metrics/{name}")]
    assert files.read(name) == LINES


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The query of the URIs of an S3-compatible server with a bucket."""
    with s3_server("metrics") as query:
        yield query


def test_an_object_store_gets_whole_objects(s3: str) -> None:
    """Lines written to an S3-compatible server are objects with these lines, also under Spark's scheme s3a."""
    files = MetricFiles(f"s3a://key:{quote(SECRET, safe='')}@metrics/of/shop?{s3}")
    assert files.names() == []

    for name in ("b", "a"):
        files.write(name, LINES)

    names = files.names()
    assert [name[:2] for name in names] == ["a-", "b-"]
    assert [files.read(name) for name in names] == [LINES, LINES]


def test_an_object_store_that_refuses_is_one_warning_without_secrets(s3: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bucket that is not there fails no read, and the warning names it without the key."""
    files = MetricFiles(f"s3://AKIAXYZ:{quote(SECRET, safe='')}@nobody/shop?{s3}")

    for _ in range(3):
        files.write("task", LINES)

    (record,) = caplog.records
    assert "s3://nobody/shop cannot be written" in record.getMessage()
    assert "does not exist" in record.getMessage()
    for secret in (SECRET, quote(SECRET, safe=""), "AKIAXYZ"):
        assert secret not in caplog.text


@pytest.mark.parametrize(
    "location",
    [
        f"s3://AKIAXYZ:{SECRET}@bucket/x",  # not escaped: pyarrow repeats it whole
        f"s3://AKIAXYZ:{quote(SECRET, safe='')}@bucket/x?token={SECRET}",
        f"hdfs://AKIAXYZ:{SECRET}@nowhere/x",
        f"abfs://box:AKIAXYZ@account/x?key={SECRET}",
    ],
)
def test_no_message_shows_what_a_uri_hides(location: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a store raises, neither warnings nor errors nor `repr` have a part of the URI that may be secret."""
    files = MetricFiles(location)

    files.write("task", LINES)
    with pytest.raises(OSError, match=r".") as raised:
        files.names()

    texts = [caplog.text, repr(files), files.shown(raised.value)]
    assert "cannot be written" in caplog.text
    assert not [text for text in texts for secret in (SECRET, quote(SECRET, safe=""), "AKIAXYZ") if secret in text]


def test_a_scheme_that_nobody_knows_is_an_error_of_the_option() -> None:
    """A URI of another kind is refused at once, and the error does not repeat it."""
    given = {"kafka.bootstrap.servers": "b:9", "subscribe": "t"}

    with pytest.raises(OptionError, match=r"metricsPath': expected a path, .* got a URI of 'dbfs:'") as raised:
        Options.of({**given, "metricsPath": f"dbfs:/user:{SECRET}@x"})

    assert SECRET not in str(raised.value)
    options = Options.of({**given, "metricsPath": f" s3://key:{SECRET}@bucket/x "})
    assert options.metrics_path == f"s3://key:{SECRET}@bucket/x"
    assert SECRET not in repr(options)
