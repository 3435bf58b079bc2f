"""`ticdc-source tail`: events as they come, with what changed."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from examples.local_kafka import produce
from examples.local_kafka.topics import Record
from tests.cli.conftest import Command, Done
from tests.fixtures import Kafka
from tests.support.messages import TSO, Message, canal, open_message
from tests.support.paths import ROOT

pytestmark = pytest.mark.broker

TYPES = {"id": "bigint", "v": "varchar", "b": "varbinary(40)"}
CODES = {"id": -5, "v": 12, "b": 2004}
SECOND = 1000 << 18


def change(kind: str, seconds: int, data: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Message:
    commit_ts = TSO + seconds * SECOND
    olds = None if old is None else [old]
    return canal(kind, [data], olds, TYPES, CODES, es=commit_ts >> 18, _tidb={"commitTs": commit_ts}, **more)


@pytest.fixture
def feed(broker: Kafka, topic: Callable[..., str]) -> str:
    name = topic(2)
    ddl = canal(
        "CREATE", isDdl=True, sql="create table t (id bigint primary key,\n v text)", _tidb={"commitTs": TSO - SECOND}
    )
    row = {"id": "7", "v": "x" * 60, "b": "\x00\xff" * 20}
    records: list[Record] = [
        (0, *ddl, [], 1_000),
        (0, *change("INSERT", 0, {"id": "7", "v": "a", "b": "\x01\x02"}), [], 2_000),
        (0, *change("UPDATE", 2, row, {"v": "a", "b": "\x01\x02"}), [], 3_000),
        (1, *change("INSERT", 1, {"id": "8", "v": None, "b": None}, table="other"), [], 2_500),
        (0, *change("DELETE", 4, row), [], 4_000),
        (0, None, b"no message", [], 5_000),
        (1, *canal("TIDB_WATERMARK", _tidb={"watermarkTs": TSO + 5 * SECOND}), [], 6_000),
    ]
    produce(broker.bootstrap_servers, name, records)
    return name


@pytest.fixture
def tail(broker: Kafka, ticdc_source: Command) -> Callable[..., Done]:
    """A function that calls `ticdc-source tail --no-follow`."""

    def run(topic: str, *arguments: object) -> Done:
        return ticdc_source(
            "tail", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", topic, "--no-follow", *arguments
        )

    return run


def test_a_line_per_event(feed: str, tail: Callable[..., Done]) -> None:
    """Commit time, place, kind, table and key; of an update what changed, binary as digits, long values cut."""
    text, data = f'"{"x" * 39}… (62 characters)', f"0x{'00ff' * 8}… (40 B)"

    done = tail(feed)

    assert (done.code, done.err) == (0, "")
    assert [line.rstrip() for line in done.out.splitlines()] == [
        f"2026-11-21 07:53:59.910 {feed}-0:0 ddl       test.t create table t (id bigint primary key, v text)",
        f'2026-11-21 07:54:00.910 {feed}-0:1 insert    test.t [id=7] v="a" b=0x0102',
        f"2026-11-21 07:54:01.910 {feed}-1:0 insert    test.other [id=8] v=null b=null",
        f'2026-11-21 07:54:02.910 {feed}-0:2 update    test.t [id=7] v: "a" → {text} b: 0x0102 → {data}',
        f"2026-11-21 07:54:04.910 {feed}-0:3 delete    test.t [id=7] v={text} b={data}",
        done.out.splitlines()[5].rstrip(),
        f"2026-11-21 07:54:05.910 {feed}-1:1 watermark {TSO + 5 * SECOND}",
    ]
    _, found, reason = done.out.splitlines()[5].partition(f"{feed}-0:4 corrupt   ")
    assert found
    assert reason.startswith("not a canal-json message: the JSON is broken: ")


def test_whole_values(feed: str, tail: Callable[..., Done]) -> None:
    done = tail(feed, "--full", "--kind", "delete")

    assert done.out.rstrip().endswith(f'[id=7] v="{"x" * 60}" b=0x{"00ff" * 20}')


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--kind", "ddl,watermark"), ["ddl", "watermark"]),
        (("--tables", "test.other", "--kind", "insert"), ["insert"]),
        (("--max-events", 2), ["ddl", "insert"]),
        (("--from=-1",), ["corrupt", "watermark"]),
        (("--from", "latest"), []),
        (("--from", "1970-01-01T00:00:03.5Z", "--kind", "delete,insert"), ["delete"]),
    ],
)
def test_what_is_shown(
    feed: str, tail: Callable[..., Done], arguments: tuple[object, ...], expected: list[str]
) -> None:
    """Kinds, tables, a number of events, and where to start."""
    done = tail(feed, *arguments)

    assert done.code == 0
    kinds = "insert|update|delete|ddl|watermark|corrupt"
    assert re.findall(rf"(?m)^.*?{feed}-\d:\d+ ({kinds}) ", done.out) == expected


def test_json(feed: str, tail: Callable[..., Done]) -> None:
    """--json has the columns of outputFormat=event."""
    (update,) = tail(feed, "--json", "--kind", "update").lines

    assert (update["_op"], update["_table"], update["_commit_version"]) == ("update", "t", TSO + 2 * SECOND)
    assert (update["key"], update["_offset"]) == ('{"id":7}', 2)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_kind_that_is_not_there(feed: str, tail: Callable[..., Done], arguments: tuple[str, ...]) -> None:
    """What ends without an event of the wanted kinds says so, and how many records it has read."""
    done = tail(feed, "--kind", "insert,ddl", "--from=-1", *arguments)

    assert (done.code, done.out) == (0, "")
    assert done.err.strip() == f"No insert or ddl among 2 records of {feed} (--from sets where tail begins)"


def test_tables_given_twice(tail: Callable[..., Done]) -> None:
    assert tail("t", "--tables", "a.b", "--conf", "tables=c.d").code == 2


@pytest.fixture
def quiet(broker: Kafka, topic: Callable[..., str]) -> str:
    name = topic()
    tables = ["refunds", *["orders"] * 20]
    rows = [change("INSERT", number, {"id": "1", "v": "a"}, table=table) for number, table in enumerate(tables)]
    produce(broker.bootstrap_servers, name, [(0, *row, [], None) for row in rows])
    return name


@pytest.mark.filterwarnings("always:No row of:UserWarning")
def test_a_table_without_a_row_near_the_end(quiet: str, tail: Callable[..., Done]) -> None:
    """What tail says of a table is about the records that it has read, all of them, and not about the topic."""
    said = "warning: No row of {} among 10 records; tables found: test.orders. Did you mean test.orders?"

    absent = [tail(quiet, "--tables", table).err for table in ("test.refunds", "test.ordres")]
    whole = tail(quiet, "--tables", "test.refunds", "--from", "earliest")

    assert [err[: err.index(" (--from sets where tail begins)")] for err in absent] == [
        said.format("test.refunds").removesuffix(" Did you mean test.orders?"),  # the names have nothing in common
        said.format("test.ordres"),
    ]
    assert (len(whole.out.splitlines()), whole.err) == (1, "")


def test_a_table_that_comes_later(
    quiet: str, tail: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, broker: Kafka
) -> None:
    """A table is not missed before the end is reached, however much is read before its first row."""
    produce(broker.bootstrap_servers, quiet, [(0, *change("INSERT", 30, {"id": "1"}, table="late"), [], None)])
    monkeypatch.setattr("ticdc_source.inspection.tail._ROUND", 5)

    done = tail(quiet, "--tables", "test.late", "--from", "earliest")

    assert (done.code, done.err, len(done.out.splitlines())) == (0, "", 1)


@pytest.mark.slow("a process of its own")
def test_it_follows_until_ctrl_c(broker: Kafka, feed: str) -> None:
    """What is written while it runs is shown, and Ctrl-C ends it with no word more."""
    command = [sys.executable, "-m", "ticdc_source.cli", "tail", "--from", "latest", "--kind", "insert"]
    command += ["--bootstrap-servers", broker.bootstrap_servers, "--subscribe", feed]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        # A shell that starts the tests in the background lets them, and what they start, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (a signal, no lock)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = ""
        for number in range(60):  # until it has found the end of the topic, which nothing tells
            produce(broker.bootstrap_servers, feed, [(0, *change("INSERT", number, {"id": "9", "v": "b"}), [], None)])
            if number == 0:
                reader = _LineReader(process.stdout)
            first = reader.line(0.5)
            if first:
                break
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
        assert (code, process.stderr.read()) == (130, "")
    assert "insert    test.t [id=9]" in first


class _LineReader:
    """Reads the first line of a stream, without waiting for it for ever."""

    def __init__(self, stream: Any) -> None:
        import threading

        self._lines: list[str] = []
        self._thread = threading.Thread(target=lambda: self._lines.append(stream.readline()), daemon=True)
        self._thread.start()

    def line(self, seconds: float) -> str:
        self._thread.join(seconds)
        return self._lines[0] if self._lines else ""


def test_ddl_of_every_partition_is_shown_once(
    broker: Kafka, topic: Callable[..., str], tail: Callable[..., Done]
) -> None:
    name = topic(3)
    first, second = (
        open_message(({"ts": TSO + number, "scm": "test", "tbl": "t", "t": 2}, {"q": f"{query} table t", "t": 11}))
        for number, query in enumerate(("truncate", "drop"))
    )
    written = [(1, first), (2, first), (0, second), (1, second), (2, second)]
    records: list[Record] = [(partition, *message, [], None) for partition, message in written]
    produce(broker.bootstrap_servers, name, records)

    shown = tail(name).out

    assert [shown.count(f"{query} table t") for query in ("truncate", "drop")] == [1, 1]
