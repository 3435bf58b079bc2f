"""A setting of the Kafka client: a field of a dataclass whose metadata has the setting's names and its parser."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, overload

from ticdc_source.errors import OptionError

__all__ = ["Setting", "made", "setting", "settings_of"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of the client.

    Attributes:
        java: Java's name without `kafka.`; None if only kafka-python has the setting.
        name: kafka-python's name, or one that is made like those.
        parse: Turns text into a value; raises ValueError with a sentence that repeats no part of the text.
        is_secret: Whether the text may be secret.
    """

    java: str | None
    name: str
    parse: Callable[[str], object]
    is_secret: bool

    def value_of(self, text: str, option: str) -> object:
        """Parse a text.

        Raises:
            OptionError: It is malformed; the message names the option.
        """
        try:
            return self.parse(text)
        except ValueError as error:
            msg = f"Option '{option}': {error}"
            raise OptionError(msg) from None


@overload
def setting(java: str | None, parse: Callable[[str], Value | None], *, secret: bool = ...) -> Value | None: ...
@overload
def setting(java: str | None, parse: Callable[[str], Value], *, default: Value) -> Value: ...
def setting(
    java: str | None, parse: Callable[[str], Value], *, default: Value | None = None, secret: bool = False
) -> Value | None:
    """Declare a setting as a field; type checkers compare what `parse` returns with the field's annotation.

    Args:
        java: Java's name, see `Setting`.
        parse: Turns text into the value.
        default: The value if it is not given; None leaves it to the client.
        secret: Whether the text may be secret.
    """
    # A field without a name yet: `settings_of` has it.
    row = Setting(java=java, name="", parse=parse, is_secret=secret)
    return dataclasses.field(default=default, metadata={"setting": row})


def settings_of(table: type, prefix: str = "") -> tuple[Setting, ...]:
    """Return the settings that are fields of a dataclass, with `prefix` before the fields' names."""
    return tuple(
        dataclasses.replace(field.metadata["setting"], name=prefix + field.name)
        for field in dataclasses.fields(table)
        if "setting" in field.metadata
    )


def made(table: type[Value], given: Mapping[str, object], prefix: str = "") -> Value:
    """Make a dataclass of those parsed settings that are its own."""
    make: Callable[..., Value] = table
    rows = settings_of(table, prefix)
    return make(**{row.name.removeprefix(prefix): given[row.name] for row in rows if row.name in given})
