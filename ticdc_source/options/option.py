"""The rows of the table of options: those of the source, and the settings of the Kafka client.

A row is the metadata of a dataclass field, which `Scope.option` or `Scope.optional` declares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from ticdc_source.errors import OptionError
from ticdc_source.options.parsers import ParseError

Value = TypeVar("Value")
OneKind: TypeAlias = Literal["batch", "stream"]  # of reads
Output: TypeAlias = Literal["changelog", "envelope", "event", "record"]
# Spark's reads from topics, files, tables of TiDB or a DataFrame of records; and two commands.
Use: TypeAlias = Literal["topics", "files", "snapshot", "frames", "tail", "lag"]

ALL_OUTPUTS: tuple[Output, ...] = ("changelog", "envelope", "event", "record")
# The outputs whose messages are decoded.
DECODED: tuple[Output, ...] = ("changelog", "envelope", "event")
# The outputs with typed columns. The JSON of `event` has every column of every table, as the messages have it.
TYPED: tuple[Output, ...] = ("changelog", "envelope")

_KAFKA = "kafka."


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row of the table.

    Attributes:
        name: the documented name; for a client setting, `kafka.` and Java's name, if Java's client has it.
        field: the name of the field; for a client setting, kafka-python's name.
        parse: turns text into the value, or raises `ParseError`.
        default: the default as the documentation prints it ("" for none).
        meaning: one line for the documentation; for a refused setting, why.
        only: the kind of read that has the option; None if both have it.
        secret: whether errors and outputs hide the given text.
        refused: whether this package controls the client setting itself.
    """

    name: str
    field: str = ""
    parse: Callable[[str], object]
    scope: Scope
    default: str = ""
    meaning: str = ""
    only: OneKind | None = None
    secret: bool = False
    refused: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The accepted names; a client setting also has kafka-python's."""
        return (self.name, _KAFKA + self.field) if self.name.startswith(_KAFKA) else (self.name,)

    def value_of(self, text: str, name: str | None = None) -> object:
        """Parse a text; errors call the option `name`, if given.

        Raises:
            OptionError: the text is not a value of this option.
        """
        name = name or self.name
        try:
            return self.parse(text)
        except ParseError as error:
            raise OptionError(error.of(name, None if self.secret or name.startswith(_KAFKA) else text)) from None
        except ValueError as error:  # Python's, of a number with thousands of digits
            raise OptionError(f"Option '{name}': {error}") from None


class Scope(NamedTuple):
    """What some options apply to.

    Attributes:
        uses: the uses that have them; others refuse them, or warn that they have no effect.
        outputs: the values of `outputFormat` that they apply to; others refuse them.
        is_of_messages: whether they say how messages are parsed, whatever their table.
    """

    uses: frozenset[Use]
    outputs: tuple[Output, ...] = ALL_OUTPUTS
    is_of_messages: bool = False

    def option(
        self, name: str, parse: Callable[[str], Value], meaning: str = "", *, default: str, only: OneKind | None = None
    ) -> Value:
        """Declare a field of `Options`; type checkers compare what `parse` returns with the field's annotation."""
        row = Option(name=name, parse=parse, scope=self, default=default, meaning=meaning, only=only)
        return dataclasses.field(default=parse(default), metadata={"option": row})

    def optional(
        self,
        name: str,
        parse: Callable[[str], Value],
        meaning: str = "",
        *,
        only: OneKind | None = None,
        secret: bool = False,
    ) -> Value | None:
        row = Option(name=name, parse=parse, scope=self, meaning=meaning, only=only, secret=secret)
        return dataclasses.field(default=None, metadata={"option": row})


DOTTED = ""  # in place of the name of a client setting: it is kafka-python's, with dots
# How records are fetched from topics.
CLIENT = Scope(frozenset({"topics", "tail", "lag"}))


def rows_of(table: type, prefix: str = "") -> tuple[Option, ...]:
    return tuple(
        dataclasses.replace(row, field=name, name=row.name or _KAFKA + name.replace("_", "."))
        for field in dataclasses.fields(table)
        for row, name in [(field.metadata.get("option"), prefix + field.name)]
        if row is not None
    )


def made(table: type[Value], given: Mapping[str, object], prefix: str = "") -> Value:
    make: Callable[..., Value] = table
    fields = (row.field for row in rows_of(table, prefix))
    return make(**{field.removeprefix(prefix): given[field] for field in fields if field in given})
