"""`sync.toml` → `SyncConfig`: sections, values of the types that fields have, and secrets from elsewhere."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

from ticdc_lakehouse.syncs.config import (
    TABLE_OPTIONS,
    MaintainConfig,
    SyncConfig,
    TableConfig,
    refuse_unknown_key,
)
from ticdc_lakehouse.syncs.tidb_config import TiDBConfig
from ticdc_source.errors import OptionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["EXAMPLE", "read_toml"]

_SECTIONS = ("source", "target", "maintain", "spark", "table", "tidb")
_TARGET = ("format", "path", "catalog")
_ELSEWHERE_IN_FILE = (*_SECTIONS, *_TARGET, "topics", "table_configs", "secret_settings")
_TOP = tuple(one.name for one in dataclasses.fields(SyncConfig) if one.name not in _ELSEWHERE_IN_FILE)
_REQUIRED = {  # and the arguments of the command
    "topics": ("source.topics", "--topic"),
    "format": ("target.format", "--format"),
    "checkpoint": ("checkpoint", "--checkpoint"),
}
_EXPECTED: Mapping[object, str] = {
    bool: "true or false", int: "a whole number", str: "a text", tuple: "a list of texts"
}  # fmt: skip
_ELSEWHERE = ({"env"}, {"file"})


def read_toml(text: str, overrides: Mapping[str, object] | None = None, folder: Path | None = None) -> SyncConfig:
    """Return the configuration that a `sync.toml` says.

    Args:
        text: the file.
        overrides: values that replace those of the file, by section and key: `{"target.path": "/data/lake"}`.
        folder: the folder of the file, to which the files of secrets are relative; the working folder by default.

    Example:
        ```python
        from pathlib import Path

        from ticdc_lakehouse import read_toml

        config = read_toml(Path("sync.toml").read_text())
        ```

    Raises:
        OptionError: it is no TOML, has an unknown key, or a value is wrong.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"sync.toml: {error}"
        raise OptionError(msg) from None
    for name, value in (overrides or {}).items():
        section, dot, key = name.partition(".")
        if dot:
            document.setdefault(section, {})[key] = value
        else:
            document[name] = value
    return _Reader(folder or Path()).config(document)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns the sections of a `sync.toml` into a `SyncConfig`.

    Attributes:
        folder: the folder to which the files of secrets are relative.
    """

    folder: Path

    def config(self, document: Mapping[str, object]) -> SyncConfig:
        """Return the configuration.

        Raises:
            OptionError: a key is unknown or missing, or a value is wrong.
        """
        sections = {name: _section(document.get(name, {}), name) for name in _SECTIONS}
        top = {name: value for name, value in document.items() if name not in _SECTIONS}
        for name in top:
            refuse_unknown_key(name, _TOP + _SECTIONS, "")
        for name in sections["target"]:
            refuse_unknown_key(name, _TARGET, "target")
        topics = {"topics": sections["source"]["topics"]} if "topics" in sections["source"] else {}
        options = {name: value for name, value in sections["source"].items() if name != "topics"}
        values = {
            **self._values(SyncConfig, top, ""),
            **self._values(SyncConfig, sections["target"], "target"),
            **self._values(SyncConfig, topics, "source"),
            "source": self._texts(options, "source"),
            "spark": self._texts(sections["spark"], "spark"),
            "secret_settings": frozenset(_from_elsewhere(sections["spark"])),
            "maintain": self._maintain(sections["maintain"]) if "maintain" in document else None,
            "table_configs": {name: self._table(name, value) for name, value in sections["table"].items()},
        }
        if "tidb" in document:
            values["tidb"] = self._tidb(sections["tidb"])
        reads_files = any(name.lower() == "path" for name in options)
        for name, (place, argument) in _REQUIRED.items():
            if not values.get(name) and not (name == "topics" and reads_files):
                msg = (
                    f"sync.toml lacks {place}, and {argument} is not given: give one of the two; "
                    "`ticdc-lakehouse sync --example` prints a file with every key"
                )
                raise OptionError(msg)
        return SyncConfig(**values)  # type: ignore[arg-type]  # each value has been made by the type of its field

    def _tidb(self, given: Mapping[str, object]) -> TiDBConfig:
        own = [one.name for one in dataclasses.fields(TiDBConfig)]
        for name in given:
            refuse_unknown_key(name, own, "tidb")
        if "url" not in given:
            msg = "sync.toml lacks tidb.url, such as 'jdbc:mysql://tidb:4000/'"
            raise OptionError(msg)
        return TiDBConfig(**self._values(TiDBConfig, given, "tidb"))  # type: ignore[arg-type]  # as above

    def _maintain(self, given: Mapping[str, object]) -> MaintainConfig:
        for name in given:
            refuse_unknown_key(name, [one.name for one in dataclasses.fields(MaintainConfig)], "maintain")
        return MaintainConfig(**self._values(MaintainConfig, given, "maintain"))  # type: ignore[arg-type]

    def _table(self, table: str, value: object) -> TableConfig:
        place = f'table."{table}"'
        given = _section(value, place)
        keys = [one.name for one in dataclasses.fields(TableConfig) if one.name != "options"]
        for name in given:
            refuse_unknown_key(name, [*keys, *TABLE_OPTIONS], place)
        options = {name: text for name, text in given.items() if name not in keys}
        values = self._values(TableConfig, {name: given[name] for name in keys if name in given}, place)
        return TableConfig(**values, options=self._texts(options, place))  # type: ignore[arg-type]

    def _values(self, kind: type[object], given: Mapping[str, object], section: str) -> dict[str, object]:
        """Return values of the types that the fields of a dataclass have."""
        hints = get_type_hints(kind)
        return {name: self._value(value, hints[name], f"{section}.{name}".lstrip(".")) for name, value in given.items()}

    def _value(self, value: object, hint: object, place: str) -> object:
        allowed = get_args(hint)
        if type(None) in allowed:
            return self._value(value, next(one for one in allowed if one is not type(None)), place)
        kind = get_origin(hint) or hint
        if kind is Literal:
            if value not in allowed:
                msg = f"{place} = {value!r}: it must be {' or '.join(map(repr, allowed))}"
                raise OptionError(msg)
            return value
        if kind is Mapping:
            return self._texts(_section(value, place), place)
        if kind is tuple:
            if isinstance(value, list) and all(isinstance(one, str) for one in value):
                return tuple(value)
        elif kind is str:
            if isinstance(value, (str, dict)):
                return self._text(value, place)
        elif type(value) is kind:  # not isinstance: true is no number
            return value
        shown = "" if kind is str else f" = {value!r}"  # a password is a text
        msg = f"{place}{shown}: expected {_EXPECTED[kind]}"
        raise OptionError(msg)

    def _texts(self, section: Mapping[str, object], place: str) -> dict[str, str]:
        """Return options as texts. Without quotes, `kafka.group.id = "g"` is a section in a section."""
        texts: dict[str, str] = {}
        for name, value in section.items():
            if isinstance(value, dict) and set(value) not in _ELSEWHERE:
                texts |= {f"{name}.{inner}": text for inner, text in self._texts(value, f"{place}.{name}").items()}
            else:
                texts[name] = self._text(value, f"{place}.{name}")
        return texts

    def _text(self, value: object, place: str) -> str:
        """Return a text: as it is, or from where `{ env = "NAME" }` or `{ file = "PATH" }` says."""
        match value:
            case bool():
                return "true" if value else "false"
            case str() | int() | float():
                return str(value)
            case {"env": str(name)}:
                if name in os.environ:
                    return os.environ[name]
                msg = f"{place}: the environment has no variable {name}"
            case {"file": str(path)}:
                try:
                    return (self.folder / path).read_text(encoding="utf-8").rstrip("\r\n")
                except OSError as error:
                    msg = f"{place}: the file {path} cannot be read: {error.strerror}"
                except UnicodeDecodeError:
                    msg = f"{place}: the file {path} is not UTF-8"
            case _:
                msg = f'{place}: expected a text, a number, {{ env = "NAME" }} or {{ file = "PATH" }}'
        raise OptionError(msg)


def _section(value: object, place: str) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    msg = f"{place}: expected a section, [{place}]"
    raise OptionError(msg)


def _from_elsewhere(section: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """Return the names of options, as `_texts` has them, whose values come from the environment or a file."""
    for name, value in section.items():
        if isinstance(value, dict) and set(value) not in _ELSEWHERE:
            yield from _from_elsewhere(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            yield f"{prefix}{name}"


EXAMPLE = """\
# Copies tables of TiDB from a topic of TiCDC into Delta or Iceberg: ticdc-lakehouse sync sync.toml
# A value may come from elsewhere: { env = "NAME" } is an environment variable, { file = "PATH" } a file.

# tables = ["shop.*"]               # which tables; all by default
checkpoint = "/data/checkpoints/shop"   # how far the copy is; keep it with the tables
# trigger = "10 seconds"            # go on for ever; without it, the sync ends when the topics are read
# consistency = "latest"            # or "resolved": apply changes only up to the resolved ts
# deletes = "soft"                  # or "hard": remove deleted rows, instead of marking them by _is_deleted
# parallel = 4                      # how many tables are written at once
# bad_records = "quarantine"        # or "fail": what becomes of bad records, which cannot be read
# heal = false                      # true: read a table again from [tidb], instead of setting it aside
# column_prefix = "_"               # precedes the names of the columns that the copy adds
# prometheus_port = 9400            # serve metrics for Prometheus
# commit_time = false               # true: a column _committed_at, the time of a row's last commit
# time_as = "micros"                # or "text": how TIME is stored, which no target has
# views = false                     # true: a view orders__current without deleted rows; it needs a catalog

[source]                            # the options of spark.read.format("ticdc")
topics = ["tidb-shop"]              # names, or regular expressions such as "tidb-.*"
"kafka.bootstrap.servers" = "localhost:9092"
# path = "s3://bucket/changefeed"   # instead of topics and Kafka: the folder of a changefeed with a storage sink
timeZone = "UTC"                    # the --tz of the TiCDC server
# "kafka.security.protocol" = "SASL_SSL"
# "kafka.sasl.mechanism" = "PLAIN"
# "kafka.sasl.jaas.config" = { env = "KAFKA_JAAS" }

[target]
format = "delta"                    # or "iceberg"
path = "/data/lake"                 # a folder, or catalog = "lake", a catalog that [spark] configures

# [tidb]                            # also copy the rows that were there before the first change
# url = "jdbc:mysql://tidb:4000/"
# user = "reader"                   # who needs SELECT on the tables
# password = { env = "TIDB_PASSWORD" }
# rows_per_range = 200000           # how many rows a task reads
# properties = { sslMode = "REQUIRED" }   # other settings of MySQL's JDBC driver

# [maintain]                        # tidies the files of the tables, between micro-batches
# every = "6h"                      # the time between two rounds of a table
# keep = "7d"                       # for how long old versions of a table can be read
# compact = true                    # write small files into larger ones
# purge_deleted = "30d"             # forget deleted rows; not before the topic has forgotten their messages

# [spark]                           # settings of the Spark session
# "spark.driver.memory" = "4g"

# [table."shop.orders"]             # what differs for one table
# deletes = "hard"
# schemaHints = "amount decimal(12,2)"
# unspecifiedDecimal = "decimal(20,4)"
# tableDDL = "CREATE TABLE shop.orders (id bigint PRIMARY KEY)"
# keys = ["id"]
# partition_by = ["region"]         # of a new target; in Iceberg also "days(created_at)", "bucket(16, id)", …
#                                   # or cluster_by = ["customer_id"], liquid clustering of a new target in Delta
# log = false                       # true: keep all changes, in orders__log, instead of the table
# history = true                    # keep the table, and all changes in orders__log
# skip = true
"""
