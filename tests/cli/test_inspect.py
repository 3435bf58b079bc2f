"""`ticdc-source inspect`: on TiCDC's own messages it reports what the changefeed was, and on others what is wrong."""

import io
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ticdc_source.inspection
from examples.local_kafka import produce
from tests.cli.conftest import Command
from tests.fixtures import Kafka
from tests.support.captured import load
from tests.support.corpus import Line, Scenario, scenario, scenarios
from tests.support.messages import TSO, Message, canal, debezium, open_message
from tests.support.mutations import mangled
from tests.support.registry import registry_options
from ticdc_source.cli.__main__ import main
from ticdc_source.cli.inspect import finding_lines, option_lines, show
from ticdc_source.cli.screen import Screen
from ticdc_source.inspection.inspect import inspect_chunks, scan
from ticdc_source.inspection.report import Inspection, PartitionReport, TopicReport
from ticdc_source.inspection.table_report import shift_of
from ticdc_source.options.offsets import OffsetRange
from ticdc_source.options.options import Options
from ticdc_source.schema.ddl_event import DDLEvent, ddl_kind
from ticdc_source.schema.table_name import TableName
from ticdc_source.sources.chunk import Chunk
from website.meanings import FINDINGS

NOW = (TSO >> 18) / 1000 + 5
DEFAULTS = {"enable-tidb-extension": "false", "large-message-handle-compression": "none"}  # of TiCDC
SHOWN = {*DEFAULTS, "large-message-handle-option"}
SOME = (
    "canal-json.claim-check.lz4.large", "canal-json.content-compatible.ops", "canal-json.plain.types",
    "debezium.disable-schema.ops", "debezium.output-old-value-off.ops",
    "open-protocol.claim-check.snappy.large", "open-protocol.handle-key-only.large",
    "open-protocol.output-old-value-off.types",
)  # fmt: skip


def chunks_of(lines: Iterable[Line]) -> list[Chunk]:
    parts: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        parts[line.partition].append(line)
    return [
        Chunk(
            "t",
            partition,
            list(range(len(mine))),
            [-1] * len(mine),
            [one.key for one in mine],
            [one.value for one in mine],
        )
        for partition, mine in sorted(parts.items())
    ]


def inspected(chunks: list[Chunk], partitions: int = 1, options: Mapping[str, str] | None = None) -> Inspection:
    sizes = {chunk.partition: len(chunk) for chunk in chunks}
    reports = [PartitionReport(partition=each, start=0, end=sizes.get(each, 0)) for each in range(partitions)]
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **(options or {})}
    return inspect_chunks(chunks, [TopicReport(topic="t", partitions=reports)], Options.of(given), whole=True, now=NOW)


def of_messages(*messages: Message, **options: str) -> Inspection:
    lines = [Line(0, key, value, {}) for key, value in messages]
    return inspected(chunks_of(lines), options=options)


def codes(report: Mapping[str, Any]) -> set[str]:
    return {finding["code"] for finding in report["findings"]}


def events_of(whole: Scenario) -> list[dict[str, Any]]:
    return [event for line in whole.records for event in line.truth.get("events", [line.truth])]


def check(report: dict[str, Any], whole: Scenario) -> None:
    """Compare a report with the header of a scenario, and with the truth of its messages."""
    config = whole.header["config"]
    (topic,) = report["topics"]
    (messages,) = topic["protocols"]
    assert messages["protocol"] == whole.header["protocol"]
    assert len(topic["partitions"]) == config["partition-num"]
    assert report["scanned"] == len(whole.records)
    assert not messages["bad"]
    check_settings({each["name"]: each["value"] for each in messages["settings"]}, config)
    check_events(messages, whole)
    assert codes(report) - {"types-uncertain", "late"} == expected_codes(messages, whole)


def check_settings(found: dict[str, str], config: Mapping[str, Any]) -> None:
    """Every setting that is found is the changefeed's, and those that are not TiCDC's defaults are found."""
    written = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in config.items()
        if name in SHOWN
    }
    assert {name: value for name, value in found.items() if value != DEFAULTS.get(name)} == {
        name: value for name, value in written.items() if value != DEFAULTS.get(name)
    }
    assert {name for name in found if name not in DEFAULTS} <= written.keys()


def check_events(messages: dict[str, Any], whole: Scenario) -> None:
    events = events_of(whole)
    told = whole.header["config"].get("open.output-old-value", True)  # else updates look like inserts
    true = Counter(
        (event["schema"].lower(), event["table"].lower(), event["op"] if told or event["op"] != "update" else "insert")
        for event in events
        if event["op"] in ("insert", "update", "delete")
    )
    found = {
        (*TableName(*(part.strip("`") for part in each["table"].split(".", 1))), kind): each[kind]
        for each in messages["tables"]
        for kind in ("insert", "update", "delete")
        if each[kind]
    }
    assert {(database.lower(), table.lower(), kind): n for (database, table, kind), n in found.items()} == true
    assert messages["watermarks"] == sum(event["op"] == "watermark" for event in events)
    cut = 18 if messages["no_commit_ts"] else 0  # times in milliseconds
    ddl = {event["commit_ts"] >> cut << cut for event in events if event["op"] == "ddl"}
    assert {each["commit_ts"] for each in messages["ddl"]} == ddl
    rows = [event["commit_ts"] for event in events if event["op"] in ("insert", "update", "delete")]
    assert min(each["first_commit_ts"] for each in messages["tables"]) == min(rows) >> cut << cut
    assert max(each["last_commit_ts"] for each in messages["tables"]) == max(rows) >> cut << cut


def expected_codes(messages: dict[str, Any], whole: Scenario) -> set[str]:
    """Return the findings that the settings and the tables of a scenario give reason for."""
    config, protocol = whole.header["config"], whole.header["protocol"]
    expected = set()
    extended = config.get("enable-tidb-extension", False)
    if protocol == "canal-json" and not extended:
        expected.add("no-commit-ts")
    if protocol not in ("open-protocol", "simple") and not extended:
        expected.add("no-watermarks")
    if config.get("large-message-handle-option", "none") != "none":
        expected.add(config["large-message-handle-option"])
    if not config.get("debezium.output-old-value", True):  # of open-protocol, updates look like inserts
        expected.add("no-old-rows")
    keyed = {each["table"].lower() for each in whole.header["tables"] if each["handle_key"]}
    if protocol == "canal-json":  # it names primary keys only
        keyed = {each["table"].lower() for each in whole.header["tables"] if each["primary_key"]}
    if any(each["table"].partition(".")[2].strip("`").lower() not in keyed for each in messages["tables"]):
        expected.add("no-key")
    kinds = {
        ddl_kind(
            DDLEvent(
                position=0,
                index=0,
                commit_ts=1,
                table=TableName("a", "b"),
                query=event["ddl_query"],
                type="",
                type_code=event["ddl_type_code"],
            )
        )
        for event in events_of(whole)
        if event["op"] == "ddl"
    }
    if kinds & {"truncate_table", "drop_table", "drop_database", "drop_partition", "truncate_partition"}:
        expected.add("destructive-ddl")
    return expected


@pytest.mark.parametrize(
    "name",
    [
        name if name in SOME else pytest.param(name, marks=pytest.mark.slow("77 scenarios"))
        for name in scenarios()
        if not name.startswith(("avro.", "debezium-avro."))
    ],
)
def test_the_corpus_is_reported_as_its_headers_say(name: str) -> None:
    whole = scenario(name)
    found = inspected(chunks_of(whole.records), whole.header["config"]["partition-num"])

    check(json.loads(json.dumps(found.as_json())), whole)


def at(seconds: float, **members: Any) -> Message:
    """Return a canal-json insert that was committed so long after TSO, with an `updated_at` two seconds before."""
    commit = (TSO >> 18) + int(seconds * 1000)
    zone = timezone(timedelta(hours=members.pop("hours", 8)))
    text = datetime.fromtimestamp(commit / 1000 - 2, zone).strftime("%Y-%m-%d %H:%M:%S")
    return canal(
        data=[{"id": str(seconds), "updated_at": text}],
        mysql_type={"id": "int", "updated_at": "timestamp"},
        sql_type={"id": 4, "updated_at": 93},
        _tidb={"commitTs": commit << 18},
        **members,
    )


def test_a_shifted_timestamp_names_the_offset_to_try() -> None:
    report = of_messages(*(at(minutes * 60) for minutes in range(5)))
    (finding,) = [each for each in report.findings if each.code == "timestamp-shifted"]

    assert finding.columns == ("updated_at",)
    assert finding.table == "test.t"
    assert "try timeZone=+08:00, or" in finding.message


def test_the_zone_to_try_takes_the_zone_of_the_read_into_account() -> None:
    """With a wrong timeZone, the offset to try is that of the server, not the difference to it."""
    messages = [at(minutes * 60, hours=0) for minutes in range(5)]
    report = of_messages(*messages, timeZone="Asia/Shanghai")
    (finding,) = [each for each in report.findings if each.code == "timestamp-shifted"]

    assert "try timeZone=UTC" in finding.message
    assert "timestamp-shifted" not in {each.code for each in of_messages(*messages).findings}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([3600.0 * 8 + 1] * 2, "two rows are too few"),
        ([0.5, -1.0, 3600 * 8, 3600 * 3, 5000.0], "most rows are not shifted alike"),
        ([301.0 * 7, 5000.5, 77_777.0, 12_345.0], "no whole quarters of an hour"),
        ([3600.0 * 24 * 30] * 5, "no time zone is a month away"),
        ([], "no row"),
    ],
)
def test_a_column_that_is_no_time_of_change_is_not_called_shifted(values: list[float], why: str) -> None:
    """A finding about time zones needs many rows, all beside their commit times by one offset that a zone can have."""
    commits = [1_790_000_000_000 + 60_000 * number for number in range(len(values))]
    micros = [commit * 1000 + int(value * 1e6) for commit, value in zip(commits, values, strict=True)]

    assert shift_of(pa.array(micros, pa.timestamp("us", "UTC")), pa.array(commits, pa.int64()), "UTC") is None, why


def test_several_protocols_are_told_apart() -> None:
    """Messages of two protocols in one topic are counted and described each by its own decoder, and it is a finding."""
    report = of_messages(
        at(0), at(1), debezium(op="c", after={"id": 1}), debezium(op="d", before={"id": 1}, after=None), at(2)
    )
    (topic,) = report.topics

    assert {each.protocol: each.records for each in topic.protocols} == {"canal-json": 3, "debezium": 2}
    assert "several-protocols" in {each.code for each in report.findings}


def test_an_order_that_rests_on_places_is_a_finding() -> None:
    """Messages without a commit-ts are a finding that says what orders their changes, and what mends it."""
    report = of_messages(*(canal(data=[{"id": "1"}], mysql_type={"id": "int"}, sql_type={"id": 4}) for _ in range(3)))
    (finding,) = [each for each in report.findings if each.code == "no-commit-ts"]

    assert "by partition, then offset; enable-tidb-extension=true adds it" in finding.message
    assert "no-commit-ts" not in {each.code for each in of_messages(at(0), at(1)).findings}


def test_bad_records_are_counted_by_reason_with_the_first_address() -> None:
    """Broken messages are grouped by what is wrong; each group has its count and the address of its first record."""
    report = of_messages(
        at(0), (b"", b"{broken"), (b"", b"{broken"), (b"", b"[]"), canal(data=[{"id": "x"}], mysql_type={"id": "int"},
                                                                      sql_type={"id": 4}),
    )  # fmt: skip
    bad = report.topics[0].protocols[0].bad

    assert sorted((each.count, each.first.split(" table")[0]) for each in bad) == [
        (1, "topic=t partition=0 offset=3"),
        (1, "topic=t partition=0 offset=4"),
        (2, "topic=t partition=0 offset=1"),
    ]
    assert sum(each.code == "bad-records" for each in report.findings) == 3


def test_records_of_no_protocol_are_reported() -> None:
    report = of_messages((None, b"\xff\x00maxwell"), (None, b'{"id": 1}'), (None, b'{"id": 2}'), (None, None))

    assert [each.code for each in report.findings] == ["bad-records", "unknown-protocol"]
    assert [each.count for each in report.topics[0].bad] == [3]
    assert r"the value begins b'\xff\x00maxwell'" in report.findings[0].message


@pytest.mark.parametrize("value", [None, b""])
def test_a_tombstone_is_no_bad_record(value: bytes | None) -> None:
    report = of_messages((b'{"id":1}', value), debezium(op="c", after={"id": 1}), (b'{"id":1}', value))

    assert not {each.code for each in report.findings} & {"bad-records", "unknown-protocol", "several-protocols"}


@pytest.mark.parametrize(
    ("column", "type_", "said"), [("_sequence", "int", "metadataColumnPrefix"), ("g", "geometry", "geometry")]
)
def test_a_table_that_load_refuses_is_a_finding(column: str, type_: str, said: str) -> None:
    """The finding has the reason, and the other facts of the table are reported."""
    message = canal(data=[{"id": "1", column: "2"}], mysql_type={"id": "int", column: type_}, sql_type={"id": 4})
    report = of_messages(message)
    (table,) = report.topics[0].protocols[0].tables

    assert (table.table, table.insert, table.schema) == ("test.t", 1, "")
    assert said in next(each.message for each in report.findings if each.code == "refused")


def test_open_protocol_labels_are_uncertain_without_ddl() -> None:
    body = {"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}, "e": {"t": 247, "f": 64, "v": 2},
                  "d": {"t": 246, "f": 64, "v": "1.50"}}}  # fmt: skip
    report = of_messages(open_message(({"ts": TSO, "scm": "a", "tbl": "b", "t": 1}, body)))
    (finding,) = [each for each in report.findings if each.code == "types-uncertain"]

    assert finding.columns == ("e", "d")
    assert "SHOW CREATE TABLE a.b" in finding.message


def test_a_large_topic_is_read_from_both_ends() -> None:
    """Within the limit, the first and the last records of each partition are read, and the report says so."""
    read: list[OffsetRange] = []

    def fetch(offset_range: OffsetRange) -> list[Chunk]:
        read.append(offset_range)
        offsets = list(range(offset_range.start, offset_range.end))
        count = len(offsets)
        return [Chunk("t", offset_range.partition, offsets, [-1] * count, [b""] * count, [b"x"] * count)]

    chunks, whole = scan([OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 500, 510)], fetch, print, max_records=60)

    assert not whole
    firsts = [(chunk.partition, chunk.offsets[0]) for chunk in chunks]
    assert firsts == sorted(firsts)
    assert (chunks[0].offsets[0], max(chunk.offsets[-1] for chunk in chunks)) == (0, 999)
    assert 60 <= sum(map(len, chunks)) <= 70


def test_no_secret_is_in_the_report(
    broker: Kafka, topic: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Passwords of a properties file or of --conf are in no output; options that are public are."""
    made = topic()
    produce(broker.bootstrap_servers, made, [(0, *at(0), (), None), (0, *at(1), (), None)])
    properties = tmp_path / "client.properties"
    properties.write_text(
        "# a comment\nsecurity.protocol = PLAINTEXT\nssl.key.password=hush\\\n  hush\nclient.id: me\n"
    )

    arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--subscribe", made, "--properties", str(properties)]
    main(["inspect", *arguments, "--conf", "kafka.sasl_plain_password=hush", "--conf", "timeZone=UTC"])
    screen = capsys.readouterr()
    main(["inspect", *arguments, "--json"])
    report = json.loads(capsys.readouterr().out)

    assert "hush" not in screen.out + screen.err + json.dumps(report)
    assert report["options"]["kafka.client.id"] == "me"
    assert report["options"]["kafka.security.protocol"] == "PLAINTEXT"
    assert '.option("kafka.ssl.key.password", "…")' in screen.out
    assert '.option("timeZone", "UTC")' in screen.out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--subscribe", "there-is-no-such-topic"], 2, "does not exist"),
        (["--subscribe", "x", "--conf", "tabels=a.b"], 2, "did you mean 'tables'"),
        (["--subscribe", "x", "--conf", "nonsense"], 2, "NAME=VALUE"),
        (["--subscribe", "x", "--properties", "there-is-no-such-file"], 2, "No such file"),
    ],
)
def test_wrong_arguments_are_errors_with_an_exit_code(
    arguments: list[str], code: int, text: str, broker: Kafka, ticdc_source: Command
) -> None:
    done = ticdc_source("inspect", "--bootstrap-servers", broker.bootstrap_servers, *arguments)

    assert (done.code, done.out) == (code, "")
    assert text in done.err
    assert len(done.err.splitlines()) == 1


def test_an_unreachable_broker_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--bootstrap-servers", "127.0.0.1:1", "--subscribe", "t", "--conf", "kafka.default.api.timeout.ms=500"]

    assert main(["inspect", *arguments]) == 3
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_damaged_messages_are_reported_and_never_crash() -> None:
    seed = 7
    chooser = random.Random(seed)
    for name in ("canal-json.plain.types", "debezium.disable-schema.ops", "open-protocol.lz4.ops"):
        lines = scenario(name).records
        for number in range(3):
            start = chooser.randrange(len(lines) - 30)
            damaged = [
                Line(
                    line.partition,
                    mangled(line.key or b"", chooser) if chooser.random() < 0.1 else line.key,
                    mangled(line.value or b"", chooser) if chooser.random() < 0.2 else line.value,
                    {},
                )
                for line in lines[start : start + 30]
            ]
            report = inspected(chunks_of(damaged), partitions=3)
            show(report, Screen(io.StringIO(), 120), everything=True)

            assert report.scanned == 30, f"seed {seed}, {name}, round {number}"
            assert json.loads(json.dumps(report.as_json()))["scanned"] == 30


def test_every_finding_has_a_row_in_the_table() -> None:
    folder = Path(ticdc_source.inspection.__file__).parent
    code = r'(?:code=|yield )"([\w-]+)", (?:f"|message)'
    used = {found for path in folder.glob("*.py") for found in re.findall(code, path.read_text("utf-8"))}

    assert used == set(FINDINGS)


def test_a_table_that_is_not_there_is_a_finding() -> None:
    report = of_messages(at(0), at(1), tables="test.u")
    (finding,) = report.findings

    assert (finding.code, report.topics[0].protocols[0].tables) == ("no-such-table", [])
    assert finding.message.endswith("test.t")


def test_an_old_watermark_is_late() -> None:
    watermark = canal("TIDB_WATERMARK", _tidb={"watermarkTs": TSO})
    lines = [Line(0, key, value, {}) for key, value in (at(0), watermark)]
    reports = [PartitionReport(partition=0, start=0, end=2)]
    given = Options.of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})

    found = [
        inspect_chunks(chunks_of(lines), [TopicReport(topic="t", partitions=reports)], given, whole=True, now=now)
        for now in (NOW, NOW + 3600)
    ]

    assert [[each.code for each in report.findings] for report in found] == [[], ["late"]]


def test_findings_of_one_kind_are_one_paragraph() -> None:
    """Fifty tables without a key are one paragraph, which names some; --all, and JSON, have each."""
    types = {"id": "int", "kind": "enum"}
    tables = [f"t{number:02}" for number in range(50)]
    report = of_messages(
        *[canal("INSERT", [{"id": "1", "kind": "1"}], None, types, table=table, pkNames=[]) for table in tables]
    )

    texts = dict(finding_lines(report.findings))
    each = [code for code, _ in finding_lines(report.findings, everything=True)]

    names = [f"test.{table}" for table in tables[1:9]]
    assert Counter(code for code, _ in finding_lines(report.findings))["no-key"] == 1
    assert texts["no-key"].startswith("The messages of test.t00 name no key: ")
    assert texts["no-key"].endswith(f". Also: {', '.join(names)}, … (49 more: --all shows them)")
    assert f". Also: {names[0]} (kind), {names[1]} (kind), " in texts["types-uncertain"]
    assert [finding.code for finding in report.findings] == each
    assert Counter(each)["no-key"] == 50


def test_changes_that_were_sent_again_are_counted() -> None:
    (table,) = of_messages(at(0), at(1), at(0), at(0)).topics[0].protocols[0].tables

    assert (table.insert, table.sent_again) == (4, 2)


def test_the_lines_of_a_job_can_be_pasted() -> None:
    """The lines that read a table are Python, and say that the time zone is a guess."""
    report = of_messages(at(0))
    (table,) = report.topics[0].protocols[0].tables
    text = "\n".join(option_lines(table, "t", report))

    compile(text, "pasted", "exec")
    assert '.option("timeZone", "UTC")  # a guess' in text
    given = replace(report, options={**report.options, "timezone": "Asia/Shanghai"})
    assert not any("timeZone" in line or "a guess" in line for line in option_lines(table, "t", given))


def test_a_partition_that_is_larger_than_the_others_is_read_whole() -> None:
    """If the limit allows all records, all are read, however they are spread over partitions and chunks."""

    def fetch(offset_range: OffsetRange) -> Iterator[Chunk]:
        for start in range(offset_range.start, offset_range.end, 10):
            offsets = list(range(start, min(start + 10, offset_range.end)))
            count = len(offsets)
            yield Chunk("t", offset_range.partition, offsets, [-1] * count, [b""] * count, [b"x"] * count)

    chunks, whole = scan([OffsetRange("t", 0, 0, 150), OffsetRange("t", 1, 0, 10)], fetch, print, max_records=200)

    assert whole
    assert [offset for chunk in chunks for offset in chunk.offsets] == [*range(150), *range(10)]


@pytest.mark.parametrize(
    "name",
    ["avro.default", "avro.glue.tidb-extension", "avro.watermark", "debezium-avro.default", "debezium-avro.watermark"],
)
def test_what_avro_shows_is_the_changefeed(name: str) -> None:
    """Protocol, tables, extension and old rows are those of the changefeed, and no record is bad."""
    captured = load(name)
    config = captured.header["config"]
    records = [
        Line(partition, record.key, record.value, {})
        for partition, records in captured.partitions.items()
        for record in records
    ]

    report = inspected(chunks_of(records), 3, registry_options(captured.header))
    (found,) = report.topics[0].protocols
    settings = {each.name: each.value for each in found.settings}

    assert found.protocol == captured.header["protocol"]
    assert not found.bad
    assert settings["enable-tidb-extension"] == str(config.get("enable-tidb-extension", False)).lower()
    lacks_old_rows = not config.get("debezium.output-old-value", True)
    assert ("no-old-rows" in {each.code for each in report.findings}) == lacks_old_rows
    rows = {(each["schema"], each["table"]) for record in captured.partitions.values() for one in record
            if (each := one.truth)["op"] in ("insert", "update")}  # fmt: skip
    assert len(found.tables) >= len(rows)
