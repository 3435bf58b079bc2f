"""Undoing a bug of TiCDC: old values that are written without their column's name (wire.md item 35).

With only-output-updated-columns=true, a column whose new value is NULL does not come as `"name":{"t":3,"f":65,"v":7}`
in `p` but flat, as `"t":3,"f":65,"v":7`, once for each such column, in table order (pingcap/ticdc
pkg/sink/codec/open/codec.go, writeColumnFieldValueIfUpdated). They are put back by their type and flags among the
columns of `u` that are NULL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["restored_old_values"]

Pairs = list[tuple[str, Any]]


class _Object(list):  # type: ignore[type-arg]  # pairs, told apart from a JSON array
    """A JSON object as its pairs, in order: a dict would keep the last of the repeated members only."""


def restored_old_values(payload: bytes) -> dict[str, Any] | None:
    """Return the members of `p` by column name; None where more than one column may be meant.

    Raises:
        ValueError: the members of `p` are not what the bug writes.
    """
    event = json.loads(payload.decode(errors="surrogateescape"), object_pairs_hook=_Object)
    members = dict(event)
    named: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    open_group: dict[str, Any] | None = None
    for name, value in members["p"]:
        if isinstance(value, _Object):
            named[name] = dict(value)
            continue
        if name == "t":
            open_group = {}
            groups.append(open_group)
        if open_group is None or name not in ("t", "h", "f", "v") or name in open_group:
            msg = f"a member {name!r} of 'p' that is no column"
            raise ValueError(msg)
        open_group[name] = value
    cells = [(name, dict(cell)) for name, cell in members["u"]]
    nulls = [(name, cell) for name, cell in cells if cell["v"] is None and name not in named]
    matches = _matches(groups, nulls)
    if not matches:
        msg = "old values without column names that fit no column that became NULL"
        raise ValueError(msg)
    return {**named, **matches[0]} if len(matches) == 1 else None


def _matches(groups: Sequence[dict[str, Any]], nulls: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return up to two ways to give the groups to columns of the same type and flags, both in table order."""
    # ways[i][j]: in how many ways (two are enough to know) the groups from i on fit the columns from j on.
    ways = [[0] * (len(nulls) + 1) for _ in groups] + [[1] * (len(nulls) + 1)]
    for i in range(len(groups) - 1, -1, -1):
        for j in range(len(nulls) - 1, -1, -1):
            here = ways[i + 1][j + 1] if _alike(groups[i], nulls[j][1]) else 0
            ways[i][j] = min(2, ways[i][j + 1] + here)
    if not ways[0][0]:
        return []
    found, i = {}, 0
    for j, (name, cell) in enumerate(nulls):
        if i < len(groups) and _alike(groups[i], cell) and ways[i + 1][j + 1]:
            found[name] = groups[i]
            i += 1
    return [found] * ways[0][0]


def _alike(group: dict[str, Any], cell: dict[str, Any]) -> bool:
    return all(cell.get(part) == group.get(part) for part in ("t", "f", "h"))
