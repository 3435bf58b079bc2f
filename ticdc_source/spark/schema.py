"""Arrow schemas → Spark's, and back, with field metadata, which has the results of inference."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from ticdc_source.errors import SchemaError
from ticdc_source.schema.types import TIME, TIMESTAMP, TIMESTAMP_NTZ, VARIANT

_PLAIN: tuple[tuple[pa.DataType, spark.DataType], ...] = (
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.string(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (TIMESTAMP, spark.TimestampType()),
    (TIMESTAMP_NTZ, spark.TimestampNTZType()),
    (TIME, spark.DayTimeIntervalType(0, 3)),
)
_TO_SPARK: dict[pa.DataType, spark.DataType] = dict(_PLAIN)


def to_spark(schema: pa.Schema | pa.StructType) -> spark.StructType:
    """Return the Spark schema, with nullable fields, because rows of bad records have NULLs."""
    return spark.StructType(
        [
            spark.StructField(field.name, type_of(field.type), nullable=True, metadata=_metadata(field))
            for field in schema
        ]
    )


def _metadata(field: pa.Field) -> dict[str, Any]:
    return {name.decode(): value.decode() for name, value in (field.metadata or {}).items()}


def type_of(arrow: pa.DataType) -> spark.DataType:
    if pa.types.is_decimal(arrow):
        return spark.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_list(arrow):
        return spark.ArrayType(type_of(arrow.value_type))
    if arrow == VARIANT:
        return spark.VariantType()
    if pa.types.is_struct(arrow):
        return to_spark(arrow)
    return _TO_SPARK[arrow]


def to_arrow(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema that record batches must have for a Spark schema.

    Raises:
        SchemaError: the source does not return a type.
    """
    return pa.schema(_arrow_fields(schema))


def _arrow_fields(schema: spark.StructType) -> list[pa.Field]:
    return [
        pa.field(field.name, _arrow_type(field.dataType, field.name), field.nullable,
                 metadata={name: str(value) for name, value in (field.metadata or {}).items()})
        for field in schema.fields
    ]  # fmt: skip


def _arrow_type(type_: spark.DataType, name: str) -> pa.DataType:
    if isinstance(type_, spark.DecimalType) and 0 <= type_.scale <= type_.precision > 0:
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, spark.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(type_.elementType, name), type_.containsNull))
    if isinstance(type_, spark.StructType):
        return pa.struct(_arrow_fields(type_))
    if type_.typeName() == "variant":  # PySpark 3.5 has no such class
        return VARIANT
    if isinstance(type_, spark.DayTimeIntervalType):
        return TIME
    for arrow, known in _PLAIN:
        if type(type_) is type(known):
            return arrow
    raise SchemaError(
        f"Column {name}: the source does not read the type {type_.simpleString()}; use string, and cast it"
    )
