"""What DDL statements do to columns: a small grammar of `CREATE`, `ALTER`, `RENAME` and `DROP TABLE`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ticdc_source.schema.ddl_event import INDEX_WORDS
from ticdc_source.schema.lexer import END, Reader, Token, tokens_of
from ticdc_source.schema.model import ColumnFacts, Key
from ticdc_source.schema.mysql_ddl.attributes import NO_KEY, SERIAL, Default, default_value, described, key_columns
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ALIASES, BINARY_OF, ColumnType, parse_type, quote_labels


class Create(NamedTuple):
    """A table is created, with these columns by lower-case name, and these indexes."""

    table: TableName
    columns: dict[str, ColumnType]
    facts: dict[str, ColumnFacts]
    keys: tuple[Key, ...]


class Like(NamedTuple):
    """A table is created, with the columns of another."""

    table: TableName
    source: TableName


class Define(NamedTuple):
    """A table gets a new column. Existing rows get its default, None without one."""

    table: TableName
    column: str
    type: ColumnType
    facts: ColumnFacts
    default: Default | None


class Change(NamedTuple):
    """A column gets a new definition, maybe another name. Its keys stay, with the new name."""

    table: TableName
    column: str
    to: str
    type: ColumnType
    facts: ColumnFacts


class SetDefault(NamedTuple):
    """A column gets another default, or none."""

    table: TableName
    column: str
    default: str | None


class AddKey(NamedTuple):
    """A table gets a key, or another index."""

    table: TableName
    key: Key


class DropKey(NamedTuple):
    """A table loses its primary key, or another index with this lower-case name.

    A constraint may also be a check or a foreign key; in MySQL, it may be a unique key.
    """

    table: TableName
    name: str
    primary: bool = False
    constraint: bool = False


class RenameIndex(NamedTuple):
    """An index is renamed."""

    table: TableName
    name: str
    to: str


class Drop(NamedTuple):
    """A column is dropped."""

    table: TableName
    column: str


class Rename(NamedTuple):
    """A column is renamed."""

    table: TableName
    column: str
    to: str


class RenameTable(NamedTuple):
    """A table is renamed."""

    table: TableName
    to: TableName


class DropTable(NamedTuple):
    """A table is dropped."""

    table: TableName


class Forget(NamedTuple):
    """The types of a table are no longer known."""

    table: TableName


_ColumnStep = Define | Change | SetDefault | Drop | Rename
Step = _ColumnStep | Create | Like | AddKey | DropKey | RenameIndex | RenameTable | DropTable | Forget


# The first words of table elements that are not columns (unquoted; all but the last two are reserved words).
_NO_COLUMN = frozenset(
    {"PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FOREIGN", "CHECK", "FULLTEXT", "SPATIAL", "PARTITION",
     "STATS_EXTENDED", "LIKE"}
)  # fmt: skip
_KEYS = frozenset({"PRIMARY", "KEY", "INDEX", "CONSTRAINT"})  # what DROP may remove from a column's keys
_UNIQUE = frozenset({"UNIQUE"})
_SPECIAL_KEYS = _UNIQUE | {"FULLTEXT", "SPATIAL"}
_USING = frozenset({"USING"})
_ATTRIBUTES = ("UNSIGNED", "SIGNED", "ZEROFILL", "BYTE")


def _is_index(reader: Reader) -> bool:
    after = reader.tokens[reader.index + 1] if reader.index + 1 < len(reader.tokens) else END
    return reader.is_word(_NO_COLUMN) or (
        reader.is_word(INDEX_WORDS) and after.type == "word" and after.text in ("INDEX", "KEY")
    )


def _type(reader: Reader, *, binary: bool) -> ColumnType:
    """Parse a column's type and its modifying attributes; `binary`: whether the table's charset is binary."""
    name = reader.name().lower()
    while any(f"{alias} ".startswith(f"{name} {reader.next.text.lower()} ") for alias in ALIASES):
        name += f" {reader.take().text.lower()}"
    arguments = ""
    if reader.next.text == "(" and reader.next.type == "sign":
        inside = reader.bracket().tokens
        if inside and inside[0].type == "text":
            arguments = quote_labels(tuple(token.text for token in inside if token.type == "text"))
        else:
            arguments = "".join(token.text for token in inside)
        arguments = f"({arguments})"
    rest = [token.text if token.type == "word" else "" for token in reader.tokens[reader.index :]]
    attributes = next((i for i, word in enumerate(rest) if word not in _ATTRIBUTES), len(rest))
    type_ = parse_type(f"{name}{arguments} {' '.join(rest[:attributes])}".strip())
    if type_.name == "decimal" and type_.length is None:
        return ColumnType("decimal", unsigned=type_.unsigned, length=10, scale=0)
    if type_.name == "bit" and type_.length is None:
        return ColumnType("bit", length=1)
    if type_.name in BINARY_OF and (_charset(reader) or ("BINARY" if binary else "")) == "BINARY":
        return ColumnType(BINARY_OF[type_.name], length=type_.length)
    return type_


def _charset(reader: Reader) -> str:
    """Return the character set or collation in the rest; "" without one."""
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


class _Definition(NamedTuple):
    type: ColumnType
    facts: ColumnFacts
    default: Default | None


def _definition(reader: Reader, *, binary: bool) -> _Definition:
    serial = reader.next.type == "word" and reader.next.text == "SERIAL"
    type_ = _type(reader, binary=binary)
    facts, default = described(reader)
    return _Definition(type_, SERIAL.or_else(facts) if serial else facts, default)


def _columns(inside: Reader, *, binary: bool) -> tuple[dict[str, _Definition], tuple[Key, ...]]:
    """Parse columns, by lower-case name, and keys in the brackets of a `CREATE TABLE` or `ADD COLUMN`."""
    columns: dict[str, _Definition] = {}
    keys: list[Key] = []
    for element in inside.parts():
        if element.next is END:
            continue
        if _is_index(element):
            key = _index(element)
            keys += [] if key is None else [key]
        else:
            name = element.column()
            columns[name] = _definition(element, binary=binary)
    # TiDB makes the indexes that have an element of their own first.
    all_keys = (*keys, *(key for name, column in columns.items() for key in _own_keys(name, column.facts)))
    for name, column in columns.items():
        facts = column.facts
        for key in keys:
            facts = key.facts.or_else(facts) if name in key.columns else facts
        columns[name] = column._replace(facts=facts.or_else(NO_KEY))
    return columns, all_keys


def _own_keys(column: str, facts: ColumnFacts) -> Iterator[Key]:
    if facts.primary_key:
        yield Key("primary", (column,), unique=True, primary=True)
    if facts.unique_key:
        yield Key("", (column,), unique=True)


def _index(element: Reader) -> Key | None:
    """Return the index that a table's element creates; None for a foreign key, a check and the like."""
    symbol = ""
    if element.skip("CONSTRAINT") and not element.is_word(_NO_COLUMN):
        symbol = element.name().lower()
    if element.skip("PRIMARY", "KEY"):
        return Key("primary", tuple(key_columns(element)), unique=True, primary=True)
    unique = element.is_word(_UNIQUE)
    is_special = element.is_word(_SPECIAL_KEYS | INDEX_WORDS)
    if is_special:
        element.take()
    if not (element.skip("KEY") or element.skip("INDEX") or is_special):
        return None
    return _key(symbol or _index_name(element), element, unique=unique)


def _key(name: str, reader: Reader, *, unique: bool) -> Key:
    """Return an index whose columns are next; not unique with a condition (WHERE), as other rows may be equal."""
    columns = tuple(key_columns(reader))
    is_whole = all(token.type != "word" or token.text != "WHERE" for token in reader.tokens[reader.index :])
    return Key(name, columns, unique=unique and is_whole)


def _index_name(reader: Reader) -> str:
    """Step over an index name, if there is one; return it in lower case."""
    reader.skip("IF", "NOT", "EXISTS")
    reader.skip("IF", "EXISTS")
    has_name = reader.next.type in ("word", "name") and not reader.is_word(_USING)
    return reader.name().lower() if has_name else ""


def _create(reader: Reader) -> Iterator[Step]:
    reader.skip("OR", "REPLACE")
    reader.skip("GLOBAL")
    reader.skip("TEMPORARY")
    if reader.is_word(_SPECIAL_KEYS | INDEX_WORDS | {"INDEX"}):
        yield from _create_index(reader)
        return
    if not reader.skip("TABLE"):
        return
    reader.skip("IF", "NOT", "EXISTS")
    table = reader.table()
    if reader.skip("LIKE") or reader.skip("(", "LIKE"):
        yield Like(table, reader.table())
        return
    inside = reader.bracket()
    columns, keys = _columns(inside, binary=_charset(reader) == "BINARY")
    types = {name: column.type for name, column in columns.items()}
    yield Create(table, types, {name: column.facts for name, column in columns.items()}, keys)


def _create_index(reader: Reader) -> Iterator[Step]:
    unique = reader.is_word(_UNIQUE)
    if not reader.skip("INDEX"):
        reader.take()
        reader.need("INDEX")
    name = _index_name(reader)
    reader.seek("ON")
    table = reader.table()
    yield AddKey(table, _key(name, reader, unique=unique))


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
            columns, keys = _columns(action.bracket(), binary=False)
            for name, definition in columns.items():
                yield Define(table, name, *definition)
            for key in keys:
                yield AddKey(table, key)
        elif column or not _is_index(action):
            name = action.column()
            type_, facts, default = _definition(action, binary=False)
            yield Define(table, name, type_, facts.or_else(NO_KEY), default)
            for key in _own_keys(name, facts):
                yield AddKey(table, key)
        else:
            new_key = _index(action)
            if new_key is not None:
                yield AddKey(table, new_key)
    elif (modifies := action.skip("MODIFY")) or action.skip("CHANGE"):
        action.skip("COLUMN")
        action.skip("IF", "EXISTS")
        old = action.column()
        new = old if modifies else action.column()
        type_, facts, _ = _definition(action, binary=False)
        yield Change(table, old, new, type_, facts)
        for key in _own_keys(new, facts):
            yield AddKey(table, key)
    elif action.skip("DROP"):
        column = action.skip("COLUMN")
        action.skip("IF", "EXISTS")
        if column or not _is_index(action):
            yield Drop(table, action.column())
        elif action.is_word(_KEYS):
            word = action.take().text
            name = "" if word == "PRIMARY" else _index_name(action)
            constraint = word == "CONSTRAINT"
            yield DropKey(
                table, name, primary=not constraint and "PRIMARY" in (word, name.upper()), constraint=constraint
            )
    elif action.skip("ALTER"):
        if action.skip("COLUMN") or not action.is_word(_NO_COLUMN):
            yield from _default(action, table, action.column())
    elif action.skip("RENAME", "COLUMN"):
        old = action.column()
        action.need("TO")
        new = action.column()
        if old != new:  # in other letters, it stays the same name
            yield Rename(table, old, new)
    elif action.skip("RENAME"):
        if action.skip("INDEX") or action.skip("KEY"):
            name = _index_name(action)
            action.need("TO")
            yield RenameIndex(table, name, _index_name(action))
        else:
            _ = action.skip("TO") or action.skip("AS") or action.skip("=")
            yield from _renamed(table, action.table())
    elif action.skip("CONVERT", "TO") and _charset(action) == "BINARY":
        yield Forget(table)


def _default(action: Reader, table: TableName, column: str) -> Iterator[Step]:
    if action.skip("SET", "DEFAULT"):
        yield SetDefault(table, column, default_value(action))
    elif action.skip("DROP", "DEFAULT"):
        yield SetDefault(table, column, None)


def _rename(reader: Reader) -> Iterator[Step]:
    reader.need("TABLE")
    for pair in reader.parts():
        table = pair.table()
        pair.need("TO")
        yield from _renamed(table, pair.table())


def _renamed(table: TableName, to: TableName) -> Iterator[Step]:
    """Yield the renaming of a table, unless only the case of letters changes."""
    if not table.is_same(to):
        yield RenameTable(table, to)


def _drop(reader: Reader) -> Iterator[Step]:
    reader.skip("TEMPORARY")
    if reader.skip("INDEX"):
        name = _index_name(reader)
        reader.seek("ON")
        yield DropKey(reader.table(), name, primary=name == "primary")
    elif reader.skip("TABLE"):
        reader.skip("IF", "EXISTS")
        for dropped in reader.parts():
            yield DropTable(dropped.table())


def steps(sql: str, database: str, *, printed: bool = False) -> list[Step]:
    """Return what a text's statements do to columns; other statements are skipped.

    Raises:
        ValueError: the text cannot be parsed.
    """
    out: list[Step] = []
    statement: list[Token] = []
    for token in [*tokens_of(sql, printed=printed), Token("sign", ";", ";")]:
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
