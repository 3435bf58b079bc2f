"""From the read schema, the options and the read context to what a worker needs: a `ReadSpec`, and fetch settings."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ticdc_source.driver.context import ReadContext, TypeTexts
from ticdc_source.errors import SchemaError
from ticdc_source.events import TableName
from ticdc_source.kafka import Fetcher, FetchSettings, KafkaFetcher
from ticdc_source.kernels import Settings
from ticdc_source.native import refuse_missing
from ticdc_source.options.kafka_client import client_config
from ticdc_source.options.options import Options
from ticdc_source.options.ranges import CommitRange
from ticdc_source.options.tables import TableFilter
from ticdc_source.pipeline.layout import Layout
from ticdc_source.pipeline.spec import ReadSpec
from ticdc_source.protocols import PROTOCOLS, decoder_of
from ticdc_source.protocols.plan import Plan
from ticdc_source.schema.model import TABLE, ReadField, Written
from ticdc_source.schema.types import parse_type

__all__ = ["driver_fetcher", "fetch_settings", "layout_of", "read_spec"]

# Records per chunk while the driver does not know the protocol yet.
_DRIVER_CHUNK_RECORDS = 4000
# Record batches are coalesced, and cut, at this many bytes: a batch's fixed cost is then far below that of its rows.
_MAX_BYTES = 8 << 20


def fetch_settings(options: Options, protocol: str | None = None) -> FetchSettings:
    """Return how to fetch records of a protocol; None if it is not known yet."""
    chunk_records = _DRIVER_CHUNK_RECORDS if protocol is None else PROTOCOLS[protocol].chunk_records
    return FetchSettings(
        max_records=min(chunk_records, options.max_rows_per_batch),
        max_bytes=options.max_bytes_per_batch,
        include_headers=options.include_headers or options.output_format == "record",
        poll_timeout_ms=options.kafka_consumer_poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        max_record_bytes=options.max_message_bytes,
        native=options.native_code != "off",
    )


def driver_fetcher(options: Options) -> Fetcher:
    """Return a fetcher for the driver, which samples."""
    return KafkaFetcher(client_config(options, driver=True), fetch_settings(options))


def layout_of(schema: pa.Schema, options: Options) -> Layout:
    """Return which field of the read schema is what.

    Raises:
        SchemaError: a metadata column has a wrong type, or the rescued column is missing.
    """
    rescued = options.rescued_data_column
    layout = Layout.of(schema, options)
    if rescued is not None and layout.rescued is None:
        msg = f"The schema has no column '{rescued}' for what is rescued (rescuedDataColumn): add {rescued} STRING"
        raise SchemaError(msg)
    return layout


def read_spec(schema: pa.Schema, options: Options, context: ReadContext) -> ReadSpec:
    """Return what a worker needs to read.

    Raises:
        SchemaError: a metadata column has a wrong type, or the rescued column is missing.
        OptionError: this process lacks the native path, and `nativeCode` requires it.
    """
    refuse_missing(options.native_code)
    layout = layout_of(schema, options)
    fields, columns = layout.data_fields(), context.columns
    rescue = options.on_schema_drift == "rescue"
    if rescue and options.columns is None:  # a column that the user's schema lacks is unknown too
        columns = frozenset(item.name.lower() for item in fields)
    shown = {item.name.lower() for item in fields}
    settings = Settings(options.time_zone, options.zero_date, options.invalid_utf8)
    plan = Plan(
        tuple(_read_field(item, context) for item in fields),
        settings=settings,
        operations=options.operations,
        preimages=options.preimages,
        known_columns=columns,
        others=tuple(
            replace(
                _typed_field(
                    name,
                    pa.string(),
                    "varbinary" if name in context.binary else context.types.get(name),
                    context.versions.get(name, ()),
                ),
                written=context.written.get(name, Written.UNKNOWN),
            )
            for name in ({**context.types, **context.written} if rescue else ())
            if name not in shown
        ),
        rescued=layout.rescued,
        rescue=rescue,
        build_ts="build_ts" in layout.metadata.values(),
        native_path=options.native_code != "off",
    )

    def plan_of(table: TableName) -> Plan:
        columns = context.columns_of(table)
        fields = tuple(
            replace(_typed_field(name, pa.string(), text, versions), written=written)
            for name, text, versions, written in columns
        )
        return Plan(
            fields,
            settings=settings,
            operations=options.operations,
            preimages=options.preimages,
            documents=True,
            native_path=options.native_code != "off",
        )

    end = context.commit_end if options.ending_commit_ts == "resolved" else options.ending_commit_ts
    return ReadSpec(
        decoder=decoder_of(context.protocol or "", options),
        plan=plan,
        layout=layout,
        tables=TableFilter(options.tables or ()),
        table=context.table,
        mode=options.mode,
        max_rows=options.max_rows_per_batch,
        max_bytes=min(options.max_bytes_per_batch, _MAX_BYTES),
        commits=CommitRange(options.starting_commit_ts, end),
        on_destructive_ddl=options.on_destructive_ddl,
        plan_of=plan_of,
        partitions=context.partitions,
    )


def _read_field(item: pa.Field, context: ReadContext) -> ReadField:
    name = item.name.lower()
    read_field = _typed_field(item.name, item.type, context.types.get(name), context.versions.get(name, ()))
    inferred = item.metadata is not None and TABLE.encode() in item.metadata
    written = context.written.get(name, Written.UNKNOWN)
    return replace(read_field, key=name in context.keys, user_schema=not inferred, written=written)


def _typed_field(name: str, arrow: pa.DataType, text: str | None, versions: TypeTexts) -> ReadField:
    parsed = tuple((start, parse_type(version)) for start, version in versions)
    return ReadField(name, arrow, type=parse_type(text) if text else None, versions=parsed)
