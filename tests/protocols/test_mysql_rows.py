"""Row packets of MySQL's text protocol: every type, and native code as the general path."""

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.tidb.conversation import row_of
from ticdc_source.errors import DecodeError
from ticdc_source.kernels.arrays import Binaries
from ticdc_source.kernels.wire import Settings
from ticdc_source.protocols import PROTOCOLS, recognized
from ticdc_source.protocols.base import Decoded, Learned
from ticdc_source.protocols.decoding import definitions_in
from ticdc_source.protocols.mysql_rows import cells_of
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import Column, ReadField
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import parse_type
from ticdc_source.sources.chunk import Chunk
from ticdc_source.sources.tidb.messages import Definition, key_of

DECODER = PROTOCOLS["mysql-rows"]
TABLE, TSO = TableName("shop", "orders"), 469_237_788_138_012_675

# Type: what TiDB sends, and what it is.
VALUES: dict[str, list[tuple[bytes, Any]]] = {
    "tinyint": [(b"-128", -128), (b"0", 0)],
    "tinyint(1)": [(b"1", 1), (b"2", 2)],
    "smallint unsigned": [(b"65535", 65535)],
    "int unsigned": [(b"4294967295", 2**32 - 1)],
    "bigint": [(b"-9223372036854775808", -(2**63)), (b"9223372036854775807", 2**63 - 1)],
    "bigint unsigned": [(b"18446744073709551615", Decimal(2**64 - 1))],
    "decimal(10,2)": [(b"-12345678.90", Decimal("-12345678.90")), (b"0.00", Decimal("0.00"))],
    "decimal(65,30)": [(b"9" * 35 + b"." + b"9" * 30, "9" * 35 + "." + "9" * 30), (b"0." + b"0" * 30, "0." + "0" * 30)],
    "float": [
        (b"0.10000000149011612", 0.10000000149011612),
        (b"340282346638528860000000000000000000000", 3.4028234663852886e38),
    ],
    "double": [(b"0.1", 0.1), (b"-1.7976931348623157e308", -1.7976931348623157e308), (b"5e-324", 5e-324)],
    "year": [(b"2155", 2155), (b"0000", 0)],
    "bit(1)": [(b"\0", False), (b"\1", True)],
    "bit(10)": [(b"\3\xff", 1023)],
    "bit(64)": [(b"\xff" * 8, -1), (b"\0" * 8, 0), (b"\x80" + b"\0" * 7, -(2**63))],
    "date": [(b"2026-11-28", datetime.date(2026, 11, 28)), (b"0000-00-00", None), (b"2024-02-31", None)],
    "datetime(6)": [
        (b"9999-12-31 23:59:59.999999", datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
        (b"0000-00-00 00:00:00.000000", None),
    ],
    "timestamp(3)": [
        (b"2026-11-28 01:02:03.004", datetime.datetime(2026, 11, 28, 1, 2, 3, 4000, datetime.timezone.utc)),
        (b"0000-00-00 00:00:00.000", None),
    ],
    "time(6)": [
        (b"838:59:59.000000", datetime.timedelta(hours=838, minutes=59, seconds=59)),
        (b"-00:00:00.000001", -datetime.timedelta(microseconds=1)),
        (b"25:00:00.500000", datetime.timedelta(hours=25, milliseconds=500)),
    ],
    "varchar(20)": [(b"", ""), ("é😀".encode(), "é😀"), (b"a\0'\\\n", "a\0'\\\n"), (b"a\xffb\xc3", "a\ufffdb\ufffd")],
    "longtext": [(b"x" * 70_000, "x" * 70_000), (b"\xe9", "\ufffd")],
    "varbinary(9)": [(b"", b""), (b"\0\xff\xfb", b"\0\xff\xfb")],
    "blob": [(b"ok", b"ok"), (b"\xfe" * 300, b"\xfe" * 300)],
    "enum('a','é,x')": [("é,x".encode(), "é,x"), (b"", "")],
    "set('p','q')": [(b"p,q", "p,q"), (b"", "")],
    "json": [(b'{"a": [1, 2.5, null], "b": "\xc3\xa9"}', '{"a": [1, 2.5, null], "b": "é"}'), (b"null", "null")],
    "vector(3)": [(b"[1,-2.5,1e-09]", [1.0, -2.5, 9.999999717180685e-10])],
}  # fmt: skip
NAMES = [f"c{number}" for number in range(len(VALUES))]
COLUMNS = tuple(Column(name, parse_type(type_)) for name, type_ in zip(NAMES, VALUES, strict=True))


def chunk_of(rows: list[bytes], *, packed: bool) -> Chunk:
    count = len(rows)
    values = Binaries.of(pa.array(rows, pa.binary())) if packed else list[bytes | None](rows)
    return Chunk("shop.orders", 0, range(count), [-1] * count, [key_of(TABLE, TSO)] * count, values)


def plan_of(*, native: bool, settings: Settings | None = None, as_text: bool = False) -> Plan:
    fields = [
        ReadField(one.name, pa.string() if as_text else one.type.arrow, type=one.type) for one in COLUMNS if one.type
    ]
    return Plan(tuple(fields), settings=settings or Settings(time_zone="Asia/Shanghai"), native_path=native)


def decoded(rows: list[bytes], plan: Plan, *, packed: bool = True) -> Decoded:
    learned = Learned(native=plan.native_path, definitions={(TABLE.folded, TSO): COLUMNS})
    chunk = chunk_of(rows, packed=packed)
    (events,) = DECODER.split(chunk).tables.values()
    return DECODER.decode(events, plan, learned)


def lists(found: Decoded) -> tuple[dict[str, list[Any]], list[int], dict[int, str]]:
    columns = {name: array.to_pylist() for name, array in found.columns.items()}
    return columns, found.events.to_pylist(), {event: str(error) for event, error in found.failures.items()}


def true_rows() -> tuple[list[bytes], list[list[Any]]]:
    """Return packets with each value once beside NULLs, and what they are."""
    most = max(map(len, VALUES.values()))
    packets, truths = [row_of(*[None] * len(VALUES))], [[None] * len(VALUES)]
    for number in range(most):
        chosen = [values[number] if number < len(values) else (None, None) for values in VALUES.values()]
        packets.append(row_of(*(sent for sent, _ in chosen)))
        truths.append([true for _, true in chosen])
    return [*packets, packets[0]], [*truths, truths[0]]


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_every_type_is_what_was_stored(native: bool, packed: bool) -> None:
    """Values of all types are exact, whatever `timeZone` is: the session that reads them is in UTC."""
    packets, truths = true_rows()

    found = decoded(packets, plan_of(native=native), packed=packed)

    assert found.failures == {}
    rows = [[found.columns[name][row].as_py() for name in NAMES] for row in range(len(packets))]
    assert rows == truths
    assert found.commit_ts.to_pylist() == [TSO] * len(packets)
    assert found.change_types.to_pylist() == [0] * len(packets)
    assert found.replaced == 2
    # Native code declines bad UTF-8, the year 0000 and the largest doubles.
    assert found.parsed == (3 if native else len(packets))


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize("settings", [Settings(), Settings(zero_date="fail"), Settings(invalid_utf8="fail")])
@pytest.mark.parametrize("as_text", [False, True])
def test_native_code_reads_what_the_general_path_reads(settings: Settings, as_text: bool) -> None:
    """Random rows, with cells of other columns and broken packets among them, are the same rows, or the same errors."""
    rng = random.Random(20261128)
    sent = [value for values in VALUES.values() for value, _ in values]
    packets = []
    for _ in range(400):
        cells: list[bytes | None] = [
            rng.choice([*values[:1] * 40, *values, (rng.choice(sent) if rng.random() < 0.05 else None, None)])[0]
            for values in VALUES.values()
        ]
        packet = row_of(*cells)
        if rng.random() < 0.05:
            at = rng.randrange(len(packet))
            packet = rng.choice((packet[:at], packet + b"\1", packet[:at] + b"\xff" + packet[at + 1 :], b"\xfe\1"))
        packets.append(packet)

    general = decoded(packets, plan_of(native=False, settings=settings, as_text=as_text))
    native = decoded(packets, plan_of(native=True, settings=settings, as_text=as_text))

    assert lists(native) == lists(general)
    assert 0 < len(general.failures) < len(packets)
    # A kernel of Python's that refuses one cell of an array leaves the whole chunk to the general path, the first time.
    assert native.parsed < general.parsed or as_text


def test_lengths_that_do_not_add_up_are_errors() -> None:
    """A row packet that is cut short, or has a byte that begins no cell, is refused."""
    assert cells_of(row_of(b"a", None, b"b" * 300, b"c" * 70_000)) == [b"a", None, b"b" * 300, b"c" * 70_000]
    for broken in (b"\2a", b"\xfc\1", b"\xfd\1\0\0", b"\xff", b"\xfe\1\0\0\0\0\0\0\x80a"):
        with pytest.raises(ValueError, match="a cell of"):
            cells_of(broken)


NAMED = TableName('a"}\\', "b\n,中")


@pytest.mark.parametrize("row", [b"", b"\0\0\0\0\0\0\0", b'{"isDdl":0,"mysqlType":0,"source":{},"op":1}', b"\x02"])
def test_rows_are_told_by_their_keys(row: bytes) -> None:
    """Whatever the cells and the names are, a row and a definition are recognized; what only looks like one is not."""
    key, definition = key_of(NAMED, TSO), Definition(NAMED, TSO, COLUMNS).message()

    assert recognized(key, row) == recognized(None, definition) == "mysql-rows"
    other = [(None, key), (definition, b"\0"), (key + b" ", b"\0"), (key.replace(b": ", b":"), b"\0"), (None, row)]
    assert "mysql-rows" not in {recognized(*record) for record in other}


def test_columns_come_as_a_record_of_their_own() -> None:
    """The record without a key defines the table as of the TSO; rows of an unknown one are errors that say so."""
    message = Definition(TABLE, TSO, COLUMNS).message()
    split = DECODER.split(Chunk("shop.orders", -1, [TSO], [-1], [None], [message]))

    assert definitions_in(split, DECODER) == {(TABLE.folded, TSO): COLUMNS}
    (events,) = DECODER.split(chunk_of([b"\0"], packed=True)).tables.values()
    found = DECODER.decode(events, plan_of(native=True), Learned())
    assert isinstance(found.failures[0], DecodeError)
    assert "the columns of shop.orders at TSO" in str(found.failures[0])
