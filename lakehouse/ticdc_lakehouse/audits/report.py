"""What an audit found: `AuditReport`, of each table a `TableAudit`, and samples of what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from ticdc_source.developer_api import utc

EQUAL, DIFFERENT, UNKNOWN = 0, 1, 2  # exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A row that differs: missing in the target, extra in it, or changed."""

    kind: Literal["missing", "extra", "changed"]
    key: Mapping[str, str | None]  # the columns of the key with their canonical texts
    # the columns that differ, with the canonical texts in TiDB and in the target; None for NULL
    cells: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAudit:
    """What the audit of a table found."""

    table: str  # the table in TiDB; "" if the target does not say it
    target: str
    state: Literal["equal", "different", "unknown"]
    reason: str | None = None  # why it could not tell
    at: int | None = None  # the TSO at which both sides were compared
    version: int | None = None  # the version of the target: Delta's, or Iceberg's snapshot id
    rows: int = 0  # how many rows TiDB has
    target_rows: int = 0  # how many rows the target has, without those that changed after `at`
    cells: int = 0  # how many values were compared: rows times columns
    buckets: int = 0  # how many buckets of rows were compared; 0 if all rows together have the same checksum
    differing_buckets: int = 0  # how many of them have not the same rows on both sides
    rows_read: int = 0  # how many rows TiDB sent to tell what differs
    newer: int = 0  # how many rows changed after `at`: they are left out
    missing: int = 0  # how many rows the target lacks
    extra: int = 0  # how many rows it has that TiDB has not
    changed: int = 0  # how many rows have other values
    columns: Mapping[str, int] = field(default_factory=dict)  # how many values differ in each column that has such
    missing_columns: tuple[str, ...] = ()  # the columns of TiDB that have values, and that the target lacks
    differences: tuple[Difference, ...] = ()  # a sample of the rows that differ
    repaired: int = 0  # how many were repaired; the numbers are those from before the repair
    seconds: float = 0.0

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "at_time": utc(self.at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit found.

    Attributes:
        tables: what it found of each table.
    """

    tables: tuple[TableAudit, ...]

    @property
    def equal(self) -> bool:
        """Whether every table is equal."""
        return all(each.state == "equal" for each in self.tables)

    @property
    def exit_code(self) -> int:
        """0 if all tables are equal, 1 if one is different, 2 if it could not be told of one and none is different."""
        states = {each.state for each in self.tables}
        return DIFFERENT if "different" in states else UNKNOWN if "unknown" in states else EQUAL
