"""What a sync tells of a micro-batch, and of its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ticdc_lakehouse.syncs.status import Healing, Loading, SetAside, TableStatus

__all__ = ["BatchReport", "SyncReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What a micro-batch did.

    Attributes:
        batch_id: its number.
        changed: how many changed rows each table had.
        created: the tables whose target it created.
        set_aside: the tables that were set aside in it, with the reasons.
        bad_records: how many records went into quarantine.
        maintained: the tables whose files were tidied after it.
        resolved_ts: every table that is not set aside has every change up to and including this commit-ts, except bad
            records; None if unknown.
        seconds: how long it took.
        resumed: the tables that were set aside and were resumed, and now have what they missed.
        complete: how many tables have all rows of the table in TiDB up to `resolved_ts`.
        tables: how many tables there are.
    """

    batch_id: int
    changed: Mapping[str, int]
    created: tuple[str, ...] = ()
    set_aside: Mapping[str, str] = field(default_factory=dict)
    bad_records: int = 0
    maintained: tuple[str, ...] = ()
    resolved_ts: int | None = None
    seconds: float = 0.0
    resumed: tuple[str, ...] = ()
    complete: int = 0
    tables: int = 0

    def as_json(self) -> dict[str, object]:
        """Return it as values of JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """How the tables are when a sync ends.

    Attributes:
        tables: the status of each table, by its name.
        batches: how many micro-batches there were.
        bad_records: how many records went into quarantine.
    """

    tables: Mapping[str, TableStatus]
    batches: int = 0
    bad_records: int = 0

    @property
    def set_aside(self) -> dict[str, str]:
        """The tables that are set aside, with the reasons."""
        return {name: each.reason or "" for name, each in self.tables.items() if isinstance(each.phase, SetAside)}

    @property
    def loading(self) -> tuple[str, ...]:
        """The tables whose rows have not been read, because TiDB did not answer."""
        return tuple(name for name, each in self.tables.items() if isinstance(each.phase, (Loading, Healing)))
