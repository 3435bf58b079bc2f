"""Errors of targets, in addition to those of `ticdc_source.errors`."""

from ticdc_source.errors import TiCDCSourceError


class TargetError(TiCDCSourceError):
    """A table in Delta or Iceberg cannot take the changes. Nothing has been written."""


class UnexplainedChangeError(TargetError):
    """The changes have other types or keys than the target, and no DDL event has explained that yet.

    The event may still arrive, from another topic partition or in a later micro-batch.
    """


class LogTypeError(TargetError):
    """A column of a log cannot take the type of the changes. Its history cannot be read again from TiDB."""
