"""Which topics and tables to read: the options `subscribe`, `subscribePattern`, `assign` and `tables`.

Error messages about topics are those of Spark's `KafkaSourceProvider.validateGeneralOptions` and `JsonUtils`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ticdc_source.errors import OptionError, nearest
from ticdc_source.options.options import Options
from ticdc_source.options.parsers import split_names, unquote_name
from ticdc_source.schema.table_name import TableName

_MOST_LISTED = 20  # a topic may have thousands of partitions


class TopicPartition(NamedTuple):
    """One partition of a topic; printed as Kafka prints it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def listed(partitions: Iterable[object]) -> str:
    """Join items, such as partitions, in one text: the first ones, and how many more there are."""
    texts = [str(each) for each in partitions]
    more = len(texts) - _MOST_LISTED
    return ", ".join(texts if more <= 0 else [*texts[:_MOST_LISTED], f"… and {more:,} more"])


class TopicChoice(NamedTuple):
    """The topic partitions to read.

    Attributes:
        names: the topics, all of which must exist; None for those that match.
        pattern: what the whole names of topics match; internal topics do not count.
        partitions: all of these must exist; empty for all partitions of the topics.
    """

    names: tuple[str, ...] | None
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def includes(self, topic_partition: TopicPartition) -> bool:
        if self.pattern is not None:
            return self.pattern.fullmatch(topic_partition.topic) is not None
        return topic_partition in self.partitions if self.partitions else topic_partition.topic in (self.names or ())


def topic_choice(options: Options) -> TopicChoice:
    """Return which topics the options choose.

    Raises:
        OptionError: the option names no topic, the pattern is not a valid Python regular expression, or the read is of
            files.
    """
    if options.path is not None:
        raise OptionError("Option 'path' names a storage sink, but this needs Kafka topics: set 'subscribe' instead")
    if options.assign is not None:
        given = options.assign
        partitions = sorted({TopicPartition(topic, number) for topic in given for number in given[topic]})
        if not partitions:
            raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{given}'")
        return TopicChoice(tuple(topic for topic in sorted(given) if given[topic]), partitions=tuple(partitions))
    if options.subscribe is not None:
        topics = tuple(dict.fromkeys(name.strip() for name in options.subscribe.split(",") if name.strip()))
        if not topics:
            raise OptionError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{options.subscribe}'"
            )
        return TopicChoice(topics)
    return TopicChoice(None, _pattern(options.subscribe_pattern))


def _pattern(text: str | None) -> re.Pattern[str]:
    r"""Compile Spark's `subscribePattern`.

    Spark compiles it with `java.util.regex` and matches whole names. For the characters of topic names (letters,
    digits, dot, underscore, hyphen) Python's `re` means the same, with three exceptions: `\Q…\E` and `(?<name>…)` are
    rewritten here, and intersections of character classes (`[a-z&&[^x]]`) are refused, as Python has none.
    """
    if text is None or not text.strip():
        raise OptionError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text or ''}'"
        )
    written = re.sub(r"\\Q(.*?)(?:\\E|$)", lambda quoted: re.escape(quoted[1]), text.strip(), flags=re.DOTALL)
    written = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", written)
    try:
        with warnings.catch_warnings():
            # Python warns about what Java reads as a nested set or an intersection.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(written)
    except (re.error, FutureWarning) as error:
        raise OptionError(
            f"Option 'subscribePattern': '{text}' is not a valid Python regular expression: {error}"
        ) from None


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Patterns of (database, table), where `*` stands for any text; without patterns, all tables match.

    The case of names is ignored, as in TiDB.
    """

    patterns: tuple[tuple[str, str], ...] = ()

    def matches(self, table: TableName) -> bool:
        return not self.patterns or any(
            _like(database, table.database) and _like(name, table.table) for database, name in self.patterns
        )

    def matches_database(self, database: str) -> bool:
        """Whether a pattern may match a table of the database."""
        return not self.patterns or any(_like(pattern, database) for pattern, _ in self.patterns)

    def matches_ddl(self, table: TableName) -> bool:
        """Whether DDL of the table, or of the database if it has no name, may concern a matching table."""
        return self.matches(table) if table.table else self.matches_database(table.database)

    def without_row(self, there: Iterable[TableName], among: str) -> str:
        """Return the message that no wanted table has a row; `among` is the number of records."""
        # Compare by parts: a common database says nothing.
        near = [
            str(table)
            for pattern in self.patterns
            for table in sorted(there)
            if all("*" in part or nearest(part, [name]) for part, name in zip(pattern, table, strict=True))
        ]
        hint = f" Did you mean {', '.join(dict.fromkeys(near))}?" if near else ""
        patterns = ", ".join(map(".".join, self.patterns))
        listed = ", ".join({str(table).lower(): str(table) for table in sorted(there, key=str)}.values())
        return f"No row of {patterns} among {among}; tables found: {listed}.{hint}"

    @property
    def named(self) -> list[TableName]:
        """The tables that are named without `*`."""
        return [TableName(*pattern) for pattern in self.patterns if not any("*" in part for part in pattern)]

    @property
    def exact(self) -> TableName | None:
        return self.named[0] if len(self.patterns) == 1 and self.named else None


def parse_table(text: str) -> TableName:
    """Parse `database.table`, in which names may be in backticks.

    Raises:
        ValueError: the text does not have this form.
    """
    database, table = (unquote_name(part) for part in split_names(text, separators="."))
    return TableName(database, table)


@lru_cache(maxsize=4096)  # called for each table of each chunk
def _like(pattern: str, name: str) -> bool:
    parts = (re.escape(part) for part in pattern.lower().split("*"))
    return re.fullmatch(".*".join(parts), name.lower(), re.DOTALL) is not None
