"""Bugs of TiCDC's releases in open-protocol, and what can be put right.

**Old values without names** (docs/wire.md, item 35; all releases of the new architecture): with
only-output-updated-columns=true, `p` does not have `"name":{"t":3,"f":65,"v":7}` for a column whose new value is NULL.
It has the flat members `"t":3,"f":65,"v":7`, again for each such column, in table order (pingcap/ticdc
pkg/sink/codec/open/codec.go, writeColumnFieldValueIfUpdated). Type and flags show which of the columns of `u` that are
NULL they belong to.

**MySQL's flags** (docs/wire.md, item 103): within such a `p`, v8.5.4 and v8.5.5 write the flags of pingcap/tidb
pkg/parser/mysql/type.go in place of TiCDC's own (pkg/sink/codec/open/message.go:138-199). Development builds between
the commits 5d77460e0 and 6e9a12223 do so everywhere; no tag holds one of them. TiCDC's flags have eight bits. MySQL's
flags of a NOT NULL column without a default, and of an AUTO_INCREMENT column, have a higher bit. A message with such a
column has MySQL's flags throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ticdc_source.protocols.messages import JSONObject, exact
from ticdc_source.schema.json_text import loads

# Of each column as a message has it: name, type code, flags, and whether it is marked as part of the handle key.
Signature: TypeAlias = tuple[tuple[str, int, int, bool | None], ...]

_TICDC_FLAGS = 0xFF
# MySQL's flag → TiCDC's: primary key (`h` marks other handle keys), unsigned, binary.
_TICDC_FLAG_OF = {2: 2 | 8, 32: 128, 128: 1}
_NOT_NULL, _NULLABLE = 1, 64


class _Object(list[tuple[str, object]]):
    """A JSON object as its members in order. A dict would keep the last of repeated members only."""


def restored_old_values(value_frame: bytes) -> JSONObject | None:
    """Return the members of `p` by column name; None if flat members fit the columns in more than one way.

    Raises:
        ValueError: the members of `p` are not what the bug writes.
    """
    event = loads(value_frame.decode(errors="surrogateescape"), object_pairs_hook=_Object)
    members = dict(event)
    named: JSONObject = {}
    groups: list[JSONObject] = []
    open_group: JSONObject | None = None
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


def _matches(groups: Sequence[JSONObject], nulls: Sequence[tuple[str, JSONObject]]) -> list[JSONObject]:
    """Return the ways to assign groups to columns, both in table order; with two ways, the first of them twice."""
    # ways[i][j]: the number of ways, two at most, in which the groups from i on fit the columns from j on.
    ways = [[0] * (len(nulls) + 1) for _ in groups] + [[1] * (len(nulls) + 1)]
    for i in range(len(groups) - 1, -1, -1):
        for j in range(len(nulls) - 1, -1, -1):
            here = ways[i + 1][j + 1] if _alike(groups[i], nulls[j][1]) else 0
            ways[i][j] = min(2, ways[i][j + 1] + here)
    if not ways[0][0]:
        return []
    assigned, i = {}, 0
    for j, (name, cell) in enumerate(nulls):
        if i < len(groups) and _alike(groups[i], cell) and ways[i + 1][j + 1]:
            assigned[name] = groups[i]
            i += 1
    return [assigned] * ways[0][0]


def _alike(group: JSONObject, cell: JSONObject) -> bool:
    parts = ("t", "f", "h")
    return exact([*map(cell.get, parts)]) == exact([*map(group.get, parts)])


def with_ticdc_flags(columns: Signature) -> Signature:
    """Return the columns of a message with TiCDC's flags, whichever flags the message has."""
    if all(flags <= _TICDC_FLAGS for _, _, flags, _ in columns):
        return columns
    return tuple((name, code, _translated(flags), handle) for name, code, flags, handle in columns)


def _translated(flags: int) -> int:
    nullable = 0 if flags & _NOT_NULL else _NULLABLE
    return nullable | sum(ticdc for mysql, ticdc in _TICDC_FLAG_OF.items() if flags & mysql)
