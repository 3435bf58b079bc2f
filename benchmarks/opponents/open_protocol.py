"""open-protocol with `mapInArrow`: no Spark function cuts its frames, so Python does, column by column."""

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from benchmarks.corpus import COLUMN_TYPES, Table

_ROW_EVENT = 1
_SEQUENCE = "struct<commit_ts:bigint,rank:int,partition:int,offset:bigint,index:int>"
_NAIVE, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


def changes(records: DataFrame, table: Table) -> DataFrame:
    columns = ", ".join(f"{name} {COLUMN_TYPES[type_name].spark}" for name, type_name in table.columns)
    head = f"_change_type string, _commit_version bigint, _commit_timestamp timestamp, _sequence {_SEQUENCE}"
    return records.select("partition", "offset", "key", "value").mapInArrow(_decoder(table), f"{head}, {columns}")


def _decoder(table: Table) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _rows(batch, table)

    return decode


def _rows(batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    change_types: list[str] = []
    sequences: list[tuple[int, int, int, int, int]] = []
    images: list[dict[str, Any]] = []
    for partition, offset, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        frames = zip(_frames(key, 8), _frames(value, 0), strict=False)  # a watermark has a key and no value
        for index, (key_frame, value_frame) in enumerate(frames):
            head = orjson.loads(key_frame)
            if head["t"] != _ROW_EVENT:
                continue
            stamp = head["ts"]
            event = orjson.loads(value_frame)
            if "d" in event:
                change_types.append("delete")
                sequences.append((stamp, 0, partition, offset, index))
                images.append(event["d"])
                continue
            if "p" in event:
                change_types.append("update_preimage")
                sequences.append((stamp, 0, partition, offset, index))
                images.append(event["p"])
            change_types.append("update_postimage" if "p" in event else "insert")
            sequences.append((stamp, 1, partition, offset, index))
            images.append(event["u"])
    parts = list(zip(*sequences, strict=True)) or [()] * 5
    types = (pa.int64(), pa.int32(), pa.int32(), pa.int64(), pa.int32())
    arrays = [pa.array(part, type_) for part, type_ in zip(parts, types, strict=True)]
    stamps = arrays[0]
    arrow = {
        "_change_type": pa.array(change_types, pa.string()),
        "_commit_version": stamps,
        "_commit_timestamp": pc.multiply(pc.shift_right(stamps, 18), 1000).cast(_UTC),
        "_sequence": pa.StructArray.from_arrays(arrays, ["commit_ts", "rank", "partition", "offset", "index"]),
        **{name: _KERNELS[type_name]([image[name]["v"] for image in images]) for name, type_name in table.columns},
    }
    return pa.RecordBatch.from_pydict(arrow)


def _frames(data: bytes, start: int) -> Iterator[bytes]:
    while start < len(data):
        end = start + 8 + int.from_bytes(data[start : start + 8], "big")
        yield data[start + 8 : end]
        start = end


def _cast(*types: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    def kernel(values: list[Any]) -> pa.Array:
        array = pa.array(values, types[0])
        for type_ in types[1:]:
            array = array.cast(type_)
        return array

    return kernel


def _utc(values: list[Any]) -> pa.Array:
    return pc.assume_timezone(pa.array(values, pa.string()).cast(_NAIVE), "UTC")


def _binary(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else b64decode(value) for value in values], pa.binary())


def _text(values: list[Any]) -> pa.Array:
    return _binary(values).cast(pa.string())


_KERNELS: dict[str, Callable[[list[Any]], pa.Array]] = {
    "bigint": _cast(pa.int64()),
    "int": _cast(pa.int32()),
    "smallint": _cast(pa.int16()),
    "unsigned": _cast(pa.uint64(), pa.decimal128(20, 0)),
    "decimal": _cast(pa.string(), pa.decimal128(12, 2)),
    "double": _cast(pa.float64()),
    "date": _cast(pa.string(), pa.date32()),
    "datetime": _cast(pa.string(), _NAIVE),
    "timestamp": _utc,
    "varchar": _cast(pa.string()),
    "text": _text,
    "blob": _binary,
    "enum": _cast(pa.int32()),
    "json": _cast(pa.string()),
}
