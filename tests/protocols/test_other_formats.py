"""Messages of protocols that are not read are named in errors. The messages are those of TiCDC's own encoders."""

import base64
import json
from itertools import permutations
from pathlib import Path

import pytest

from tests.support.captured import Captured, load, rows
from tests.support.messages import Message, canal, cell, debezium, open_message, open_row, simple
from ticdc_source.errors import DecodeError, OptionError
from ticdc_source.events import Chunk
from ticdc_source.protocols import PROTOCOLS, detect_protocol
from ticdc_source.protocols.other_formats import looks_like

DATA = Path(__file__).resolve().parents[1] / "data"
SAMPLES = [json.loads(line) for line in (DATA / "other-formats.jsonl").read_text().splitlines()]


def sample(line: dict[str, str | None]) -> Message:
    """Return a record of the file."""
    key, value = line["key_b64"], line["value_b64"]
    return None if key is None else base64.b64decode(key), base64.b64decode(value or "")


RECORDS = [pytest.param(line["format"], sample(line), id=f"{line['scenario']}-{line['event']}") for line in SAMPLES]


@pytest.mark.parametrize(("name", "message"), RECORDS)
def test_detection_names_what_is_not_read(name: str, message: Message) -> None:
    """With `protocol=auto` the error says what the messages look like, and what this version reads."""
    key, value = message

    with pytest.raises(OptionError) as raised:
        detect_protocol([Chunk("t", 0, [7], [-1], [key], [value])])

    assert f"it looks like {name}; this version reads {', '.join(PROTOCOLS)} (topic=t " in str(raised.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("name", "message"), [record for record in RECORDS if "lz4" not in str(record.id)])
def test_a_bad_record_is_named(name: str, message: Message, protocol: str) -> None:
    """With another protocol set, each such record is a bad record whose error names its format and its address."""
    with pytest.raises(DecodeError, match=f"it looks like {name}, which this version does not read") as raised:
        rows(message, protocol=protocol)

    assert raised.value.address.offset == 0


ROW = {
    "open-protocol": open_message(open_row({"u": {"id": cell(3, 1, 11)}})),
    "canal-json": canal("INSERT", [{"id": "1"}], None, {"id": "int"}, {"id": 4}),
    "debezium": debezium("c", None, {"id": 1}),
    "simple": simple("INSERT", {"id": "1"}),
}


@pytest.mark.parametrize("output", ["changelog", "event"])
@pytest.mark.parametrize(("written", "given"), list(permutations(ROW, 2)))
def test_the_protocol_to_set_is_named(written: str, given: str, output: str) -> None:
    """If `protocol` names another protocol than the messages have, the driver's and the worker's error say theirs."""
    with pytest.raises(DecodeError) as raised:
        rows(ROW[written], protocol=given, outputFormat=output)

    assert f"It looks like {written}: if all messages do, set protocol={written}, or leave 'protocol' out" in str(
        raised.value
    )
    assert raised.value.address.offset == 0


def test_a_damaged_message_names_no_protocol() -> None:
    """A bad record of the protocol that is read does not look like one of another."""
    key, value = ROW["canal-json"]
    assert value is not None

    with pytest.raises(DecodeError) as raised:
        rows((key, value[:-1]), protocol="canal-json")

    assert "It looks like" not in str(raised.value)


def test_a_format_that_is_named_is_named_among_others() -> None:
    """Records of another format in a topic that is read are bad records, each with the name of its format."""
    good = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, {"id": 4})
    captured = Captured.of(good, *map(sample, SAMPLES), good)

    corrupt = captured.read(mode="PERMISSIVE", protocol="canal-json")["_corrupt_record"].to_pylist()

    assert corrupt[0] is corrupt[-1] is None
    for text, line in zip(corrupt[1:-1], SAMPLES, strict=True):
        assert f"it looks like {line['format']}," in text


@pytest.mark.parametrize("value", [
    None, b"", b"\0", b"\0\0\0\0\0\0\0\x05{}   ", b"\0\0\0\0", b"\x03\0", b"\x03\0" + bytes(15), b"\x16\x06",
    b"\x02" * 10,
    canal(data=[{"version": "1"}])[1], debezium("c", None, {"buildTs": 1})[1],
])  # fmt: skip
def test_other_values_are_not_named(value: bytes | None) -> None:
    """What only begins as such a message, or has some of its members, is not taken for one."""
    assert looks_like(value) is None


@pytest.mark.parametrize("scenario", [
    "open-protocol.default.ops", "canal-json.tidb-extension.ops", "canal-json.snappy.ops", "debezium.default.ops",
    "simple.json.ops",
])  # fmt: skip
def test_messages_that_are_read_are_not_named(scenario: str) -> None:
    """No message of a protocol that is read looks like one of another format."""
    captured = load(scenario)

    assert not [looks_like(record.value) for records in captured.partitions.values() for record in records
                if looks_like(record.value) is not None]  # fmt: skip
