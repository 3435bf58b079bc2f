"""Writes messages as Debezium's own MySQL connector and Kafka Connect's JSON converter do.

Sources: Debezium's documentation, "Data type mappings" and "Data change events" (debezium/debezium
documentation/modules/ROOT/partials/modules/all-connectors/shared-mariadb-mysql.adoc), and Kafka Connect's logical
types (apache/kafka connect/api/src/main/java/org/apache/kafka/connect/data: Date, Decimal, Time, Timestamp).
"""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from tests.encoders.debezium import column_field
from tests.encoders.debezium_values import microseconds
from tests.encoders.open_protocol import dump
from tests.encoders.tables import Column, Event, Record, Table, chosen, images

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CONNECT = "org.apache.kafka.connect.data"
_MILLISECONDS = 3


@dataclass(frozen=True)
class NativeDebezium:
    """The encoder.

    Attributes:
        decimals: decimal.handling.mode: precise, string or double.
        big_unsigned: bigint.unsigned.handling.mode: long or precise.
        binaries: binary.handling.mode: bytes, base64 or hex.
        times: time.precision.mode: adaptive_time_microseconds, adaptive or connect.
        snapshot: write inserts as reads of a snapshot.
    """

    decimals: str = "precise"
    big_unsigned: str = "long"
    binaries: str = "bytes"
    times: str = "adaptive_time_microseconds"
    snapshot: bool = False

    def message(self, events: Sequence[Event], tables: Sequence[Table | None]) -> Record:
        """Write the record of a row event. DDL goes to another topic, and there are no watermarks."""
        event, table = events[0], tables[0]
        assert table is not None
        before, after = images(event)
        described = before if after is None else after
        assert described is not None
        op = {"insert": "r" if self.snapshot else "c", "update": "u", "delete": "d"}[event["op"]]
        fields = [self._field(column) for column in table.sent]
        keys = [self._field(column) for column in table.columns if column.name in table.handle_key]
        name = f"shop.{table.schema}.{table.name}"
        value = {
            "before": self._image(before, table), "after": self._image(after, table),
            "source": {
                "version": "3.3.1.Final", "connector": "mysql", "name": "shop", "ts_ms": event["commit_ts"] >> 18,
                "snapshot": "first" if op == "r" else "false", "db": table.schema, "sequence": None,
                "ts_us": (event["commit_ts"] >> 18) * 1000, "table": table.name, "server_id": 223344, "gtid": None,
                "file": "mysql-bin.000003", "pos": 484, "row": 0, "thread": 7, "query": None,
            },
            "transaction": None, "op": op, "ts_ms": (event["commit_ts"] >> 18) + 5,
        }  # fmt: skip
        rows = [
            {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value", "field": side}
            for side in ("before", "after")
        ]
        envelope = {"type": "struct", "fields": rows, "optional": False, "name": f"{name}.Envelope", "version": 2}
        key_schema = {"type": "struct", "fields": keys, "optional": False, "name": f"{name}.Key"}
        key = self._image(chosen(described, table.handle_key), table)
        return dump({"schema": key_schema, "payload": key}), dump({"schema": envelope, "payload": value})

    def _image(self, row: dict[str, Any] | None, table: Table) -> dict[str, Any] | None:
        if row is None:
            return None
        return {name: self._value(table.by_name[name], value) for name, value in row.items()}

    def _field(self, column: Column) -> dict[str, Any]:
        field = column_field(column, extension=False)
        field.pop("default", None)
        type_name = column.type_name
        if type_name == "decimal" and self.decimals == "precise":
            precision, scale = column.arguments
            parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
            field |= {"type": "bytes", "name": f"{_CONNECT}.Decimal", "version": 1, "parameters": parameters}
        elif type_name == "decimal" and self.decimals == "string":
            field["type"] = "string"
        elif type_name == "bigint" and column.unsigned and self.big_unsigned == "precise":
            field |= {"type": "bytes", "name": f"{_CONNECT}.Decimal", "version": 1, "parameters": {"scale": "0"}}
        elif column.binary and self.binaries == "bytes":
            field["type"] = "bytes"
        elif self.times == "connect" and type_name in ("date", "time", "datetime"):
            name = {"date": "Date", "time": "Time", "datetime": "Timestamp"}[type_name]
            field |= {
                "type": "int64" if type_name == "datetime" else "int32",
                "name": f"{_CONNECT}.{name}",
                "version": 1,
            }
        elif self.times == "adaptive" and type_name == "time" and (*column.arguments, 0)[0] <= _MILLISECONDS:
            field |= {"type": "int32", "name": "io.debezium.time.Time"}
        elif type_name == "vector":
            field = {"type": "array", "items": {"type": "float", "optional": False}, "optional": column.nullable,
                     "name": "io.debezium.data.FloatVector", "version": 1, "field": column.name}  # fmt: skip
        return field

    def _value(self, column: Column, value: Any) -> Any:
        value = self.left(column, value)
        type_name = column.type_name
        if value is None:
            return None
        if type_name == "decimal":
            return _decimal(value, self.decimals)
        if type_name == "bigint" and column.unsigned:
            return _unscaled(int(value)) if self.big_unsigned == "precise" else int(value)
        if type_name in ("tinyint", "smallint", "mediumint", "int", "bigint", "year"):
            return int(value)
        if type_name in ("float", "double"):
            single = type_name == "float" and not column.arguments
            return struct.unpack("f", struct.pack("f", float(value)))[0] if single else float(value)
        if type_name == "bit":
            length, number = column.arguments[0], value["number"]
            return number == 1 if length == 1 else _base64(number.to_bytes((length + 7) // 8, "little"))
        if type_name in ("enum", "set"):
            return value["label"]
        if column.binary:
            return _base64(bytes.fromhex(value["hex"])) if self.binaries == "bytes" else value
        if type_name == "vector":
            return [float(part) for part in value[1:-1].split(",")] if value != "[]" else []
        return self._moment(column, value) if type_name in ("date", "datetime", "timestamp", "time") else value

    def _moment(self, column: Column, value: str) -> Any:
        type_name = column.type_name
        if type_name == "time":
            thousands = self.times == "connect" or self._field(column)["name"] == "io.debezium.time.Time"
            micros = microseconds(value)
            return (abs(micros) // 1000 * (-1 if micros < 0 else 1)) if thousands else micros
        if type_name == "timestamp":
            text = value.replace(" ", "T")
            return (text.rstrip("0").rstrip(".") if "." in text else text) + "Z"
        head, _, fraction = value.partition(".")
        moment = datetime.fromisoformat(head).replace(tzinfo=timezone.utc)
        moment += timedelta(microseconds=int(fraction.ljust(6, "0")))
        if type_name == "date":
            return (moment - _EPOCH).days
        micros = (moment - _EPOCH) // timedelta(microseconds=1)
        short = self.times == "connect" or (*column.arguments, 0)[0] <= _MILLISECONDS
        return micros // 1000 if short else micros

    def left(self, column: Column, value: Any) -> Any:
        """Return what these modes leave of a true value, in the truth's form.

        Zero dates are NULL or the epoch; a BIGINT UNSIGNED above 2^63-1 wraps around if it is sent as a long; with
        time.precision.mode=connect there are only milliseconds; binary that is sent as a string stays that string,
        because nothing says how it was encoded.
        """
        type_name = column.type_name
        if value is None:
            return None
        if type_name in ("date", "datetime", "timestamp") and (value.startswith("0000") or "-00" in value[:10]):
            if column.nullable:
                return None
            epoch = "1970-01-01 00:00:00" + value[19:]
            return epoch[:10] if type_name == "date" else epoch
        if self.times == "connect" and type_name == "datetime" and len(value) > 23:
            return value[:23] + "0" * (len(value) - 23)
        if self.times == "connect" and type_name == "time" and "." in value:
            head, _, fraction = value.partition(".")
            rest = fraction[:3] + "0" * (len(fraction) - 3)
            return f"{head}.{rest}" if f"{head}{rest}".strip("-0:") else f"{head}.{rest}".lstrip("-")
        if type_name == "bigint" and self.big_unsigned == "long" and int(value) >= 1 << 63:
            return str(int(value) - (1 << 64))
        if column.binary and self.binaries != "bytes":
            data = bytes.fromhex(value["hex"])
            return data.hex() if self.binaries == "hex" else _base64(data)
        return value


def left_of(encoder: NativeDebezium, event: Event, table: Table) -> Event:
    """Return the truth of an event, as far as the encoder's modes keep it."""
    columns = []
    for column in event["columns"]:
        kept = {side: encoder.left(table.by_name[column["name"]], column[side]) for side in ("before", "after")
                if side in column}  # fmt: skip
        if encoder.decimals == "double" and column["mysql_type"].startswith("decimal"):
            kept = {side: None if text is None else {"double": float(Decimal(text))} for side, text in kept.items()}
        columns.append({**column, **kept})
    return {**event, "columns": columns}


def _decimal(value: str, mode: str) -> Any:
    if mode == "string":
        return value
    if mode == "double":
        return float(Decimal(value))
    return _unscaled(int(value.replace(".", "")))


def _unscaled(number: int) -> str:
    return _base64(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
