"""`inspect --pipeline`: the Python file of a declarative pipeline with a table for each table of some topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, count

from ticdc_source import __version__
from ticdc_source.cli.screen import literal, visible
from ticdc_source.errors import OptionError
from ticdc_source.inspection.report import Inspection
from ticdc_source.options.names import HIDDEN
from ticdc_source.options.topics import parse_table
from ticdc_source.pipeline.metadata import METADATA
from ticdc_source.schema.table_name import TableName

# How the file gets its session, by platform.
PLATFORMS = {
    "oss": ("from pyspark.sql import SparkSession", "", "spark = SparkSession.active()"),
    "databricks": (
        "from ticdc_source import TiCDCDataSource",
        "",
        "spark.dataSource.register(TiCDCDataSource)  # the platform defines spark",
    ),
}
_HEAD = '''"""A pipeline with the tables of {topics}.

Written by `ticdc-source inspect --pipeline {platform}` (ticdc-source {version}); run it again for new tables. Each
table reads the topic once, from its first record: rows that have not changed since are missing, unless OPTIONS has
snapshot=initial. After TRUNCATE or DROP TABLE, refresh the table fully.
"""'''
_OSS = (
    "# Open-source Spark has no table format yet that AUTO CDC can write (AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE).",
    '# Until then, write append("orders", "shop.orders") instead of keep(…), and view the newest row of each key.',
)
# How options begin that the file sets itself, that add columns which are no table's, or that a stream refuses.
_NOT_OF_USERS = ("preimages", "tables", "outputformat", "includemetadata", "includeheaders", "ending", "subscribe")

_VIEW = "{}_changes"

_CHANGES = """

def changes(table, **options):
    return spark.readStream.format("ticdc").options(**OPTIONS, **options, tables=table).load()
"""
_KEEP = '''

def keep(name, table, keys, **options):
    """Keep a table as it is in TiDB, by AUTO CDC: the newest row of each key."""

    @dp.temporary_view(name=f"{name}_changes")
    def view():
        return changes(table, preimages="false", **options)  # AUTO CDC would apply the rows from before updates

    dp.create_streaming_table(name)
    dp.create_auto_cdc_flow(
        target=name,
        source=f"{name}_changes",
        keys=keys,
        sequence_by="{prefix}sequence",
        apply_as_deletes="{prefix}change_type = 'delete'",
        except_column_list=[{metadata}],
        stored_as_scd_type=1,
    )
'''
_APPEND = '''

def append(name, table, **options):
    """Append each change of a table."""

    @dp.table(name=name)
    def rows():
        return changes(table, **options)
'''
_GUESS = "  # a guess: no message says the --tz of the TiCDC server"


def pipeline_file(inspection: Inspection, platform: str) -> Iterator[str]:
    """Yield the lines of the file; none if no row of a table can be read.

    A table that has not had its key in each row is appended: AUTO CDC fails at a key that is NULL, and rows from before
    the key may share one, so that the deletion of one would remove another.

    Raises:
        OptionError: the names of metadata columns have other characters than words.
    """
    topics = [topic.topic for topic in inspection.topics]
    tables = [(topic.topic, table) for topic in inspection.topics for kind in topic.protocols for table in kind.tables]
    if not any(table.columns for _, table in tables):
        return
    given = {name: value for name, value in inspection.options.items() if not name.lower().startswith(_NOT_OF_USERS)}
    by_lower = {name.lower(): value for name, value in given.items()}
    prefix = by_lower.get("metadatacolumnprefix", "_")
    if re.fullmatch(r"\w*", prefix, re.ASCII) is None:
        msg = f"metadataColumnPrefix={visible(prefix)}: a pipeline needs letters, digits and underscores"
        raise OptionError(msg)
    needed = {
        name: value for _, table in tables for name, value in table.options.items() if name.lower() not in by_lower
    }
    needed.pop("tables", None)
    options = {
        "startingOffsets": "earliest",
        **given,
        **({} if len(topics) > 1 else {"subscribe": topics[0]}),
        **needed,
    }
    metadata = ", ".join(literal(prefix + column.name) for column in METADATA if column.level == "core")
    yield from _HEAD.format(topics=visible(", ".join(topics)), version=__version__, platform=platform).splitlines()
    yield from ("", "from pyspark import pipelines as dp", *PLATFORMS[platform], "", "OPTIONS = {")
    for name, value in options.items():
        yield f"    {literal(name)}: {_value(name, value)},{_GUESS if name == 'timeZone' and name in needed else ''}"
    yield "}"
    yield from _CHANGES.splitlines()
    yield from _KEEP.replace("{metadata}", metadata).replace("{prefix}", prefix).splitlines()
    yield from _APPEND.splitlines()
    yield from ("", "")
    if platform == "oss":
        yield from _OSS
    names = _names([parse_table(table.table) for _, table in tables])
    for (topic, table), name in zip(tables, names, strict=True):
        more = [f"subscribe={literal(topic)}"] if len(topics) > 1 else []
        if not table.columns:
            yield f"# {visible(table.table)} cannot be read: inspect says why"
        elif table.has_keys:
            keys = f"[{', '.join(literal(_column(key)) for key in table.keys)}]"
            yield f"keep({', '.join([literal(name), literal(table.table), keys, *more])})"
        else:
            why = "not each of its rows has the key" if table.keys else "it has no key"
            yield f"append({', '.join([literal(name), literal(table.table), *more])})  # {why}"


def _column(name: str) -> str:
    """Return a name as Spark reads it in an expression."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def _value(name: str, value: str) -> str:
    return f"spark.conf.get({literal('ticdc.' + name)})" if value == HIDDEN else literal(value)


def _names(tables: Sequence[TableName]) -> list[str]:
    """Return a name for each table that Spark takes: its own, with its database if another table or view has that."""
    names: list[str] = []
    for table in tables:
        short, long = (
            re.sub(r"^(?=\d)|\W", "_", name, flags=re.ASCII).lower() for name in (table.table, "_".join(table))
        )
        taken = {*names, *map(_VIEW.format, names)}
        tried = chain((short, long), (f"{long}_{number}" for number in count(2)))
        names.append(next(name for name in tried if not {name, _VIEW.format(name)} & taken))
    return names
