"""Row images are folded into events."""

import random

import pyarrow as pa
import pytest

from ticdc_source.pipeline.assemble import ROW_FACTS, Rows
from ticdc_source.pipeline.output_formats import fold
from ticdc_source.schema.change_types import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from ticdc_source.sources.chunk import Chunk

SEED = 20261121
EVENTS = ([INSERT], [DELETE], [UPDATE_POSTIMAGE], [UPDATE_PREIMAGE, UPDATE_POSTIMAGE])


def images(change_types: list[int], events: list[int]) -> Rows:
    """Return the rows of events; the n-th event is the n-th record."""
    count = len(change_types)
    facts = [events, [0] * count, change_types, range(count), *[[None] * count] * 3, [False] * count]
    return Rows(
        chunk=Chunk("t", 0, list(range(count))),
        protocol="canal-json",
        table=None,
        facts=pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(facts, ROW_FACTS, strict=True)], schema=ROW_FACTS
        ),
        columns={"a": pa.array(range(count))},
    )


@pytest.mark.parametrize("count", [0, 1, 2, 50])
@pytest.mark.parametrize("event_types", [EVENTS, EVENTS[:3], EVENTS[3:]])
def test_each_event_is_one_row(event_types: tuple[list[int], ...], count: int) -> None:
    """Each event becomes one row, with the row indices of its before image and its after image."""
    chooser = random.Random(f"{SEED} {count}")
    chosen = [chooser.choice(event_types) for _ in range(count)]
    change_types = [change_type for event in chosen for change_type in event]
    ends = [sum(map(len, chosen[: event + 1])) - 1 for event in range(count)]

    folded = fold(images(change_types, [number for number, event in enumerate(chosen) for _ in event]))

    assert folded.rows.positions.to_pylist() == list(range(count))
    assert folded.rows.change_types.to_pylist() == [event[-1] for event in chosen]
    assert folded.rows.commit_ts.to_pylist() == ends
    assert not folded.rows.columns
    assert folded.before.to_pylist() == [
        end if event == [DELETE] else end - 1 if len(event) > 1 else None
        for event, end in zip(chosen, ends, strict=True)
    ]
    assert folded.after.to_pylist() == [
        None if event == [DELETE] else end for event, end in zip(chosen, ends, strict=True)
    ]
