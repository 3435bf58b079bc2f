"""`sync.toml` → `SyncConfig`: values with the types of its fields, and secrets from the environment or files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from ticdc_lakehouse.syncs.config import TABLE_OPTIONS, MaintainConfig, SyncConfig, TableConfig, refuse_unknown_keys
from ticdc_lakehouse.tidb import TiDBConfig
from ticdc_source.errors import OptionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_Nested = TypeVar("_Nested", MaintainConfig, TiDBConfig)

# The fields of `SyncConfig` that are in a section of the file.
_TARGET = ("format", "path", "catalog")
_PLACES = {name: f"target.{name}" for name in _TARGET}
_MADE = ("table_configs", "secret_settings")
_TOP = [one.name for one in fields(SyncConfig) if one.name not in {*_PLACES, *_MADE}] + ["target", "table"]
_REQUIRED = {"format": "--format", "checkpoint": "--checkpoint"}  # and arguments of the command
_HINT = "`ticdc-lakehouse sync --example` prints a file with every key"
_EXPECTED: Mapping[object, str] = {
    bool: "true or false", int: "a whole number", str: "a string", tuple: "a list of strings"
}  # fmt: skip


def read_toml(text: str, overrides: Mapping[str, object] | None = None, folder: Path | None = None) -> SyncConfig:
    """Return the configuration in a `sync.toml`.

    Args:
        text: the text of the file.
        overrides: values that replace those of the file, by section and key: `{"target.path": "/data/lake"}`.
        folder: the folder of `sync.toml`: paths of secret files are relative to it; the working folder by default.

    Example:
        ```python
        from pathlib import Path

        from ticdc_lakehouse import read_toml

        config = read_toml(Path("sync.toml").read_text())
        ```

    Raises:
        OptionError: the text is not TOML, has an unknown key, or has a wrong value.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"sync.toml: {error}") from None
    for name, value in (overrides or {}).items():
        section, dot, key = name.partition(".")
        document[section] = _replaced(_section(document.get(section, {}), section), key, value) if dot else value
    return _Reader(folder or Path()).config(document)


def _replaced(section: Mapping[str, object], key: str, value: object) -> dict[str, object]:
    """Return a section with another value; the case of names does not matter, and `subscribe` replaces a pattern."""
    replaced = {key.lower(), "subscribepattern"} if key == "subscribe" else {key.lower()}
    return {name: old for name, old in section.items() if name.lower() not in replaced} | {key: value}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns the sections of a `sync.toml` into a `SyncConfig`."""

    folder: Path  # to which the files of secrets are relative
    from_elsewhere: set[str] = field(default_factory=set)  # keys whose values have come from the environment or a file

    def config(self, document: Mapping[str, object]) -> SyncConfig:
        refuse_unknown_keys(document, _TOP, "")
        given = dict(document)
        source, target, tables = (dict(_section(given.pop(name, {}), name)) for name in ("source", "target", "table"))
        refuse_unknown_keys(target, _TARGET, "target")
        if "topics" in source:
            raise OptionError("source.topics: write subscribe = 'tidb-shop,tidb-crm', or subscribePattern = 'tidb-.*'")
        values = self._values(SyncConfig, {**given, **target, "source": source})
        for name, argument in _REQUIRED.items():
            if not values.get(name):
                place = _PLACES.get(name, name)
                raise OptionError(f"{place} is missing: set it in sync.toml, or as {argument}; {_HINT}")
        values["table_configs"] = {name: self._table(f'table."{name}"', value) for name, value in tables.items()}
        secret = (key for key in self.from_elsewhere if key.startswith("spark."))
        values["secret_settings"] = frozenset(key.removeprefix("spark.") for key in secret)
        return SyncConfig(**values)  # type: ignore[arg-type]  # each value has been made by the type of its field

    def _table(self, place: str, value: object) -> TableConfig:
        options = dict(_section(value, place))
        names = [one.name for one in fields(TableConfig) if one.name != "options"]
        refuse_unknown_keys(options, (*names, *TABLE_OPTIONS), place)
        values = self._values(TableConfig, {name: options.pop(name) for name in names if name in options}, place)
        return TableConfig(**values, options=self._texts(options, place))  # type: ignore[arg-type]  # as above

    def _nested(self, kind: type[_Nested], given: Mapping[str, object], place: str) -> _Nested:
        refuse_unknown_keys(given, [one.name for one in fields(kind)], place)
        for one in fields(kind):
            if one.name not in given and one.default is MISSING and one.default_factory is MISSING:
                raise OptionError(f"{place}.{one.name} is missing in sync.toml; {_HINT}")
        return kind(**self._values(kind, given, place))  # type: ignore[arg-type]  # as above

    def _values(self, kind: type, given: Mapping[str, object], section: str = "") -> dict[str, object]:
        hints = get_type_hints(kind)
        places = {name: f"{section}.{name}" if section else _PLACES.get(name, name) for name in given}
        return {name: self._value(value, hints[name], places[name]) for name, value in given.items()}

    def _value(self, value: object, hint: object, place: str) -> object:
        allowed = [one for one in get_args(hint) if one is not NoneType]
        if NoneType in get_args(hint):
            return self._value(value, allowed[0], place)
        kind = get_origin(hint) or hint
        if kind in {MaintainConfig, TiDBConfig}:
            return self._nested(kind, _section(value, place), place)
        if kind is Mapping:
            return self._texts(_section(value, place), place)
        if kind is Literal and value in allowed:
            return value
        if kind is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        if kind is str and isinstance(value, (str, dict)):
            return self._text(value, place)
        if type(value) is kind:  # not isinstance: true is no number
            return value
        shown = "" if kind is str else f" = {value!r}"  # a password is a text
        expected = f"it must be {' or '.join(map(repr, allowed))}" if kind is Literal else f"expected {_EXPECTED[kind]}"
        raise OptionError(f"{place}{shown}: {expected}")

    def _texts(self, section: Mapping[str, object], place: str) -> dict[str, str]:
        """Return options as texts. TOML reads `kafka.group.id = "g"` without quotes as nested sections."""
        texts: dict[str, str] = {}
        for name, value in section.items():
            if isinstance(value, dict) and set(value) not in ({"env"}, {"file"}):
                texts |= {f"{name}.{inner}": text for inner, text in self._texts(value, f"{place}.{name}").items()}
            else:
                texts[name] = self._text(value, f"{place}.{name}")
        return texts

    def _text(self, value: object, place: str) -> str:
        """Return a text: as it is, or from the environment or a file (`{ env = "NAME" }`, `{ file = "PATH" }`)."""
        if isinstance(value, dict):
            self.from_elsewhere.add(place)
        match value:
            case bool():
                return "true" if value else "false"
            case str() | int() | float():
                return str(value)
            case {"env": str(name)}:
                if name in os.environ:
                    return os.environ[name]
                msg = f"{place}: the environment variable {name} is not set"
            case {"file": str(path)}:
                try:
                    return (self.folder / path).read_text(encoding="utf-8").rstrip("\r\n")
                except OSError as error:
                    msg = f"{place}: the file {path} cannot be read: {error.strerror}"
                except UnicodeDecodeError:
                    msg = f"{place}: the file {path} is not UTF-8"
            case _:
                msg = f'{place}: expected a string, a number, {{ env = "NAME" }} or {{ file = "PATH" }}'
        raise OptionError(msg)


def _section(value: object, place: str) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    raise OptionError(f"{place}: expected a section, [{place}]")
