"""Losses: what a protocol changes or leaves out before anyone reads it. The pages of the protocols list them.

Each loss says which true values it changes, and what messages have instead; the tests accept nothing else.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

# A column as the truth declares it, with `time_zone` and `config` of TiCDC, the `change_type` of the row image,
# whether the message was too `large` for Kafka, and whether the column is part of the `handle_key`.
Column = Mapping[str, Any]


@dataclass(frozen=True)
class Lost:
    """A line of the documentation's list."""

    protocol: str
    name: str
    what: str
    source: str


@dataclass(frozen=True)
class Loss(Lost):
    """A loss that changes values."""

    applies: Callable[[Column, Any], bool]
    left: Callable[[Column, Any], Any]


@dataclass(frozen=True)
class MissingImages(Lost):
    """Row images that a setting of TiCDC leaves out."""

    update: tuple[str, ...]
    applies: Callable[[Mapping[str, Any]], bool]


_EPOCH = {"date": "1970-01-01", "datetime": "1970-01-01 00:00:00", "timestamp": "1970-01-01 00:00:00"}
_INVALID = re.compile(r"\d{4}-(00|\d\d-00)")


def kind(column: Column) -> str:
    return str(column["mysql_type"]).split("(")[0].split()[0]


def _zeros(column: Column) -> str:
    digits = re.findall(r"\((\d)\)", column["mysql_type"])
    return f".{'0' * int(digits[0])}" if digits else ""


def _default_of(column: Column) -> Any:
    """Return the value that debezium sends for a NULL of a column with a default (docs/wire.md, items 25 and 37)."""
    default, name = column["default"], kind(column)
    if name == "time":
        return "00:00:00" + _zeros(column)
    if name == "bigint" and "unsigned" in column["mysql_type"] and int(default) >= 1 << 63:
        return "0"
    if name in ("datetime", "timestamp") and default.upper().startswith("CURRENT_TIMESTAMP"):
        return _EPOCH["datetime"] + _zeros(column) if name == "datetime" else None
    if name == "datetime" and default.startswith("0000"):
        return None
    if name == "timestamp" and default.startswith("0000"):
        return _EPOCH["timestamp"]
    if name == "timestamp":  # the table's definition has it in UTC, TiCDC reads it in its own zone
        moment = datetime.fromisoformat(default).replace(tzinfo=ZoneInfo(column["time_zone"]))
        return _moment_text(moment, default)
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
    return None if column.get("nullable", True) else _EPOCH[kind(column)] + _zeros(column)


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


def _moment_text(moment: datetime, like: str) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[: len(like)]


def _twins(column: Column, truth: Any) -> tuple[str, str] | None:
    """Return the two moments, in UTC, that a TIMESTAMP's text in TiCDC's zone may mean; None if it means one."""
    if kind(column) != "timestamp" or not isinstance(truth, str) or truth.startswith("0000"):
        return None
    local = datetime.fromisoformat(truth.partition(".")[0]).replace(tzinfo=timezone.utc)
    local = local.astimezone(ZoneInfo(column["time_zone"]))
    first, second = (local.replace(fold=fold).astimezone(timezone.utc) for fold in (0, 1))
    if second - first != timedelta(hours=1):
        return None
    return _moment_text(first, truth[:19]) + truth[19:], _moment_text(second, truth[:19]) + truth[19:]


def _other_twin(index: int) -> dict[str, Callable[[Column, Any], Any]]:
    """Return `applies` and `left` for a protocol that sends one of two such moments for both."""

    def left(column: Column, truth: Any) -> Any:
        twins = _twins(column, truth)
        return twins[index] if twins else truth

    return {"applies": lambda column, truth: bool(left(column, truth) != truth), "left": left}


def _is_left_out_of_delete(column: Column, _truth: Any) -> bool:
    cut = bool(column["config"].get("delete-only-output-handle-key-columns"))
    return cut and column["change_type"] == "delete" and not column["handle_key"]


def _is_invalid_text(column: Column, truth: Any) -> bool:
    in_json = column["config"].get("encoding-format") != "avro"
    return in_json and isinstance(truth, dict) and "invalid_utf8" in truth


def with_replacements(data: bytes) -> str:
    """Return a text with U+FFFD for each byte that is not UTF-8, as Go's JSON encoder writes it."""
    return re.sub("[\udc80-\udcff]", "\ufffd", data.decode(errors="surrogateescape"))


def _deletes(protocol: str) -> Loss:
    return Loss(
        protocol,
        "delete-keys-only",
        "With `delete-only-output-handle-key-columns=true`, a delete has only its key columns.",
        "pingcap/ticdc pkg/sink/codec/open/codec.go, canal/canal_json_encoder.go: onlyHandleKeyColumns",
        _is_left_out_of_delete,
        lambda _column, _truth: None,
    )


def _is_left_out_of_large(column: Column, _truth: Any) -> bool:
    cut = column["config"].get("large-message-handle-option") == "handle-key-only"
    return cut and column["large"] and not column["handle_key"]


def _key_only(protocol: str) -> Loss:
    return Loss(
        protocol,
        "handle-key-only",
        "With `large-message-handle-option=handle-key-only`, large messages have only key columns (see "
        "`onHandleKeyOnly`).",
        "pingcap/ticdc pkg/sink/codec/open/encoder.go, canal/canal_json_encoder.go: LargeMessageHandle",
        _is_left_out_of_large,
        lambda _column, _truth: None,
    )


def _ambiguous(protocol: str) -> Loss:
    return Loss(
        protocol,
        "ambiguous-hour",
        "`timestamp` values in the hour after daylight saving time ends in TiCDC's time zone are read an hour early. "
        "TiCDC's `--tz UTC` avoids this.",
        "pingcap/ticdc: the mounter makes a wall clock of it, and the encoder writes that without its offset",
        **_other_twin(0),
    )


def _invalid_text(protocol: str, file: str) -> Loss:
    return Loss(
        protocol,
        "invalid-utf8",
        "TiCDC writes U+FFFD for each byte of text that is not UTF-8.",
        f"pingcap/ticdc pkg/sink/codec/{file}: the JSON writer replaces them",
        _is_invalid_text,
        lambda _, truth: with_replacements(bytes.fromhex(truth["hex"])),
    )


def _of_debezium(protocol: str) -> tuple[Loss, ...]:
    return (
        Loss(
            protocol,
            "null-as-default",
            "NULL in a column with a DEFAULT is sent as the default (in TIME columns as 0, in DATETIME columns with "
            "DEFAULT CURRENT_TIMESTAMP as 1970-01-01).",
            "docs/wire.md, items 25 and 37",
            _is_null_with_default,
            lambda column, _: _default_of(column),
        ),
        Loss(
            protocol,
            "zero-date",
            "Zero and invalid DATE and DATETIME values are sent as NULL, or as 1970-01-01 if the column is NOT NULL.",
            "docs/wire.md, item 26",
            _is_zero_date,
            _null_or_epoch,
        ),
        Loss(
            protocol,
            "zero-timestamp",
            "A zero TIMESTAMP is sent as 1970-01-01. `zeroDate` has no effect here.",
            "docs/wire.md, items 26 and 40",
            _is_zero_timestamp,
            lambda column, _truth: _EPOCH["timestamp"] + _zeros(column),
        ),
        Loss(
            protocol,
            "two-digit-year",
            "In DATE and DATETIME, years 0 to 69 are sent as 2000 to 2069, and 70 to 99 as 1970 to 1999.",
            "docs/wire.md, item 26",
            _has_two_digit_year,
            _four_digit_year,
        ),
        Loss(
            protocol,
            "ambiguous-hour",
            "`timestamp` values in the hour before daylight saving time ends in TiCDC's time zone are sent an hour "
            "late. TiCDC's `--tz UTC` avoids this.",
            "pingcap/ticdc: the mounter makes a wall clock of it, pkg/sink/codec/debezium/codec.go turns that back",
            **_other_twin(1),
        ),
    )


LOSSES: tuple[Loss, ...] = (
    _ambiguous("open-protocol"),
    _deletes("open-protocol"),
    _key_only("open-protocol"),
    _ambiguous("canal-json"),
    _deletes("canal-json"),
    _key_only("canal-json"),
    _invalid_text("canal-json", "canal/canal_json_encoder.go"),
    _ambiguous("simple"),
    _ambiguous("csv"),
    _key_only("simple"),
    _invalid_text("simple", "simple/message.go"),
    *_of_debezium("debezium"),
    Loss(
        "debezium",
        "decimal-as-double",
        "DECIMAL is sent as a double, so only about 15 digits are exact.",
        "docs/wire.md, item 24",
        _is_long_decimal,
        lambda _, truth: {"double": float(Decimal(truth))},
    ),
    *_of_debezium("debezium-avro"),
    _ambiguous("avro"),
    Loss(
        "avro",
        "delete-keys-only",
        "Without `avro-include-before-value`, a delete has only the primary key columns; other columns are NULL.",
        "pingcap/ticdc pkg/sink/codec/avro/arvo.go: a tombstone, or 9 bytes with `avro-enable-watermark`",
        lambda column, _: (
            column["change_type"] == "delete"
            and not column["config"].get("avro-include-before-value")
            and not column["handle_key"]
        ),
        lambda _column, _truth: None,
    ),
)

MISSING: tuple[MissingImages, ...] = (
    MissingImages(
        "csv",
        "csv.output-old-value",
        "Without `output-old-value`, an update has no old row: it is read as a single `update_postimage` row.",
        "pingcap/ticdc pkg/sink/codec/csv/csv_message.go, encode",
        ("update_postimage",),
        lambda config: not config.get("output_old_value"),
    ),
    MissingImages(
        "open-protocol",
        "open.output-old-value",
        "With `output-old-value=false`, an update looks like an insert and is read as `insert`.",
        "pingcap/ticdc pkg/sink/codec/open/codec.go:85-95",
        ("insert",),
        lambda config: config.get("open.output-old-value") is False,
    ),
    MissingImages(
        "debezium",
        "debezium.output-old-value",
        "With `output-old-value=false`, an update has no old row: it is read as a single `update_postimage` row.",
        "pingcap/ticdc pkg/sink/codec/debezium/codec.go:1053-1145",
        ("update_postimage",),
        lambda config: config.get("debezium.output-old-value") is False,
    ),
    MissingImages(
        "debezium-avro",
        "debezium.output-old-value",
        "With `output-old-value=false`, an update has no old row: it is read as a single `update_postimage` row.",
        "pingcap/ticdc pkg/sink/codec/debezium/avro.go",
        ("update_postimage",),
        lambda config: config.get("debezium.output-old-value") is False,
    ),
    MissingImages(
        "avro",
        "enable-tidb-extension",
        "With neither `enable-tidb-extension` nor `avro-include-before-value`, an update looks like an insert and is "
        "read as `insert`.",
        "pingcap/ticdc pkg/sink/codec/avro/arvo.go",
        ("insert",),
        lambda config: not config.get("avro-include-before-value") and not config.get("enable-tidb-extension"),
    ),
    MissingImages(
        "avro",
        "avro-include-before-value",
        "With `enable-tidb-extension` but without `avro-include-before-value`, an update has no old row: it is read as "
        "a single `update_postimage` row.",
        "pingcap/ticdc pkg/sink/codec/avro/arvo.go",
        ("update_postimage",),
        lambda config: not config.get("avro-include-before-value") and bool(config.get("enable-tidb-extension")),
    ),
)
