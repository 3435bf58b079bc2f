"""A Python data source that yields prebuilt record batches again and again: the cost of taking them into Spark."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class Prebuilt(DataSource):
    """Options: `path`, an Arrow file, and `times`, how often to yield its batches."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _Reader(self.options["path"], int(self.options["times"]))


class _Reader(DataSourceReader):
    def __init__(self, path: str, times: int) -> None:
        self._path = path
        self._times = times

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        with pa.ipc.open_file(self._path) as file:
            batches = [file.get_batch(number) for number in range(file.num_record_batches)]
        for _ in range(self._times):
            yield from batches
