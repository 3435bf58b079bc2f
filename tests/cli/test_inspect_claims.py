"""`ticdc-source inspect` claims no setting and no time zone that messages do not prove."""

from datetime import datetime, timezone

import pytest

from tests.cli.test_inspect import chunks_of, inspected, of_messages
from tests.support.corpus import Line
from tests.support.messages import TSO, Message, canal, cell, debezium, dump, open_message
from ticdc_source.inspection.report import Inspection


def settings_of(report: Inspection) -> dict[str, str]:
    return {each.name: each.value for each in report.topics[0].protocols[0].settings}


def official(kind: str, after: dict[str, str], old: dict[str, str] | None, number: int) -> Message:
    moment = (TSO >> 18) + number
    message = {
        "data": [after], "database": "test", "es": moment, "gtid": "", "id": number + 1, "isDdl": False,
        "mysqlType": {"id": "int(11)", "v": "varchar(10)"}, "old": None if old is None else [old], "pkNames": ["id"],
        "sql": "", "sqlType": {"id": 4, "v": 12}, "table": "t", "ts": moment, "type": kind,
    }  # fmt: skip
    return b"", dump(message)


def native(op: str, key: int, number: int) -> Message:
    source = {"connector": "mysql", "ts_ms": (TSO >> 18) + number, "db": "test", "table": "t", "pos": number}
    before = None if op == "c" else {"id": key, "v": number - 1}
    payload = {"before": before, "after": {"id": key, "v": number}, "source": source, "op": op, "ts_ms": TSO >> 18}
    return dump({"payload": {"id": key}}), dump({"payload": payload})


@pytest.mark.parametrize("option", [{"preimages": "false"}, {"operations": "update"}, {}])
def test_options_of_a_read_accuse_no_changefeed(option: dict[str, str]) -> None:
    updates = [debezium("u", None, {"id": 1, "v": number}) for number in range(3)]

    assert ("no-old-rows" in {each.code for each in of_messages(*updates, **option).findings}) == (not option)


def test_a_part_of_a_key_identifies_no_row() -> None:
    """Two changes of one commit are not counted as sent again if the read leaves out a column of the key."""
    rows = [{"id": cell(3, 1, 11), "id2": cell(3, number, 11), "v": cell(3, 0)} for number in range(2)]
    message = open_message(*(({"ts": TSO, "scm": "test", "tbl": "t", "t": 1}, {"u": row}) for row in rows))

    assert of_messages(message, columns="v,id").topics[0].protocols[0].tables[0].sent_again == 0


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
