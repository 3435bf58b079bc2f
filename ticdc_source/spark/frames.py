"""`decode` and `infer_schema`: records as rows of a DataFrame, from Spark's Kafka source, a bronze table or files.

PySpark 3.5 is enough: nothing here uses the Python Data Source API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.column import Column

from ticdc_source.errors import SchemaError, from_one_frame
from ticdc_source.options.options import Options, OptionValue, option_texts
from ticdc_source.pipeline.context import BatchScope
from ticdc_source.pipeline.packed_records import HELD, PACKED, RECORD_ROWS, TOLD, are_packed, pack, unpacked
from ticdc_source.pipeline.read import leave_out_modules
from ticdc_source.pipeline.record_frames import (
    RECORD,
    check_column,
    column_names,
    decode_rows,
    decode_structs,
    is_time_in_ms,
    survey,
)
from ticdc_source.planning import load
from ticdc_source.planning.frame_sample import (
    context_of_records,
    ddl_copies_in,
    frame_options,
    needs_sample,
    sample_of_records,
    schema_of_sample,
)
from ticdc_source.planning.inference import Sample
from ticdc_source.schema.table_name import quoted_name
from ticdc_source.spark.schema import to_arrow, to_spark, type_of


def packed_schema() -> st.StructType:
    """Return a schema that packs the records of `outputFormat=record`, for `tables` only.

    Records share rows of a few KiB, and those that determine types are marked. `tables` then takes a third less CPU
    time.

    Example:
        ```python
        import ticdc_source

        reader = spark.readStream.format("ticdc").option("outputFormat", "record")
        print(reader.schema(ticdc_source.packed_schema()))
        ```
    """
    return to_spark(PACKED)


@from_one_frame
def decode(frame: DataFrame, schema: st.StructType | str | None = None, /, **options: OptionValue) -> DataFrame:
    """Decode TiCDC's messages in a DataFrame, as `format("ticdc")` does for the same records and options.

    It works with Spark's own Kafka source, a bronze table of records, files, Spark Connect, and Spark 3.5, which has no
    Python Data Source API. It runs as `DataFrame.mapInArrow`, without a shuffle.

    Args:
        frame: a batch or streaming DataFrame with the column `value` and, if known, `key`, `topic`, `partition`,
            `offset`, `timestamp` and `headers`, with Spark's names or those of `outputFormat=record` (`_value`, …).
            Without `partition` and `offset`, these fields of `_sequence` are NULL, and it does not order all changes.
            Rows of one topic partition should be in the order of their offsets.
        schema: the schema to return, from `infer_schema` or written by hand, as for `DataFrameReader.schema`. By
            default it is inferred by reading a batch once more. A stream needs it with `outputFormat=changelog` or
            `envelope`. With a `StructType` and `protocol`, query functions of a declarative pipeline, which must not
            analyse DataFrames, may call this; a missing or wrong column is then an error of the pipeline.
        options: the options of the source; names with a dot as `**{"inferSchema.maxRecords": 100}`. Options about
            fetching from Kafka are refused.

    Example:
        ```python
        import ticdc_source

        orders = ticdc_source.decode(records, tables="shop.orders", timeZone="UTC")
        orders.select("_change_type", "order_id").show()
        ```

    Raises:
        OptionError: an option is wrong.
        SchemaError: the frame has no `value`, a column has a wrong type, or the schema cannot be inferred.
        DecodeError: while Spark reads: a record cannot be read, and the mode is FAILFAST.
    """
    parsed = frame_options(option_texts(options))
    if isinstance(schema, st.StructType) and parsed.protocol != "auto" and parsed.is_typed:
        try:
            frame.columns  # noqa: B018 (which a pipeline's query function may not ask for)
        except PySparkException as error:
            if "ANALYSIS_IN_PIPELINE_QUERY_FUNCTION" not in str(error):
                raise
            return _decoded_unseen(frame, to_arrow(schema), parsed)
    records = records_of(frame)
    given = None if schema is None else to_arrow(_as_struct(frame, schema))
    sample = None
    if frame.isStreaming:
        if given is None and parsed.is_typed:
            raise SchemaError(
                "The schema of a stream cannot be inferred from the stream: pass it, as decode(stream, schema, …). "
                "Infer it from a batch with the same messages: ticdc_source.infer_schema(spark.read…, …)"
            )
    elif needs_sample(given, parsed):
        sample = sample_of_records([surveyed(records, parsed)], parsed)
    read_schema = schema_of_sample(sample, parsed) if given is None else given
    return decoded(records, read_schema, sample, parsed)


def _decoded_unseen(frame: DataFrame, schema: pa.Schema, options: Options) -> DataFrame:
    """Decode a frame whose columns are unknown until it runs.

    `mapInArrow` needs the columns. A function of the whole row, as a struct, does not; it returns arrays of rows.
    """
    context = context_of_records(schema, None, options)

    def run(rows: Iterator[pa.Array]) -> Iterator[pa.Array]:
        leave_out_modules()
        return decode_structs(rows, schema, options, context)

    fields = to_spark(schema).fields
    bare = st.StructType([st.StructField(field.name, field.dataType, field.nullable) for field in fields])
    # PySpark 4.1 has it, as it has pipelines.
    arrays = sf.arrow_udf(run, st.ArrayType(bare))(sf.struct("*"))  # type: ignore[attr-defined]
    named = (sf.col(quoted_name(field.name)).alias(field.name, metadata=field.metadata) for field in fields)
    return frame.select(sf.inline(arrays)).select(*named)


def decoded(
    records: DataFrame, schema: pa.Schema, sample: Sample | None, options: Options, merged_by: tuple[str, ...] = ()
) -> DataFrame:
    context = context_of_records(schema, sample, options)
    scope = BatchScope(ddl_copies=ddl_copies_in(sample), merged_by=merged_by)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave_out_modules()
        return decode_rows(batches, schema, options, context, scope)

    return records.mapInArrow(run, to_spark(schema))


@from_one_frame
def infer_schema(
    source: DataFrame | Mapping[str, OptionValue] | None = None, /, **options: OptionValue
) -> st.StructType:
    """Return the schema that `decode` or `format("ticdc")` would infer.

    Args:
        source: a batch DataFrame as for `decode`, which is read completely: pass a part of a large table. Or the
            options of `format("ticdc")` with a Kafka topic, of which both ends are sampled.
        options: the options of the source.

    Example:
        ```python
        import ticdc_source

        schema = ticdc_source.infer_schema(records, tables="shop.orders", timeZone="UTC")
        print(schema.names)
        ```

    Raises:
        TiCDCSourceError: an option is wrong, or the messages do not determine a schema.
    """
    if source is None or isinstance(source, Mapping):
        return to_spark(load.load_schema(option_texts({**(source or {}), **options})))
    if source.isStreaming:
        raise SchemaError(
            "The schema cannot be inferred from a stream: pass a batch with the same messages, as of spark.read"
        )
    parsed = frame_options(option_texts(options))
    records = records_of(source)
    sample = sample_of_records([surveyed(records, parsed)], parsed) if needs_sample(None, parsed) else None
    return to_spark(schema_of_sample(sample, parsed))


def surveyed(records: DataFrame, options: Options, end: int | None = None) -> pa.RecordBatch:
    """Return the records that tell the schema, with the schema `RECORD`, in one pass over the frame."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return survey(batches, options, end)

    return to_records(records.mapInArrow(run, to_spark(RECORD)).drop("timestamp", "headers").collect())


def telling(records: DataFrame) -> pa.RecordBatch:
    """Return the packed records that tell the schema, as `surveyed`, if all were looked at while they were read."""
    rows = records.where(TOLD.name).select(PACKED.names).collect()
    batch = pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in rows], schema=PACKED)
    every = pa.Table.from_batches(unpacked([batch], RECORD), RECORD).combine_chunks().to_batches()
    return every[0] if every else to_records([])


def packed(records: DataFrame) -> DataFrame:
    """Pack rows of `outputFormat=record`, of which some columns may be missing."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack(batches)

    given = [name for name in RECORD_ROWS.names if name in records.columns]
    return records.select(given).mapInArrow(run, to_spark(PACKED))


def rows_of_packed(records: DataFrame) -> DataFrame:
    """Return packed records as rows of `outputFormat=record`, with the column `_held` if they have it."""
    schema = RECORD_ROWS.append(HELD) if HELD.name in records.columns else RECORD_ROWS

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return unpacked(batches, schema)

    return records.mapInArrow(run, to_spark(schema))


def to_records(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row.asDict() for row in rows], schema=RECORD)


def records_of(frame: DataFrame) -> DataFrame:
    """Return a frame with the columns of `RECORD`, NULL where it has none.

    Packed records keep their columns.

    Raises:
        SchemaError: there is no `value`, or a column has a wrong type.
    """
    if are_packed(frame.columns):
        return frame.select(PACKED.names)
    names, given = column_names(frame.columns), frame.schema
    columns = [
        (
            _as_field(given[names[wanted.name]], wanted)
            if wanted.name in names
            else sf.lit(None).cast(type_of(wanted.type))
        ).alias(wanted.name)
        for wanted in RECORD
    ]
    return frame.select(columns)


def _as_field(given: st.StructField, wanted: pa.Field) -> Column:
    arrow = to_arrow(st.StructType([given])).field(0).type
    check_column(given.name, arrow, wanted)
    column = sf.col(quoted_name(given.name))
    if wanted.name == "timestamp" and is_time_in_ms(arrow):
        return sf.timestamp_millis(column)
    return column.cast(type_of(wanted.type))


def _as_struct(frame: DataFrame, schema: st.StructType | str) -> st.StructType:
    if isinstance(schema, str):
        return frame.sparkSession.createDataFrame([], schema).schema
    return schema
