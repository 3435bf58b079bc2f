"""A changelog frame, its columns as they are stored, and the newest image of each key by `_sequence`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType, DayTimeIntervalType, DecimalType, StructField, StructType

from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets.sessions import computed
from ticdc_lakehouse.targets.target import Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import (
    COMMENT,
    KEY,
    METADATA,
    MYSQL_TYPE,
    SEQUENCE,
    TABLE,
    UNDECIDED,
    UNSTATED_PRECISION,
    parse_type,
)
from ticdc_source.errors import OptionError, SchemaError

_ROWS_OF_A_TASK = 1000
_SEQUENCE, _CHANGE_TYPE = "sequence", "change_type"
_SEQUENCE_FIELDS = tuple(field.name for field in SEQUENCE)
_CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")
_RECORD_COLUMNS = ("corrupt_record", "rescued_data")
_TIMES = ("micros", "text")
_TIME_AS = "ticdc.time_as"  # the property of a target that stores TIME as text


@dataclass(frozen=True, slots=True)
class Changelog:
    """A changelog frame, and what its columns are."""

    frame: DataFrame
    prefix: str  # of the names of its metadata columns (`metadataColumnPrefix`)
    columns: tuple[StructField, ...]
    table: str  # the name of the table, by the field metadata; "" if that is lost
    # the names of the key columns, by the field metadata; empty if that is lost, or there is no key
    keys: tuple[str, ...]
    time_as: str = "micros"  # how TIME is stored: `micros` or `text`

    def column(self, name: str) -> Column:
        return self.frame[quoted(name)]


def read_changelog(frame: DataFrame) -> Changelog:
    """Find the columns of the table, its name and its keys."""
    if frame.isStreaming:
        raise SchemaError(
            "The changes are a stream: merge_into takes one micro-batch. Call it in foreachBatch: "
            "changes.writeStream.foreachBatch(lambda batch, batch_id: merge_into(batch, target, batch_id=batch_id, "
            "app_id=...)).option('checkpointLocation', ...).start()"
        )
    prefix = _prefix_of(frame.schema)
    metadata = {f"{prefix}{name}".lower() for name in (*(column.name for column in METADATA), *_RECORD_COLUMNS)}
    columns = tuple(one for one in frame.schema if _is_of_table(one) or one.name.lower() not in metadata)
    tables = [str(field.metadata[TABLE]) for field in columns if TABLE in (field.metadata or {})]
    keys = tuple(field.name for field in columns if (field.metadata or {}).get(KEY) == "true")
    return Changelog(frame, prefix, columns, tables[0] if tables else "", keys)


def _is_of_table(field: StructField) -> bool:
    """Whether field metadata says that a field is a column of the table, whatever its name."""
    return not {TABLE, MYSQL_TYPE}.isdisjoint(field.metadata or {})


def _prefix_of(schema: StructType) -> str:
    for field in schema:
        if not field.name.endswith(_SEQUENCE) or not isinstance(field.dataType, StructType):
            continue
        prefix = field.name.removesuffix(_SEQUENCE)
        if tuple(field.dataType.names) == _SEQUENCE_FIELDS and f"{prefix}{_CHANGE_TYPE}" in schema.names:
            return prefix
    raise SchemaError(
        f"The frame has no columns _change_type and _sequence: struct<{', '.join(_SEQUENCE_FIELDS)}>, by which changes "
        f"are merged (it has {', '.join(schema.names[:20])}). Read it with outputFormat=changelog, which is the "
        "default, and keep both columns"
    )


@dataclass(frozen=True, slots=True)
class Images:
    """The newest image of each key: columns `k0`, `k1`, … with the key, `c0`, … with other columns, and three more.

    `seq` is the `_sequence`, `gone` says whether the row is deleted, and `bare` whether a delete has only the key.
    """

    frame: DataFrame
    keys: tuple[str, ...]  # the names of the key columns in the table, in the order of `k0`, …
    others: tuple[str, ...]  # the names of the other columns, in the order of `c0`, …

    def settled(self, types: Mapping[str, DataType | None]) -> Images:
        """Return the images with these types of some columns, and without the columns whose type is None."""
        if not types:
            return self
        old = {name: F.col(f"c{number}") for number, name in enumerate(self.others)}
        given = {name: self.frame.schema[f"c{number}"].dataType for number, name in enumerate(self.others)}
        cast = {name: as_decided(old[name], given[name], type_) for name, type_ in types.items() if type_ is not None}
        others = tuple(name for name in self.others if types.get(name, name) is not None)
        values = [{**old, **cast}[name].alias(f"c{number}") for number, name in enumerate(others)]
        own = [*(f"k{number}" for number in range(len(self.keys))), "seq", "gone", "bare"]
        return Images(self.frame.select(*own, *values), self.keys, others)


def newest_images(changes: Changelog, keys: Sequence[str]) -> Images:
    """Return the newest image of each key, by `_sequence`; one shuffle.

    A pre-image counts as a delete right before its post-image, which has the same commit-ts and a higher rank. So it
    has no effect if the key stays, and deletes the old row if the key changes. A row without a change type is a bad
    record that `mode=PERMISSIVE` kept, and is left out.
    """
    names = {name.lower() for name in keys}
    key_fields = tuple(next(one for one in changes.columns if one.name.lower() == name.lower()) for name in keys)
    others = tuple(field for field in changes.columns if field.name.lower() not in names)
    change_type = changes.column(f"{changes.prefix}{_CHANGE_TYPE}")
    gone = change_type.isin("delete", "update_preimage")
    values = [stored_column(changes, field).alias(f"c{number}") for number, field in enumerate(others)]
    # One flat expression: Spark's planner overflows its stack on a chain of some 300 ANDs.
    nulls = F.array(*(changes.column(field.name).isNull() for field in others))
    bare = gone & F.forall(nulls, lambda one: one) if others else F.lit(False)  # noqa: FBT003 (a value of Spark)
    rows = changes.frame.where(change_type.isin(*_CHANGE_TYPES)).select(
        *(stored_column(changes, field).alias(f"k{number}") for number, field in enumerate(key_fields)),
        changes.column(f"{changes.prefix}{_SEQUENCE}").alias("seq"),
        F.struct(gone.alias("gone"), bare.alias("bare"), *values).alias("image"),
    )
    grouped = rows.groupBy(*(f"k{number}" for number in range(len(keys))))
    newest = grouped.agg(F.max_by("image", "seq").alias("image"), F.max("seq").alias("seq"))
    frame = newest.select(*(f"k{number}" for number in range(len(keys))), "seq", "image.*")
    return Images(frame, tuple(field.name for field in key_fields), tuple(field.name for field in others))


def computed_images(
    images: Images, changes: Changelog, existing: Mapping[str, DataType], what: str
) -> tuple[Images, int, int, str, dict[str, DataType | None]]:
    """Compute the images and, in the same pass, counts of them, and the types that the target decides.

    The target decides the type of an undecided column (`given_to_target`) if its type holds all values. It does not get
    an undecided column without values, as later values may not fit a default type.

    Returns the images; how many there are, and how many of them are deletes; a text that identifies them; and by column
    the type that the target decides, None if it lacks the column.
    """
    types = {name.lower(): type_ for name, type_ in existing.items()}
    given = given_to_target(changes.columns, types)
    undecided = {name: number for number, name in enumerate(images.others) if name in given}
    lost = {
        f"lost{number}": lost_values(f"c{number}", given[name], types.get(name.lower()))
        for name, number in undecided.items()
    }
    counts = {
        "all": F.count(F.lit(1)),
        "gone": F.count_if("gone"),
        "unordered": F.count_if(F.col("seq").isNull()),
        "places": F.bit_xor(F.xxhash64("seq")),
    }
    frame, row = _computed_with(images.frame, {**counts, **lost})
    if row["unordered"]:
        raise SchemaError(
            f"Cannot merge {what}: {row['unordered']} keys have only rows without a _sequence, by which changes are "
            "ordered. Keep this column unchanged"
        )
    decided = {name: types.get(name.lower()) for name, number in undecided.items() if not row[f"lost{number}"]}
    tasks = max(1, -(-row["all"] // _ROWS_OF_A_TASK))  # whatever the number of tasks that computed them
    few = replace(images, frame=frame.coalesce(tasks))
    content = f"{row['all']}:{(row['places'] or 0) % 2**64:016x}"
    return few, row["all"], row["gone"], content, decided


def _computed_with(frame: DataFrame, aggregates: Mapping[str, Column]) -> tuple[DataFrame, dict[str, int]]:
    """Compute a frame once for several statements, and aggregates of it in the same pass.

    In Spark Connect, which does not expose the plan, the aggregates take a second pass.
    """
    columns = [column.alias(name) for name, column in aggregates.items()]
    name = "ticdc_images"
    observed = frame.observe(name, *columns)
    jframe: Any = getattr(observed, "_jdf", None)
    if jframe is None:
        kept = computed(frame)
        row: Any = kept.agg(*columns).collect()[0]
        return kept, {one: row[one] for one in aggregates}
    kept = computed(observed)
    # Not with an Observation, which waits for an event that Spark may drop under load.
    row = jframe.queryExecution().observedMetrics().apply(name)
    return kept, {one: row.get(number) for number, one in enumerate(aggregates)}


def with_time_as(changes: Changelog, target: Target, time_as: str | None) -> Changelog:
    """Return the changes with TIME as the target stores it, and set `target.time_as`. It cannot be changed later.

    Without `time_as`, TIME is stored as the target has it, or as `micros`.
    """
    if time_as not in (None, *_TIMES):
        raise OptionError(f"time_as={time_as!r}: it must be 'micros' or 'text'")
    before = target.properties().get(_TIME_AS, "micros") if target.exists() else None
    if before is not None and time_as not in (None, before):
        name = next((one.name for one in changes.columns if isinstance(one.dataType, DayTimeIntervalType)), None)
        if name is not None:
            raise TargetError(
                f"{target.name} was created with time_as={before!r}, and time_as={time_as!r} was requested: column "
                f"{name} is TIME. Use time_as={before!r}, or another target"
            )
    target.time_as = before or time_as or "micros"
    return replace(changes, time_as=target.time_as)


def time_property(time_as: str) -> dict[str, str]:
    """Return the property by which a new target remembers how it stores TIME."""
    return {_TIME_AS: time_as} if time_as == "text" else {}


def committed_at(sequence: Column) -> Column:
    return F.timestamp_millis(F.shiftright(sequence["commit_ts"], 18))


def stored_column(changes: Changelog, field: StructField) -> Column:
    """Return a column as it is stored. Delta and Iceberg have no intervals, so a TIME is in microseconds, or text."""
    if not isinstance(field.dataType, DayTimeIntervalType):
        return changes.column(field.name)
    name = quoted(field.name)
    minutes = f"(extract(DAY FROM {name}) * 24 + extract(HOUR FROM {name})) * 60 + extract(MINUTE FROM {name})"
    micros = f"(CAST({minutes} AS BIGINT) * 60000000 + CAST(extract(SECOND FROM {name}) * 1000000 AS BIGINT))"
    digits = parse_type((field.metadata or {}).get(MYSQL_TYPE) or "time").length
    return F.expr(micros if changes.time_as == "micros" else time_in_sql(micros, digits))


def time_in_sql(micros: str, digits: int | None) -> str:
    """Return SQL for the text of a TIME, with this many fractional digits; None for as many as the value has."""
    size, places = f"abs({micros})", 6 if digits is None else digits
    pattern = "%02d:%02d:%02d" + (f".%0{places}d" if places else "")
    fraction = f"{size} % 1000000 DIV {10 ** (6 - places)}"
    parts = f"{size} DIV 3600000000, {size} DIV 60000000 % 60, {size} DIV 1000000 % 60, {fraction}"
    text = f"IF({micros} < 0, '-', '') || format_string('{pattern}', {parts})"
    if digits is None:
        text = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {text}))"
    return f"CASE WHEN {micros} IS NOT NULL THEN {text} END"


def given_to_target(columns: Iterable[StructField], types: Mapping[str, DataType]) -> dict[str, DataType]:
    """Return the columns whose types a target decides if it holds their values, and their present types.

    These are undecided columns (`Column.is_undecided`), and each DECIMAL that has 38 digits only because its precision
    is not stated, if the target has another DECIMAL.
    """
    decided: dict[str, DataType] = {}
    for field in columns:
        metadata, wanted = field.metadata or {}, types.get(field.name.lower())
        is_longer = wanted != field.dataType and _are_decimals(field.dataType, wanted)
        if metadata.get(UNDECIDED) == "true" or (metadata.get(UNSTATED_PRECISION) == "true" and is_longer):
            decided[field.name] = field.dataType
    return decided


def lost_values(column: str, given: DataType, wanted: DataType | None) -> Column:
    """Return an aggregate: how many values of a column (`given_to_target`) would be lost in the type `wanted`.

    A frame may have values although its sample had none. They need the default type: text is JSON, and a decimal may
    have more digits. If `wanted` is None, the column would be left out, so each value is lost.
    """
    if not _are_decimals(given, wanted):
        return F.count(F.expr(column))
    assert wanted is not None  # noqa: S101 (for mypy)
    back = f"try_cast(try_cast({column} AS {wanted.simpleString()}) AS {given.simpleString()})"
    return F.expr(f"count_if({column} IS NOT NULL AND NOT coalesce({back} = {column}, false))")


def as_decided(column: Column, given: DataType, wanted: DataType) -> Column:
    """Return a column in the type that the target decides, in which no value is lost (`lost_values`)."""
    # Otherwise it has only NULLs, and not every type can be cast to `wanted`.
    return column.cast(wanted) if _are_decimals(given, wanted) else F.lit(None).cast(wanted)


def _are_decimals(given: DataType, wanted: DataType | None) -> bool:
    return isinstance(given, DecimalType) and isinstance(wanted, DecimalType)


def rows_without(rows: DataFrame, existing: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows that equal no existing row in these columns; NULL equals NULL."""
    same = (F.col(f"here.{column}").eqNullSafe(F.col(f"there.{column}")) for column in columns)
    return rows.alias("here").join(existing.alias("there"), reduce(and_, same), "left_anti")


def comment_of(changes: Changelog, field: StructField) -> str | None:
    """Return the comment of a column, from the field metadata, with the unit of a TIME that is stored as a number.

    Hadoop would replace `${name}` in the schema of Delta's files by one of its settings, which may be a secret.
    """
    comment = (field.metadata or {}).get(COMMENT)
    is_number = changes.time_as == "micros" and isinstance(field.dataType, DayTimeIntervalType)
    unit = "TIME, in microseconds" if is_number else None
    return ": ".join(str(text).replace("${", "$ {") for text in (unit, comment) if text) or None


def keys_as_text(keys: Sequence[str]) -> str:
    return json.dumps(list(keys))
