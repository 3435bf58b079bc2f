"""The options of one read, parsed and checked by the table of options.

Spark hands option names over in lower case; names are compared without case everywhere.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ticdc_source.errors import OptionError
from ticdc_source.option_table import OPTIONS, Option, options_table

__all__ = ["OPTIONS", "Option", "Options", "options_table"]

# What Spark itself puts among the options: `load(path)`, and the noise of CREATE TABLE (spark.md §2.7).
_SPARK_NOISE = re.compile(r"^(option\..*|owner|provider|__.*)$")


_BY_LOWER = {option.name.lower(): option for option in OPTIONS}


class Options(Mapping[str, Any]):
    """The options of one read: parsed, checked, and safe to print (values of `kafka.*` are never shown).

    Every option is an attribute, in snake case: `options.starting_offsets`; an option that was not given has
    its default's value, or None where there is no default. `kafka` holds what followed `kafka.`, by lower-case
    Java name. As a mapping it holds the parsed values by documented name.

    Raises:
        OptionError: a value does not parse, or `strictOptions` is on and a name is unknown.
    """

    kafka: Mapping[str, str]

    def __init__(self, given: Mapping[str, str]) -> None:
        lowered = {name.lower(): str(value) for name, value in given.items()}
        self.given = frozenset(lowered)
        self.kafka = {
            name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")
        }
        self._values: dict[str, Any] = {}
        for option in OPTIONS:
            value_text = lowered.get(option.name.lower())
            if value_text is None:
                value = option.parse(option.default) if option.default else None
            else:
                value = _parsed(option, value_text)
            self._set(option, value)
        if self._values["onSchemaDrift"] == "rescue" and self._values["rescuedDataColumn"] is None:
            self._set(_BY_LOWER["rescueddatacolumn"], "_rescued_data")
        self._report_unknown(lowered)
        self._cross_check()

    def _set(self, option: Option, value: Any) -> None:
        self._values[option.name] = value
        setattr(self, option.attribute, value)

    def __getattr__(self, name: str) -> Any:
        """Fail for an attribute that no row of `OPTIONS` makes (the others are set by `__init__`)."""
        raise AttributeError(name)

    def __getitem__(self, name: str) -> Any:
        """Return the parsed value of the option with this documented name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the documented names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of options there are."""
        return len(self._values)

    def __repr__(self) -> str:
        """Name what was given; no values, as some may be secrets."""
        return f"Options({', '.join(sorted(self.given))})"

    def is_given(self, name: str) -> bool:
        """Tell whether the option was given, in any case."""
        return name.lower() in self.given

    def _report_unknown(self, lowered: Mapping[str, str]) -> None:
        for name in sorted(lowered):
            if name in _BY_LOWER or name.startswith("kafka.") or _SPARK_NOISE.match(name):
                continue
            near = difflib.get_close_matches(name, [*_BY_LOWER, "kafka.bootstrap.servers"], n=1)
            known = _BY_LOWER[near[0]].name if near and near[0] in _BY_LOWER else (near[0] if near else None)
            hint = f"; did you mean '{known}'?" if known else "; see the README for the options there are"
            message = f"Unknown option '{name}'{hint}"
            if self.strict_options:
                raise OptionError(message)
            warnings.warn(message, stacklevel=4)

    def _cross_check(self) -> None:
        if not self.kafka.get("bootstrap.servers", "").strip():
            msg = (
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer. (Spark does not "
                "keep the options of CREATE TABLE … USING ticdc: use CREATE TEMPORARY VIEW, or spark.read.option(…))"
            )
            raise OptionError(msg)
        if self.commit_group_offsets and not self.kafka.get("group.id"):
            msg = "Option 'commitGroupOffsets' needs 'kafka.group.id', the group to commit to"
            raise OptionError(msg)
        chosen = [name for name in ("subscribe", "subscribePattern", "assign") if self._values[name] is not None]
        if not chosen:
            msg = (
                "One of the following options must be specified for Kafka source: subscribe, subscribePattern, "
                "assign. See the docs for more details."
            )
            raise OptionError(msg)
        if len(chosen) > 1:
            msg = (
                "Only one of the following options can be specified for Kafka source: subscribe, "
                f"subscribePattern, assign. Given: {', '.join(chosen)}."
            )
            raise OptionError(msg)


def _parsed(option: Option, given: str) -> Any:
    try:
        return option.parse(given)
    except ValueError as error:
        if str(error) == "must be positive":
            msg = f"{option.name} must be positive, got {given}"
        elif "got " in str(error):
            msg = f"Option '{option.name}': {error}"
        else:
            msg = f"Option '{option.name}': {error}, got '{given}'"
        raise OptionError(msg) from None
