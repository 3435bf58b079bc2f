"""A changefeed with a storage sink, made of the corpus: paths, schema files and index files as TiCDC writes them.

Source: pingcap/ticdc pkg/cloudstorage (paths, schema files), downstreamadapter/sink/cloudstorage (order of writing).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Any

from tests.encoders.csv import CSV
from tests.support.corpus import Line

_TYPE = re.compile(r"(\w+)(?:\((.*)\))?((?: unsigned)?)")
_LENGTHS = {"tinytext": 255, "tinyblob": 255, "text": 65535, "blob": 65535, "mediumtext": 16777215,
            "mediumblob": 16777215, "longtext": 4294967295, "longblob": 4294967295}  # fmt: skip
Json = dict[str, Any]


def table_column(column: Mapping[str, Any], primary: Iterable[str]) -> Json:
    """Return a column as a schema file has it (pkg/cloudstorage/schema_file.go, fromTiColumnInfo)."""
    found = _TYPE.match(column["mysql_type"])
    assert found is not None, column
    name, inner, unsigned = found[1], found[2], found[3]
    written: Json = {"ColumnName": column["name"], "ColumnType": name.upper() + unsigned.upper()}
    if column["name"] in primary:
        written["ColumnIsPk"] = "true"
    if not column["nullable"]:
        written["ColumnNullable"] = "false"
    if name in ("timestamp", "datetime", "time"):
        if inner not in (None, "0"):
            written["ColumnScale"] = inner
    elif name in ("enum", "set"):
        written["ColumnElems"] = [label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", inner)]
    elif name == "decimal":
        written["ColumnPrecision"], written["ColumnScale"] = inner.split(",")
    elif name in ("float", "double"):
        precision, _, scale = (inner or ("12" if name == "float" else "22")).partition(",")
        written["ColumnPrecision"] = precision
        if scale not in ("", "0"):
            written["ColumnScale"] = scale
    elif name not in ("json", "date", "vector"):
        written["ColumnPrecision"] = str(inner or _LENGTHS.get(name, 4))
    return written


@dataclass
class StorageSink:
    """The folder of a changefeed.

    Attributes:
        tables: the tables of the corpus' header.
        date: the date that data directories have; empty for none.
        csv: how rows are written as CSV; None for canal-json.
        by_id: whether paths have the ids of tables.
        dispatcher: part of the names of files; empty for none.
        old: whether schema files are where TiCDC before v6.5.1 writes them.
        placed: each row's file, the number of the file, the number of the row in it, and its truth.
    """

    folder: Path
    tables: list[Json]
    date: str = ""
    rows: int = 3
    csv: CSV | None = None
    by_id: bool = False
    dispatcher: str = ""
    old: bool = False
    placed: list[tuple[str, int, int, Json]] = field(default_factory=list)
    _versions: dict[tuple[str, str], tuple[int, list[Json]]] = field(default_factory=dict)
    _waiting: dict[str, list[bytes]] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _ids: dict[tuple[str, str], int] = field(default_factory=dict)

    def write(self, lines: Iterable[Line]) -> None:
        """Write records of the corpus in their order; a watermark becomes the checkpoint-ts."""
        for line in lines:
            op = line.truth["op"]
            if op == "watermark":
                self.checkpoint(line.truth["commit_ts"])
            elif op == "ddl":
                self.ddl(line.truth)
            else:
                self.row(line.truth, line.value or b"")
        self.flush()

    def message(self, value: bytes) -> None:
        """Write a message of canal-json with the TiDB extension; a watermark becomes the checkpoint-ts."""
        message = json.loads(value)
        name, extension = (message["database"], message["table"]), message["_tidb"]
        if message["type"] == "TIDB_WATERMARK":
            self.checkpoint(extension["watermarkTs"])
        elif message["isDdl"]:
            self.flush()
            self._schema(name, extension["commitTs"], [], message["sql"], 0)
        else:
            self._add("/".join([*name, str(self._versions[name][0])]), message, value)

    def checkpoint(self, ts: int) -> None:
        self.flush()
        self._put("metadata", json.dumps({"checkpoint-ts": ts}).encode())

    def ddl(self, event: Json) -> None:
        """Write the rows of before, and the file with the version that a DDL makes."""
        self.flush()
        name, version = self._as_spelt(event["schema"], event["table"]), event["commit_ts"]
        columns = self._columns(name, version) if event["table"] else []
        self._schema(name, version, columns, event["ddl_query"], event["ddl_type_code"])

    def row(self, event: Json, message: bytes) -> None:
        """Add a row; it is written with its file."""
        name = (event["schema"], event["table"])
        columns = self._of_version(name, event["table_version"])
        if name not in self._versions or self._versions[name][1] != columns:
            self._schema(name, event["table_version"], columns, "", 0)
        version = self._versions[name][0]
        parts = [str(self._id(name))] if self.by_id else list(name)
        parts.append(str(version))
        if "physical_table_id" in event and not self.by_id:
            parts.append(str(event["physical_table_id"]))
        directory = "/".join([*parts, *([self.date] if self.date else [])])
        if self.csv is not None and not self._waiting.get(directory):
            self._waiting[directory] = [self.csv.header([one["ColumnName"] for one in self._sent(name, event)])]
        self._add(directory, event, message)

    def _add(self, directory: str, event: Json, message: bytes) -> None:
        rows = self._waiting.setdefault(directory, [])
        row = len(rows) - (self.csv is not None)
        self.placed.append((*self._next_file(directory), row, event))
        rows.append(message + b"\r\n" if self.csv is None else self.csv.row(event))
        if row + 1 >= self.rows:
            self.flush(directory)

    def flush(self, *only: str) -> None:
        for directory in only or list(self._waiting):
            rows = self._waiting.pop(directory, [])
            if not any(rows):
                continue
            path, self._numbers[directory] = self._next_file(directory)
            self._put(path, b"".join(rows))
            index = f"CDC_{self.dispatcher}.index" if self.dispatcher else "CDC.index"
            name = path.rpartition("/")[2]
            self._put(f"{directory}/{'' if self.old else 'meta/'}{index}", f"{name}\n".encode())

    def _next_file(self, directory: str) -> tuple[str, int]:
        number = self._numbers.get(directory, 0) + 1
        middle = f"_{self.dispatcher}_" if self.dispatcher else ""
        return f"{directory}/CDC{middle}{number:06d}.{'json' if self.csv is None else 'csv'}", number

    def _schema(self, name: tuple[str, str], version: int, columns: list[Json], query: str, code: int) -> None:
        database, table = name
        self._versions[name] = version, columns
        content = {
            "Table": table, "Schema": database, "Version": 1, "TableVersion": version, "Query": query, "Type": code,
            "TableColumns": columns or None, "TableColumnsTotal": len(columns),
        }  # fmt: skip
        folder = str(self._id(name)) if self.by_id and columns else database if not table else f"{database}/{table}"
        if self.by_id and not table:
            return
        new = f"meta/schema_{version}_{version % 10**10:010d}.json"
        path = f"{folder}/{f'{version}/schema.json' if self.old else new}"
        self._put(path, json.dumps(content, indent=4).encode())

    def _as_spelt(self, database: str, table: str) -> tuple[str, str]:
        """Return a name as TiDB keeps it: the DDL may spell it in another case."""
        names = ((one["schema"], one["table"]) for one in self.tables)
        wanted = (database.lower(), table.lower())
        return next((name for name in names if (name[0].lower(), name[1].lower()) == wanted), (database, table))

    def _columns(self, name: tuple[str, str], version: int) -> list[Json]:
        own = [one for one in self.tables if (one["schema"], one["table"]) == name]
        entries = [one for one in own if one["table_version"] <= version]
        return self._written(max(entries, key=lambda one: one["table_version"])) if entries else []

    def _of_version(self, name: tuple[str, str], version: int) -> list[Json]:
        entry = next(
            one for one in self.tables if (one["schema"], one["table"], one["table_version"]) == (*name, version)
        )
        return self._written(entry)

    def _written(self, entry: Json) -> list[Json]:
        primary = entry["primary_key"] or ()
        return [table_column(column, primary) for column in entry["columns"]]

    def _sent(self, name: tuple[str, str], event: Json) -> list[Json]:
        virtual = {one["name"] for one in event["columns"] if one.get("generated") == "VIRTUAL"}
        return [one for one in self._versions[name][1] if one["ColumnName"] not in virtual]

    def _id(self, name: tuple[str, str]) -> int:
        return self._ids.setdefault(name, 100 + len(self._ids))

    def _put(self, path: str, data: bytes) -> None:
        file = self.folder / normpath(path)  # as Go's path.Join
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.tmp")
        part.write_bytes(data)
        part.replace(file)
