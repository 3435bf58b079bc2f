"""Which source a read has, and which one tells its schema: the only place that decides it."""

from __future__ import annotations

from dataclasses import replace

from ticdc_source.options.options import Options
from ticdc_source.sources.kafka.source import KafkaSource
from ticdc_source.sources.record_source import RecordSource, WireFormats
from ticdc_source.sources.snapshot_first import SnapshotFirstSource
from ticdc_source.sources.storage.source import FileSource
from ticdc_source.sources.tidb.source import SnapshotSource


def source_of(options: Options, formats: WireFormats) -> RecordSource:
    """Return the source that the options name; it connects to nothing yet."""
    if options.is_snapshot:
        return SnapshotSource(options, formats)
    if options.has_initial_snapshot:
        return SnapshotFirstSource(options, formats)
    return KafkaSource(options, formats) if options.path is None else FileSource(options, formats)


def telling_schema(options: Options, formats: WireFormats) -> tuple[RecordSource, Options]:
    """Return the source that tells the schema of a read, and its options: TiDB, if they name one."""
    told = options
    if options.tidb_url is not None and not options.is_snapshot:
        told = replace(options, snapshot="only", protocol="auto")
    return source_of(told, formats), told
