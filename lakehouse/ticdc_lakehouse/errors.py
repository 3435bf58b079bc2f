"""Errors of targets, beside those of `ticdc_source.errors`."""

from ticdc_source.errors import TiCDCSourceError


class TargetError(TiCDCSourceError):
    """A table in Delta or Iceberg cannot take the changes. Nothing has been written."""


class UnexplainedChangeError(TargetError):
    """The changes have other types or keys than the table, and no DDL event has said so until now.

    The event may still come: it is in another topic partition, or in a later micro-batch.
    """


class LogTypeError(TargetError):
    """A log cannot give a column the type of the changes: its rows are history, which TiDB does not have again."""
