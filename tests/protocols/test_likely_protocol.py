"""Messages of another protocol than the one that is read are named in errors."""

import json
from itertools import permutations
from typing import Any

import pytest

from tests.support.captured import load, rows
from tests.support.messages import Message, canal, cell, debezium, open_message, open_row, simple, simple_definition
from tests.support.registry import registry_options
from ticdc_source.errors import DecodeError
from ticdc_source.protocols import recognized


def first_of(scenario: str) -> Message:
    record = load(scenario).partitions[0][0]
    return record.key, record.value


ROW = {
    "open-protocol": open_message(open_row({"u": {"id": cell(3, 1, 11)}})),
    "canal-json": canal("INSERT", [{"id": "1"}], None, {"id": "int"}, {"id": 4}),
    "debezium": debezium("c", None, {"id": 1}),
    "simple": simple("INSERT", {"id": "1"}),
    "avro": first_of("avro.default"),
    "debezium-avro": first_of("debezium-avro.default"),
}
INT = {"mysqlType": "int", "charset": "binary", "length": 11}
REGISTRY = {name: registry_options(load(f"{name}.default").header) for name in ("avro", "debezium-avro")}


@pytest.mark.parametrize("output", ["changelog", "event"])
@pytest.mark.parametrize(("written", "given"), list(permutations(ROW, 2)))
def test_the_protocol_to_set_is_named(written: str, given: str, output: str) -> None:
    """If `protocol` names another protocol than the messages have, the driver's and the worker's error say theirs."""
    with pytest.raises(DecodeError) as raised:
        rows(ROW[written], protocol=given, outputFormat=output, **REGISTRY.get(written, {}))

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


@pytest.mark.parametrize("value", [
    None, b"", b"\0", b"\0\0\0\0\0\0\0\x05{}   ", b"\0\0\0\0", b"\x03\0", b"\x03\0" + bytes(15), b"\x16\x06",
    b"\x02" * 10,
    canal(data=[{"version": "1"}])[1], debezium("c", None, {"buildTs": 1})[1],
])  # fmt: skip
def test_what_only_begins_so_is_no_avro(value: bytes | None) -> None:
    """What only begins as such a message, or has some of its members, is not taken for one."""
    assert recognized(None, value) not in ("avro", "debezium-avro")


@pytest.mark.parametrize(
    "scenario",
    [
        "open-protocol.default.ops",
        "canal-json.tidb-extension.ops",
        "canal-json.snappy.ops",
        "debezium.default.ops",
        "simple.json.ops",
        "simple.avro.ops",
        "avro.watermark",
        "debezium-avro.watermark",
    ],
)
def test_each_message_is_taken_for_its_own_protocol(scenario: str) -> None:
    """No message that says its protocol looks like one of another."""
    captured = load(scenario)
    names = {recognized(record.key, record.value) for records in captured.partitions.values() for record in records}

    assert names - {None} == {captured.header["protocol"]}


@pytest.mark.parametrize("name", ["canal-json", "debezium", "simple"])
@pytest.mark.parametrize("form", [{"separators": (" , ", " : ")}, {"indent": 1}], ids=["blanks", "lines"])
def test_blanks_between_members_hide_no_protocol(name: str, form: dict[str, Any]) -> None:
    """Messages that somebody has written again, with other blanks than TiCDC's, need no option `protocol` either."""
    messages = [simple_definition("BOOTSTRAP", {"id": INT}), ROW[name]] if name == "simple" else [ROW[name]]
    written = [(key, json.dumps(json.loads(value or b""), **form).encode()) for key, value in messages]

    assert {recognized(*each) for each in written} == {name}
    assert rows(*written, outputFormat="event") == rows(*messages, outputFormat="event")
