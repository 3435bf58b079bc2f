"""What those need who build on the package: records and their types, DDL events, options, times, and commands.

`ticdc_source` itself has the names for users: `decode`, `tables`, `SyncState` and others; `ticdc_source.errors` the
errors. Whoever builds on the package imports those and the names of this module, which is kept for them, and nothing
deeper. A name is imported when it is first used: some need pyspark, and some do not.
"""

from __future__ import annotations

import importlib

# The modules of the names.
_HOMES = {
    # Records and what they become
    "frame_options": "planning.frame_sample",
    "DDLEvent": "schema.ddl_event",
    "TableName": "schema.table_name",
    "METADATA": "pipeline.metadata",
    "PLACED_RANK": "schema.change_order",
    "REPAIR_RANK": "schema.change_order",
    "EMPTYING_RANK": "schema.change_order",
    "SEQUENCE": "schema.change_order",
    "SNAPSHOT_RANK": "schema.change_order",
    "PROTOCOLS": "protocols",
    "redacted": "sources.locations",
    "HAS_ADMISSION_CONTROL": "spark.stream",
    "replayed": "spark.tables",
    "asking": "spark.sync_state",
    "check_permission": "spark.sync_state",
    "KafkaCluster": "sources.kafka",
    # Columns, types and DDL
    "ddl_kind": "schema.ddl_kinds",
    "is_too_long": "schema.ddl_kinds",
    "loads": "schema.json_text",
    "COMMENT": "schema.model",
    "KEY": "schema.model",
    "MYSQL_TYPE": "schema.model",
    "TABLE": "schema.model",
    "UNDECIDED": "schema.model",
    "UNSTATED_PRECISION": "schema.model",
    "ColumnFacts": "schema.model",
    "Key": "schema.model",
    "handle_key": "schema.model",
    "Added": "schema.mysql_ddl.old_rows",
    "Renamed": "schema.mysql_ddl.old_rows",
    "Retyped": "schema.mysql_ddl.old_rows",
    "changes_primary_key": "schema.mysql_ddl.old_rows",
    "created_columns": "schema.mysql_ddl.old_rows",
    "name_before": "schema.mysql_ddl.old_rows",
    "old_row_changes": "schema.mysql_ddl.old_rows",
    "renamed_tables": "schema.mysql_ddl.old_rows",
    "ColumnType": "schema.types",
    "parse_type": "schema.types",
    "to_spark": "spark.schema",
    "type_of": "spark.schema",
    # Options and table filters
    "HIDDEN": "options.names",
    "applies_to_frames": "options.names",
    "applies_to_records": "options.names",
    "is_of_messages": "options.names",
    "is_option": "options.names",
    "refuse_unknown": "options.names",
    "without_secrets": "options.names",
    "Options": "options.options",
    "ParseError": "options.parsers",
    "duration_ms": "options.parsers",
    "one_of": "options.parsers",
    "table_patterns": "options.parsers",
    "TableFilter": "options.topics",
    "parse_table": "options.topics",
    # Times
    "duration": "schema.tso",
    "of_ms": "schema.tso",
    "of_time": "schema.tso",
    "physical_ms": "schema.tso",
    "seconds": "schema.tso",
    "utc": "schema.tso",
    # Messages, metrics and commands
    "counted": "errors",
    "nearest": "errors",
    "warn": "errors",
    "Exported": "inspection.monitoring.exporter",
    "ProgressCollector": "inspection.monitoring.exporter",
    "served": "inspection.monitoring.exporter",
    "MetricFiles": "pipeline.metric_files",
    "without_credentials": "pipeline.metric_files",
    "check_java": "inspection.environment",
    "add_overrides": "cli.arguments",
    "argument": "cli.arguments",
    "count": "cli.arguments",
    "file_path": "cli.arguments",
    "overrides_of": "cli.arguments",
    "words": "cli.arguments",
    "command_line": "cli.program",
    "run": "cli.program",
    "Bars": "cli.screen",
    "Table": "cli.screen",
    "errors": "cli.screen",
    "moment": "cli.screen",
    "output": "cli.screen",
    "print_json": "cli.screen",
    "visible": "cli.screen",
}

__all__ = [*_HOMES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"ticdc_source.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
