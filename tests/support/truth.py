"""The SQL truth of the corpus: which rows a read must return, and whether a value is true."""

import datetime
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.support.captured import Captured, events_of
from tests.support.losses import LOSSES, MISSING, Loss, with_replacements

_CHANGES = {"insert": ("insert",), "delete": ("delete",), "update": ("update_preimage", "update_postimage")}


@dataclass(frozen=True)
class TrueRow:
    """A row that a read must return: its change type, its address, and its true values by column."""

    change_type: str
    commit_ts: int
    partition: int
    offset: int
    index: int
    values: Mapping[str, Any]
    columns: Mapping[str, Mapping[str, Any]]


def tables_with_rows(captured: Captured) -> list[tuple[str, str]]:
    return sorted(
        {
            (event["schema"], event["table"])
            for records in captured.partitions.values()
            for record in records
            for event in events_of(record.truth)
            if event["op"] in _CHANGES
        }
    )


def true_rows(captured: Captured, database: str, table: str) -> Iterator[TrueRow]:
    """Yield the rows of one table in the order of a read: by partition, offset and index in the message."""
    declared = {
        (entry["schema"], entry["table"], entry["table_version"]): {
            column["name"]: column for column in entry["columns"]
        }
        for entry in captured.header["tables"]
    }
    for partition, records in captured.partitions.items():
        for offset, record in enumerate(records):
            for index, event in enumerate(events_of(record.truth)):
                if event["op"] not in _CHANGES or (event["schema"], event["table"]) != (database, table):
                    continue
                if is_lost(event, captured.header):
                    continue
                declaration = declared.get((database, table, event["table_version"]), {})
                for change in changes_of(event["op"], captured.header):
                    large = any(record.large[index : index + 1])
                    context = {
                        "change_type": change,
                        "large": large,
                        **{of: captured.header[of] for of in ("time_zone", "config")},
                    }
                    columns = {
                        c["name"]: {
                            **declaration.get(c["name"], {}),
                            **c,
                            **context,
                            "handle_key": c["name"] in event["handle_key"],
                        }
                        for c in event["columns"]
                    }
                    image = "before" if change in ("delete", "update_preimage") else "after"
                    values = {
                        name: column.get(image)
                        for name, column in columns.items()
                        if column.get("generated") != "VIRTUAL"  # never on the wire
                    }
                    yield TrueRow(change, event["commit_ts"], partition, offset, index, values, columns)


def is_lost(event: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    """Return whether a message does not say which row it deletes: avro, of a table without a primary key."""
    has_before = header["config"].get("avro-include-before-value")
    is_avro = header["protocol"] == "avro" and not has_before
    return is_avro and event["op"] == "delete" and not event["primary_key"]


def has_commit_ts(change_type: str, header: Mapping[str, Any]) -> bool:
    if header["protocol"] != "avro":
        return True
    has_before = header["config"].get("avro-include-before-value")
    return bool(header["config"].get("enable-tidb-extension") and (change_type != "delete" or has_before))


def changes_of(op: str, header: Mapping[str, Any]) -> tuple[str, ...]:
    for missing in MISSING:
        if op == "update" and missing.protocol == header["protocol"] and missing.applies(header["config"]):
            return missing.update
    return _CHANGES[op]


def expected(protocol: str, column: Mapping[str, Any], truth: Any) -> tuple[Any, Loss | None]:
    for loss in LOSSES:
        if loss.protocol == protocol and loss.applies(column, truth):
            return loss.left(column, truth), loss
    return truth, None


def is_left(value: Any, left: Any, mysql_type: str) -> bool:
    if isinstance(left, dict) and "double" in left:
        return bool(float(value) == left["double"])
    return is_true(value, left, mysql_type)


_ZERO_DATE = re.compile(r"(0000-|\d{4}-00|\d{4}-\d\d-00)")


def is_true(value: Any, truth: Any, mysql_type: str) -> bool:
    """Return whether a decoded value is the truth, in whichever of the documented types it is."""
    if truth is None:
        return value is None
    if isinstance(truth, dict):
        return value is not None and _is_true_object(value, truth)
    type_name = mysql_type.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    if type_name in ("date", "datetime", "timestamp") and _ZERO_DATE.match(truth):
        return value is None or value == truth  # zeroDate=null, or read as string
    if value is None:
        return False
    if isinstance(value, str) and type_name != "vector":
        return value == truth or (type_name in ("double", "float") and float(value) == float(truth))
    return _CHECKS[type_name](value, truth)


def _is_true_object(value: Any, truth: Mapping[str, Any]) -> bool:
    if "label" in truth:
        return bool(value == truth["label"] if isinstance(value, str) else int(value) == truth["number"])
    if "number" in truth:  # BIT: boolean, or 64 bits as a signed integer
        return bool(int(value) % 2**64 == truth["number"])
    if "invalid_utf8" in truth and isinstance(value, str):
        return value == with_replacements(bytes.fromhex(truth["hex"]))
    return isinstance(value, bytes) and value.hex() == truth["hex"]


def _float32(value: Any) -> float:
    return float(struct.unpack("f", struct.pack("f", float(value)))[0])


def _time_text(value: datetime.timedelta) -> str:
    micros = abs(value) // datetime.timedelta(microseconds=1)
    seconds, micros = divmod(micros, 1_000_000)
    sign = "-" if value < datetime.timedelta(0) else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"


def _with_micros(text: str) -> str:
    head, _, fraction = text.partition(".")
    return f"{head}.{fraction.ljust(6, '0')}"


def _moment(value: datetime.datetime, truth: str) -> bool:
    return value.replace(tzinfo=None) == datetime.datetime.fromisoformat(_with_micros(truth))


_CHECKS: Mapping[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"),
        lambda value, truth: Decimal(value) == Decimal(truth),
    ),
    "float": lambda value, truth: _float32(value) == _float32(truth),
    "double": lambda value, truth: float(value) == float(truth),
    "date": lambda value, truth: bool(value.isoformat() == truth),
    "datetime": _moment,
    "timestamp": _moment,
    "time": lambda value, truth: _time_text(value) == _with_micros(truth),
    "vector": lambda value, truth: [_float32(x) for x in value] == [_float32(x) for x in json.loads(truth)],
}
