"""How a storage sink writes canal-json: one message in a line, as in Kafka, always with the TiDB extension.

Source: pingcap/ticdc pkg/sink/codec/canal/canal_json_txn_encoder.go. DDL and the checkpoint-ts are in other files; they
become the messages that TiCDC sends to Kafka (canal_json_encoder.go, helper.go).
"""

from __future__ import annotations

from typing import Any

import orjson

from ticdc_source.protocols.messages import JSONObject, message_of_schema_file, text, tso
from ticdc_source.schema.tso import physical_ms
from ticdc_source.sources.storage.file_format import FileFormat, LineCutter

__all__ = ["FILES"]

# Canal's word for TiDB's code of a DDL; it has `QUERY` for the others.
_WORDS = {
    **dict.fromkeys((3,), "CREATE"),
    **dict.fromkeys((14, 47), "RENAME"),
    **dict.fromkeys((7, 9, 32), "CINDEX"),
    **dict.fromkeys((8, 10, 33), "DINDEX"),
    **dict.fromkeys((5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72), "ALTER"),
    **dict.fromkeys((4,), "ERASE"),
    **dict.fromkeys((11,), "TRUNCATE"),
}


def _message(database: str, table: str, *, is_ddl: bool, type_: str, ts: int, sql: str, **extension: int) -> bytes:
    message: dict[str, Any] = {
        "id": 0, "database": database, "table": table, "pkNames": None, "isDdl": is_ddl, "type": type_,
        "es": physical_ms(ts), "ts": 0, "sql": sql, "sqlType": None, "mysqlType": None, "data": None, "old": None,
        "_tidb": extension,
    }  # fmt: skip
    return orjson.dumps(message)


def _of_schema(schema: JSONObject) -> bytes | None:
    if not schema.get("Query"):
        return None  # how the table was before its first row; rows say what they need
    version = tso(schema["TableVersion"])
    return _message(
        text(schema.get("Schema") or ""),
        text(schema.get("Table") or ""),
        is_ddl=True,
        type_=_WORDS.get(schema.get("Type", 0), "QUERY"),
        ts=version,
        sql=text(schema["Query"]),
        commitTs=version,
    )


def _of_checkpoint(ts: int) -> bytes:
    return _message("", "", is_ddl=False, type_="TIDB_WATERMARK", ts=ts, sql="", watermarkTs=ts)


FILES = FileFormat(
    extension=".json",
    cutter=lambda _version, settings: LineCutter(settings.terminator),
    of_schema=message_of_schema_file(_of_schema),
    of_checkpoint=_of_checkpoint,
)
