"""Messages written by hand, for forms that the corpus does not have: older releases, other producers, garbage."""

import json
from typing import Any

TSO = 470_613_397_578_711_040  # 2026-11-21 07:54:00.910 UTC
Message = tuple[bytes | None, bytes | None]


def framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def dump(value: Any) -> bytes:
    """Write JSON as Go does: no blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def open_message(*events: tuple[dict[str, Any], Any]) -> Message:
    """Make an open-protocol record of (key JSON, value JSON or bytes) pairs."""
    key = (1).to_bytes(8, "big") + framed(*(dump(head) for head, _ in events))
    return key, framed(*(body if isinstance(body, bytes) else dump(body) for _, body in events))


def open_row(body: Any, table: str = "t", **head: Any) -> tuple[dict[str, Any], Any]:
    return {"ts": TSO, "scm": "test", "tbl": table, "t": 1, **head}, body


def cell(code: int, value: Any, flags: int = 0, **more: Any) -> dict[str, Any]:
    return {"t": code, **more, "f": flags, "v": value}


def canal(
    kind: str = "INSERT",
    data: Any = None,
    old: Any = None,
    mysql_type: dict[str, str] | None = None,
    sql_type: dict[str, int] | None = None,
    **more: Any,
) -> Message:
    """Make a canal-json record of test.t with members in TiCDC's order; `more` replaces or adds members."""
    message = {
        "id": 0,
        "database": "test",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": kind,
        "es": TSO >> 18,
        "ts": (TSO >> 18) + 5,
        "sql": "",
        "sqlType": sql_type,
        "mysqlType": mysql_type,
        "old": old,
        "data": data,
    }
    return b"", dump({**message, **more})


def watermark(ts: int) -> Message:
    """Make a watermark of canal-json."""
    return canal("TIDB_WATERMARK", database="", table="", pkNames=None, _tidb={"watermarkTs": ts})


def simple(type_: str = "INSERT", data: Any = None, old: Any = None, version: int = 0, **more: Any) -> Message:
    """Make a simple row of test.t with members in TiCDC's order; `version` is the version of its table."""
    message = {
        "version": 1, "database": "test", "table": "t", "tableID": 7, "type": type_, "commitTs": TSO,
        "buildTs": (TSO >> 18) + 5, "schemaVersion": version or TSO - 9,
        **({} if data is None else {"data": data}), **({} if old is None else {"old": old}),
    }  # fmt: skip
    return b"", dump({**message, **more})


def simple_definition(
    type_: str, columns: dict[str, dict[str, Any]], version: int = 0, table: str = "t", **more: Any
) -> Message:
    """Make a DDL message, or with `BOOTSTRAP` another one that defines test.t."""
    names = list(columns)
    schema = {
        "schema": "test", "table": table, "tableID": 7, "version": version or TSO - 9,
        "columns": [
            {"name": name, "dataType": columns[name], "nullable": name != names[0], "default": None} for name in names
        ],
        "indexes": [{"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": names[:1]}],
    }  # fmt: skip
    text = {} if type_ == "BOOTSTRAP" else {"sql": f"ALTER TABLE {table} COMMENT 'x'"}
    times = {"commitTs": 0 if type_ == "BOOTSTRAP" else TSO - 8, "buildTs": (TSO >> 18) + 5}
    return None, dump({"version": 1, "type": type_, **text, **times, "tableSchema": schema, **more})


def debezium(
    op: str = "c",
    before: Any = None,
    after: Any = None,
    fields: list[dict[str, Any]] | None = None,
    source: dict[str, Any] | None = None,
    key: dict[str, Any] | None = None,
) -> Message:
    """Make a debezium record of test.t as TiCDC does; without `fields` as with debezium-disable-schema."""
    payload: dict[str, Any] = {
        "source": {
            "version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": TSO >> 18, "snapshot": "false",
            "db": "test", "table": "t", "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": 0,
            "query": None, "commit_ts": TSO, "cluster_id": "default", **(source or {}),
        },
        "ts_ms": (TSO >> 18) + 5,
        "transaction": None,
        "op": op,
    }  # fmt: skip
    if before is not None or op in "cd":
        payload["before"] = before
    if after is not None or op == "d":
        payload["after"] = after
    message: dict[str, Any] = {"payload": payload}
    if fields is not None:
        message["schema"] = {
            "type": "struct",
            "fields": [{"type": "struct", "fields": fields, "field": side} for side in ("before", "after")],
        }
    return dump({"payload": key or {}}), dump(message)


def debezium_ddl(
    commit_ts: int,
    ddl: str,
    columns: list[dict[str, Any]],
    kind: str = "CREATE",
    source: dict[str, Any] | None = None,
    **more: Any,
) -> Message:
    """Make a debezium DDL record of test.t; `source` and `more` replace members."""
    change = {"type": kind, "id": '"test"."t"', "table": {"columns": columns}}
    payload = {
        "source": {"db": "test", "table": "t", "commit_ts": commit_ts, "ts_ms": commit_ts >> 18, **(source or {})},
        "ts_ms": commit_ts >> 18,
        "databaseName": "test",
        "schemaName": None,
        "ddl": ddl,
        "tableChanges": [change],
        **more,
    }
    return dump({"payload": {"databaseName": "test"}}), dump({"payload": payload})


def declared(name: str, type_name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "typeName": type_name, "length": None, "scale": None, "enumValues": None, **more}
