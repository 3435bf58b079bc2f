"""What a wire has lost before any reader sees it: one row each; the tests demand exactly these, README lists them.

Each row says for which true values it applies, and what the wire still says of them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Column = Mapping[str, Any]


@dataclass(frozen=True)
class Loss:
    """A loss.

    Attributes:
        protocol: the wire format.
        name: a short name.
        what: one sentence for the README.
        source: where it happens.
        applies: (column, true value) → whether the value is changed.
        left: (column, true value) → what is left of it, in the truth's canonical form.
    """

    protocol: str
    name: str
    what: str
    source: str
    applies: Callable[[Column, Any], bool]
    left: Callable[[Column, Any], Any]


_EPOCH = {"date": "1970-01-01", "datetime": "1970-01-01 00:00:00", "timestamp": "1970-01-01 00:00:00"}
_INVALID = re.compile(r"\d{4}-(00|\d\d-00)")


def kind(column: Column) -> str:
    """Return the name of a column's type."""
    return str(column["mysql_type"]).split("(")[0].split()[0]


def _default_of(column: Column) -> Any:
    """Return the value that debezium sends for a NULL of a column with a default (wire.md items 25 and 37)."""
    default, name = column["default"], kind(column)
    if name == "time":
        return "00:00:00"
    if name == "bigint" and "unsigned" in column["mysql_type"] and int(default) >= 1 << 63:
        return "0"
    if name in ("datetime", "timestamp") and default.upper().startswith("CURRENT_TIMESTAMP"):
        return _EPOCH["datetime"] if name == "datetime" else None
    if name == "datetime" and default.startswith("0000"):
        return None
    if name == "timestamp" and default.startswith("0000"):
        return _EPOCH["timestamp"]
    if name in ("enum", "set"):
        return {"label": default, "number": None}
    if name == "bit":
        bits = default[2:-1] if default.startswith("b'") else default
        return {"number": int(bits, 2)}
    if name in ("binary", "varbinary"):
        size = int(re.findall(r"\((\d+)\)", column["mysql_type"])[0])
        data = default.encode()
        return {"hex": (data.ljust(size, b"\0") if name == "binary" else data).hex()}
    return default


def _is_null_with_default(column: Column, truth: Any) -> bool:
    if truth is not None or column.get("default") is None or kind(column) in ("text", "json"):
        return False
    return not (kind(column) == "timestamp" and column["default"].upper().startswith("CURRENT"))


def _is_zero_date(column: Column, truth: Any) -> bool:
    return kind(column) in ("date", "datetime") and isinstance(truth, str) and _INVALID.match(truth) is not None


def _null_or_epoch(column: Column, _truth: Any) -> Any:
    return None if column.get("nullable", True) else _EPOCH[kind(column)]


def _is_zero_timestamp(column: Column, truth: Any) -> bool:
    return kind(column) == "timestamp" and isinstance(truth, str) and truth.startswith("0000")


def _has_two_digit_year(column: Column, truth: Any) -> bool:
    return kind(column) in ("date", "datetime") and isinstance(truth, str) and "0000" < truth[:4] < "0100"


def _four_digit_year(_column: Column, truth: str) -> str:
    year = int(truth[:4])
    return f"{year + (2000 if year < 70 else 1900):04d}{truth[4:]}"


def _is_long_decimal(column: Column, truth: Any) -> bool:
    digits = truth.replace("-", "").replace(".", "").strip("0") if isinstance(truth, str) else ""
    return kind(column) == "decimal" and len(digits) > 15


LOSSES: tuple[Loss, ...] = (
    Loss(
        "debezium",
        "null-as-default",
        "NULL in a column that has a DEFAULT is sent as the default (TIME as 0, "
        "CURRENT_TIMESTAMP of DATETIME as the epoch)",
        "wire.md items 25, 37",
        _is_null_with_default,
        lambda column, _: _default_of(column),
    ),
    Loss(
        "debezium",
        "zero-date",
        "zero and invalid DATE and DATETIME are sent as NULL, in a NOT NULL column as the epoch",
        "wire.md item 26",
        _is_zero_date,
        _null_or_epoch,
    ),
    Loss(
        "debezium",
        "zero-timestamp",
        "a zero TIMESTAMP is sent as the epoch",
        "wire.md items 26, 40",
        _is_zero_timestamp,
        lambda _column, _truth: _EPOCH["timestamp"],
    ),
    Loss(
        "debezium",
        "two-digit-year",
        "DATE and DATETIME before the year 70 are sent 2000 years later, before 100 1900 years later",
        "wire.md item 26",
        _has_two_digit_year,
        _four_digit_year,
    ),
    Loss(
        "debezium",
        "decimal-as-double",
        "DECIMAL is sent as a double: about 15 digits are exact",
        "wire.md item 24",
        _is_long_decimal,
        lambda _, truth: {"double": float(Decimal(truth))},
    ),
)
