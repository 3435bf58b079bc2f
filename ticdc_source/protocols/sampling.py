"""Which events of a table tell its schema: native code finds those that can say nothing new, without parsing them.

Messages that fit one template (templates.py) describe the same columns. Of a column whose type is only seen in its
values, the values with the greatest measures tell as much as all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.arrays import row_indices
from ticdc_source.kernels.contract import CHANGE_TYPES, ColumnCast, Operation, PlainCast, Wanted
from ticdc_source.kernels.native import messages_of, native, numbers_of
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.templates import MOST_TEMPLATES, MOST_TSO, KeepTemplate, Template, Variants, array_of
from ticdc_source.schema.model import Column

if TYPE_CHECKING:
    from ticdc_source.kernels._native import Scanner

__all__ = ["Parse", "telling"]

# Parses events one by one, and learns their templates.
Parse: TypeAlias = Callable[[TableEvents, KeepTemplate], object]
# Returns a number for each text, NULL for NULL: of two texts, the one with the greater number tells more.
_Measure: TypeAlias = Callable[[pa.StringArray], pa.Array]

_2_63 = pa.scalar(str(1 << 63))
_MOST_DIGITS = 20  # of a number with 64 bits
_NOTHING = Plan(())  # the plan of what is learned here


def telling(events: TableEvents, learned: Learned, parse: Parse) -> TableEvents:
    """Return those of a table's events whose descriptions, merged, are the description of all.

    Args:
        events: the events. Each value is text or NULL, and only `_measures` says of which columns values matter.
        learned: what was learned before.
        parse: the general path.
    """
    table = learned.of_table(events.table, _NOTHING)
    if not (table.native and learned.prefixes.native):
        return events
    return events.picked(table.kept(_Forms).told_by(events, parse))


class _Form:
    """The messages that fit a template, with all variants that were seen.

    Args:
        template: the template.
        columns: what these messages describe.
    """

    __slots__ = ("_measured", "_scanner", "_variants")

    def __init__(self, template: Template, columns: tuple[Column, ...]) -> None:
        self._variants = Variants(template)
        each = ((place, _measures(column)) for place, column in enumerate(columns))
        self._measured = [(place, measures) for place, measures in each if measures]
        self._scanner: Scanner | None = None  # made when it is needed

    def add(self, template: Template) -> bool:
        """Add the variants of a message; return whether one was added."""
        is_new = self._variants.add(template.variants)
        if is_new:
            self._scanner = None
        return is_new

    def scan(self, events: TableEvents, pending: pa.Int32Array | None) -> tuple[set[int], pa.Int32Array]:
        """Return which of the events that fit tell all that these tell, and the events that do not fit.

        Args:
            events: the events.
            pending: the indexes of those to look at; None for all.
        """
        scanned = self._made().scan(messages_of(events.payloads), None if pending is None else pending.to_pylist())
        own, others, image_events = (
            numbers_of(pa.int32(), numbers) for numbers in (scanned.accepted, scanned.declined, scanned.events)
        )
        if not len(own):
            return set(), others
        told = {own[0].as_py()}
        for (_, measures), buffers in zip(self._measured, scanned.columns, strict=True):
            texts = array_of(pa.string(), buffers)
            for measure in measures:
                measured = measure(texts)
                most = pc.max(measured)
                if most.is_valid:
                    told.add(image_events[pc.index(measured, most).as_py()].as_py())
        return told, others

    def _made(self) -> Scanner:
        if self._scanner is None:
            assert native is not None  # noqa: S101 (for mypy)
            wanted = Wanted(
                columns=[ColumnCast(place, PlainCast.TEXT) for place, _ in self._measured],
                operations=list(Operation),
                preimages=True,
                after=-1,
                last=MOST_TSO,
            )
            self._scanner = native.Scanner(self._variants.program(), wanted, CHANGE_TYPES)
        return self._scanner


class _Forms:
    """The forms of one table's messages."""

    __slots__ = ("_forms",)

    def __init__(self) -> None:
        self._forms: dict[Hashable, _Form] = {}

    def told_by(self, events: TableEvents, parse: Parse) -> list[int]:
        """Return the indexes of the events that tell what all tell, rising."""
        told: set[int] = set()

        def scan(pending: pa.Int32Array | None, forms: Iterable[_Form]) -> pa.Int32Array:
            for form in forms:
                if pending is not None and not len(pending):
                    break
                its, pending = form.scan(events, pending)
                told.update(its)
            return row_indices(len(events)) if pending is None else pending

        pending = scan(None, list(self._forms.values()))
        size = 1
        while len(pending):
            some = pending[:size].to_pylist()
            told.update(some)
            changed: list[_Form] = []
            parse(events.picked(some[:1]), partial(self._learn, changed))
            pending, before = pending[size:], len(pending) - size
            pending = scan(pending, changed) if len(pending) else pending
            # If the sample taught nothing that others fit, the next one is larger: few calls find out that none does.
            size = 1 if len(pending) < before else 4 * size
        return sorted(told)

    def _learn(
        self, changed: list[_Form], template: Template | None, version: int, columns: tuple[Column, ...]
    ) -> None:
        """Learn the template of a message; `changed` gets its form if it is new, or has a new variant."""
        if template is None:
            return
        key = (template.identity, version, columns)
        form = self._forms.get(key)
        if form is not None:
            changed.extend([form] if form.add(template) else [])
            return
        if len(self._forms) >= MOST_TEMPLATES:
            del self._forms[next(iter(self._forms))]
        self._forms[key] = form = _Form(template, columns)
        changed.append(form)


def _measures(column: Column) -> tuple[_Measure, ...]:
    """Return what `decoding.describe_images` looks for in the values of a column; nothing if they say nothing."""
    if column.type is None:
        return (_presence,)
    if column.type.is_unspecified:
        return (_whole_digits, _decimals)
    return (_width,) if column.type.name == "set" and column.type.labels is None else ()


def _presence(texts: pa.StringArray) -> pa.Array:
    return texts.is_valid().cast(pa.int8())


def _whole_digits(texts: pa.StringArray) -> pa.Array:
    digits = pc.ascii_ltrim(pc.ascii_ltrim(texts, "-"), "0")
    point = pc.find_substring(digits, ".")
    return pc.if_else(pc.less(point, 0), pc.binary_length(digits), point)


def _decimals(texts: pa.StringArray) -> pa.Array:
    point = pc.find_substring(texts, ".")
    return pc.if_else(pc.less(point, 0), 0, pc.subtract(pc.binary_length(texts), point))


def _width(texts: pa.StringArray) -> pa.Array:
    """Return 1 for a number with bit 63, and 0 for others."""
    is_number = pc.match_substring_regex(texts, f"^[0-9]{{{_MOST_DIGITS - 1},{_MOST_DIGITS}}}$")
    is_large = pc.or_(pc.equal(pc.binary_length(texts), _MOST_DIGITS), pc.greater_equal(texts, _2_63))
    return pc.and_(is_number, is_large).cast(pa.int8())
