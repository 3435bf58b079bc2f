"""Writes canal-json (pingcap/ticdc pkg/sink/codec/canal/canal_json_encoder.go and helper.go), and official Canal's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.encoders.compression import compressed
from tests.encoders.open_protocol import dump
from tests.encoders.tables import BLOBS, TEXTS, Column, Event, Record, Table, changed, chosen, images, local, text_of

_SQL_TYPES = {
    "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 7, "double": 8, "decimal": 3,
    "bit": -7, "year": 12, "date": 91, "datetime": 93, "timestamp": 93, "time": 92, "char": 1, "varchar": 12,
    "binary": 2004, "varbinary": 2004, "enum": 4, "set": -7, "json": 12, "vector": 12,
    **dict.fromkeys(TEXTS, 2005), **dict.fromkeys(BLOBS, 2004),
}  # fmt: skip
# The code of an unsigned value that the signed Java type cannot hold: (largest value that it can, code).
_PROMOTED = {
    "tinyint": (127, 5), "smallint": (32767, 4), "int": (2**31 - 1, -5), "bigint": (2**63 - 1, 3),
}  # fmt: skip
# DDL types by TiDB's name; all others are QUERY (pkg/sink/codec/canal/helper.go:209-245).
DDL_TYPES = {
    "create table": "CREATE", "rename table": "RENAME", "drop table": "ERASE", "truncate table": "TRUNCATE",
    **dict.fromkeys(("add index", "add foreign key", "add primary key"), "CINDEX"),
    **dict.fromkeys(("drop index", "drop foreign key", "drop primary key"), "DINDEX"),
    **dict.fromkeys((
        "add column", "drop column", "modify column", "set default value", "rebase auto_increment ID",
        "modify table comment", "modify table charset and collate", "rename index", "alter index visibility",
        "add partition", "drop partition", "truncate partition", "alter table reorganize partition",
        "alter table remove partitioning", "alter table multi-schema change",
    ), "ALTER"),
}  # fmt: skip
_LOGICAL_BITS = 18


@dataclass(frozen=True)
class CanalJSON:
    """The encoder.

    Attributes:
        extension: enable-tidb-extension.
        content_compatible: full types, and only_updated.
        only_updated: only-output-updated-columns.
        delete_handle_key: delete-only-output-handle-key-columns.
        compression: large-message-handle-compression.
        before_v5_4: as TiCDC v4.0.9 to v5.3: `old` repeats a delete's row, no unsigned, codes always promoted.
        official: as Alibaba's Canal: full types with blanks, several rows in a message.
    """

    extension: bool = False
    content_compatible: bool = False
    only_updated: bool = False
    delete_handle_key: bool = False
    compression: str = "none"
    time_zone: str = "UTC"
    before_v5_4: bool = False
    official: bool = False
    build_ms: int = 0

    def message(self, events: Sequence[Event], tables: Sequence[Table | None]) -> Record:
        """Write the record of one event, or (as official Canal) of several rows with one operation and table."""
        first, table = events[0], tables[0]
        if first["op"] == "watermark":
            return None, self._finished(self._other(first, "TIDB_WATERMARK"))
        if first["op"] == "ddl":
            return None, self._finished(self._other(first, DDL_TYPES.get(first["ddl_type"], "QUERY")))
        assert table is not None
        return b"", self._finished(self._rows(events, table))

    def _finished(self, message: dict[str, Any]) -> bytes:
        return compressed(dump(message), self.compression)

    def _tidb(self, event: Event) -> dict[str, Any]:
        if not self.extension:
            return {}
        member = "watermarkTs" if event["op"] == "watermark" else "commitTs"
        large: dict[str, Any] = {}
        if "large" in event:
            large = {"claimCheckLocation": event["large"]} if event["large"] else {"onlyHandleKey": True}
        return {"_tidb": {member: event["commit_ts"], **large}}

    def _other(self, event: Event, message_type: str) -> dict[str, Any]:
        return {
            "id": 0, "database": event.get("schema", ""), "table": event.get("table", ""), "pkNames": None,
            "isDdl": event["op"] == "ddl", "type": message_type, "es": event["commit_ts"] >> _LOGICAL_BITS,
            "ts": self.build_ms, "sql": event.get("ddl_query", ""), "sqlType": None, "mysqlType": None, "data": None,
            "old": None, **self._tidb(event),
        }  # fmt: skip

    def _rows(self, events: Sequence[Event], table: Table) -> dict[str, Any]:
        event = events[0]
        before, after = images(event)
        described = before if after is None else after
        assert described is not None
        names = list(described)
        if after is None and self.delete_handle_key:
            names = [name for name in names if name in table.handle_key]
        columns = [table.by_name[name] for name in names]
        data, old = zip(*(self._images(each, table, names) for each in events), strict=True)
        mysql_types = {column.name: self._mysql_type(column) for column in columns}
        codes = {column.name: self._sql_type(column, described[column.name]) for column in columns}
        return {
            "id": 0, "database": table.schema, "table": table.name,
            "pkNames": [column.name for column in table.columns if column.name in table.primary_key],
            "isDdl": False, "type": event["op"].upper(), "es": event["commit_ts"] >> _LOGICAL_BITS,
            "ts": 0 if self.before_v5_4 else self.build_ms, "sql": "",
            "sqlType": codes or None, "mysqlType": mysql_types or None,
            "old": None if all(row is None for row in old) and not self.before_v5_4 else list(old),
            "data": list(data), **self._tidb(event),
        }  # fmt: skip

    def _images(self, event: Event, table: Table, names: Sequence[str]) -> tuple[Any, Any]:
        """Return a row of `data`, and its row of `old`."""
        before, after = images(event)
        if after is None:
            assert before is not None
            data = self._row(table, chosen(before, names))
            return data, data if self.before_v5_4 else None
        data = self._row(table, after)
        if before is None:
            return data, None
        if self.only_updated or self.content_compatible or self.official:
            before = chosen(before, changed(before, after))
        return data, self._row(table, before)

    def _row(self, table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: None if value is None else self.cell(table.by_name[name], value) for name, value in row.items()}

    def cell(self, column: Column, value: Any) -> str:
        type_name = column.type_name
        if type_name in ("enum", "set", "bit"):
            return str(value["number"])
        if column.binary:
            return bytes.fromhex(value["hex"]).decode("latin-1")
        if type_name in ("float", "double"):
            return plain_float(value)
        if type_name == "year":
            return str(int(value))
        if type_name == "timestamp":
            return local(value, self.time_zone)
        return text_of(value).encode(errors="surrogateescape").decode(errors="replace")

    def _mysql_type(self, column: Column) -> str:
        unsigned = " unsigned" if column.unsigned and not self.before_v5_4 else ""
        if column.zerofill and not self.before_v5_4:
            unsigned += " zerofill"
        if not self.content_compatible and not self.official:
            return column.type_name + unsigned
        full = column.mysql_type.removesuffix(" unsigned") + unsigned
        return full.replace(",", ", ") if self.official and column.type_name == "decimal" else full

    def _sql_type(self, column: Column, value: Any) -> int:
        code = _SQL_TYPES[column.type_name]
        if self.before_v5_4 and column.type_name in TEXTS:
            return 12
        if column.type_name not in _PROMOTED:
            return code
        limit, wider = _PROMOTED[column.type_name]
        if self.before_v5_4:
            return wider
        return wider if column.unsigned and value is not None and int(value) > limit else code


def plain_float(text: str) -> str:
    """Return a float's text without an exponent, as strconv's 'f' with precision -1."""
    plain = format(Decimal(text), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
