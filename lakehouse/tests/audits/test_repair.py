"""Keys of rows that TiDB is asked for, as its SQL has them."""

import datetime
from decimal import Decimal

from ticdc_lakehouse.audits.repair import _has_literals, keys_condition
from ticdc_source.schema.model import Column
from ticdc_source.schema.types import parse_type


def test_a_key_is_compared_with_exact_literals() -> None:
    """Numbers keep every digit, and nothing in a text or in bytes can end a literal."""
    types = {"i": "int", "d": "decimal(50,2)", "u": "bigint unsigned", "s": "varchar(9)", "b": "blob", "t": "date"}
    columns = [Column(name, parse_type(type_)) for name, type_ in types.items()]
    assert all(map(_has_literals, columns))
    key = (-1, "12345678901234567890123456789012345678901234567890.25", Decimal(2**64 - 1), "\\' é", b"'\x00",
           datetime.date(9, 1, 2))  # fmt: skip
    assert keys_condition(columns, [key]) == (
        "(`i`, `d`, `u`, `s`, `b`, `t`) IN ((-1, 12345678901234567890123456789012345678901234567890.25, "
        "18446744073709551615, _utf8mb4 x'5c2720c3a9', x'2700', '0009-01-02'))"
    )
    assert keys_condition(columns[:1], [(1,), (2,)]) == "(`i`) IN ((1), (2))"
    others = [Column("c", parse_type(type_)) for type_ in ("double", "datetime(6)", "timestamp", "time", "json")]
    assert not any(map(_has_literals, others))
