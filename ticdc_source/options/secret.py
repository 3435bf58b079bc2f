"""A text that is never shown."""

from __future__ import annotations

__all__ = ["Secret"]


class Secret:
    """A text that `repr`, `str` and formats never show; no dataclass, as `dataclasses.asdict` would show that."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text, for the code that sends it."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        """Hide the text; `str` and formats use this method too."""
        return "Secret(***)"
