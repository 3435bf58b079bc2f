"""Chosen rows of one TiDB table as of a TSO, for packages built on this one; `snapshot=only` reads all rows.

A frame has a task for each range. So a table can be read part by part, by a condition, and with values that TiDB
computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from ticdc_source.errors import each_from_one_frame
from ticdc_source.options.options import Options
from ticdc_source.pipeline.context import BatchScope, ReadContext
from ticdc_source.pipeline.read import leave_out_modules
from ticdc_source.planning.partitions import Partition, read_partition
from ticdc_source.planning.read_context import context_of_schema
from ticdc_source.planning.read_schema import read_schema
from ticdc_source.protocols import FORMATS, decoder_of
from ticdc_source.schema.model import Column, TableSchema, check_names
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType
from ticdc_source.sources.tidb.catalog import described, rows_about
from ticdc_source.sources.tidb.client import Session
from ticdc_source.sources.tidb.progress import Texts
from ticdc_source.sources.tidb.source import Cut, RowRange, bound_of, cut_ranges
from ticdc_source.sources.tidb.sql import StoredRows
from ticdc_source.spark.schema import to_spark

_TEXT = ColumnType("longtext")
_Rows = TypeVar("_Rows", bound="TableRows")


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """A table as of a TSO. `dataclasses.replace` chooses columns, rows, and what TiDB computes.

    Attributes:
        options: those of `snapshot=only`.
        columns: the columns to read; by default all that TiCDC sends.
        key: the columns of the clustered key.
        condition: TiDB's SQL that selects the rows to read; "" for all.
        computed: more columns, by name, as texts in TiDB's SQL.
    """

    options: Options
    name: TableName
    tso: int
    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    condition: str = ""
    computed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls: type[_Rows], options: Mapping[str, str], name: TableName, tso: int) -> _Rows:  # noqa: PYI019 (Python 3.10)
        """Look up a table's definition as of the TSO.

        Raises:
            OptionError: an option is wrong, or the table did not exist.
            AccessRefusedError: TiDB refuses the login, or the user may not read the table.
            DataLossError: TiDB's garbage collection has passed the TSO.
        """
        parsed = Options.of({**options, "snapshot": "only"})
        with Session(parsed) as session:
            table = described(session, name, tso)
            check_names(name, table.columns)
            rows = cls(options=parsed, name=name, tso=tso, columns=table.columns, key=table.clustered)
            session.rows(rows.stored.probe())
            return rows

    @cached_property
    def stored(self) -> StoredRows:
        return StoredRows(self.name, self.columns, self.key, tuple(self.computed.values()), self.condition)

    @cached_property
    def _arrow(self) -> pa.Schema:
        columns = (*self.columns, *(Column(name, _TEXT) for name in self.computed))
        return read_schema(
            TableSchema(self.name, columns),
            decoder_of(FORMATS.of_tables, self.options),
            self.options,
            definitions={(self.name.folded, self.tso): columns},
        )

    @property
    def schema(self) -> st.StructType:
        """The schema of its frames: metadata columns, columns and computed columns."""
        return to_spark(self._arrow)

    def session(self, *, answer_s: int | None = None) -> Session:
        """Return a session as of the TSO; `answer_s` as for `Session`."""
        session = Session(self.options) if answer_s is None else Session(self.options, answer_s=answer_s)
        session.as_of(self.tso, self.name)
        return session

    def about(self) -> int:
        with self.session() as session:
            return rows_about(session, self.name)

    def ranges(self, size: int, after: Texts | None = None, most: int | None = None) -> list[Cut]:
        """Return ranges of `size` rows, in the order of the key; the last one's `after` is None.

        They never differ, because the past does not change.

        Args:
            after: the previous range's `after`; None to begin.
            most: the most ranges to return; None for all.
        """
        with self.session() as session:
            return list(islice(cut_ranges(session, self.stored, size, bound_of(self.stored, after)), most))

    def frame(self, spark: SparkSession, ranges: Sequence[Cut] | None = None) -> DataFrame:
        """Return the rows of ranges (by default all) as a changelog, with a task for each range."""
        if ranges is None:
            ranges = self.ranges(self.options.snapshot_rows_per_range)
        if not ranges:
            return spark.createDataFrame([], self.schema)
        schema, options = self._arrow, self.options
        context = context_of_schema(schema, options) or ReadContext(protocol=FORMATS.of_tables)
        places = [RowRange.of(self.name, number, cut.rows, self.tso, cut.sql) for number, cut in enumerate(ranges)]

        @each_from_one_frame
        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            leave_out_modules()
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                yield from read_partition(Partition([places[number]], context, BatchScope()), schema, options)

        numbers = spark.range(len(ranges), numPartitions=len(ranges))
        return numbers.mapInArrow(run, to_spark(schema))
