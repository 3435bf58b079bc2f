"""TIME as text: `-12:30:00.500`, with as many digits of a second as the MySQL type of the column has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import StringType

from ticdc_lakehouse.targets.literals import text_literal
from ticdc_lakehouse.targets.target import CommitFacts, Target, quoted
from ticdc_source.developer_api import parse_type

__all__ = ["StatedDigits", "follow_digits", "time_text"]

_MOST_DIGITS = 6
_CLOCK = text_literal("^-?[0-9]{2,3}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?$")


@dataclass(frozen=True, slots=True)
class StatedDigits:
    """The digits of a second that the last DDL event of a TIME column states.

    Attributes:
        commit_ts: the commit-ts of the event.
        digits: from 0 to 6.
    """

    commit_ts: int
    digits: int


def time_text(micros: Column, mysql_type: str | None, stated: StatedDigits | None, commit_ts: Column) -> Column:
    """Return a TIME as TiDB writes it.

    Args:
        micros: the value, in microseconds.
        mysql_type: the type of the changes; without digits, or None, if nobody knows them.
        stated: what DDL states.
        commit_ts: the commit-ts of the change.
    """
    digits = parse_type(mysql_type or "time").length
    text = _text(micros, digits)
    if stated is None:
        return text
    # A value that loses digits is rounded by TiDB alone. A change after the event has digits of its own.
    exact = micros % 10 ** (_MOST_DIGITS - stated.digits) == 0
    by_event = exact if digits is None else exact & (commit_ts <= stated.commit_ts)
    return F.when(by_event, _text(micros, stated.digits)).otherwise(text)


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


def follow_digits(target: Target, stated: Mapping[str, StatedDigits], names: Collection[str], row_ts: str) -> None:
    """Give the text of older rows the digits that DDL states, where no digit but 0 is lost.

    It does nothing the second time.

    Args:
        target: the target.
        stated: what DDL states, by lower-case column name.
        names: the columns, in lower case, of which DDL states it now.
        row_ts: the expression of a row's commit-ts.
    """
    wanted = stated.keys() & {*names}
    types = {name.lower(): (name, type_) for name, type_ in target.columns().items()} if wanted else {}
    for column in sorted(wanted & types.keys()):
        name, type_ = types[column]
        if not isinstance(type_, StringType):
            continue
        text, digits = quoted(name), stated[column].digits
        clock = f"substring_index({text}, '.', 1)"
        fraction = f"rpad(substr({text}, length({clock}) + 2), {_MOST_DIGITS}, '0')"
        value = f"concat({clock}, '.', substr({fraction}, 1, {digits}))" if digits else clock
        where = (
            f"{row_ts} <= {stated[column].commit_ts} AND {text} RLIKE {_CLOCK} "
            f"AND replace(substr({fraction}, {digits + 1}), '0', '') = '' AND {text} <> {value}"
        )
        if target.frame().where(where).head(1):
            target.update_rows({name: value}, where, CommitFacts())
