"""The messages in TiCDC's documentation are read as the documentation says."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.captured import Captured, rows
from tests.support.messages import cell, open_message, open_row
from ticdc_source.errors import DecodeError
from ticdc_source.events import Split
from ticdc_source.protocols import PROTOCOLS

FOLDER = Path(__file__).parents[1] / "data" / "documented"
Documented = tuple[bytes | None, bytes | None, dict[str, Any]]


def documented(name: str) -> Documented:
    """Load a message and what the documentation says about it."""
    entry = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    key, value = (None if entry[part] is None else base64.b64decode(entry[part]) for part in ("key_b64", "value_b64"))
    return key, value, entry["expect"]


def split(protocol: str, message: Documented) -> Split:
    """Split one message into events."""
    captured = Captured.of(message[:2])
    return PROTOCOLS[protocol].split(next(captured.fetch(captured.ranges()[0])))


def test_open_row_of_the_first_releases() -> None:
    """A VARCHAR in base64 without flags, from before v4.0.5, is read as text."""
    key, value, _ = documented("open/docs_log5_row_varchar_base64")

    found = rows((key, value))[0]

    assert (found["_change_type"], found["id"], found["val"], found["_commit_version"]) == (
        "insert", 1, "aa", 415508878783938562,
    )  # fmt: skip


def test_open_delete_with_the_handle_key_only() -> None:
    """In a delete that carries only its key, the other columns are NULL."""
    key, value, expect = documented("open/docs_log9_delete_handle_only")
    full = open_message(open_row({"u": {"id": cell(3, 5, None, h=True), "val": cell(15, "YWE=", None)}}, table="t1"))

    found = rows(full, (key, value))[1]

    assert (found["_change_type"], found["id"], found["val"]) == (expect["op"], expect["id"], None)


def test_open_ddl_and_resolved() -> None:
    """A DDL event has its statement and type, a resolved event its timestamp."""
    ddl = documented("open/docs_log1_ddl_all_partitions")
    resolved = documented("open/docs_log13_resolved")

    (event,) = split("open-protocol", ddl).ddl
    (watermark,) = split("open-protocol", resolved).watermarks

    assert (event.query, event.type_code) == (ddl[2]["ddl"], ddl[2]["type"])
    assert watermark.ts == resolved[2]["resolvedTs"]


def test_canal_insert() -> None:
    """Integers of every size are read, and the commit-ts comes from the TiDB extension."""
    key, value, expect = documented("canal-json/docs_insert")

    found = rows((key, value))[0]

    assert {name: found[name] for name in expect["data"]} == {name: int(text) for name, text in expect["data"].items()}
    assert found["_commit_version"] == 429918007904436226


def test_canal_ddl_and_watermark() -> None:
    """A DDL event has its statement, type and commit-ts, a watermark its timestamp."""
    ddl = documented("canal-json/docs_ddl")
    watermark = documented("canal-json/docs_watermark")

    (event,) = split("canal-json", ddl).ddl
    (mark,) = split("canal-json", watermark).watermarks

    assert (event.type, event.query, event.commit_ts) == (ddl[2]["type"], ddl[2]["sql"], ddl[2]["commitTs"])
    assert mark.ts == watermark[2]["watermarkTs"]


def test_canal_varbinary() -> None:
    """The documented fragment of a VARBINARY is read as its bytes."""
    _, value, expect = documented("canal-json/docs_varbinary_latin1")
    fragment = json.loads(value or b"")
    whole = {
        "id": 0, "database": "d", "table": "t", "pkNames": [], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1,
        "sql": "", "sqlType": {"c_varbinary": 2004}, "mysqlType": {"c_varbinary": "varbinary"}, "old": None, **fragment,
    }  # fmt: skip

    assert rows((b"", json.dumps(whole).encode()))[0]["c_varbinary"].hex() == expect["c_varbinary_hex"]


def test_canal_handle_key_only() -> None:
    """A large message that has only its key is refused, not read as a whole row."""
    key, value, _ = documented("canal-json/docs_handle_key_only")

    with pytest.raises(DecodeError, match="handle-key-only"):
        rows((key, value))
