"""CSV as TiCDC's storage sink writes it (pingcap/ticdc pkg/sink/codec/csv/csv_message.go, encode)."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

Json = Mapping[str, Any]
_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "year")


@dataclass(frozen=True)
class CSV:
    """The settings of the sink's CSV.

    Attributes:
        include_commit_ts, output_old_value, output_field_header: as in TiCDC's configuration.
        quote, delimiter, null, terminator: as in TiCDC's configuration.
        binary: `base64` or `hex`.
        time_zone: of the TiCDC server.
    """

    include_commit_ts: bool = True
    output_old_value: bool = False
    output_field_header: bool = False
    quote: str = '"'
    delimiter: str = ","
    null: str = "\\N"
    terminator: str = "\r\n"
    binary: str = "base64"
    time_zone: str = "UTC"

    def header(self, names: list[str]) -> bytes:
        """Return the first line of a file; nothing without `output_field_header`."""
        if not self.output_field_header:
            return b""
        own = ["operation", "table", "schema", *(["commit-ts"] if self.include_commit_ts else [])]
        own += ["is-update"] if self.output_old_value else []
        return (self.delimiter.join([*(f"ticdc-meta${one}" for one in own), *names]) + self.terminator).encode()

    def row(self, event: Json) -> bytes:
        if event["op"] == "update":
            if self.output_old_value:
                return self._line("D", event, "before", update=True) + self._line("I", event, "after", update=True)
            return self._line("U", event, "after", update=True)
        is_delete = event["op"] == "delete"
        return self._line("D" if is_delete else "I", event, "before" if is_delete else "after", update=False)

    def _line(self, operation: str, event: Json, image: str, *, update: bool) -> bytes:
        cells = [self._text(operation), self._text(event["table"]), self._text(event["schema"])]
        if self.include_commit_ts:
            cells.append(str(event["commit_ts"]).encode())
        if self.output_old_value:
            cells.append(str(update).lower().encode())
        cells += [self._cell(one, one.get(image)) for one in event["columns"] if one.get("generated") != "VIRTUAL"]
        return self.delimiter.encode().join(cells) + self.terminator.encode()

    def _cell(self, column: Json, value: Any) -> bytes:
        name = column["mysql_type"].partition("(")[0].partition(" ")[0]
        if value is None:
            return self.null.encode()
        if name == "bit":
            return str(value["number"]).encode()
        if name in ("enum", "set"):
            return self._text(value["label"])
        if isinstance(value, dict):
            data = bytes.fromhex(value["hex"])
            if value.get("invalid_utf8"):
                return self._quoted(data)
            return self._text(data.hex() if self.binary == "hex" else base64.b64encode(data).decode())
        if name in _NUMBERS:
            return str(value).encode()
        if name == "timestamp" and not value.startswith("0000"):
            return self._text(self._local(value))
        return self._text(value)

    def _local(self, text: str) -> str:
        second, point, fraction = text.partition(".")
        moment = datetime.fromisoformat(second).replace(tzinfo=timezone.utc).astimezone(ZoneInfo(self.time_zone))
        return f"{moment:%Y-%m-%d %H:%M:%S}{point}{fraction}"

    def _text(self, text: str) -> bytes:
        return self._quoted(text.encode())

    def _quoted(self, data: bytes) -> bytes:
        quote = self.quote.encode()
        if quote:
            return quote + data.replace(quote, quote + quote) + quote
        data = data.replace(b"\\", b"\\\\").replace(b"\r", b"\\r").replace(b"\n", b"\\n")
        escaped = b"".join(b"\\" + bytes([one]) for one in self.delimiter.encode())
        return data.replace(self.delimiter.encode(), escaped)
