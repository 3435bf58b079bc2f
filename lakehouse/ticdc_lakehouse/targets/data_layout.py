"""Settings of a user: how the rows of a table are written, and how the files of its target are laid out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.errors import OptionError

LAYOUT = "ticdc.layout"  # the property of a target with the layout with which it was created
_TRANSFORM = re.compile(
    r"(years|months|days|hours)\((.+)\)|(bucket|truncate)\( *([1-9][0-9]*) *, *(.+)\)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class DataLayout:
    """The columns by which a target is partitioned or clustered."""

    # Columns; in Iceberg also `years(c)`, `months(c)`, `days(c)`, `hours(c)`, `bucket(16, c)` and `truncate(10, c)`.
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()  # columns of Delta's liquid clustering

    def __bool__(self) -> bool:
        return bool(self.partition_by or self.cluster_by)

    def check(self, engine: str, what: str, *, clusters: bool, transforms: bool) -> None:
        """Refuse a layout that the engine lacks (`Target.check_layout`)."""
        if self.partition_by and self.cluster_by:
            raise OptionError(f"{what}: partition_by and cluster_by exclude each other. Use one of them")
        if self.cluster_by and not clusters:
            raise OptionError(
                f"{what}: cluster_by is Delta's liquid clustering, which {engine} lacks. Use partition_by"
            )
        transform = next((one for one in self.partition_by if _TRANSFORM.fullmatch(one)), None)
        if transform is not None and not transforms:
            instead = "columns, or cluster_by" if clusters else "columns"
            raise OptionError(f"{what}: {engine} partitions by columns alone, and not by {transform}. Use {instead}")

    def check_target(self, target: str, remembered: Mapping[str, str]) -> None:
        """Refuse a layout other than that of the target; without a layout, nothing is refused."""
        now = self.as_properties().get(LAYOUT)
        before = remembered.get(LAYOUT)
        if now is None or now == before:
            return
        raise TargetError(
            f"The target {target} was created {f'with the layout {before}' if before else 'without a layout'}, and "
            f"{now} was requested. The layout of a target cannot change: leave partition_by and cluster_by out. If you "
            f"have changed the layout of the table by hand, set its property {LAYOUT} to {now}"
        )

    def as_properties(self) -> dict[str, str]:
        """Return the property that records the layout in a target; empty without a layout."""
        known = {"partition_by": self.partition_by, "cluster_by": self.cluster_by}
        given = {name: list(columns) for name, columns in known.items() if columns}
        return {LAYOUT: json.dumps(given)} if given else {}

    def in_sql(self, target: str, columns: Iterable[str]) -> str:
        """Return the clause of CREATE TABLE, with a blank before it; "" without a layout."""
        names = {name.lower(): name for name in columns}

        def found(name: str) -> str:
            if name.lower() in names:
                return quoted(names[name.lower()])
            raise TargetError(
                f"The target {target} cannot be created: its layout has the column {name}, and its columns are "
                f"{', '.join(names.values())}. A column is added with its first value: set its type with tableDDL or "
                "schemaHints, or choose another layout"
            )

        def of(text: str) -> str:
            match = _TRANSFORM.fullmatch(text)
            if match is None or text.lower() in names:
                return found(text)
            time, of_time, other, number, of_other = match.groups()
            return f"{other}({number}, {found(of_other)})" if other else f"{time}({found(of_time)})"

        if self.partition_by:
            return f" PARTITIONED BY ({', '.join(map(of, self.partition_by))})"
        return f" CLUSTER BY ({', '.join(map(found, self.cluster_by))})" if self.cluster_by else ""


def check_not_laid_out_by(columns: Iterable[str], target: str, remembered: Mapping[str, str]) -> None:
    """Refuse a new type for columns by which a target is laid out."""
    layout = remembered.get(LAYOUT, "").lower()
    kept = next((name for name in columns if f'"{name.lower()}"' in layout or f"{name.lower()})" in layout), None)
    if kept is not None:
        raise TargetError(
            f"Column {kept} of {target} has another type now, but is in the layout of the target: {layout}. Drop "
            f"{target}, so that it is created again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How the rows of a table are written, by its load and by its changes."""

    format: str | None = None  # the engine of a target that does not exist
    keys: tuple[str, ...] | None = None  # the columns that identify a row, if not those of TiDB
    deletes: Literal["soft", "hard"] | None = None
    column_prefix: str | None = None  # the prefix of the columns that are added
    time_zone: str = "UTC"  # of TIMESTAMP defaults in DDL
    time_as: Literal["micros", "text"] | None = None  # how TIME is stored
    commit_time: bool = False  # whether the target has the time of a row's last commit
    layout: DataLayout = DataLayout()  # of a new target
    as_log: bool = False  # whether the rows go to the log even if the table has a key
