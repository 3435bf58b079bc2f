"""`ticdc` without its native path, for the benchmarks: a data source of its own, until an option says the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.types import StructType

from ticdc_source.driver.read_spec import read_spec
from ticdc_source.pipeline.spec import ReadSpec
from ticdc_source.source import TiCDCDataSource
from ticdc_source.spark import worker
from ticdc_source.spark.batch import TiCDCReader


def NATIVE_OFF(spark: SparkSession) -> DataFrameReader:  # noqa: N802
    """Return a reader that never takes the native path."""
    spark.dataSource.register(GeneralPath)
    return spark.read.format(GeneralPath.name())


class GeneralPath(TiCDCDataSource):
    @classmethod
    def name(cls) -> str:
        return "ticdc-general"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(super().reader(schema))


class _Reader(DataSourceReader):
    def __init__(self, reader: DataSourceReader) -> None:
        assert isinstance(reader, TiCDCReader)
        self._reader = reader

    def partitions(self) -> Any:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with mock.patch.object(worker, "read_spec", _general):  # other reads in this worker keep theirs
            yield from self._reader.read(partition)


def _general(*given: Any) -> ReadSpec:
    spec = read_spec(*given)
    return replace(spec, plan=replace(spec.plan, fast_path=False))
