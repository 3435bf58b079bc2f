"""`ticdc-source inspect` claims no setting and no time zone that messages do not prove."""

from datetime import datetime, timezone

import pytest

from tests.cli.test_inspect import chunks_of, inspected, of_messages
from tests.support.corpus import Line
from tests.support.messages import TSO, Message, canal, cell, dump, open_message
from ticdc_source.inspection.report import Inspection

KEY = 11  # the flags of a primary key


def row(after: int, **members: object) -> Message:
    """Return an open-protocol row of test.t, committed so many seconds after TSO."""
    return open_message(({"ts": TSO + (after * 1000 << 18), "scm": "test", "tbl": "t", "t": 1}, members))


def ddl(after: int, code: int, query: str) -> Message:
    """Return an open-protocol DDL message of test.t."""
    head = {"ts": TSO + (after * 1000 << 18), "scm": "test", "tbl": "t", "t": 2}
    return open_message((head, {"q": query, "t": code}))


def insert(after: int, key: int = 1) -> Message:
    """Return an insert of a row with a key."""
    return row(after, u={"id": cell(3, key, KEY), "v": cell(3, after)})


def deleted(after: int) -> Message:
    """Return a delete of the row that `insert` inserts."""
    return row(after, d={"id": cell(3, 1, KEY), "v": cell(3, after)})


def updated(after: int) -> Message:
    """Return an update of it with its old row."""
    return row(after, u={"id": cell(3, 1, KEY), "v": cell(3, after)}, p={"id": cell(3, 1, KEY), "v": cell(3, 0)})


def large(after: int) -> Message:
    """Return an update of it that has its key only, as it was too large."""
    head = {"ts": TSO + (after * 1000 << 18), "scm": "test", "tbl": "t", "t": 1, "ohk": True}
    return open_message((head, {"u": {"id": cell(3, 1, KEY)}}))


def settings_of(report: Inspection) -> dict[str, str]:
    """Return the settings of the only protocol."""
    return {each.name: each.value for each in report.topics[0].protocols[0].settings}


def official(kind: str, after: dict[str, str], old: dict[str, str] | None, number: int) -> Message:
    """Return a message of official Canal."""
    moment = (TSO >> 18) + number
    message = {
        "data": [after], "database": "test", "es": moment, "gtid": "", "id": number + 1, "isDdl": False,
        "mysqlType": {"id": "int(11)", "v": "varchar(10)"}, "old": None if old is None else [old], "pkNames": ["id"],
        "sql": "", "sqlType": {"id": 4, "v": 12}, "table": "t", "ts": moment, "type": kind,
    }  # fmt: skip
    return b"", dump(message)


def native(op: str, key: int, number: int) -> Message:
    """Return a message of native Debezium."""
    source = {"connector": "mysql", "ts_ms": (TSO >> 18) + number, "db": "test", "table": "t", "pos": number}
    before = None if op == "c" else {"id": key, "v": number - 1}
    payload = {"before": before, "after": {"id": key, "v": number}, "source": source, "op": op, "ts_ms": TSO >> 18}
    return dump({"payload": {"id": key}}), dump({"payload": payload})


def test_a_row_written_again_after_truncate_is_no_update() -> None:
    """DDL removed the row before, so nothing shows that the changefeed sends no old rows."""
    report = of_messages(insert(0), ddl(1, 11, "TRUNCATE TABLE t"), insert(2))

    assert "no-old-rows" not in {each.code for each in report.findings}


@pytest.mark.parametrize(
    ("later", "shown"),
    [
        pytest.param([(0, insert(9))], True, id="updated"),
        pytest.param([(0, deleted(5)), (0, insert(9))], False, id="deleted"),
        pytest.param([(1, deleted(5)), (0, insert(9))], False, id="deleted-in-another-partition"),
        pytest.param([(0, deleted(5)), (0, insert(6)), (0, insert(9))], True, id="updated-after-a-delete"),
        pytest.param([(0, insert(5)), (0, updated(9))], False, id="another-update-has-its-old-row"),
        pytest.param([(0, large(9))], False, id="too-large"),
        pytest.param([(0, insert(0))], False, id="sent-again"),
    ],
)
def test_an_insert_of_a_row_that_is_there_is_an_update_without_its_old_row(
    later: list[tuple[int, Message]], *, shown: bool
) -> None:
    """open-protocol writes such an update like an insert; only the row before it tells."""
    lines = [Line(partition, *message, {}) for partition, message in [(0, insert(0)), *later]]
    report = inspected(chunks_of(lines), partitions=2)

    messages = [each.message for each in report.findings if each.code == "no-old-rows"]
    assert [message.endswith("with open.output-old-value=true") for message in messages] == [True] * shown


def test_a_gap_between_two_writes_of_a_row_proves_nothing() -> None:
    """A delete may be among the records that were not read, so a row at both ends was not surely updated."""
    head, tail = chunks_of([Line(0, *insert(0), {})]), chunks_of([Line(0, *insert(9), {})])
    reports = []
    for offset in (1, 50):
        tail[0].offsets = [offset]
        reports.append({each.code for each in inspected([*head, *tail]).findings})

    assert ["no-old-rows" in codes for codes in reports] == [True, False]


@pytest.mark.parametrize("option", [{"preimages": "false"}, {"operations": "insert"}, {"columns": "v,id"}])
def test_options_of_a_read_accuse_no_changefeed(option: dict[str, str]) -> None:
    """Rows that the user left out are not missing in the messages, and a part of a key identifies no row."""
    both = [row(after, u={"id": cell(3, 1, KEY), "id2": cell(3, after, KEY), "v": cell(3, 0)}) for after in (0, 2)]
    messages = both if "columns" in option else [insert(0), updated(2), deleted(4), insert(6)]

    report = of_messages(*messages, **option)

    assert "no-old-rows" not in {each.code for each in report.findings}
    assert report.topics[0].protocols[0].tables[0].sent_again == 0


@pytest.mark.parametrize("by_key", [True, False])
def test_others_have_no_changefeed(*, by_key: bool) -> None:
    """Messages of official Canal and of native Debezium show no setting of TiCDC, however they lie in partitions."""
    canals = [official("INSERT", {"id": str(key), "v": "a"}, None, key) for key in range(12)]
    canals += [official("UPDATE", {"id": str(key + 50), "v": "a"}, {"id": str(key)}, key + 20) for key in range(12)]
    natives = [native("c", key, key) for key in range(12)] + [native("u", key, key + 20) for key in range(12)]
    for messages in (canals, natives):
        lines = [Line(number % 3 if by_key else 1, *each, {}) for number, each in enumerate(messages)]
        report = inspected(chunks_of(lines), partitions=3)

        assert settings_of(report) == {}
        assert "only TiCDC sends them" in next(f.message for f in report.findings if f.code == "no-watermarks")
        assert "enable-tidb-extension" not in next(f.message for f in report.findings if f.code == "no-commit-ts")


@pytest.mark.parametrize(("seconds", "created"), [(3600, True), (900, False), (1800, False)])
def test_an_expiry_is_no_time_zone(seconds: int, created: bool) -> None:
    """A TIMESTAMP ahead of the commits is not called shifted if no zone is so, or if another column is in its place."""

    def message(number: int) -> Message:
        commit = (TSO >> 18) + number * 60_000
        ahead = {"expires_at": seconds, **({"created_at": 0} if created else {})}
        texts = {
            name: datetime.fromtimestamp(commit / 1000 + more, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
            for name, more in ahead.items()
        }
        return canal(
            data=[{"id": str(number), **texts}],
            mysql_type={"id": "int", **dict.fromkeys(texts, "timestamp")},
            sql_type={"id": 4, **dict.fromkeys(texts, 93)},
            _tidb={"commitTs": commit << 18},
        )

    report = of_messages(*(message(number) for number in range(5)))

    assert "timestamp-shifted" not in {each.code for each in report.findings}
