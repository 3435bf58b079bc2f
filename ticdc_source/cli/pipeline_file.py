"""`inspect --pipeline`: the Python file of a declarative pipeline with a table for each table of some topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count

from ticdc_source.cli.screen import literal, visible
from ticdc_source.errors import OptionError
from ticdc_source.inspection.report import Inspection
from ticdc_source.options.names import HIDDEN
from ticdc_source.options.options import Options
from ticdc_source.options.topics import parse_table
from ticdc_source.pipeline.metadata import METADATA
from ticdc_source.schema.table_name import TableName

# How the file gets its session, by platform.
PLATFORMS = {
    "oss": ("from pyspark.sql import SparkSession", "spark = SparkSession.active()"),
    "databricks": ("from ticdc_source import TiCDCDataSource", "spark.dataSource.register(TiCDCDataSource)"),
}
# How options begin that the file sets itself, that add columns which are no table's, or that a stream refuses.
_NOT_OF_USERS = ("preimages", "tables", "outputformat", "includemetadata", "includeheaders", "ending", "subscribe")

_VIEW = "{}_changes"

_CHANGES = """

def changes(table, **options):
    return spark.readStream.format("ticdc").options(**OPTIONS, **options, tables=table).load()
"""
_KEEP = '''

def keep(name, table, keys, **options):
    """Keep a table as it is in TiDB: the newest row of each key."""

    @dp.temporary_view(name=f"{name}_changes")
    def view():
        return changes(table, preimages="false", **options)

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
    """Yield the lines of the file.

    A table that has not had its key in each row is appended: AUTO CDC fails at a key that is NULL, and rows from before
    the key may share one, so that the deletion of one would remove another.

    Raises:
        OptionError: the names of metadata columns have other characters than words.
    """
    topics = [topic.topic for topic in inspection.topics]
    tables = [(topic.topic, table) for topic in inspection.topics for kind in topic.protocols for table in kind.tables]
    given = {name: value for name, value in inspection.options.items() if not name.lower().startswith(_NOT_OF_USERS)}
    known = {name.lower() for name in given} | {"tables"}
    needed = [{key: value for key, value in each.options.items() if key.lower() not in known} for _, each in tables]
    found = _common(needed)
    options = {"startingOffsets": "earliest", **given, **({} if len(topics) > 1 else {"subscribe": topics[0]}), **found}
    prefix = Options.of(options, from_kafka=False).metadata_column_prefix
    if re.fullmatch(r"\w*", prefix, re.ASCII) is None:
        msg = f"metadataColumnPrefix={visible(prefix)}: a pipeline needs letters, digits and underscores"
        raise OptionError(msg)
    imported, session = PLATFORMS[platform]
    yield f'"""A pipeline with the tables of {visible(", ".join(topics))}."""'
    yield from ("", "from pyspark import pipelines as dp", imported, "", session, "", "OPTIONS = {")
    for name, value in options.items():
        yield f"    {literal(name)}: {_value(name, value)},{_GUESS if name == 'timeZone' and name in found else ''}"
    yield "}"
    yield from _CHANGES.splitlines()
    metadata = ", ".join(literal(prefix + column.name) for column in METADATA if column.level == "core")
    if any(table.has_keys for _, table in tables):
        yield from _KEEP.replace("{metadata}", metadata).replace("{prefix}", prefix).splitlines()
    if any(table.columns and not table.has_keys for _, table in tables):
        yield from _APPEND.splitlines()
    yield from ("", "")
    names = _names([parse_table(table.table) for _, table in tables])
    for (topic, table), name, more in zip(tables, names, needed, strict=True):
        own = {key: value for key, value in more.items() if key not in found}
        if len(topics) > 1:
            own["subscribe"] = topic
        arguments = [literal(name), literal(table.table), *(f"{key}={literal(value)}" for key, value in own.items())]
        if not table.columns:
            yield f"# {visible(table.table)} cannot be read: inspect says why"
        elif table.has_keys:
            arguments.insert(2, f"[{', '.join(map(literal, table.keys))}]")
            yield f"keep({', '.join(arguments)})"
        else:
            yield f"append({', '.join(arguments)})  # {'not each of its rows has a key' if table.keys else 'no key'}"


def _value(name: str, value: str) -> str:
    return f"spark.conf.get({literal('ticdc.' + name)})" if value == HIDDEN else literal(value)


def _common(options: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the options that no two tables have with different values."""
    values: dict[str, set[str]] = {}
    for each in options:
        for name, value in each.items():
            values.setdefault(name, set()).add(value)
    return {name: each.pop() for name, each in values.items() if len(each) == 1}


def _names(tables: Sequence[TableName]) -> list[str]:
    """Return a name for each table that Spark takes: its own, with its database if another table or view has that."""
    names: list[str] = []
    for table in tables:
        short, long = (re.sub(r"\W", "_", name, flags=re.ASCII).lower() for name in (table.table, "_".join(table)))
        taken = {*names, *map(_VIEW.format, names)}
        tried = chain((short, long), (f"{long}_{number}" for number in count(2)))
        names.append(next(name for name in tried if not {name, _VIEW.format(name)} & taken))
    return names
