"""Random tables with many versions, and random changes of their rows, as a truth like that of a capture."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.encoders.random_values import ColumnType, choose, widened
from tests.encoders.tables import Event

_NAMES = (
    "id", "c", "a.b", "UPPER Case", 'with "quote"', "'single'", "日本語", "back\\slash", "tick`tick", "a,b", "$1",
    "1digit",
    "_tidb", "type", "<tag>&", "é", "t", "h", "f", "v", "before", "after", "data", "old", "payload", "null", "select",
    "_topic", "_corrupt_record", " lead", "{", "}", '":"', "x\ty", "u", "p", "d", "😀", "ts", "op", "source", "schema",
    "%", "n", "m", "k", "w", "y", "z", "col1", "col2", "col3", "col4", "col5", "col6", "col7", "col8", "col9",
)  # fmt: skip
_TABLES = ("t", "T Odd.Names", "日本", 'with"quote', "back\\slash", "a,b", "tick`tick", "orders", "1", "{}", "é")
_CHARSET = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
_FIRST_TSO = 470_613_397_578_711_040


@dataclass
class _Column:
    name: str
    column_type: ColumnType
    nullable: bool = True
    default: str | None = None
    generated: str = ""


@dataclass
class RandomTable:
    """A table that changes.

    Attributes:
        versions: what a capture's header says about each version.
        rows: its present rows, as name → value.
    """

    database: str
    name: str
    columns: list[_Column]
    keys: str
    handle_key: list[str]
    versions: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


class Changes:
    """Makes tables, and the true events of their changes."""

    def __init__(self, seed: int, families: tuple[str, ...] = (), *, defaults: bool = True) -> None:
        self.chance = random.Random(seed)
        self.families = families
        self.defaults = defaults
        self.tso = _FIRST_TSO
        self.tables: list[RandomTable] = []

    def run(self, tables: int, changes: int) -> Iterator[Event]:
        """Yield the truths of DDL, row and watermark events in commit order."""
        for name in self.chance.sample(_TABLES, tables):
            self.tables.append(self._table(name))
            yield self._ddl(self.tables[-1], "create table", 3)
        for _ in range(changes):
            table = self.chance.choice(self.tables)
            share = self.chance.random()
            if share < 0.01:
                yield self._altered(table)
            elif share < 0.03:
                yield {"op": "watermark", "commit_ts": self._tick()}
            else:
                yield from self._change(table)

    def _tick(self) -> int:
        self.tso += self.chance.choice((1, 1 << 18, 5 << 18))
        return self.tso

    def _table(self, name: str) -> RandomTable:
        chance = self.chance
        names = chance.sample(_NAMES, chance.randint(2, 16))
        columns = [self._column(each) for each in names]
        columns[0].generated = ""
        keys = chance.choice(("primary", "primary", "primary", "unique", "none"))
        able = [column for column in columns if column.column_type.key and not column.generated]
        handle = chance.sample(able, min(len(able), chance.choice((1, 1, 2, 3)))) if keys != "none" else []
        for column in handle:
            column.nullable, column.default = False, None
        if not handle:
            keys = "none"
        chosen = [column.name for column in handle]
        return RandomTable(chance.choice(("db", "Shop-1", "数据")), name, columns, keys, chosen)

    def _column(self, name: str) -> _Column:
        chance = self.chance
        column_type = choose(chance, self.families)
        share = chance.random()
        column = _Column(name, column_type, nullable=chance.random() < 0.8)
        if share < 0.06:
            column.generated = chance.choice(("VIRTUAL", "STORED"))
        elif share < 0.2 and self.defaults:
            column.default = column_type.default
        return column

    def _ddl(self, table: RandomTable, ddl_type: str, code: int, change: str = "") -> Event:
        tso = self._tick()
        table.versions.append(_declared(table, tso))
        query = f"ALTER TABLE {_quoted(table.name)} {change}" if change else _statement(table, escapes=True)
        return {
            "op": "ddl", "commit_ts": tso, "schema": table.database, "table": table.name, "ddl_query": query,
            "ddl_type": ddl_type, "ddl_type_code": code, "executed_sql": query,
        }  # fmt: skip

    def _altered(self, table: RandomTable) -> Event:
        chance = self.chance
        free = [column for column in table.columns if column.name not in table.handle_key]
        unused = [name for name in _NAMES if all(name != column.name for column in table.columns)]
        share = chance.random()
        candidates = ((column, widened(chance, column.column_type, self.families)) for column in free)
        wider = [(column, column_type) for column, column_type in candidates if column_type is not None]
        if wider and share < 0.4:
            column, column_type = chance.choice(wider)
            column.column_type, column.default = column_type, None  # the statement does not repeat the default
            for row in table.rows:
                if row[column.name] is not None:
                    row[column.name] = column.column_type.kept(row[column.name])
            return self._ddl(table, "modify column", 12, f"MODIFY COLUMN {_definition(column, escapes=True)}")
        if len(free) > 3 and share < 0.6:
            gone = chance.choice(free)
            table.columns = [column for column in table.columns if column is not gone]
            for row in table.rows:
                row.pop(gone.name, None)
            return self._ddl(table, "drop column", 6, f"DROP COLUMN {_quoted(gone.name)}")
        new = self._column(self._fresh(table, unused))
        index = chance.randint(0, len(table.columns))
        after = f"AFTER {_quoted(table.columns[index - 1].name)}" if index else "FIRST"
        table.columns.insert(index, new)
        for row in table.rows:
            row[new.name] = self._value(new)
        return self._ddl(table, "add column", 5, f"ADD COLUMN {_definition(new, escapes=True)} {after}")

    def _fresh(self, table: RandomTable, unused: list[str]) -> str:
        """Return a name that no version has had, because a column that comes back may have another type."""
        had = {column["name"] for version in table.versions for column in version["columns"]}
        return next((name for name in unused if name not in had), f"new{len(table.versions)}")

    def _value(self, column: _Column) -> Any:
        share = 0.25 if column.default is None else 0.1
        panics = column.column_type.mysql_type == "date" and column.default is not None
        if column.nullable and not panics and self.chance.random() < share:
            return None
        return column.column_type.value()

    def _row(self, table: RandomTable) -> dict[str, Any]:
        return {column.name: self._value(column) for column in table.columns}

    def _change(self, table: RandomTable) -> Iterator[Event]:
        chance = self.chance
        tso = self._tick()
        if not table.rows or chance.random() < 0.5:
            after = self._row(table)
            table.rows.append(after)
            yield self._event(table, "insert", tso, None, after)
            return
        index = chance.randrange(len(table.rows))
        before = table.rows[index]
        if chance.random() < 0.3:
            del table.rows[index]
            yield self._event(table, "delete", tso, before, None)
            return
        after = {
            column.name: before[column.name] if chance.random() < 0.6 else self._value(column)
            for column in table.columns
        }
        table.rows[index] = after
        if any(before[name] != after[name] for name in table.handle_key) and chance.random() < 0.8:
            yield self._event(table, "delete", tso, before, None)
            yield self._event(table, "insert", tso, None, after)
        else:
            yield self._event(table, "update", tso, before, after)

    def _event(self, table: RandomTable, op: str, tso: int, before: Any, after: Any) -> Event:
        version = table.versions[-1]
        columns = []
        for declared in version["columns"]:
            column = {
                name: declared[name] for name in ("name", "mysql_type", "charset", "generated") if name in declared
            }
            if before is not None:
                column["before"] = before[declared["name"]]
            if after is not None:
                column["after"] = after[declared["name"]]
            columns.append(column)
        return {
            "op": op, "schema": table.database, "table": table.name, "commit_ts": tso,
            "handle_key": table.handle_key, "table_version": version["table_version"], "columns": columns,
        }  # fmt: skip


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _definition(column: _Column, *, escapes: bool) -> str:
    """Write a column as in a statement, or (without escapes) as in TiDB's SHOW CREATE TABLE."""
    mysql_type = column.column_type.mysql_type.replace("\\", "\\\\") if escapes else column.column_type.mysql_type
    return f"{_quoted(column.name)} {mysql_type}{'' if column.nullable else ' NOT NULL'}"


def _statement(table: RandomTable, *, escapes: bool) -> str:
    lines = [f"  {_definition(column, escapes=escapes)}" for column in table.columns]
    if table.keys != "none":
        word = "PRIMARY KEY" if table.keys == "primary" else "UNIQUE KEY `uk`"
        lines.append(f"  {word} ({','.join(map(_quoted, table.handle_key))})")
    body = ",\n".join(lines)
    return f"CREATE TABLE {_quoted(table.name)} (\n{body}\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"


def _declared(table: RandomTable, version: int) -> dict[str, Any]:
    entries = []
    for column in table.columns:
        mysql_type = column.column_type.mysql_type
        entry: dict[str, Any] = {"name": column.name, "mysql_type": mysql_type, "nullable": column.nullable}
        if mysql_type.split("(")[0] in _CHARSET:
            entry |= {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
        if column.default is not None:
            entry["default"] = column.default
        if column.generated:
            entry["generated"] = column.generated
        entries.append(entry)
    ddl = _statement(table, escapes=False)
    return {
        "schema": table.database, "table": table.name, "ddl": ddl, "columns": entries, "table_version": version,
        "primary_key": table.handle_key if table.keys == "primary" else [], "handle_key": list(table.handle_key),
        "partitioned": False,
    }  # fmt: skip
