"""A snapshot is read of a recorded conversation with a real TiDB: `python -m tests.tidb.record` records it."""

import pickle
import re
import socket
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.planning.test_frame_sample import decoded
from tests.tidb.conversation import END, Conversation, error_packet, packet_of, renumbered, replayed, row_of
from tests.tidb.record import PATH, ROWS, ROWS_PER_RANGE, TABLE
from tests.tidb.snapshots import address, partitions_of, planned, rows_of
from ticdc_source.errors import AccessRefusedError, DataLossError, OptionError, TiCDCSourceError, TiDBUnavailableError
from ticdc_source.options.options import Options
from ticdc_source.pipeline.record_frames import RECORD, survey
from ticdc_source.planning.frame_sample import find_tables, frame_options
from ticdc_source.planning.load import stream_options
from ticdc_source.sources.tidb import client, source

FIRST = ["_change_type", "_commit_version", "_commit_timestamp", "_sequence"]


@pytest.fixture(scope="module")
def conversation() -> Conversation:
    return Conversation.of(PATH)


def given_for(conversation: Conversation, port: int, **others: str) -> dict[str, str]:
    given = address("127.0.0.1", port, tables=TABLE, snapshot_at=str(conversation.facts["at"]), **others)
    return {"tidb.password": "secret-1", "snapshot.rowsPerRange": str(ROWS_PER_RANGE), **given}


def shown(rows: pa.Table) -> list[str]:
    return [repr(row) for row in rows.to_pylist()]


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("native", ["auto", "off"])
def test_the_rows_are_those_that_were_recorded(conversation: Conversation, native: str) -> None:
    """Every type, in ranges of a composite key: insert rows of one moment, numbered in each range."""
    with replayed(conversation) as port:
        partitions = list(partitions_of(given_for(conversation, port, nativeCode=native)))

    assert [part.num_rows for part in partitions] == [ROWS_PER_RANGE, ROWS_PER_RANGE, ROWS - 2 * ROWS_PER_RANGE]
    rows = pa.concat_tables(partitions)
    assert shown(rows) == conversation.facts["rows"]
    at = conversation.facts["at"]
    assert rows.column_names[:4] == FIRST
    assert rows["_commit_version"].unique().to_pylist() == [at]
    places = [(row["partition"], row["offset"], row["commit_ts"], row["rank"]) for row in rows["_sequence"].to_pylist()]
    assert places == [(number // ROWS_PER_RANGE, number % ROWS_PER_RANGE, at, 1) for number in range(ROWS)]


def test_columns_have_the_types_and_the_key_of_tidb(conversation: Conversation) -> None:
    """The schema is TiDB's: no row is sampled, and a plan can be pickled for the workers."""
    with replayed(conversation) as port:
        schema, plan = planned(given_for(conversation, port))

    types = {field.name: field.metadata[b"ticdc.mysql_type"].decode() for field in schema if field.name not in FIRST}
    assert types["a"] == "varchar(9)"
    assert {"decimal(65,30)", "bit(64)", "enum('a','B','é','x,y')", "time(3)", "vector(3)"} <= set(types.values())
    assert [field.name for field in schema if b"ticdc.key" in (field.metadata or {})] == ["a", "b"]
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 (its own)


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("protocol", ["auto", "canal-json"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_records_of_rows_are_decoded_like_rows(conversation: Conversation, protocol: str, tasks: int) -> None:
    """With `outputFormat=record` the columns are a record, too; no watermark is expected; any protocol may be named."""
    with replayed(conversation) as port:
        records = pa.concat_tables(partitions_of(given_for(conversation, port, outputFormat="record")))
    frame = record_batch(records)
    options = frame_options({"protocol": protocol})

    assert shown(decoded(frame, {"protocol": protocol}, tasks)) == conversation.facts["rows"]
    kept = pa.Table.from_batches(survey([frame], options)).combine_chunks()
    found = find_tables(kept.to_batches()[0], frame.slice(0, 0), options)
    assert [str(name) for name in found.schemas] == [TABLE]
    assert found.ddl_records.num_rows == 0
    assert set(map(tuple, records["_tables"].to_pylist())) == {(TABLE,)}
    assert records["_partition"].to_pylist().count(source.DEFINITION) == 1
    assert set(records["_partitions"].to_pylist()) == {0}
    assert records["_commit_version"].unique().to_pylist() == [None, conversation.facts["at"]]


def record_batch(records: pa.Table) -> pa.RecordBatch:
    columns = [records[f"_{field.name}"].combine_chunks().cast(field.type) for field in RECORD]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD)


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("cuts", [[0], [2000], [9000, 6000], [1, 5, 20_000, 30]])
def test_a_connection_that_is_cut_loses_and_repeats_no_row(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch, cuts: list[int]
) -> None:
    """A range is read on, in a new session, behind the rows that came."""
    monkeypatch.setattr(client, "_PAUSE_S", 0)
    monkeypatch.setattr(source, "_BLOCK", 1000)
    select = next(sql for sql in conversation.answers if sql.startswith("SELECT t.") and "LIMIT" not in sql)
    answers = _ReadOn(conversation.answers)
    with replayed(replace(conversation, answers=answers), {select: cuts}) as port:
        rows = rows_of(given_for(conversation, port))

    assert shown(rows) == conversation.facts["rows"]
    assert answers.continued >= (1 if cuts[0] > 5000 else 0)


class _ReadOn(dict[str, bytes]):
    """Answers also a statement that leaves out the first rows."""

    continued = 0

    def get(self, sql: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        match = re.fullmatch(r"(SELECT t\..*) LIMIT (\d+), 18446744073709551615", sql)
        if match is None:
            return super().get(sql, default)
        self.continued += 1
        answer = self[match[1]]
        return _without_rows(answer, int(match[2]))


def _without_rows(answer: bytes, count: int) -> bytes:
    packets, at = [], 0
    while at < len(answer):
        size = 4 + int.from_bytes(answer[at : at + 3], "little")
        packets.append(answer[at : at + size])
        at += size
    columns = next(number for number, packet in enumerate(packets) if packet[4] == 0xFE and len(packet) < 13)
    return renumbered(b"".join(packets[: columns + 1] + packets[columns + 1 + count :]))


class _Heard(dict[str, bytes]):
    """Answers, and remembers the statements."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        super().__init__(answers)
        self.said: list[str] = []

    def get(self, sql: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        self.said.append(sql)
        return super().get(sql, default)


def test_planning_goes_on_in_a_new_session(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the connection is lost at each question of the driver, it asks again, in a session of the same moment."""
    monkeypatch.setattr(client, "_PAUSE_S", 0)
    with replayed(conversation) as port:
        ranges = planned(given_for(conversation, port))[1]
    answers = _Heard(conversation.answers)
    questions = [sql for sql in answers if not sql.startswith(("SET NAMES", "SET tidb_enable"))]

    with replayed(replace(conversation, answers=answers), {sql: [0] for sql in questions}) as port:
        assert planned(given_for(conversation, port))[1] == ranges

    sessions = "\n".join(answers.said).split("SET NAMES utf8mb4\n")[1:]
    whole = re.compile(
        r"SET time_zone .*\nSET tidb_enable_external_ts_read = 0\nSET tidb_snapshot = '\d+'\n.*", re.DOTALL
    )
    assert len(sessions) > 9
    assert all(whole.fullmatch(one) for one in sessions if "SELECT" in one)


def test_the_time_is_asked_for_in_one_session(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the connection is lost behind BEGIN, the next one begins again: without a transaction there is no TSO."""
    monkeypatch.setattr(client, "_PAUSE_S", 0)
    number, done = (
        next(answer for sql, answer in conversation.answers.items() if begin in sql) for begin in ("COUNT", "SET")
    )
    now = "SELECT @@tidb_current_ts"
    answers = _Heard({**conversation.answers, "BEGIN": done, now: number, "ROLLBACK": done})

    with (
        replayed(replace(conversation, answers=answers), {now: [0]}) as port,
        client.Session(Options.of(given_for(conversation, port))) as session,
    ):
        assert session.now() == ROWS - 2 * ROWS_PER_RANGE
    assert [sql for sql in answers.said if not sql.startswith("SET")] == ["BEGIN", now, "BEGIN", now, "ROLLBACK"]


def test_a_connection_that_is_always_cut_is_an_error(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some retries the error says that the connection was lost, where TiDB is, and which table was read."""
    monkeypatch.setattr(client, "_PAUSE_S", 0)
    with (
        replayed(conversation, {"SELECT t.`a`": [10] * 100}) as port,
        pytest.raises(TiDBUnavailableError, match=rf"TiDB 127\.0\.0\.1:{port} was lost while {TABLE} was read.*run"),
    ):
        rows_of(given_for(conversation, port))


def test_a_reader_may_be_slow(conversation: Conversation) -> None:
    """The server waits while more rows than the sockets hold are read with pauses, and none is lost."""
    sql, rows = "SELECT large", [row_of(bytes([number]) * 100_000) for number in range(250)]
    count = next(answer for question, answer in conversation.answers.items() if "COUNT" in question)
    answer = renumbered(_without_rows(count, 1)[: -len(END)] + b"".join(map(packet_of, rows)) + END)
    found: list[bytes] = []

    with (
        replayed(replace(conversation, answers={**conversation.answers, sql: answer})) as port,
        client.Session(Options.of(given_for(conversation, port))) as session,
    ):
        for block in session.blocks(sql, 1 << 20, 100):
            time.sleep(0.02)
            found += block

    assert found == rows


ERRORS: list[tuple[str, int, str, type[TiCDCSourceError], str]] = [
    ("SELECT t.", 1142, "SELECT command denied to user", AccessRefusedError, rf"GRANT SELECT ON {TABLE} TO 'root'"),
    ("SELECT t.", 3024, "Query execution was interrupted", TiCDCSourceError, r"interrupted … \(error 3024\)"),
    ("SET tidb_snapshot", 1105, "cannot set read timestamp to a future time", OptionError, "lies in TiDB's future"),
    ("SET tidb_snapshot", 8055, "snapshot is older than GC safe point 2026", DataLossError, "tidb_gc_life_time"),
    ("SET time_zone", 1045, "Access denied for user 'root'", AccessRefusedError, "refuses the login of user 'root'"),
]


@pytest.mark.parametrize(("begin", "code", "text", "error", "message"), ERRORS)
def test_errors_of_tidb_say_what_to_do(
    conversation: Conversation, begin: str, code: int, text: str, error: type[TiCDCSourceError], message: str
) -> None:
    """Each refusal has its error and its remedy; none has the password."""
    answers = {
        sql: error_packet(code, f"{text} secret-1") if sql.startswith(begin) else answer
        for sql, answer in conversation.answers.items()
    }
    with replayed(replace(conversation, answers=answers)) as port, pytest.raises(error, match=message) as caught:
        rows_of(given_for(conversation, port))

    assert "secret-1" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.usefixtures("native_path")
def test_an_error_in_the_middle_of_a_result_is_an_error(conversation: Conversation) -> None:
    """Rows come first, and then an error in place of the end: the read fails."""
    answers = {
        sql: renumbered(answer[:-9] + error_packet(3024, "maximum statement execution time exceeded"))
        if sql.startswith("SELECT t.") and "LIMIT" not in sql
        else answer
        for sql, answer in conversation.answers.items()
    }
    with (
        replayed(replace(conversation, answers=answers)) as port,
        pytest.raises(TiCDCSourceError, match="maximum statement execution time exceeded"),
    ):
        rows_of(given_for(conversation, port))


def test_rows_that_are_missing_are_noticed(conversation: Conversation) -> None:
    """A range has the rows that it had when it was planned, or the read fails."""
    answers = {
        sql: _without_rows(answer, 1) if sql.startswith("SELECT t.") and "LIMIT" not in sql else answer
        for sql, answer in conversation.answers.items()
    }
    with (
        replayed(replace(conversation, answers=answers)) as port,
        pytest.raises(TiCDCSourceError, match=r"had 30 rows when the read was planned, and 29 now"),
    ):
        rows_of(given_for(conversation, port))


@contextmanager
def silent() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    kept.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            connection.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server, or one that says nothing, is an error within seconds."""
    monkeypatch.setattr(client, "_CONNECT_S", 1)
    monkeypatch.setattr(client, "_PAUSE_S", 0)
    began = time.monotonic()
    with pytest.raises(TiDBUnavailableError, match=r"No TiDB answers at 'tidb\.url'"):
        rows_of(address("127.0.0.1", closed_port(), tables="a.b"))
    with silent() as port, pytest.raises(TiDBUnavailableError, match="timed out"):
        rows_of(address("127.0.0.1", port, tables="a.b"))
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "greeting", [bytes(50), b"\5\0\0\0\n8.0\0", b"\1\0\0\0\xff", b"l\0\0\0\n8.0\xf1", b"SSH-2.0-x\r\n"]
)
def test_what_answers_is_no_tidb(monkeypatch: pytest.MonkeyPatch, greeting: bytes) -> None:
    """The error names the option, whatever PyMySQL makes of the greeting."""
    monkeypatch.setattr(client, "_PAUSE_S", 0)
    monkeypatch.setattr(client, "_CONNECT_S", 1)

    with replayed(Conversation(greeting=greeting)) as port, pytest.raises(TiCDCSourceError, match=f"127.0.0.1:{port}"):
        planned(address("127.0.0.1", port, tables="a.b", tidb_password="secret-1"))


def test_without_pymysql(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "pymysql", None)

    with pytest.raises(AccessRefusedError, match=r"pip install 'ticdc-source\[tidb\]'"):
        rows_of(address("127.0.0.1", 4000, tables="a.b"))


def test_the_private_names_of_pymysql_are_there() -> None:
    """Each that is used exists in the installed release, which is one of those that are supported."""
    import pymysql
    from pymysql.connections import Connection, MySQLResult

    first, after = client._SUPPORTED
    assert first <= pymysql.VERSION[:2] < after
    result = MySQLResult(None)
    assert (result.unbuffered_active, result.connection) == (False, None)
    connection = Connection(defer_connect=True, user="root")
    assert {"_result", "_read_timeout", "_ssl_required", "decoders", "ssl"} <= set(vars(connection))
    assert connection._rfile is None


MISTAKES: list[tuple[dict[str, str], str]] = [
    ({"tidb.url": "root:secret-1@tidb:4000"}, "Option 'tidb.url': expected host:port"),
    ({"tidb.url": "jdbc:mysql://tidb:4000/?password=secret-1"}, "Option 'tidb.url': expected host:port"),
    ({"tidb.url": "tidb:400000"}, "Option 'tidb.url': expected host:port"),
    ({"snapshot.at": "yesterday"}, "Option 'snapshot.at': expected now, a TSO, or a time"),
    ({"snapshot.at": "1767000000000"}, "did you mean 463208448000000000"),
    ({"snapshot": "initial"}, r"Option 'kafka\.bootstrap\.servers' must be specified"),
    ({"subscribe": "topic"}, "Option 'subscribe' is for messages"),
    ({"kafka.bootstrap.servers": "b:9092"}, r"Option 'kafka\.bootstrap\.servers' is for messages"),
    ({"startingOffsets": "earliest"}, "Option 'startingOffsets' is for messages"),
    ({"protocol": "canal-json"}, "leave 'protocol' out"),
    ({"snapshot.rowsPerRange": "0"}, "expected a whole number, at least 1"),
    ({"tidb.ssl.mode": "yes"}, "Option 'tidb.ssl.mode'"),
    ({"startingCommitTs": "467775488000000000"}, "Option 'startingCommitTs': all rows of snapshot=only have one"),
    ({"endingCommitTs": "467775488000000000"}, "Option 'endingCommitTs': all rows of snapshot=only have one"),
    ({"tidb.ssl.ca": "a.pem", "tidb.ssl.mode": "required"}, r"Option 'tidb\.ssl\.ca': .*=required checks no cert"),
    ({"tidb.ssl.ca": "nowhere.pem"}, r"Option 'tidb\.ssl\.ca': the file cannot be read"),
]


@pytest.mark.parametrize(("changed", "message"), MISTAKES)
def test_mistakes_are_errors_before_anything_is_read(changed: dict[str, str], message: str) -> None:
    """Each names the option, and shows no password."""
    given = {**address("127.0.0.1", 9, tables="a.b"), **changed}

    with pytest.raises(OptionError, match=message) as caught:
        rows_of(given)
    assert "secret-1" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("missing", ["tidb.url", "tidb.user"])
def test_tidb_must_be_named(missing: str) -> None:
    """Without a server or a user the error names the option."""
    given = address("127.0.0.1", 9, tables="a.b")
    del given[missing]

    with pytest.raises(OptionError, match=f"Option '{missing}' is missing"):
        rows_of(given)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"snapshot.at": "now"}, r"Option 'snapshot\.at' is for rows from TiDB"),
        ({"tidb.user": "root"}, r"Option 'tidb\.user' needs 'tidb\.url'"),
        ({"tidb.url": "tidb:4000"}, r"Option 'tidb\.user' is missing"),
        (
            {"tidb.url": "tidb:4000", "outputFormat": "event"},
            r"outputFormat=event has no typed columns: leave it out; for JSON, 'tableDDL' supplies types",
        ),
    ],
)
def test_what_tidb_may_tell_of_messages(own: dict[str, str], message: str) -> None:
    """Where topics are read, TiDB tells typed columns, and nothing else."""
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **own}

    with pytest.raises(OptionError, match=message):
        rows_of(given)


@pytest.mark.parametrize(
    ("text", "tso"),
    [
        ("2026-11-27 10:00:00", 1_795_773_600_000 << 18),
        ("2026-11-27T11:00:00.5+01:00", 1_795_773_600_500 << 18),
        ("469237788138012675", 469_237_788_138_012_675),
    ],
)
def test_moments(text: str, tso: int) -> None:
    """A time is in UTC unless it has an offset; a TSO is itself."""
    assert Options.of(address("tidb", 4000, tables="a.b", snapshot_at=text)).snapshot_at == tso


def test_a_stream_is_refused() -> None:
    """A table as of a moment does not go on."""
    with pytest.raises(OptionError, match="snapshot=only is supported only in batch reads"):
        stream_options(address("tidb", 4000, tables="a.b"))
