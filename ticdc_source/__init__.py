"""Read TiDB's change feed, as TiCDC writes it to Kafka, into Spark.

    changes = (
        spark.read.format("ticdc")                                # or spark.readStream
        .option("kafka.bootstrap.servers", "broker:9092")
        .option("subscribe", "tidb-shop")                         # the topic
        .option("tables", "shop.orders")
        .load()
    )

Spark finds the format `ticdc` by itself. If it does not, `spark.dataSource.register(ticdc_source.TiCDCDataSource)`
makes it known. docs/reference/options.md has the options. Every error that the package raises on purpose is a
`TiCDCSourceError`; its text says what was found, where, and which option changes it.
"""

from __future__ import annotations

import importlib

__all__ = [
    "CheckpointError",
    "ClaimCheckUnavailableError",
    "DataLossError",
    "DecodeError",
    "FramingError",
    "KafkaUnavailableError",
    "LogReport",
    "MergeReport",
    "OptionError",
    "SchemaError",
    "StreamProgress",
    "SyncState",
    "Tables",
    "TargetError",
    "TiCDCDataSource",
    "TiCDCSourceError",
    "UnsupportedTypeError",
    "__version__",
    "append_log",
    "commit_range",
    "commits_of",
    "current_tso",
    "decode",
    "infer_schema",
    "merge_into",
    "progress_listener",
    "purge_deleted",
    "resolved_ts",
    "resolved_ts_of",
    "scd2_view",
    "snapshot",
    "tables",
]

__version__ = "0.1.0"

# The modules of public names that are not errors.
_HOMES = {
    "LogReport": "lakehouse.log",
    "MergeReport": "lakehouse.merge",
    "StreamProgress": "driver.stream_progress",
    "SyncState": "spark.sync_state",
    "Tables": "spark.tables",
    "TiCDCDataSource": "source",
    "append_log": "lakehouse.log",
    "commit_range": "driver.batches",
    "commits_of": "lakehouse.maintenance",
    "current_tso": "spark.snapshot",
    "decode": "spark.frames",
    "infer_schema": "spark.frames",
    "merge_into": "lakehouse.merge",
    "progress_listener": "spark.listener",
    "purge_deleted": "lakehouse.maintenance",
    "resolved_ts": "driver.batches",
    "resolved_ts_of": "lakehouse.maintenance",
    "scd2_view": "lakehouse.log",
    "snapshot": "spark.snapshot",
    "tables": "spark.tables",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: the package itself costs nothing, and needs no pyspark."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = _HOMES.get(name, "errors")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
