"""What the tour asks Spark: each function is a query, and its result is what a picture shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 (what everybody calls it)


@dataclass(frozen=True)
class Column:
    """A column as inferred: its type in Spark, what the messages say of its type in MySQL, and if it is in the key."""

    name: str
    spark: str
    mysql: str
    key: bool


@dataclass(frozen=True)
class Image:
    """A row as it was after a change; for a delete, as it was before."""

    change_type: str
    committed: datetime
    values: Mapping[str, str | None]


@dataclass(frozen=True)
class Count:
    """How many events of a kind were committed in a second."""

    second: datetime
    kind: str
    events: int


@dataclass(frozen=True)
class Ddl:
    """A DDL event."""

    committed: datetime
    query: str


@dataclass(frozen=True)
class Delay:
    """How long after their commits the row changes came that have a Kafka timestamp in this second, in seconds."""

    second: datetime
    median: float
    largest: float


@dataclass(frozen=True)
class Watermark:
    """A watermark, and how far the topic was behind Kafka's timestamp before and after it, in seconds."""

    arrived: datetime
    before: float | None
    after: float


@dataclass(frozen=True)
class Answers:
    """What the pictures show.

    Attributes:
        topic: the topic.
        table: the table of `columns` and `images`.
        columns: its columns.
        images: one of its rows, image by image.
        counts: events by kind and second.
        ddl: the DDL events.
        delays: commit-to-Kafka delay by second.
        watermarks: watermarks of the topic partition that was furthest behind, by offset.
        build_days: days from commit to TiCDC's own timestamp of the message, at the least.
    """

    topic: str
    table: str
    columns: list[Column]
    images: list[Image]
    counts: list[Count]
    ddl: list[Ddl]
    delays: list[Delay]
    watermarks: list[Watermark]
    build_days: float | None


def answers(spark: SparkSession, kafka: str, topic: str, table: str, where: str | None = None) -> Answers:
    """Ask everything; `where` chooses the row that is shown."""
    changes = read(spark, kafka, topic, tables=table).cache()
    events = read(spark, kafka, topic, outputFormat="event", includeMetadata="all")
    events = events.drop("before", "after", "_value").cache()
    found = Answers(
        topic,
        table,
        columns(changes),
        images(changes, where),
        counts(events),
        ddl(events),
        delays(events),
        watermarks(events),
        build_days(events),
    )
    changes.unpersist()
    events.unpersist()
    return found


def read(spark: SparkSession, kafka: str, topic: str, **options: str) -> DataFrame:
    """Read a topic; the source finds protocol, tables, columns and types in the messages."""
    source = spark.read.format("ticdc").option("kafka.bootstrap.servers", kafka).option("subscribe", topic)
    return source.options(**options).load()


def columns(changes: DataFrame) -> list[Column]:
    """Return the columns of a table."""
    return [
        Column(
            field.name,
            field.dataType.simpleString(),
            str(field.metadata.get("ticdc.mysql_type", "")),
            bool(field.metadata.get("ticdc.key")),
        )
        for field in changes.schema
        if not field.name.startswith("_")
    ]


def images(changes: DataFrame, where: str | None = None) -> list[Image]:
    """Return all images of a row; what TiCDC sent twice comes once.

    It is the row that changed most often, of those for which `where` holds.
    """
    key = [column.name for column in columns(changes) if column.key]
    after = changes.where("_change_type <> 'update_preimage'").dropDuplicates([*key, "_commit_version", "_change_type"])
    chosen = after if where is None else after.where(where)
    often = chosen.groupBy(*key).count().orderBy(F.desc("count"), *key).limit(1)
    rows = _rows(after.join(often, key, "left_semi").orderBy("_sequence"))
    names = [column.name for column in columns(changes)]
    return [
        Image(
            row["_change_type"].removesuffix("_postimage"),
            row["_commit_timestamp"],
            {name: _text(row[name]) for name in names},
        )
        for row in rows
    ]


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return rows with times in the time zone of the session; `collect` gives them in that of this machine."""
    return list(frame.toArrow().to_pylist())


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None))
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def counts(events: DataFrame) -> list[Count]:
    """Count the events of each kind by the second of their commit."""
    kind = F.coalesce("_op", "_event_type").alias("kind")
    second = F.date_trunc("second", "_commit_timestamp").alias("second")
    rows = _rows(events.groupBy(second, kind).count().orderBy("second", "kind"))
    return [Count(row["second"], row["kind"], row["count"]) for row in rows]


def ddl(events: DataFrame) -> list[Ddl]:
    """Return the DDL events in the order of their commits."""
    rows = _rows(events.where("_event_type = 'ddl'").orderBy("_sequence"))
    return [Ddl(row["_commit_timestamp"], row["ddl_query"]) for row in rows]


def delays(events: DataFrame) -> list[Delay]:
    """Return the delay from commit to Kafka, by the second of Kafka's timestamp."""
    seconds = (F.unix_millis("_timestamp") - F.unix_millis("_commit_timestamp")) / 1000
    frame = (
        events.where("_event_type = 'row'")
        .select(F.date_trunc("second", "_timestamp").alias("second"), seconds.alias("delay"))
        .groupBy("second")
        .agg(F.expr("percentile(delay, 0.5)").alias("median"), F.max("delay").alias("largest"))
        .orderBy("second")
    )
    return [Delay(row["second"], row["median"], row["largest"]) for row in _rows(frame)]


def watermarks(events: DataFrame) -> list[Watermark]:
    """Return the lag before and after each watermark of the topic partition that was furthest behind.

    After a restart, TiCDC sends older watermarks again: they take nothing back.
    """
    partition = Window.partitionBy("_partition").orderBy("_offset")
    earlier, until = (partition.rowsBetween(Window.unboundedPreceding, end) for end in (-1, 0))
    arrived, reached = F.unix_millis("_timestamp"), F.unix_millis("_commit_timestamp")
    frame = (
        events.where("_event_type = 'watermark'")
        .select(
            *("_partition", "_offset", "_timestamp"),
            ((arrived - F.max(reached).over(earlier)) / 1000).alias("before"),
            ((arrived - F.max(reached).over(until)) / 1000).alias("after"),
        )
        .withColumn("largest", F.max("before").over(Window.partitionBy("_partition")))
        .orderBy(F.desc_nulls_last("largest"), "_partition", "_offset")
    )
    rows = _rows(frame)
    return [
        Watermark(row["_timestamp"], row["before"], row["after"])
        for row in rows
        if row["_partition"] == rows[0]["_partition"]
    ]


def build_days(events: DataFrame) -> float | None:
    """Return how many days after its commit TiCDC wrote a message, at the least; None if the messages do not say."""
    late = F.col("_build_ts") - F.unix_millis("_commit_timestamp")
    (row,) = _rows(events.where("_event_type = 'row'").agg(F.min(late).alias("late")))
    return None if row["late"] is None else row["late"] / 86_400_000
