"""What DDL statements do to columns: a small grammar of `CREATE`, `ALTER`, `RENAME` and `DROP TABLE`.

sqlglot's own parser is not used. It refuses or skips forms that TiDB has (`NONCLUSTERED`, `RENAME TABLE`, `ADD COLUMN
(a int, b int)`), it differs from release to release, and only names and types of columns are needed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ticdc_source.events import TableName
from ticdc_source.schema.mysql_ddl.tokens import END, Reader, Token, tokens_of
from ticdc_source.schema.types import ColumnType, parse_type, quote_labels

__all__ = ["Add", "Create", "Drop", "DropTable", "Forget", "Like", "Rename", "RenameTable", "Step", "steps"]


class Create(NamedTuple):
    """A table begins, with these columns by lower-case name."""

    table: TableName
    columns: dict[str, ColumnType]


class Like(NamedTuple):
    """A table begins, with the columns of another."""

    table: TableName
    source: TableName


class Add(NamedTuple):
    """A column gets a type: a new column, or (`new` is false) one that was there."""

    table: TableName
    column: str
    type: ColumnType
    new: bool


class Drop(NamedTuple):
    """A column ends."""

    table: TableName
    column: str


class Rename(NamedTuple):
    """A column gets another name."""

    table: TableName
    column: str
    to: str


class RenameTable(NamedTuple):
    """A table gets another name."""

    table: TableName
    to: TableName


class DropTable(NamedTuple):
    """A table ends."""

    table: TableName


class Forget(NamedTuple):
    """The types of a table are no longer known."""

    table: TableName


Step = Create | Like | Add | Drop | Rename | RenameTable | DropTable | Forget


# What begins an element of a table that is not a column (unquoted; all but the last two are reserved words).
_NO_COLUMN = frozenset(
    {"PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FOREIGN", "CHECK", "FULLTEXT", "SPATIAL", "PARTITION",
     "STATS_EXTENDED", "LIKE"}
)  # fmt: skip
_INDEX_WORDS = frozenset({"VECTOR", "COLUMNAR"})  # …INDEX: not reserved words, so they may name a column too
_LONG_NAMES = {
    ("DOUBLE", "PRECISION"): "double", ("LONG", "VARCHAR"): "mediumtext", ("LONG", "VARBINARY"): "mediumblob",
    ("LONG",): "mediumtext", ("NATIONAL", "CHAR"): "char", ("NATIONAL", "CHARACTER"): "char",
    ("NATIONAL", "VARCHAR"): "varchar", ("CHARACTER", "VARYING"): "varchar", ("CHAR", "VARYING"): "varchar",
    ("NATIONAL", "CHAR", "VARYING"): "varchar", ("NATIONAL", "CHARACTER", "VARYING"): "varchar",
    ("NCHAR", "VARCHAR"): "varchar", ("NCHAR", "VARYING"): "varchar", ("MIDDLEINT",): "mediumint",
}  # fmt: skip
_BINARY = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip
_FLOAT_DIGITS = 24  # binary digits, above which FLOAT(p) is a DOUBLE


def _is_index(reader: Reader) -> bool:
    after = reader.tokens[reader.index + 1] if reader.index + 1 < len(reader.tokens) else END
    return reader.is_word(_NO_COLUMN) or (
        reader.is_word(_INDEX_WORDS) and after.type == "word" and after.text in ("INDEX", "KEY")
    )


def _type(reader: Reader, *, binary: bool) -> ColumnType:
    """Parse a column's type and the attributes that change it; `binary` is whether the table's charset is binary."""
    words = [reader.name().upper()]
    while any((*words, reader.next.text) == name[: len(words) + 1] for name in _LONG_NAMES if len(name) > len(words)):
        words.append(reader.take().text)
    name = _LONG_NAMES.get(tuple(words), words[0].lower())
    arguments = ""
    if reader.next.text == "(" and reader.next.type == "sign":
        inside = reader.bracket().tokens
        if inside and inside[0].type == "text":
            arguments = quote_labels(tuple(token.text for token in inside if token.type == "text"))
        else:
            arguments = "".join(token.text for token in inside)
        arguments = f"({arguments})"
    rest = [token.text if token.type == "word" else "" for token in reader.tokens[reader.index :]]
    attributes = next((i for i, word in enumerate(rest) if word not in ("UNSIGNED", "SIGNED", "ZEROFILL")), len(rest))
    if name == "serial":
        return ColumnType("bigint", unsigned=True)
    type_ = parse_type(f"{name}{arguments} {' '.join(rest[:attributes])}".strip())
    if type_.name == "float" and arguments and "," not in arguments and int(arguments[1:-1]) > _FLOAT_DIGITS:
        return ColumnType("double", unsigned=type_.unsigned)
    if type_.name == "decimal" and type_.length is None:
        return ColumnType("decimal", unsigned=type_.unsigned, length=10, scale=0)
    if type_.name == "bit" and type_.length is None:
        return ColumnType("bit", length=1)
    if type_.name in _BINARY and (_charset(reader) or ("BINARY" if binary else "")) == "BINARY":
        return ColumnType(_BINARY[type_.name], length=type_.length)
    if type_.name == "char" and rest[:1] == ["BYTE"]:
        return ColumnType("binary", length=type_.length)
    return type_


def _charset(reader: Reader) -> str:
    """Return the character set, or the collation, that the rest names; "" if there is none."""
    tokens = [*reader.tokens[reader.index :], END, END]
    depth = 0
    for index, token in enumerate(tokens[:-2]):
        if token.type == "sign":
            depth += (token.text == "(") - (token.text == ")")
        if depth or token.type != "word":
            continue
        if token.text == "SET" and index and tokens[index - 1].text in ("CHARACTER", "CHAR"):
            return _after_equals(tokens, index)
        if token.text in ("CHARSET", "COLLATE"):
            return _after_equals(tokens, index)
    return ""


def _after_equals(tokens: Sequence[Token], index: int) -> str:
    value = tokens[index + 1]
    return (tokens[index + 2] if value.text == "=" else value).text.upper()


def _columns(inside: Reader, *, binary: bool) -> dict[str, ColumnType]:
    columns = {}
    for element in inside.parts():
        if element.next is not END and not _is_index(element):
            name = element.column()
            columns[name] = _type(element, binary=binary)
    return columns


def _create(reader: Reader) -> Iterator[Step]:
    reader.skip("OR", "REPLACE")
    reader.skip("GLOBAL")
    reader.skip("TEMPORARY")
    if not reader.skip("TABLE"):
        return
    reader.skip("IF", "NOT", "EXISTS")
    table = reader.table()
    if reader.skip("LIKE") or reader.skip("(", "LIKE"):
        yield Like(table, reader.table())
        return
    inside = reader.bracket()
    yield Create(table, _columns(inside, binary=_charset(reader) == "BINARY"))


def _alter(reader: Reader) -> Iterator[Step]:
    reader.skip("IGNORE")
    if not reader.skip("TABLE"):
        return
    reader.skip("IF", "EXISTS")
    table = reader.table()
    for action in reader.parts():
        yield from _action(action, table)


def _action(action: Reader, table: TableName) -> Iterator[Step]:
    if action.skip("ADD"):
        column = action.skip("COLUMN")
        action.skip("IF", "NOT", "EXISTS")
        if action.next.text == "(" and action.next.type == "sign":
            for name, type_ in _columns(action.bracket(), binary=False).items():
                yield Add(table, name, type_, new=True)
        elif column or not _is_index(action):
            yield Add(table, action.column(), _type(action, binary=False), new=True)
    elif action.skip("MODIFY"):
        action.skip("COLUMN")
        action.skip("IF", "EXISTS")
        yield Add(table, action.column(), _type(action, binary=False), new=False)
    elif action.skip("CHANGE"):
        action.skip("COLUMN")
        action.skip("IF", "EXISTS")
        old, new = action.column(), action.column()
        if old != new:
            yield Drop(table, old)
        yield Add(table, new, _type(action, binary=False), new=old != new)
    elif action.skip("DROP"):
        column = action.skip("COLUMN")
        action.skip("IF", "EXISTS")
        if column or not _is_index(action):
            yield Drop(table, action.column())
    elif action.skip("RENAME", "COLUMN"):
        old = action.column()
        action.need("TO")
        yield Rename(table, old, action.column())
    elif action.skip("RENAME"):
        if not action.is_word(frozenset({"INDEX", "KEY"})):
            _ = action.skip("TO") or action.skip("AS") or action.skip("=")
            yield RenameTable(table, action.table())
    elif action.skip("CONVERT", "TO") and _charset(action) == "BINARY":
        yield Forget(table)


def _rename(reader: Reader) -> Iterator[Step]:
    reader.need("TABLE")
    for pair in reader.parts():
        table = pair.table()
        pair.need("TO")
        yield RenameTable(table, pair.table())


def _drop(reader: Reader) -> Iterator[Step]:
    reader.skip("TEMPORARY")
    if reader.skip("TABLE"):
        reader.skip("IF", "EXISTS")
        for name in reader.parts():
            yield DropTable(name.table())


def steps(sql: str, database: str) -> list[Step]:
    """Return what the statements of a text do to columns; statements that do nothing to columns are skipped.

    Args:
        sql: one statement, or several with semicolons between them.
        database: the database of names that have none.

    Raises:
        OptionError: sqlglot is not installed.
        ValueError: the text cannot be parsed.
    """
    out: list[Step] = []
    statement: list[Token] = []
    for token in [*tokens_of(sql), Token("sign", ";", ";")]:
        if (token.type, token.text) != ("sign", ";"):
            statement.append(token)
            continue
        reader = Reader(statement, database)
        statement = []
        for word, verb in (("CREATE", _create), ("ALTER", _alter), ("RENAME", _rename), ("DROP", _drop)):
            if reader.skip(word):
                out += verb(reader)
                break
    return out
