"""Show the options of the source with defaults and meaning, and the settings of the Kafka client that are known.

Without NAME, all of them; with NAME, those whose name has it as a part, in any case.
"""

from __future__ import annotations

import argparse

from ticdc_source.cli.arguments import argument, words
from ticdc_source.cli.screen import Table, output, print_json
from ticdc_source.errors import OptionError, nearest
from ticdc_source.options.kafka_client import SETTINGS
from ticdc_source.options.option import ALL_OUTPUTS, Option
from ticdc_source.options.options import OPTIONS

SUMMARY = "the options of the source, with defaults and meaning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", type=argument(words), metavar="NAME", help="a name, or a part of it")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(arguments: argparse.Namespace) -> int:
    wanted = (arguments.name or "").lower()
    options = [option for option in OPTIONS if wanted in option.name.lower()]
    settings = [setting for setting in SETTINGS if wanted in setting.name.lower()]
    if not options and not settings:
        near = nearest(arguments.name, [option.name for option in (*OPTIONS, *SETTINGS)], 3)
        msg = f"No option has '{arguments.name}' in its name" + (f"; did you mean {', '.join(near)}?" if near else "")
        raise OptionError(msg)
    if arguments.json:
        kafka = [_setting_as_json(setting) for setting in settings]
        print_json({"version": 1, "options": list(map(_as_json, options)), "kafka": kafka})
    else:
        _show(options, settings)
    return 0


def _same_as(setting: Option) -> str | None:
    """Return kafka-python's name of a setting; None if it is Java's with underscores."""
    name, same = setting.names
    return same if not setting.refused and same.replace(".", "_") != name.replace(".", "_") else None


def _show(options: list[Option], settings: list[Option]) -> None:
    screen = output()
    if options:
        table = Table("option", "default", "meaning", title="Options")
        for option in options:
            table.add_row((option.name, "cyan"), option.default, option.meaning + _scope(option))
        screen.show(table, ())
    if settings:
        table = Table("property", "", title="Properties of the Kafka client")
        for setting in settings:
            same = _same_as(setting)
            text = f"refused: {setting.meaning}" if setting.refused else f"the same as {same}" if same else ""
            table.add_row((setting.name, "cyan"), text)
        screen.show(table)


def _scope(option: Option) -> str:
    scope = {"batch": " (batch reads only)", "stream": " (streams only)", None: ""}[option.only]
    others = [each for each in ALL_OUTPUTS if each not in option.scope.outputs]
    return scope + (f" (not with outputFormat {' or '.join(others)})" if others else "")


def _as_json(option: Option) -> dict[str, object]:
    return {
        "name": option.name,
        "default": option.default or None,
        "meaning": option.meaning,
        "only": option.only,
        "outputs": list(option.scope.outputs),
        "secret": option.secret,
    }


def _setting_as_json(setting: Option) -> dict[str, object]:
    return {"name": setting.name, "same_as": _same_as(setting), "refused": setting.refused, "meaning": setting.meaning}
