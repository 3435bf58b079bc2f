"""What a column's definition, and the keys of its table, say beside the column's type: `ColumnFacts`."""

from __future__ import annotations

from collections.abc import Iterator

from ticdc_source.schema.model import ColumnFacts
from ticdc_source.schema.mysql_ddl.tokens import END, Reader

__all__ = ["NO_KEY", "SERIAL", "attributes", "default_value", "key_columns"]

# What the definition of a column says about keys that the table does not list.
NO_KEY = ColumnFacts(primary_key=False, unique_key=False)
# SERIAL is BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE.
SERIAL = ColumnFacts(unique_key=True, nullable=False)

# Attributes whose next word, which may be DEFAULT or the name of a column, says nothing more.
_WITH_A_WORD = frozenset({"COLUMN_FORMAT", "STORAGE", "COLLATE", "CHARSET", "SET", "AFTER"})
_NOW = frozenset({"NOW", "LOCALTIME", "LOCALTIMESTAMP"})


def attributes(reader: Reader) -> ColumnFacts:
    """Return what stands behind the type of a column; nothing is said about keys that do not stand there.

    As in MySQL, a column may be NULL unless the definition says otherwise. `DEFAULT NULL` is no default.
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
        elif reader.skip("AS"):
            generated = True
        elif reader.skip("DEFAULT"):
            default = default_value(reader)
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
    return ColumnFacts(
        primary_key=primary or None,
        unique_key=unique or None,
        nullable=nullable,
        generated=generated,
        default=default,
        comment=comment,
    )


def default_value(reader: Reader) -> str | None:
    """Step over a default; return it without quotes.

    None stands for NULL, and for what would not be the same without quotes or without the words behind it.
    """
    token = reader.next
    if token.type == "sign" and token.text == "(":
        inside = reader.bracket().tokens
        is_plain = all(part.type != "text" for part in inside) and [part.text for part in inside] != ["NULL"]
        return "".join(part.plain for part in inside) if is_plain else None
    reader.take()
    if token.text == "NEXT" and token.type == "word":  # …VALUE FOR a sequence
        return None
    if token.type == "sign" and token.text in ("-", "+"):
        return ("-" if token.text == "-" else "") + reader.take().plain
    if token.type == "text":
        return token.text
    if token.plain.startswith("_") and reader.next.type == "text":  # a character set before the text
        return reader.take().text
    if token.text == "NULL":
        return None
    if token.text in ("TRUE", "FALSE"):
        return "1" if token.text == "TRUE" else "0"
    name = "CURRENT_TIMESTAMP" if token.text in _NOW else token.text
    if token.type == "word" and reader.next.type == "sign" and reader.next.text == "(":
        inside = reader.bracket().tokens
        if any(part.type == "text" for part in inside):
            return None
        return f"{name}({''.join(part.plain for part in inside)})" if inside else name
    return name


def key_columns(reader: Reader) -> Iterator[str]:
    """Yield the columns, in lower case, between the next brackets: of a key; parts that are expressions have none."""
    while reader.next is not END and not (reader.next.type == "sign" and reader.next.text == "("):
        reader.take()
    if reader.next is END:
        return
    for part in reader.bracket().parts():
        if part.next.type in ("word", "name"):
            yield part.column()
