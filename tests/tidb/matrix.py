"""The type matrix of the corpus in a running TiDB: each type with the values that TiCDC's encoders were given."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.captured import Captured, events_of, load
from tests.support.truth import tables_with_rows
from tests.tidb.sql import Session

TRUTH = "canal-json.tidb-extension.types"
Tables = Mapping[tuple[str, str], Mapping[str, Any]]


def declared(captured: Captured) -> Tables:
    """Return the last declaration of each table that has rows."""
    last = {(entry["schema"], entry["table"]): entry for entry in captured.header["tables"]}
    return {name: last[name] for name in tables_with_rows(captured) if name in last}


def quoted(*names: str) -> str:
    """Quote names for MySQL, as `database`.`table`."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def literal(value: Any) -> str:
    """Return a true value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        return str(value["number"]) if "number" in value else f"x'{value['hex']}'"
    escaped = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def created(captured: Captured, name: tuple[str, str]) -> str:
    """Return the statement that created a table. SHOW CREATE TABLE does not escape the backslash of a label."""
    return next(
        str(event["executed_sql"])
        for records in captured.partitions.values()
        for record in records
        for event in events_of(record.truth)
        if event["op"] == "ddl" and event["ddl_type"] == "create table" and event["table"] == name[1].lower()
    )


def events(captured: Captured, name: tuple[str, str], op: str) -> Iterator[Mapping[str, Any]]:
    """Yield the true events of one operation on a table."""
    for records in captured.partitions.values():
        for record in records:
            for event in events_of(record.truth):
                if event["op"] == op and (event["schema"], event["table"]) == name:
                    yield event


@dataclass
class Matrix:
    """The type matrix in TiDB."""

    captured: Captured
    states: list[tuple[int, dict[tuple[str, str], dict[str, Mapping[str, Any]]]]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def step(self, sql: Session, op: str) -> None:
        """Do all inserts, updates or deletes of all tables, and note the state after them."""
        state = {}
        for name in declared(self.captured):
            rows = dict(self.states[-1][1][name]) if self.states else {}
            for event in events(self.captured, name, op):
                columns = [column for column in event["columns"] if not column.get("generated")]
                image = "before" if op == "delete" else "after"
                key = str(columns[0][image])
                if op == "delete":
                    sql.run(f"DELETE FROM {quoted(*name)} WHERE {quoted(columns[0]['name'])} = {literal(key)}")  # noqa: S608
                    rows.pop(key, None)
                else:
                    names = ", ".join(quoted(column["name"]) for column in columns)
                    values = ", ".join(literal(column["after"]) for column in columns)
                    sql.run(f"REPLACE INTO {quoted(*name)} ({names}) VALUES ({values})")  # noqa: S608 (a test's own)
                    rows[key] = {column["name"]: column for column in columns}
                if name[1] == "t_all":
                    self.events.append({**event, "commit_ts": sql.last_commit_ts()})
            state[name] = rows
        self.states.append((sql.tso(), state))


def filled(sql: Session) -> Matrix:
    """Create the tables of the matrix, and do the inserts, the updates and the deletes of the corpus."""
    found = Matrix(load(TRUTH))
    names = declared(found.captured)
    for database in {name[0] for name in names}:  # another test may have been here
        sql.run(f"DROP DATABASE IF EXISTS {quoted(database)}")
    for name in names:
        statement = created(found.captured, name)
        sql.run(f"CREATE DATABASE IF NOT EXISTS {quoted(name[0])}", f"USE {quoted(name[0])}", statement)
    for op in ("insert", "update", "delete"):
        found.step(sql, op)
    return found
