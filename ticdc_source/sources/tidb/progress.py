"""Progress of a stream's snapshot: the member `$snapshot` of its offsets.

    {"tso": 4707…, "size": 200000, "tables": {"shop.orders": {"after": ["184"], "ranges": 3, "rows": 600000, …}}}

Two of them determine the rows of a micro-batch, because the past does not change: a replay reads the same rows. A
completely planned table has `"done": true`. When changes begin, only the TSO is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ticdc_source.errors import CheckpointError
from ticdc_source.options.topics import parse_table
from ticdc_source.schema.table_name import TableName

Texts = tuple[str, ...]  # the values of a key, as TiDB's text (`StoredRows.bound`)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """Progress of one table."""

    after: Texts | None = None  # the key of the first unplanned row; None at the beginning and at the end
    ranges: int = 0
    rows: int = 0
    done: bool = False
    about: int = 0  # rows by TiDB's statistics; 0 without any

    def expected_ranges(self, size: int) -> int:
        return self.ranges if self.done else max(self.ranges + 1, -(-self.about // max(size, 1)))

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def of_json(cls, *, after: Iterable[str] | None = None, **numbers: Any) -> TableProgress:
        return cls(None if after is None else tuple(map(str, after)), **numbers)


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """Progress of a snapshot."""

    tso: int
    size: int = 0  # rows of a range in the last micro-batch
    tables: Mapping[TableName, TableProgress] = field(default_factory=dict)  # empty once changes begin

    @property
    def is_done(self) -> bool:
        return all(table.done for table in self.tables.values())

    @property
    def ranges(self) -> int:
        return sum(table.ranges for table in self.tables.values())

    @property
    def expected_ranges(self) -> int:
        return sum(table.expected_ranges(self.size) for table in self.tables.values())

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())

    @property
    def beginning(self) -> SnapshotProgress:
        """The same snapshot before its first row."""
        tables = {name: TableProgress(about=table.about) for name, table in self.tables.items()}
        return SnapshotProgress(self.tso, self.size, tables)

    def as_json(self) -> dict[str, Any]:
        if not self.tables:
            return {"tso": self.tso}
        tables = {str(name): table.as_json() for name, table in self.tables.items()}
        return {"tso": self.tso, "size": self.size, "tables": tables}

    @classmethod
    def of_json(cls, member: Any) -> SnapshotProgress:  # noqa: ANN401 (whatever a checkpoint has)
        """Read an offset's member; raises CheckpointError if this release does not know it."""
        try:
            tables = {
                parse_table(name): TableProgress.of_json(**table) for name, table in member.get("tables", {}).items()
            }
            return cls(int(member["tso"]), int(member.get("size", 0)), tables)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise CheckpointError(
                f"The checkpoint's offset has an unknown member $snapshot: {json.dumps(member)[:200]}"
            ) from None
