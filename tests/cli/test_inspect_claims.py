"""`ticdc-source inspect` claims no setting and no time zone that messages do not prove."""

from datetime import datetime, timezone

import pytest

from tests.cli.test_inspect import chunks_of, inspected, of_messages
from tests.support.corpus import Line
from tests.support.messages import TSO, Message, canal, cell, dump, open_message
from ticdc_source.inspection.report import Inspection

KEY = 11  # the flags of a primary key
ADDED = (5, "ALTER TABLE t ADD COLUMN c int")


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


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        pytest.param("open.output-old-value", [insert(0), ddl(1, 11, "TRUNCATE TABLE t"), insert(2)], id="truncated"),
        pytest.param("max-batch-size", [insert(number, number) for number in range(120)], id="little-traffic"),
        pytest.param(
            "delete-only-output-handle-key-columns",
            [row(0, d={"a": cell(3, 1)}), ddl(1, *ADDED), row(2, u={"a": cell(3, 1), "c": cell(3, 1)})],
            id="added-column-no-key",
        ),
        pytest.param(
            "delete-only-output-handle-key-columns",
            [row(0, d={"id": cell(3, 1, KEY)}), ddl(1, *ADDED), row(2, u={"id": cell(3, 2, KEY), "c": cell(3, 1)})],
            id="added-column-all-key",
        ),
    ],
)
def test_what_has_another_reason_is_no_setting(name: str, messages: list[Message]) -> None:
    """A row written again after TRUNCATE, little traffic and deletes from before ADD COLUMN prove no setting."""
    assert name not in settings_of(of_messages(*messages))


def test_a_gap_between_two_writes_of_a_row_proves_nothing() -> None:
    """A delete may be among the records that were not read, so a row at both ends was not surely updated."""
    head, tail = chunks_of([Line(0, *insert(0), {})]), chunks_of([Line(0, *insert(9), {})])
    tail[0].offsets = [50]
    whole = chunks_of([Line(0, *insert(0), {}), Line(0, *insert(9), {})])

    assert "open.output-old-value" not in settings_of(inspected([*head, *tail]))
    assert settings_of(inspected(whole))["open.output-old-value"] == "false"


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
