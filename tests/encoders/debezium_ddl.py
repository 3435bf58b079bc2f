"""Writes the `tableChanges` of a debezium DDL event (pingcap/ticdc pkg/sink/codec/debezium/codec.go, writeDDLEvent)."""

from typing import Any

from tests.encoders.tables import BLOBS, TEXTS, Column, Event, Table

_JDBC = {
    "tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 6, "double": 8, "decimal": 3,
    "bit": -7, "year": 4, "date": 91, "datetime": 93, "timestamp": 2014, "time": 92, "char": 1, "varchar": 12,
    "binary": -2, "varbinary": -3, "enum": 1, "set": 1, "json": 1111, "vector": 12,
    **dict.fromkeys(TEXTS, 12), **dict.fromkeys(BLOBS, 2004),
}  # fmt: skip
# The length of a type that is declared without one; the encoder leaves it out.
_DEFAULT_LENGTHS = {"bit": 1, "char": 1, "binary": 1, "varchar": 5, "varbinary": 5}
# The length that the encoder writes once the table was altered.
_ALTERED = {"datetime": 0, "timestamp": 0, "time": 0, "year": 4}
_DROPS = ("drop table", "drop index", "drop view", "drop schema")


def table_changes(event: Event, table: Table | None) -> list[dict[str, Any]]:
    """Describe the table after the DDL event; a DDL event about a schema, and TRUNCATE, change no table."""
    ddl_type = event["ddl_type"]
    if ddl_type == "truncate table" or "schema" in ddl_type.split():
        return []
    change = "CREATE" if ddl_type.startswith("create") else "DROP" if ddl_type in _DROPS else "ALTER"
    database, name = event["schema"], event["table"]
    identity = f'"{database}"."{name}"'
    if ddl_type == "rename table":
        identity = f'"{event["old_schema"]}"."{event["old_table"]}",{identity}'
    if ddl_type == "exchange partition":
        identity = f'"{event["old_schema"]}"."{event["old_table"]}"'
    return [
        {
            "type": change,
            "id": identity,
            "table": None if ddl_type == "drop table" else _described(table, altered=change == "ALTER"),
        }
    ]


def _described(table: Table | None, *, altered: bool) -> dict[str, Any] | None:
    if table is None:
        return None
    return {
        "defaultCharsetName": table.charset,
        "primaryKeyColumnNames": list(_key(table)),
        "columns": [_column(column, position, altered=altered) for position, column in enumerate(table.columns, 1)],
        "comment": None,
    }


def _key(table: Table) -> tuple[str, ...]:
    """Return the primary key, or the first unique key without nullable columns."""
    unique = [names for names, unique in table.indexes if unique]
    solid = [names for names in unique if not any(table.by_name[name].nullable for name in names)]
    return table.primary_key or (*solid, ())[0]


def _column(column: Column, position: int, *, altered: bool) -> dict[str, Any]:
    type_name, arguments = column.type_name, column.arguments
    name = type_name.upper()
    if column.unsigned and type_name != "decimal":
        name += " UNSIGNED" + (" ZEROFILL" if column.zerofill else "")
    length, scale = _size(column)
    if altered and length is None and type_name in _ALTERED:
        length = _ALTERED[type_name]
    expression = name
    if (type_name == "double" and arguments) or (type_name == "vector" and arguments):
        expression = f"{name}({','.join(map(str, arguments))})"
    return {
        "name": column.name, "jdbcType": _JDBC[type_name], "nativeType": None, "comment": None,
        "defaultValueExpression": _default(column),
        "enumValues": [f"'{label}'" for label in column.labels] if type_name in ("enum", "set") else None,
        "typeName": name, "typeExpression": expression, "charsetName": column.charset,
        "length": length, "scale": scale, "position": position, "optional": column.nullable,
        "autoIncremented": column.on_update, "generated": column.on_update,
    }  # fmt: skip


def _size(column: Column) -> tuple[int | None, int | None]:
    type_name, arguments = column.type_name, column.arguments
    if type_name == "enum":
        return 1, None
    if type_name == "set":
        return 2 * len(column.labels) - 1, None
    if type_name in ("float", "double", "decimal"):
        return (*arguments, None, None)[0], (*arguments, None, None)[1]
    if arguments == (_DEFAULT_LENGTHS.get(type_name),):
        return None, None
    if type_name in ("char", "varchar", "binary", "varbinary", "bit", "vector", "datetime", "timestamp", "time"):
        return (*arguments, None)[0], None
    if type_name == "tinyint" and arguments == (1,):
        return 1, None
    return (arguments[0] if column.zerofill else None), None


def _default(column: Column) -> str | None:
    default = column.default
    if default is None or column.type_name in (*TEXTS, *BLOBS, "json"):
        return None
    if default.upper().startswith("CURRENT_TIMESTAMP"):
        return "1970-01-01 00:00:00"
    return default[2:-1] if default.startswith("b'") else default
