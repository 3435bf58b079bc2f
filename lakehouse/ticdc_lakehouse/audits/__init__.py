"""Audits compare a target with its table in TiDB as of one TSO, and repair the target."""
