"""Row images folded into events."""

import random

import pyarrow as pa
import pytest

from ticdc_source.events import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, Chunk
from ticdc_source.pipeline.assemble import Rows, in_order
from ticdc_source.pipeline.formats import fold

SEED = 20261121
EVENTS = ([INSERT], [DELETE], [UPDATE_POSTIMAGE], [UPDATE_PREIMAGE, UPDATE_POSTIMAGE])


def images(change_types: list[int], events: list[int]) -> Rows:
    """Make the rows of events, the n-th of which is the n-th record."""
    count = len(change_types)
    return Rows(
        Chunk("t", 0, list(range(count))), "canal-json", None, pa.array(events, pa.int32()),
        pa.array([0] * count, pa.int32()), pa.array(change_types, pa.int8()), pa.array(range(count), pa.int64()),
        pa.nulls(count, pa.int64()), pa.nulls(count, pa.string()), {"a": pa.array(range(count))},
    )  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 2, 50])
@pytest.mark.parametrize("shapes", [EVENTS, EVENTS[:3], EVENTS[3:]])
def test_each_event_is_one_row(shapes: tuple[list[int], ...], count: int) -> None:
    """With the place of its image before, and of the one after; an update may lack the first."""
    chooser = random.Random(f"{SEED} {count}")
    chosen = [chooser.choice(shapes) for _ in range(count)]
    change_types = [kind for event in chosen for kind in event]
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


def test_events_of_one_place_stay_in_their_order() -> None:
    """As images of one event do, and what could not be read behind what could."""
    chooser = random.Random(SEED)
    positions, indexes = ([chooser.randrange(5) for _ in range(2000)] for _ in range(2))

    order = in_order(pa.array(positions, pa.int32()), pa.array(indexes, pa.int32()))

    assert order.to_pylist() == sorted(range(2000), key=lambda place: (positions[place], indexes[place]))
