"""One row of the table of options: its name, its parser, and what the documentation says of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar, overload

from ticdc_source.errors import OptionError
from ticdc_source.options.parsers import ParseError

__all__ = ["ALL_OUTPUTS", "DECODED", "TYPED", "Option", "Output", "option"]

Value = TypeVar("Value")
OneKind: TypeAlias = Literal["batch", "stream"]  # of reads
Output: TypeAlias = Literal["changelog", "envelope", "event", "record"]

ALL_OUTPUTS: tuple[Output, ...] = ("changelog", "envelope", "event", "record")
# The outputs whose messages are decoded.
DECODED: tuple[Output, ...] = ("changelog", "envelope", "event")
# The outputs with typed columns. The JSON of `event` has every column of every table, as the messages have it.
TYPED: tuple[Output, ...] = ("changelog", "envelope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row of the table of options: the metadata of one field of `Options`.

    Attributes:
        name: The documented name.
        parse: Turns text into the value, or raises `ParseError`.
        default: The default as the documentation prints it ("" for none).
        meaning: One line for the documentation.
        only: The kind of read that has the option; None if both have it.
        outputs: The values of `outputFormat` that the option applies to; with the others it is refused.
        secret: Error messages do not repeat the text that was given.
    """

    name: str
    parse: Callable[[str], object]
    default: str
    meaning: str
    only: OneKind | None
    outputs: tuple[Output, ...]
    secret: bool

    def value_of(self, text: str) -> object:
        """Return the value that a text stands for.

        Raises:
            OptionError: The text is not a value of this option.
        """
        try:
            return self.parse(text)
        except ParseError as error:
            raise OptionError(error.of(self.name, None if self.secret else text)) from None
        except ValueError as error:  # Python's, of a number with thousands of digits
            msg = f"Option '{self.name}': {error}"
            raise OptionError(msg) from None


@overload
def option(
    name: str,
    parse: Callable[[str], Value],
    meaning: str,
    *,
    only: OneKind | None = ...,
    outputs: tuple[Output, ...] = ...,
    secret: bool = ...,
) -> Value | None: ...
@overload
def option(
    name: str,
    parse: Callable[[str], Value],
    meaning: str,
    *,
    default: str,
    only: OneKind | None = ...,
    outputs: tuple[Output, ...] = ...,
    secret: bool = ...,
) -> Value: ...
def option(
    name: str,
    parse: Callable[[str], Value],
    meaning: str,
    *,
    default: str = "",
    only: OneKind | None = None,
    outputs: tuple[Output, ...] = ALL_OUTPUTS,
    secret: bool = False,
) -> Value | None:
    """Declare a field of `Options`; type checkers compare what `parse` returns with the field's annotation."""
    row = Option(name=name, parse=parse, default=default, meaning=meaning, only=only, outputs=outputs, secret=secret)
    return dataclasses.field(default=parse(default) if default else None, metadata={"option": row})
