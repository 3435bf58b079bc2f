"""`ColumnFacts` from a column's definition and its table's keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ticdc_source.schema.lexer import END, Reader, Token
from ticdc_source.schema.model import ColumnFacts

# What the definition of a column says about keys that the table does not list.
NO_KEY = ColumnFacts(primary_key=False, unique_key=False)
# SERIAL is BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE.
SERIAL = ColumnFacts(unique_key=True, nullable=False)

# Attributes whose next word, which may be DEFAULT or the name of a column, says nothing more.
_WITH_A_WORD = frozenset({"COLUMN_FORMAT", "STORAGE", "COLLATE", "CHARSET", "SET", "AFTER"})
_NOW = frozenset({"NOW", "LOCALTIME", "LOCALTIMESTAMP"})
_TYPED_TEXTS = frozenset({"DATE", "TIME", "TIMESTAMP"})  # before a text in quotes, they are part of the literal


class Default(NamedTuple):
    """The default in a definition.

    Attributes:
        text: what `default_value` returns.
        literal: the value, as a literal without quotes; None for NULL.
        unknown: what the definition has instead of a literal; "" if `literal` is the value.
    """

    text: str | None
    literal: str | None
    unknown: str


NO_DEFAULT = Default(None, None, "")


def described(reader: Reader) -> tuple[ColumnFacts, Default | None]:
    """Return the facts after a column's type, and the default, None without one.

    As in MySQL, a column may be NULL unless the definition says otherwise, and `DEFAULT NULL` is not a default. Keys
    that are not mentioned stay unknown.
    """
    primary = unique = generated = False
    nullable = True
    default = comment = None
    while reader.next is not END:
        if reader.skip("NOT", "NULL"):
            nullable = False
        elif reader.skip("PRIMARY") or reader.skip("KEY"):
            reader.skip("KEY")
            primary, nullable = True, False
        elif reader.skip("UNIQUE"):
            reader.skip("KEY")
            unique = True
        elif reader.skip("SERIAL", "DEFAULT", "VALUE"):  # NOT NULL AUTO_INCREMENT UNIQUE, and no default
            nullable, unique = False, True
        elif reader.skip("AS"):
            generated = True
        elif reader.skip("DEFAULT"):
            default = _default(reader)
        elif reader.skip("COMMENT"):
            comment = reader.take().text
        elif reader.skip("ON", "UPDATE"):
            default_value(reader)
        elif reader.is_word(_WITH_A_WORD):
            reader.take()
            reader.take()
        elif reader.skip("REFERENCES"):  # ON DELETE SET NULL says nothing about this column
            break
        elif reader.next.type == "sign" and reader.next.text == "(":
            reader.bracket()
        else:
            reader.take()
    facts = ColumnFacts(
        primary_key=primary or None,
        unique_key=unique or None,
        nullable=nullable,
        generated=generated,
        default=default.text if default else None,
        comment=comment,
    )
    return facts, default


def default_value(reader: Reader) -> str | None:
    """Step over a default; return it without quotes.

    None stands for NULL, and for what would differ without quotes or the words after it.
    """
    return _default(reader).text


def _default(reader: Reader) -> Default:
    token = reader.next
    if token.type == "sign" and token.text == "(":
        inside = reader.bracket()
        tokens = inside.tokens
        is_plain = all(part.type != "text" for part in tokens) and [part.text for part in tokens] != ["NULL"]
        text = "".join(part.plain for part in tokens) if is_plain else None
        if inside.next.text != "(":
            within = _default(inside)
            if inside.next is END and not within.unknown:  # a literal in brackets
                return Default(text, within.literal, "")
        return Default(text, None, f"the expression ({' '.join(part.plain for part in tokens)})")
    reader.take()
    if token.text == "NEXT" and token.type == "word":  # …VALUE FOR a sequence
        return Default(None, None, "a sequence")
    if token.type == "sign" and token.text in ("-", "+"):
        text = ("-" if token.text == "-" else "") + reader.take().plain
        return Default(text, text, "")
    if token.type == "sign" and token.text == ".":  # DEFAULT.5
        return _literal(f".{reader.take().plain}")
    if token.type in ("text", "number"):
        return _literal(token.text)
    if reader.next.type in ("text", "number") and token.plain.startswith("_"):  # a character set before the literal
        return _literal(reader.take().text)
    if reader.next.type == "text" and token.text in _TYPED_TEXTS:
        return _literal(reader.take().text)
    return _word(token, reader)


def _literal(text: str) -> Default:
    return Default(text, text, "")


def _word(token: Token, reader: Reader) -> Default:
    """Return what a word after DEFAULT stands for: NULL, a truth value, a function."""
    if token.text == "NULL":
        return NO_DEFAULT
    if token.text in ("TRUE", "FALSE"):
        return _literal("1" if token.text == "TRUE" else "0")
    name = "CURRENT_TIMESTAMP" if token.text in _NOW else token.text
    if reader.next.type == "sign" and reader.next.text == "(":
        inside = reader.bracket().tokens
        if any(part.type == "text" for part in inside):
            return Default(None, None, f"{name}(…)")
        name = f"{name}({''.join(part.plain for part in inside)})" if inside else name
    return Default(name, None, name)


def key_columns(reader: Reader) -> Iterator[str]:
    """Yield a key's columns in the next brackets, in lower case; "" for an expression."""
    while reader.next is not END and not (reader.next.type == "sign" and reader.next.text == "("):
        reader.take()
    if reader.next is END:
        return
    for part in reader.bracket().parts():
        yield part.column() if part.next.type in ("word", "name") else ""
