"""The names of options: a misspelt one is an error, any other unknown one a warning (docs/design/0011).

`without_secrets` says which names may be shown with their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ticdc_source.errors import OptionError, nearest, warn
from ticdc_source.options.kafka_client import SETTINGS_BY_NAME
from ticdc_source.options.option import Option, Use
from ticdc_source.options.options import OPTIONS, Options

HIDDEN = "…"  # stands for a value that may be secret

# Every known name, in lower case, as names of the Kafka client are.
_ROWS: Mapping[str, Option] = {**{row.name.lower(): row for row in OPTIONS}, **SETTINGS_BY_NAME}
_NAMES = {lowered: lowered if lowered in SETTINGS_BY_NAME else row.name for lowered, row in _ROWS.items()}

# Names that Spark itself adds: properties of CREATE TABLE, and where a table is.
_SPARKS_SILENT = re.compile(r"^(option\..*|owner|provider|comment|collation|external|location|__.*)$")
# `load([…])` adds this, with several paths.
_SPARKS_PATHS = frozenset({"paths"})
_OF_OTHERS = frozenset({"snapshotid"})  # of Spark's own state source, similar to a name of ours

_PREFIX = "kafka."
_MISSPELT = 2  # letters; a name that differs more may have a meaning for another program
_SHORT = 5  # letters; two letters are too much of a name like `mode`
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")  # of an option, such as `starting` and `Offsets`
_STEM = 3  # the least letters of a shortened word; a shorter word, such as `By`, may be left out
_BETWEEN_WORDS = str.maketrans("", "", "._- ")


def is_option(name: str) -> bool:
    """Whether an option, or a setting of the Kafka client with `kafka.`, has this name, in any case."""
    return name.lower() in _ROWS


def applies_to(use: Use, name: str) -> bool:
    """Whether an option, in any case, has an effect there; True for an unknown one."""
    row = _ROWS.get(name.lower())
    return row is None or (use in row.scope.uses and not (row.only == "stream" and use in ("tail", "lag")))


def applies_to_frames(name: str) -> bool:
    """Whether an option, in any case, applies to records of a DataFrame, not to fetching them."""
    return applies_to("frames", name) and not name.lower().startswith(_PREFIX)


def applies_to_records(name: str) -> bool:
    """Whether an option, in any case, applies to `outputFormat=record`; True for an unknown one."""
    row = _ROWS.get(name.lower())
    return row is None or "record" in row.scope.outputs


def is_of_messages(name: str) -> bool:
    """Whether an option, in any case, says how messages are parsed, whatever their table."""
    row = _ROWS.get(name.lower())
    return row is not None and row.scope.is_of_messages


def refuse_misspelt(given: Iterable[str]) -> None:
    """Refuse names that were surely meant to be options.

    Such a name is one or two letters off, has shortened words (`startOffsets`) or joins them otherwise
    (`starting_offsets`), or has a needless `kafka.`, or lacks it.

    Raises:
        OptionError: a name is misspelt; the message has the right one.
    """
    for name in sorted(given):
        lowered = name.lower()
        if lowered in _ROWS or _is_sparks(lowered):
            continue
        meant = _meant(lowered)
        if meant is not None:
            raise OptionError(f"Unknown option '{name}'; did you mean '{meant}'?")


def refuse_unknown(given: Iterable[str]) -> None:
    """Refuse unknown names, except settings of Java's Kafka client, which a properties file may have.

    Raises:
        OptionError: a name is unknown; the message has the nearest one.
    """
    for name in sorted(given):
        if not is_option(name) and not name.lower().startswith(_PREFIX):
            raise OptionError(f"Unknown option '{name}'; {_hint_of(name.lower())}")


def _hint_of(lowered: str) -> str:
    prefix = _PREFIX if lowered.startswith(_PREFIX) else ""  # which alone says nothing
    names = [name.removeprefix(prefix) for name in _NAMES.values() if name.startswith(prefix)]
    near = _meant(lowered) or next((prefix + each for each in nearest(lowered.removeprefix(prefix), names)), None)
    return f"did you mean '{near}'?" if near else "the command 'ticdc-source options' lists all"


def warn_of_unknown(options: Options) -> None:
    """Warn about unknown names.

    Raises:
        OptionError: there is one, and `strictOptions` is on.
    """
    for name in sorted(options.given):
        if name in _SPARKS_PATHS:
            warn(f"Option '{name}' has no effect: load() takes one path")
            continue
        if name in _ROWS or _is_sparks(name):
            continue
        hint = _hint_of(name)
        if options.strict_options:
            raise OptionError(f"Unknown option '{name}'; {hint}")
        warn(f"Unknown option '{name}' is ignored; {hint}")


def without_secrets(given: Mapping[str, str]) -> dict[str, str]:
    """Replace each value that may be secret by `HIDDEN`, including those of unknown names."""
    rows = {name: _ROWS.get(name.lower()) for name in given}
    return {name: HIDDEN if row is None or row.secret else given[name] for name, row in rows.items()}


def _is_sparks(name: str) -> bool:
    return name in _SPARKS_PATHS or _SPARKS_SILENT.match(name) is not None


def _meant(lowered: str) -> str | None:
    """Return the option that a name surely means; None if another program may know the name."""
    if lowered in _OF_OTHERS:
        return None
    if _PREFIX + lowered in _ROWS:
        return _PREFIX + lowered
    joined = lowered.translate(_BETWEEN_WORDS)
    return (
        _JOINED.get(joined)
        or _nearest(lowered)
        or next((name for shortened, name in _SHORTENED if shortened.fullmatch(joined)), None)
    )


def _shortened(name: str) -> re.Pattern[str]:
    """Return a pattern for the option's name with shortened words, and more than half of its letters."""
    words = [word.lower() for word in _WORD.findall(name)]
    stems = (word[:_STEM] + _beginning(word[_STEM:]) if len(word) >= _STEM else f"(?:{word})?" for word in words)
    return re.compile(f"(?=.{{{len(''.join(words)) // 2 + 1}}})" + "".join(stems))


def _beginning(letters: str) -> str:
    return f"(?:{letters[0]}{_beginning(letters[1:])})?" if letters else ""


# By their letters alone; an option of the source may have been given `kafka.`. Of two names, Java's has dots.
_JOINED = {
    lowered.translate(_BETWEEN_WORDS): name
    for lowered, name in (
        {_PREFIX + row.name.lower(): row.name for row in OPTIONS}
        | dict(sorted(_NAMES.items(), key=lambda each: each[1].count(".")))
    ).items()
}
_SHORTENED = [(_shortened(row.name), row.name) for row in OPTIONS]


def _nearest(name: str) -> str | None:
    distances = {other: edit_distance(name, other) for other in _NAMES if abs(len(other) - len(name)) <= _MISSPELT}
    near = [(far, other) for other, far in distances.items() if far <= (_MISSPELT if len(other) > _SHORT else 1)]
    return _NAMES[min(near)[1]] if near else None


def edit_distance(first: str, second: str) -> int:
    """Return how many letters must be changed, added, left out or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        after = [i]
        for j, other in enumerate(second, 1):
            cost = min(row[j] + 1, after[j - 1] + 1, row[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            after.append(cost)
        before, row = row, after
    return row[-1]
