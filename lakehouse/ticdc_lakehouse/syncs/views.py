"""The views of a sync: `<table>__current` without deleted rows, and `<table>__history` with all versions of rows.

A view lists its columns, so it is written again whenever the columns of its table have changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from ticdc_lakehouse.syncs.config import SyncConfig
from ticdc_lakehouse.syncs.failures import LONGEST_WARNING
from ticdc_lakehouse.targets.log import history_query
from ticdc_lakehouse.targets.merge import OwnColumns
from ticdc_lakehouse.targets.opening import existing_target, open_target
from ticdc_lakehouse.targets.sessions import run_sql
from ticdc_lakehouse.targets.target import Target
from ticdc_lakehouse.targets.target_names import quoted
from ticdc_source.developer_api import TableName, check_permission, warn
from ticdc_source.errors import OptionError, SchemaError


class Views:
    """The views of a sync."""

    def __init__(self, config: SyncConfig) -> None:
        self._config, self._layout = config, config.layout
        self._written: dict[str, str] = {}  # by view, the query and schema that this process has written last

    def check(self, spark: SparkSession) -> None:
        """Raise an `OptionError` if the catalog has no views, before anything is copied."""
        if not self._config.views:
            return
        probe = self._layout.own("_ticdc_view")
        try:
            run_sql(spark, f"CREATE NAMESPACE IF NOT EXISTS {probe.rpartition('.')[0]}")
            run_sql(spark, f"CREATE OR REPLACE VIEW {probe} AS SELECT 1 AS one")
            run_sql(spark, f"DROP VIEW {probe}")
        except Exception as error:  # noqa: BLE001 (of any catalog)
            said = self._config.redact(" ".join(str(error).split()))[:LONGEST_WARNING]
            raise OptionError(
                f"views = true: the catalog {self._config.catalog} has no views ({said}). Remove views = true"
            ) from None

    def write(self, spark: SparkSession, table: TableName) -> None:
        """Create the views of a table, or replace those whose columns have changed."""
        settings, target = self._config.of_table(table), self._layout.target(table)
        existing = existing_target(spark, target) if self._config.views else None
        if existing is None:  # it has had DDL only
            return
        own = OwnColumns.of(existing.properties())
        frame = spark.table(target)
        columns = ", ".join(quoted(name) for name in frame.columns if name not in (own.sequence, own.deleted))
        where = "" if own.deleted is None else f" WHERE NOT {quoted(own.deleted)}"
        if columns:
            query = f"SELECT {columns} FROM {target}{where}"  # noqa: S608 (names are quoted)
            self._replace(spark, self._layout.target(table, "__current"), query, frame.schema.json())
        if settings.history:
            name = self._layout.target(table, "__log")
            log = open_target(spark, name)
            if log.exists():
                self._replace_history(spark, self._layout.target(table, "__history"), log, settings.keys)

    def _replace_history(self, spark: SparkSession, view: str, log: Target, keys: Sequence[str] | None) -> None:
        """Replace the view of a history, or drop it if the log no longer tells which versions belong to one row."""
        try:
            query = history_query(log.name, log.name, log.properties(), log.columns(), keys=keys)
        except SchemaError as error:
            if self._written.get(view) != "":
                self._written[view] = ""
                run_sql(spark, f"DROP VIEW IF EXISTS {view}")
                warn(f"The view {view} is dropped. {error}")
            return
        self._replace(spark, view, query, log.frame().schema.json())

    def _replace(self, spark: SparkSession, view: str, query: str, schema: str) -> None:
        if self._written.get(view) == query + schema:
            return
        check_permission()
        run_sql(spark, f"CREATE OR REPLACE VIEW {view} AS {query}")
        self._written[view] = query + schema
