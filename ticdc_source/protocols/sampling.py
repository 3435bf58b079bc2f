"""Which events tell a table's schema: native code skips those that say nothing new.

Messages that fit one template (templates.py) describe the same columns. If a column's type shows only in its values,
those with the greatest measures tell as much as all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_source.kernels.arrays import row_indices
from ticdc_source.kernels.contract import ColumnCast, Operation, PlainCast, Wanted
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.events import TableEvents
from ticdc_source.protocols.plan import Plan
from ticdc_source.protocols.templates import MOST_TSO, Form, Forms, KeepTemplate, Template, array_of, scan
from ticdc_source.schema.model import Column

if TYPE_CHECKING:
    from ticdc_source.kernels._native import Scanner


# Parses events one by one, and learns their templates.
Parse: TypeAlias = Callable[[TableEvents, KeepTemplate], object]
# Returns a number for each text, NULL for NULL; the text with the greatest number tells the most.
_Measure: TypeAlias = Callable[[pa.StringArray], pa.Array]

_2_63 = pa.scalar(str(1 << 63))
_MOST_DIGITS = 20  # of a number with 64 bits
_NOTHING = Plan(())  # the plan of what is learned here


def telling(events: TableEvents, learned: Learned, parse: Parse) -> TableEvents:
    table = learned.of_table(events.table, _NOTHING)
    if not (table.native and learned.native):
        return events
    return events.picked(table.kept(_Forms).told_by(events, parse))


class _Form(Form):
    __slots__ = ("_measured",)

    def __init__(self, key: Hashable, template: Template, columns: tuple[Column, ...]) -> None:
        super().__init__(key, template)
        each = ((place, _measures(column)) for place, column in enumerate(columns))
        self._measured = [(place, measures) for place, measures in each if measures]

    def told_by(self, events: TableEvents, pending: pa.Int32Array | None) -> tuple[set[int], pa.Int32Array]:
        scanned, own, others, image_events = scan(self._scanner or self._made(), events, pending)
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
        return self.make_scanner(
            Wanted(
                columns=[ColumnCast(place, PlainCast.TEXT) for place, _ in self._measured],
                operations=list(Operation),
                preimages=True,
                after=-1,
                last=MOST_TSO,
            )
        )


class _Forms(Forms[_Form]):
    __slots__ = ()

    def _new(self, key: Hashable, template: Template, version: int, columns: tuple[Column, ...]) -> _Form:  # noqa: ARG002
        return _Form(key, template, columns)

    def told_by(self, events: TableEvents, parse: Parse) -> list[int]:
        told: set[int] = set()

        def read_fitting(pending: pa.Int32Array | None, forms: Iterable[_Form]) -> pa.Int32Array:
            for form in forms:
                if pending is not None and not len(pending):
                    break
                its, pending = form.told_by(events, pending)
                told.update(its)
            return row_indices(len(events)) if pending is None else pending

        def read_any(some: pa.Int32Array, learn: KeepTemplate) -> None:
            told.update(some.to_pylist())
            parse(events.picked(some[:1].to_pylist()), learn)

        self.read_all(None, read_fitting, read_any)
        return sorted(told)


def _measures(column: Column) -> tuple[_Measure, ...]:
    """Return what `decoding.describe_images` looks for in a column's values; empty if they tell nothing."""
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
    """1 for a number with bit 63, 0 for others."""
    is_number = pc.match_substring_regex(texts, f"^[0-9]{{{_MOST_DIGITS - 1},{_MOST_DIGITS}}}$")
    is_large = pc.or_(pc.equal(pc.binary_length(texts), _MOST_DIGITS), pc.greater_equal(texts, _2_63))
    return pc.and_(is_number, is_large).cast(pa.int8())
