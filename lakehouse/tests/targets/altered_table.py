"""A table that a test changes and alters statement by statement, and the records of its changefeed.

table = AlteredTable("canal-json", {"id": "int NOT NULL", "v": "varchar(10)"}, key=["id"])
table.insert(id="1", v="7")
table.alter("MODIFY v int", v="int")
table.take()                        # the records since the last call, as rows of Spark's Kafka source
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tests.encoders.canal_json import CanalJSON
from tests.encoders.debezium import Debezium
from tests.encoders.open_protocol import OpenProtocol
from tests.encoders.tables import Column, Event, Table

__all__ = ["DATABASE", "RECORDS", "AlteredTable"]

DATABASE = "shop"
RECORDS = "value binary, key binary, topic string, partition int, offset bigint"
Record: TypeAlias = tuple[bytes | None, bytes | None, str, int, int]
_FIRST_TSO = 470_613_397_578_711_040
_TEXT = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
_ENCODERS: dict[str, CanalJSON | OpenProtocol | Debezium] = {
    "canal-json": CanalJSON(extension=True), "open-protocol": OpenProtocol(), "debezium": Debezium(extension=True),
}  # fmt: skip
_CODES = {
    "create table": 3, "drop table": 4, "add column": 5, "drop column": 6, "modify column": 12, "add primary key": 32,
    "drop primary key": 33,
}  # fmt: skip


class AlteredTable:
    """One table, whose rows and DDL become records.

    Args:
        protocol: of the messages.
        columns: what the definition of each column says.
        key: the columns of the primary key; none for a table without a key.
        created: whether the changefeed has the `CREATE TABLE`.
        name: its name, and that of the topic of its records.
    """

    def __init__(
        self,
        protocol: str,
        columns: Mapping[str, str],
        key: Sequence[str] = ("id",),
        *,
        created: bool = True,
        name: str = "t",
    ) -> None:
        self.name = name
        self._encoder = _ENCODERS[protocol]
        self._columns = dict(columns)
        self.key = list(key)
        self.commit_ts = _FIRST_TSO
        self._messages: list[tuple[bytes | None, bytes | None]] = []
        self._offset = 0
        if created:
            self.create(columns, key)

    def create(self, columns: Mapping[str, str], key: Sequence[str]) -> None:
        """Create the table."""
        self._columns, self.key = dict(columns), list(key)
        lines = [f"{_quoted(name)} {definition}" for name, definition in columns.items()]
        lines += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
        self._ddl(f"CREATE TABLE {_quoted(self.name)} ({', '.join(lines)})", "create table")

    def drop(self) -> None:
        """Drop the table."""
        self._ddl(f"DROP TABLE {_quoted(self.name)}", "drop table")

    def alter(self, action: str, *, gone: Sequence[str] = (), **columns: str) -> None:
        """Run an ALTER TABLE.

        Args:
            action: what follows the name of the table.
            gone: the columns that end.
            columns: the columns that begin or have another definition.
        """
        self._columns = {name: text for name, text in self._columns.items() if name not in gone} | columns
        words = action.lower().split()
        kind = "modify column"
        if words[0] in ("add", "drop"):
            kind = f"{words[0]} {'primary key' if words[1] == 'primary' else 'column'}"
        self._ddl(f"ALTER TABLE {_quoted(self.name)} {action}", kind)

    def insert(self, **row: Any) -> None:
        """Insert a row; columns that are not given are NULL."""
        self._change("insert", None, row)

    def update(self, before: Mapping[str, Any], **after: Any) -> None:
        """Change a row."""
        self._change("update", before, {**before, **after})

    def delete(self, **row: Any) -> None:
        """Delete a row."""
        self._change("delete", row, None)

    def take(self) -> list[Record]:
        """Return the records since the last call."""
        records: list[Record] = [
            (value, key, self.name, 0, self._offset + number) for number, (key, value) in enumerate(self._messages)
        ]
        self._offset += len(records)
        self._messages.clear()
        return records

    @property
    def _table(self) -> Table:
        columns = []
        for name, definition in self._columns.items():
            mysql_type = definition.removesuffix(" NOT NULL")
            charset = "utf8mb4" if mysql_type.split("(")[0] in _TEXT else None
            columns.append(Column(name, mysql_type, nullable=not definition.endswith("NOT NULL"), charset=charset))
        return Table(DATABASE, self.name, tuple(columns), tuple(self.key), tuple(self.key))

    def _ddl(self, query: str, kind: str) -> None:
        event = {
            "op": "ddl", "ddl_query": query, "ddl_type": kind, "ddl_type_code": _CODES[kind], "executed_sql": query,
        }  # fmt: skip
        self._write(event)

    def _change(self, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        columns = []
        for column in self._table.columns:
            entry: dict[str, Any] = {"name": column.name, "mysql_type": column.mysql_type}
            for side, row in (("before", before), ("after", after)):
                if row is not None:
                    entry[side] = row.get(column.name)
            columns.append(entry)
        self._write({"op": op, "handle_key": self.key, "columns": columns})

    def _write(self, event: Event) -> None:
        self.commit_ts += 1 << 18
        event = {**event, "commit_ts": self.commit_ts, "schema": DATABASE, "table": self.name}
        self._messages.append(self._encoder.message([event], [self._table]))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
