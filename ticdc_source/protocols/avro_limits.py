"""Limits of Avro schemas, checked before anything is read: a few bytes cannot become billions of items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ticdc_source.protocols.avro_bytes import Type

__all__ = ["check_limits"]

_MOST_FIELDS = 4200  # of a record: TiDB's tables have at most 4096 columns
_MOST_VALUES = 100_000  # of a schema, with each use of a named type
_VALUES_PER_BYTE = 16
_LEAST_BYTES = {"null": 0, "float": 4, "double": 8}  # any other primitive type has one byte or more


def check_limits(schema: Type) -> None:
    """Refuse a schema that TiCDC cannot have written and that takes too long to read.

    Raises:
        ValueError: it is recursive, has too many columns, or an array whose items need no bytes.
        KeyError, TypeError, AttributeError, RecursionError: it is no schema.
    """
    _Excess().of(schema)


class _Excess:
    """By how many values a type exceeds what its bytes account for, at most: 16 values for a byte.

    It is negative for most types. The items of an array may have no excess: their number is any.
    """

    def __init__(self) -> None:
        self._named: dict[str, int | None] = {}  # None while it is being defined
        self._values = 0

    def of(self, type_: Type, namespace: str = "") -> int:
        self._values += 1
        if self._values > _MOST_VALUES:
            msg = f"it has more than {_MOST_VALUES:,} types"
            raise ValueError(msg)
        if isinstance(type_, str):
            return self._of_name(type_, namespace)
        if not isinstance(type_, Mapping):
            return max(self.of(branch, namespace) for branch in type_) + 1 - _VALUES_PER_BYTE
        kind = type_["type"]
        if kind not in ("record", "error", "enum", "fixed"):
            return self._of_items(type_, namespace)
        namespace, name = _full_name(type_, namespace)
        self._named[name] = None
        excess = 1 - _VALUES_PER_BYTE * (int(type_["size"]) if kind == "fixed" else kind == "enum")
        if "fields" in type_:
            fields = type_["fields"]
            if len(fields) > _MOST_FIELDS:
                msg = f"{name} has {len(fields):,} fields, and a table of TiDB has at most 4,096 columns"
                raise ValueError(msg)
            excess += sum(self.of(field["type"], namespace) for field in fields)
        if excess > _MOST_VALUES:
            msg = f"a record {name} without bytes has {excess:,} values"
            raise ValueError(msg)
        self._named[name] = excess
        return excess

    def _of_name(self, name: str, namespace: str) -> int:
        defined = next((each for each in (f"{namespace}.{name}", name) if each in self._named), None)
        if defined is None:
            return 1 - _VALUES_PER_BYTE * _LEAST_BYTES.get(name, 1)
        excess = self._named[defined]
        if excess is None:
            msg = f"{defined} has itself as a part"
            raise ValueError(msg)
        return excess

    def _of_items(self, type_: Mapping[str, Any], namespace: str) -> int:
        kind = type_["type"]
        if kind not in ("array", "map"):
            return self.of(kind, namespace)
        items = self.of(type_["items" if kind == "array" else "values"], namespace)
        if items - _VALUES_PER_BYTE * (kind == "map") > 0:
            msg = f"the items of its {kind} need no bytes, so a message can have any number of them"
            raise ValueError(msg)
        return 1 - _VALUES_PER_BYTE


def _full_name(type_: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the namespace in a named type, and its full name."""
    name = str(type_["name"])
    if "." in name:
        return name.rpartition(".")[0], name
    inner = str(type_.get("namespace", namespace))
    return inner, f"{inner}.{name}" if inner else name
