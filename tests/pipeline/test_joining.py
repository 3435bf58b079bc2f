"""Joining record batches: other cuts, the same rows."""

import random

import pyarrow as pa
import pytest

from ticdc_source.pipeline.coalesce import coalesce_batches

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), metadata={"ticdc.key": "true"}),
    pa.field("text", pa.string()),
    pa.field("bits", pa.bool_()),
    pa.field("at", pa.struct([pa.field("offset", pa.int64(), nullable=False)])),
    pa.field("many", pa.list_(pa.float32())),
])  # fmt: skip


def batch(rng: random.Random, first: int, rows: int) -> pa.RecordBatch:
    """A record batch of numbered rows, sometimes a slice of a longer one, as `reading.read` gives them."""
    spare = rng.choice([0, 0, 5])
    table = pa.RecordBatch.from_pylist(
        [
            {
                "id": number,
                "text": rng.choice([None, "", "é" * rng.randint(0, 50)]),
                "bits": rng.choice([None, True, False]),
                "at": rng.choice([None, {"offset": number}]),
                "many": rng.choice([None, [], [1.5, None]]),
            }
            for number in range(first - spare, first + rows)
        ],
        schema=SCHEMA,
    )
    return table.slice(spare, rows)


@pytest.mark.parametrize("seed", range(50))
def test_coalesce_batches_is_the_same_rows(seed: int) -> None:
    """Whatever the sizes and the bounds: the rows of all, in order, within the bounds, in as few as they allow."""
    rng = random.Random(seed)
    given: list[pa.RecordBatch] = []
    for _ in range(rng.randint(0, 30)):
        given.append(batch(rng, sum(one.num_rows for one in given), rng.choice([1, 2, 10, 60])))
    max_rows, max_bytes = rng.choice([1, 30, 100, 10_000]), rng.choice([1, 3000, 1 << 20])
    got = list(coalesce_batches(iter(given), max_rows, max_bytes))
    assert pa.Table.from_batches(got, SCHEMA).to_pylist() == pa.Table.from_batches(given, SCHEMA).to_pylist(), seed
    sizes = [one.num_rows for one in given]
    for one in got:
        assert one.schema.equals(SCHEMA, check_metadata=True)
        one.validate(full=True)
        if one.num_rows > max_rows or one.nbytes > max_bytes * 1.1 + 100:
            assert one.num_rows in sizes
    if max_rows == 10_000 and max_bytes == 1 << 20:
        assert len(got) == min(1, len(given))


def test_what_needs_no_joining_is_not_copied() -> None:
    """A record batch that stays alone comes out as it went in, and before the next one is read."""
    given = [batch(random.Random(0), 0, 10), batch(random.Random(0), 10, 10)]
    reads = []

    def source() -> object:
        for one in given:
            reads.append(one)
            yield one

    out = coalesce_batches(source(), 10, 1 << 20)  # type: ignore[arg-type]
    assert next(out) is given[0]
    assert len(reads) == 2  # the second had to be seen to know that it does not fit
    assert next(out) is given[1]
    assert next(out, None) is None


def test_an_error_is_not_held_back() -> None:
    """An error comes when it comes, with its own type; rows that wait are not given first."""

    def source() -> object:
        yield batch(random.Random(0), 0, 10)
        msg = "broken"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="broken"):
        next(coalesce_batches(source(), 100, 1 << 20))  # type: ignore[arg-type]
