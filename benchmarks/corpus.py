"""Seeded messages as TiCDC's canal-json encoder writes them with `enable-tidb-extension`: ten typed columns."""

import json
import random
from collections.abc import Iterator
from typing import Any

TSO = 470_613_397_578_711_040  # 2026-11-21 07:54:00.910 UTC

# Name, type in `mysqlType`, code in `sqlType`.
COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("id", "bigint", -5),
    ("customer_id", "int", 4),
    ("status", "varchar", 12),
    ("amount", "decimal", 3),
    ("quantity", "smallint", 5),
    ("rate", "double", 8),
    ("note", "text", 2005),
    ("created_at", "datetime", 93),
    ("updated_at", "timestamp", 93),
    ("due", "date", 91),
)
DATABASE, TABLE = "shop", "orders"
_UPDATES = 0.3


def messages(seed: int = 0, note_bytes: int = 0) -> Iterator[bytes]:
    """Yield row messages for ever: inserts, 30 % updates with the whole old row, and a few deletes.

    Args:
        seed: the same seed, the same messages.
        note_bytes: how long to make the column `note`; 0 for a short text.
    """
    chooser = random.Random(seed)
    types = [(name, type_) for name, type_, _ in COLUMNS]
    number = 0
    while True:
        number += 1
        draw = chooser.random()
        kind = "UPDATE" if draw < _UPDATES else "DELETE" if draw < _UPDATES + 0.05 else "INSERT"
        row = _row(chooser, number, note_bytes)
        old = {**row, "status": "new", "quantity": "1"} if kind == "UPDATE" else None
        chooser.shuffle(types)  # in TiCDC a hash map of Go's: another order in every message
        yield _message(kind, TSO + number, row, old, types)


def watermarks(seed: int = 0) -> Iterator[bytes]:
    """Yield watermark messages for ever: records without rows."""
    number = seed
    while True:
        number += 1
        stamp = (TSO + (number << 18)) >> 18
        yield _dump({
            "id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK",
            "es": stamp, "ts": stamp, "sql": "", "sqlType": None, "mysqlType": None, "old": None, "data": None,
            "_tidb": {"watermarkTs": TSO + (number << 18)},
        })  # fmt: skip


def one_message(value_bytes: int) -> bytes:
    """Make one insert whose message has about so many bytes."""
    return next(messages(note_bytes=value_bytes))


def _row(chooser: random.Random, number: int, note_bytes: int) -> dict[str, str]:
    note = f"order {number} é {chooser.getrandbits(80):020x}"
    if note_bytes:
        words = [f"{chooser.getrandbits(64):016x}" for _ in range(64)]
        note = (" ".join(words) + " ") * (note_bytes // (17 * len(words)) + 1)
        note = note[:note_bytes]
    second = f"{chooser.randrange(60):02}"
    return {
        "id": str(number),
        "customer_id": str(chooser.randrange(1_000_000)),
        "status": chooser.choice(("new", "paid", "shipped", "returned")),
        "amount": f"{chooser.randrange(10_000_000) / 100:.2f}",
        "quantity": str(chooser.randrange(100)),
        "rate": repr(chooser.random()),
        "note": note,
        "created_at": f"2026-11-21 07:54:{second}",
        "updated_at": f"2026-11-21 07:54:{second}.{chooser.randrange(1_000_000):06}",
        "due": f"2026-12-{chooser.randrange(1, 29):02}",
    }


def _message(
    kind: str, commit_ts: int, row: dict[str, str], old: dict[str, str] | None, types: list[tuple[str, str]]
) -> bytes:
    stamp = commit_ts >> 18
    return _dump({
        "id": 0, "database": DATABASE, "table": TABLE, "pkNames": ["id"], "isDdl": False, "type": kind,
        "es": stamp, "ts": stamp + 5, "sql": "",
        "sqlType": {name: code for name, _, code in COLUMNS},
        "mysqlType": dict(types),
        "old": None if old is None else [old], "data": [row], "_tidb": {"commitTs": commit_ts},
    })  # fmt: skip


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
