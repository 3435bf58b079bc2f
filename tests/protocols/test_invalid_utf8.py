"""Text that is not UTF-8, as TiCDC's encoders write it: two protocols keep its bytes."""

import pytest

from tests.support.captured import Captured, load, make_options, rows
from tests.support.messages import canal, cell, debezium, open_message, open_row
from tests.support.truth import TrueRow, tables_with_rows, true_rows
from ticdc_source.errors import DecodeError
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning.read_context import context_of_schema

KEPT = ["open-protocol.default.invalid-utf8", "debezium.tidb-extension.disable-schema.invalid-utf8"]
LOST = "canal-json.tidb-extension.invalid-utf8"


def truth_of(captured: Captured) -> list[TrueRow]:
    ((database, table),) = tables_with_rows(captured)
    return list(true_rows(captured, database, table))


def invalid_texts(captured: Captured) -> list[tuple[int, str, bytes]]:
    """Return the texts that are not UTF-8, as SQL has them: row, column, bytes."""
    return [
        (number, name, bytes.fromhex(truth["hex"]))
        for number, row in enumerate(truth_of(captured))
        for name, truth in row.values.items()
        if isinstance(truth, dict) and "invalid_utf8" in truth
    ]


@pytest.mark.parametrize("scenario", KEPT)
def test_each_is_counted(scenario: str) -> None:
    """The metric `invalid_utf8` is the number of such texts in all row images."""
    captured = load(scenario)
    schema, options = captured.schema(), make_options()
    read_context = context_of_schema(schema, options)
    assert read_context is not None
    state = ReadState()

    for wanted in captured.ranges():
        list(read(captured.fetch(wanted), read_spec(schema, options, read_context), state))

    assert state.counters.invalid_utf8 == len(invalid_texts(captured)) > 0


@pytest.mark.parametrize("scenario", KEPT)
def test_binary_gives_their_bytes(scenario: str) -> None:
    """A hint of binary reads the bytes of a text column as SQL has them."""
    captured = load(scenario)
    names = sorted({name for _, name, _ in invalid_texts(captured)})

    decoded = captured.read(schemaHints=", ".join(f"`{name}` binary" for name in names)).to_pylist()

    assert len(names) > 2
    assert [decoded[number][name] for number, name, _ in invalid_texts(captured)] == [
        data for _, _, data in invalid_texts(captured)
    ]


@pytest.mark.parametrize("scenario", KEPT)
def test_the_rescued_column_keeps_them(scenario: str) -> None:
    """Each row that has one has it in the rescued column."""
    captured = load(scenario)

    decoded = captured.read(rescuedDataColumn="_rescued").to_pylist()

    assert {number for number, row in enumerate(decoded) if row["_rescued"]} == {
        number for number, _, _ in invalid_texts(captured)
    }


@pytest.mark.parametrize("scenario", KEPT)
def test_with_fail_they_are_bad_records(scenario: str) -> None:
    """The error has the address of the first one, with its column."""
    captured = load(scenario)
    first = invalid_texts(captured)[0]

    with pytest.raises(DecodeError, match="not UTF-8: set invalidUtf8=replace") as raised:
        captured.read(invalidUtf8="fail")

    row = truth_of(captured)[first[0]]
    assert raised.value.address.column == first[1]
    assert (raised.value.address.partition, raised.value.address.offset) == (row.partition, row.offset)


def test_bytes_that_canal_json_lost_are_no_failure() -> None:
    """TiCDC itself wrote U+FFFD: the message is UTF-8, and nothing marks the loss."""
    captured = load(LOST)

    assert len(captured.read(invalidUtf8="fail")) == 4
    assert any("\ufffd" in row["v"] for row in captured.read().to_pylist())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xe4\xb8", "\ufffd\ufffd"),
        (b"a\xf0\x9f\x98b", "a\ufffd\ufffd\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        ("\ufffd☃".encode(), "\ufffd☃"),
    ],
)
def test_each_bad_byte_is_one_replacement_in_every_protocol(data: bytes, expected: str) -> None:
    """This holds for sequences that break off, too: the result is the same as Go's encoder gives in canal-json."""
    placeholder = b"@" * len(data)
    column = placeholder.decode()
    messages = [
        open_message(open_row({"u": {"id": cell(3, 1, 3), "c": cell(15, column, 64)}})),
        debezium("c", None, {"c": column}, [{"type": "string", "optional": True, "field": "c"}]),
        canal("INSERT", [{"c": column}], None, {"c": "varchar"}, {"c": 12}),
    ]

    for key, value in messages:
        assert rows((key, (value or b"").replace(placeholder, data)))[0]["c"] == expected
