"""Redacted messages of TiCDC's own encoders decode as the original ones: same kinds, names, types, nulls and errors."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.captured import Captured, Record, load
from tests.support.corpus import scenarios
from tests.support.messages import TSO, Message, canal, cell, open_message, open_row
from ticdc_source.inspection.capture import CapturedRecord, redacted
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.protocols.redaction import Redactor, Treatment

MOST = 40  # records of a topic partition
SALT = b"a salt that stays the same"
# Each protocol has all types in one of these. Streams are long to load, and hold no other kinds of events.
ALL_TYPES = {"open-protocol.default.types", "canal-json.plain.types", "debezium.default.types"}
AGAIN = {name for name in scenarios() if name.startswith("stream.") or name.endswith(".types")} - ALL_TYPES
SCENARIOS = [
    pytest.param(name, marks=pytest.mark.slow("types and kinds once more")) if name in AGAIN else name
    for name in scenarios()
]
# Columns of outputFormat=event that stay as they are.
KEPT = (
    "_event_type", "_op", "_database", "_table", "_commit_version", "_sequence", "ddl_kind", "ddl_type", "ddl_query",
    "table_changes", "watermark_ts",
)  # fmt: skip


def redacted_capture(captured: Captured) -> Captured:
    """Return a capture with redacted messages; each topic partition is a file of its own."""
    partitions = {}
    for number, records in captured.partitions.items():
        file = (
            CapturedRecord(topic="t", partition=number, offset=at, timestamp=0, key=record.key, value=record.value)
            for at, record in enumerate(records)
        )
        registry = RegistrySettings.of(captured.options())
        partitions[number] = [Record(each.key, each.value) for each in redacted(file, SALT, registry)]
    return replace(captured, partitions=partitions)


def shape(value: Any) -> Any:
    """Return the names and types of a document, without its values."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return None if value is None else "number" if isinstance(value, (int, float)) else type(value).__name__


def shapes(captured: Captured) -> list[dict[str, Any]]:
    """Read a capture, and return of each event what redaction keeps."""
    rows = captured.read(outputFormat="event", mode="PERMISSIVE", onHandleKeyOnly="null").to_pylist()
    return [
        {name: row[name] for name in KEPT}
        | {name: shape(json.loads(row[name])) if row[name] else row[name] for name in ("key", "before", "after")}
        for row in rows
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_redacted_messages_decode_alike(name: str) -> None:
    """Of every scenario, events have the same kinds, places, names, types and nulls; only values differ."""
    loaded = load(name)
    captured = replace(loaded, partitions={key: some[:MOST] for key, some in loaded.partitions.items()})

    changed = redacted_capture(captured)

    assert shapes(changed) == shapes(captured)
    before, after = (
        [record for records in each.partitions.values() for record in records] for each in (captured, changed)
    )
    for old, new in zip(before, after, strict=True):
        assert (old.value is None, old.key is None) == (new.value is None, new.key is None)
        if old.value and ".snappy." not in name and ".lz4." not in name:
            assert len(new.value or b"") == len(old.value)


def test_values_are_gone() -> None:
    """Texts, numbers and bytes of a table are others, and stay as long; equal ones stay equal."""
    captured = load("canal-json.plain.types")
    changed = redacted_capture(captured)

    pairs = [
        (old, new)
        for before, after in zip(captured.partitions.values(), changed.partitions.values(), strict=True)
        for old, new in zip(before, after, strict=True)
    ]

    same = sum(old.value == new.value for old, new in pairs)
    assert same < len(pairs) / 4, f"{same} of {len(pairs)} messages are what they were"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ('"Jane Doe, 1984-02-29"', r'"[A-Z][a-z]{3} [A-Z][a-z]{2}, 1984-(0[1-9]|1[0-2])-[0-2]\d"'),
        ('"0000-00-00 00:00:00"', '"0000-00-00 00:00:00"'),
        ("-170.50", r"-1[0-7]0\.[0-5]0"),
        ("true", "true"),
        (r'"a\"b\\n\u0001\n"', r'"[a-z]\\"[a-z]\\\\n\\u0001\\n"'),
        ('"東京 é"', '"東東 é"'),
        (r'"{\"lang\": \"pt\", \"n\": null}"', r'"{\\"[a-z]{4}\\": \\"[a-z]{2}\\", \\"[a-z]\\": null}"'),
        ("1.5e-07", r"1\.[0-5]e-07"),
        ('"2024-03-10T12:34:56Z"', r'"2024-\d\d-\d\dT[01][0-2]:[0-3][0-4]:[0-5][0-6]Z"'),
        ('"٣ ߄"', '"é é"'),
        ('"/w=="', r'"/[gw]=="'),
    ],
)
def test_how_a_value_changes(text: str, pattern: str) -> None:
    """Each kind of character becomes one of its kind."""
    found = Redactor(SALT).json(b'{"v":' + text.encode() + b"}", lambda _path, _siblings: Treatment.REDACT)

    assert re.fullmatch(r'\{"v":' + pattern + r"\}", found.decode()), found
    assert found == Redactor(SALT).json(b'{"v":' + text.encode() + b"}", lambda _path, _siblings: Treatment.REDACT)


def test_what_is_no_message() -> None:
    """Bytes that no protocol recognises, and messages that are cut short, show nothing of what they were."""
    cut = b'{"id":0,"database":"test","table":"t","data":[{"name":"Jane Do'
    file = [
        CapturedRecord(
            topic="t", partition=0, offset=at, timestamp=0, key=b"key", value=value, headers=(("h", b"Jane"),)
        )
        for at, value in enumerate((b"Jane Doe", cut, b"\xff\x00Jane"))
    ]

    found = list(redacted(file, SALT))

    assert [len(each.value or b"") for each in found] == [8, len(cut), 6]
    assert not [each for each in found if b"Jane" in (each.value or b"") + (each.headers[0][1] or b"")]
    assert found[2].value is not None
    assert found[2].value.startswith(b"\xff\x00")


@pytest.mark.parametrize(
    "message",
    [
        canal(
            data=[{"id": "1"}], mysql_type={"id": "int"}, _tidb={"commitTs": TSO, "claimCheckLocation": "s3://hush/x"}
        ),
        canal(data=[{"id": "1"}], mysql_type={"id": "int"}, sql="insert into t values ('hush')", gtid="hush"),
        open_message(open_row({"u": {"id": cell(3, 1, 11, hush="hush")}}, ccl="s3://user:hush@bucket/x")),
    ],
    ids=["claim check", "official Canal", "unknown members"],
)
def test_what_is_not_known_to_be_harmless_is_redacted(message: Message) -> None:
    """URLs of claim-check files, statements of rows and members that nobody knows are nonsense too."""
    key, value = message
    record = CapturedRecord(topic="t", partition=0, offset=0, timestamp=0, key=key, value=value)

    (found,) = redacted([record], SALT)

    assert b"hush" in (key or b"") + (value or b"")
    assert b"hush" not in (found.key or b"") + (found.value or b"").replace(b'"hush":', b"")
