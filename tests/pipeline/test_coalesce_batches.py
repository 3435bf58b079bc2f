"""Coalescing record batches changes where they are cut, and no row."""

import random

import pyarrow as pa

from tests.support.seeds import each_seed
from ticdc_source.pipeline.coalesce import coalesce_batches

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), metadata={"ticdc.key": "true"}),
    pa.field("text", pa.string()),
    pa.field("bits", pa.bool_()),
    pa.field("at", pa.struct([pa.field("offset", pa.int64(), nullable=False)])),
    pa.field("many", pa.list_(pa.float32())),
])  # fmt: skip


def batch_of(rng: random.Random, first: int, rows: int) -> pa.RecordBatch:
    """Return a record batch of numbered rows, sometimes a slice of a longer one, as `read` yields them."""
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


@each_seed(50)
def test_coalesced_batches_have_the_same_rows(seed: int) -> None:
    """Coalesced batches have the same rows in order, keep to the limits, and are as few as the limits allow."""
    rng = random.Random(seed)
    given: list[pa.RecordBatch] = []
    for _ in range(rng.randint(0, 30)):
        given.append(batch_of(rng, sum(part.num_rows for part in given), rng.choice([1, 2, 10, 60])))
    max_rows, max_bytes = rng.choice([1, 30, 100, 10_000]), rng.choice([1, 3000, 1 << 20])
    coalesced = list(coalesce_batches(iter(given), max_rows, max_bytes))
    rows, expected = (pa.Table.from_batches(batches, SCHEMA).to_pylist() for batches in (coalesced, given))
    assert rows == expected, seed
    sizes = [part.num_rows for part in given]
    for part in coalesced:
        assert part.schema.equals(SCHEMA, check_metadata=True)
        part.validate(full=True)
        if part.num_rows > max_rows or part.nbytes > max_bytes * 1.1 + 100:
            assert part.num_rows in sizes
    if max_rows == 10_000 and max_bytes == 1 << 20:
        assert len(coalesced) == min(1, len(given))


def test_a_batch_that_stays_alone_is_not_copied() -> None:
    """A record batch that stays alone is not copied, and only one more is read before it comes out."""
    given = [batch_of(random.Random(0), 0, 10), batch_of(random.Random(0), 10, 10)]
    reads = []

    def source() -> object:
        for part in given:
            reads.append(part)
            yield part

    out = coalesce_batches(source(), 10, 1 << 20)  # type: ignore[arg-type]
    assert next(out) is given[0]
    assert len(reads) == 2  # the second had to be seen to know that it does not fit
    assert next(out) is given[1]
    assert next(out, None) is None
