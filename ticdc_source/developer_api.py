"""What those need who build on the package: records and their types, DDL events, options, times, and commands.

`ticdc_source` itself has the names for users: `decode`, `tables`, `SyncState` and others; `ticdc_source.errors` the
errors. Whoever builds on the package imports those and the names of this module, which is kept for them, and nothing
deeper. A name is imported when it is first used: some need pyspark, and some do not.
"""

from __future__ import annotations

import importlib

# The names of each module.
_NAMES = {
    # Records and what they become
    "planning.frame_sample": "frame_options",
    "schema.ddl_event": "DDLEvent",
    "schema.table_name": "TableName",
    "pipeline.metadata": "METADATA",
    "schema.change_order": "PLACED_RANK REPAIR_RANK EMPTYING_RANK SEQUENCE SNAPSHOT_RANK",
    "protocols": "PROTOCOLS",
    "sources.locations": "redacted",
    "spark.stream": "HAS_ADMISSION_CONTROL",
    "spark.tables": "replayed",
    "spark.sync_state": "asking check_permission",
    "sources.kafka": "KafkaCluster",
    # Columns, types and DDL
    "schema.ddl_kinds": "ddl_kind is_too_long",
    "schema.json_text": "loads",
    "schema.model": "COMMENT KEY MYSQL_TYPE TABLE UNDECIDED UNSTATED_PRECISION ColumnFacts Key handle_key",
    "schema.mysql_ddl.old_rows": (
        "Added Renamed Retyped changes_primary_key created_columns name_before old_row_changes renamed_tables"
    ),
    "schema.types": "ColumnType parse_type",
    "spark.schema": "to_spark type_of",
    # Options and table filters
    "options.names": (
        "HIDDEN applies_to_frames applies_to_records is_of_messages is_option refuse_unknown without_secrets"
    ),
    "options.options": "Options",
    "options.parsers": "ParseError duration_ms one_of table_patterns",
    "options.topics": "TableFilter parse_table",
    # Times
    "schema.tso": "duration of_ms of_time physical_ms seconds utc",
    # Messages, metrics and commands
    "errors": "counted nearest warn",
    "inspection.monitoring.exporter": "Exported ProgressCollector served",
    "pipeline.metric_files": "MetricFiles without_credentials",
    "inspection.environment": "check_java",
    "cli.arguments": "add_overrides argument count file_path overrides_of words",
    "cli.program": "command_line run",
    "cli.screen": "Bars Table errors moment output print_json visible",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"ticdc_source.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
