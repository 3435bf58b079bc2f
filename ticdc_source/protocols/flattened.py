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
    if not groups:
        return [{}]
    if len(nulls) < len(groups):
        return []
    (name, cell), rest = nulls[0], nulls[1:]
    ways = []
    if all(cell.get(part) == groups[0].get(part) for part in ("t", "f", "h")):
        ways = [{name: groups[0], **way} for way in _matches(groups[1:], rest)]
    if len(ways) < 2:  # noqa: PLR2004 (two are enough to know that it is not one)
        ways += _matches(groups, rest)
    return ways[:2]
