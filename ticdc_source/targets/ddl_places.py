"""The places of DDL events that have a time for a commit-ts: which rows of that time come after them.

An event of such a time gets the number of the events before it added to its commit-ts, which has 18 bits for that, and
so does each row in expressions. Then a row up to the commit-ts of an event is older, here as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.json_text import loads
from ticdc_source.targets.target import quoted

__all__ = ["NO_PLACES", "DDLPlaces"]

_PLACES = "ticdc.ddl_places"  # the property of a target that keeps them


@dataclass(frozen=True, slots=True)
class DDLPlaces:
    """The DDL events of a table that only their places order.

    Attributes:
        known: the commit-ts, topic partition and offset of each, in order.
    """

    known: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> DDLPlaces:
        """Return what the properties of a target hold."""
        return cls(tuple((ts, partition, offset) for ts, partition, offset in loads(properties.get(_PLACES, "[]"))))

    def as_properties(self) -> dict[str, str]:
        """Return the properties that hold it."""
        return {_PLACES: json.dumps(self.known, separators=(",", ":"))} if self.known else {}

    def after(self, events: Sequence[DDLEvent]) -> DDLPlaces:
        """Return the places with those of more events."""
        new = {(one.commit_ts, *one.place) for one in events if one.place is not None and one.commit_ts is not None}
        return DDLPlaces(tuple(sorted({*self.known, *new})))

    def since(self, commit_ts: int) -> DDLPlaces:
        """Return the places from the time of a commit-ts on."""
        return DDLPlaces(tuple(one for one in self.known if one[0] >> 18 >= commit_ts >> 18))

    def numbered(self, event: DDLEvent) -> DDLEvent:
        """Return an event with the number of the events before it in its commit-ts."""
        if event.place is None or event.commit_ts is None:
            return event
        place = (event.commit_ts, *event.place)
        before = sum(one[0] == event.commit_ts and one < place for one in self.known)
        return replace(event, commit_ts=event.commit_ts + before)

    def row_ts(self, sequence: str) -> str:
        """Return the expression of the commit-ts of rows, with the number of the events before each.

        Args:
            sequence: the column with the place of a row's last change.
        """
        column = quoted(sequence)
        terms: dict[int, list[str]] = {}
        for ts, partition, offset in self.known:
            same = f"{column}.partition = {partition} AND {column}.offset > {offset}"
            terms.setdefault(ts, []).append(f"CAST({column}.partition > {partition} OR ({same}) AS INT)")
        if not terms:
            return f"{column}.commit_ts"
        whens = " ".join(f"WHEN {ts} THEN {' + '.join(each)}" for ts, each in terms.items())
        return f"({column}.commit_ts + CASE {column}.commit_ts {whens} ELSE 0 END)"


NO_PLACES = DDLPlaces()
