"""TIME as text: `-12:30:00.500`, with as many digits of a second as the MySQL type of the column has."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from ticdc_source.developer_api import parse_type

__all__ = ["time_text"]


def time_text(micros: Column, mysql_type: str | None) -> Column:
    """Return a TIME as TiDB writes it.

    Args:
        micros: the value, in microseconds.
        mysql_type: the type of the changes; without digits, or None, if nobody knows them.
    """
    return _text(micros, parse_type(mysql_type or "time").length)


def _text(micros: Column, digits: int | None) -> Column:
    """Return a TIME with so many digits of a second; None for those that the value has."""
    size = F.abs(micros)
    clock = F.format_string(
        "%02d:%02d:%02d",
        F.floor(size / 3_600_000_000).cast("bigint"),
        F.floor(size / 60_000_000).cast("bigint") % 60,
        F.floor(size / 1_000_000).cast("bigint") % 60,
    )
    fraction = F.lpad((size % 1_000_000).cast("string"), 6, "0")
    if digits is None:
        fraction = F.regexp_replace(fraction, "0+$", "")
        fraction = F.when(fraction == "", "").otherwise(F.concat(F.lit("."), fraction))
    else:
        fraction = F.concat(F.lit("."), fraction.substr(1, digits)) if digits else F.lit("")
    return F.when(micros.isNotNull(), F.concat(F.when(micros < 0, "-").otherwise(""), clock, fraction))
