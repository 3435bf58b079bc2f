"""What releases of TiCDC write wrongly in open-protocol, and what can be put right.

**Old values without names** (all of the new architecture): with only-output-updated-columns=true, a column whose new
value is NULL does not come as `"name":{"t":3,"f":65,"v":7}` in `p` but flat, as `"t":3,"f":65,"v":7`, once for each
such column, in table order (pingcap/ticdc pkg/sink/codec/open/codec.go, writeColumnFieldValueIfUpdated). They are put
back by their type and flags among the columns of `u` that are NULL.

**MySQL's flags** (8.5.4 and 8.5.5 in such a `p`; some development builds everywhere; docs/wire.md, item 103): the
message has the flags of pingcap/tidb pkg/parser/mysql/type.go instead of TiCDC's own
(pkg/sink/codec/open/message.go:138-199). TiCDC's flags have eight bits. MySQL's flags of a NOT NULL column without a
default, such as a key, have a higher bit: a message with such a column shows that all of its flags are MySQL's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["restored_old_values", "with_ticdc_flags"]

Pairs = list[tuple[str, Any]]
# A column as a message has it: name, type code, flags (None: not there), whether it is marked as of the handle key.
Seen = tuple[str, int, int | None, bool | None]

_TICDC_FLAGS = 0xFF
# MySQL's flag → TiCDC's: the primary key is the handle key (`h` tells of other keys), unsigned, binary.
_SAME = {2: 2 | 8, 32: 128, 128: 1}
_NOT_NULL, _NULLABLE = 1, 64


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


def with_ticdc_flags(columns: tuple[Seen, ...]) -> tuple[Seen, ...]:
    """Return the columns of a message with TiCDC's flags where it has MySQL's."""
    if all((flags or 0) <= _TICDC_FLAGS for _, _, flags, _ in columns):
        return columns
    return tuple((name, code, _translated(flags or 0), handle) for name, code, flags, handle in columns)


def _translated(flags: int) -> int:
    nullable = 0 if flags & _NOT_NULL else _NULLABLE
    return nullable | sum(ours for theirs, ours in _SAME.items() if flags & theirs)
