"""Rows as TiDB itself sends them: packets of MySQL's text protocol."""
