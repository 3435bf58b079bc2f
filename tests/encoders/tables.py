"""Tables as the truth declares them, with their columns, types, keys and indexes parsed for the encoders."""

import re
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from typing import Any

Event = Mapping[str, Any]
Record = tuple[bytes | None, bytes | None]

TEXTS = ("tinytext", "text", "mediumtext", "longtext")
BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TYPE = re.compile(r"(\w+)(?:\((.*)\))?((?: unsigned| zerofill)*)", re.DOTALL)
_LABEL = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_INDEX = re.compile(r"^\s*(PRIMARY KEY|UNIQUE KEY|KEY)\s+(?:`(?:[^`]|``)*`\s+)?\((.*?)\)(?:\s|,|$)", re.MULTILINE)
_NAME = re.compile(r"`((?:[^`]|``)*)`")


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        mysql_type: `COLUMN_TYPE` of the information schema.
        charset: the character set of text, enum and set; None for other types.
        generated: VIRTUAL (in no message), STORED, or "".
        zerofill: whether it is ZEROFILL, which TiDB's information schema does not show.
        on_update: whether it is ON UPDATE CURRENT_TIMESTAMP.
    """

    name: str
    mysql_type: str
    nullable: bool = True
    charset: str | None = None
    default: str | None = None
    generated: str = ""
    zerofill: bool = False
    on_update: bool = False

    @cached_property
    def _parts(self) -> tuple[str, str | None, str]:
        match = _TYPE.fullmatch(self.mysql_type)
        assert match is not None, self.mysql_type
        return match[1], match[2], match[3]

    @cached_property
    def type_name(self) -> str:
        return self._parts[0]

    @cached_property
    def unsigned(self) -> bool:
        return "unsigned" in self._parts[2]

    @cached_property
    def arguments(self) -> tuple[int, ...]:
        text = self._parts[1]
        return () if text is None or self.type_name in ("enum", "set") else tuple(int(part) for part in text.split(","))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(label.replace("''", "'") for label in _LABEL.findall(self._parts[1] or ""))

    @cached_property
    def binary(self) -> bool:
        return self.type_name in (*BLOBS, "binary", "varbinary")


@dataclass(frozen=True)
class Table:
    """One version of a table.

    Attributes:
        primary_key: names of its columns, in key order.
        handle_key: names of the columns by which TiCDC knows a row.
        version: the TSO of the version; 0 if nobody asks.
        indexes: each index's columns, and whether it is unique; the primary key is not among them.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    handle_key: tuple[str, ...] = ()
    indexes: tuple[tuple[tuple[str, ...], bool], ...] = ()
    charset: str = "utf8mb4"
    version: int = 0
    by_name: Mapping[str, Column] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {column.name: column for column in self.columns})

    @cached_property
    def sent(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.generated != "VIRTUAL")


def table_of(declared: Mapping[str, Any]) -> Table:
    ddl = declared["ddl"]
    lines = {m[1].replace("``", "`"): line for line in ddl.split("\n")[1:] if (m := _NAME.match(line.strip()))}
    columns = tuple(
        Column(
            entry["name"],
            entry["mysql_type"],
            entry["nullable"],
            entry.get("charset"),
            entry.get("default"),
            entry.get("generated") or "",
            "zerofill" in lines.get(entry["name"], ""),
            "ON UPDATE" in lines.get(entry["name"], ""),
        )
        for entry in declared["columns"]
    )
    indexes = tuple(
        (tuple(name.replace("``", "`") for name in _NAME.findall(match[2])), match[1] == "UNIQUE KEY")
        for match in _INDEX.finditer(ddl)
        if match[1] != "PRIMARY KEY"
    )
    charset = re.findall(r"DEFAULT CHARSET=(\w+)", ddl)
    return Table(
        declared["schema"], declared["table"], columns, tuple(declared["primary_key"]),
        tuple(declared["handle_key"]), indexes, (*charset, "utf8mb4")[0], declared.get("table_version", 0),
    )  # fmt: skip


def images(event: Event) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    sent = [column for column in event["columns"] if column.get("generated") != "VIRTUAL"]
    before = None if event["op"] == "insert" else {column["name"]: column.get("before") for column in sent}
    after = None if event["op"] == "delete" else {column["name"]: column.get("after") for column in sent}
    return before, after


def keys_only(event: Event, address: str = "") -> Event:
    """Return what the message of a row too large for Kafka has: its handle key, and the address of the whole row.

    `large` is the address in claim-check storage, empty with large-message-handle-option=handle-key-only.
    """
    columns = [column for column in event["columns"] if column["name"] in event["handle_key"]]
    return {**event, "columns": columns, "large": address}


def text_of(value: Any) -> str:
    """Return the text of a char, varchar or text value; bytes that are not UTF-8 are lone surrogates."""
    return value if isinstance(value, str) else bytes.fromhex(value["hex"]).decode(errors="surrogateescape")


@lru_cache(maxsize=100_000)
def local(text: str, time_zone: str) -> str:
    """Return a UTC timestamp's text as the wall clock in TiCDC's time zone, with as many digits."""
    if time_zone == "UTC" or text.startswith("0000"):
        return text
    head, dot, fraction = text.partition(".")
    moment = datetime.fromisoformat(head).replace(tzinfo=timezone.utc).astimezone(zoneinfo.ZoneInfo(time_zone))
    return f"{moment:%Y-%m-%d %H:%M:%S}{dot}{fraction}".rjust(len(text), "0")


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name in before if before[name] != after[name]]


def chosen(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a row that have these names, in the row's order."""
    return {name: value for name, value in row.items() if name in names}
