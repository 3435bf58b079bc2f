"""Show the options of the source with defaults and meaning, and the settings of the Kafka client that are known.

Without NAME, all of them; with NAME, those whose name has it as a part, in any case.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

from ticdc_source.cli.arguments import argument, words
from ticdc_source.cli.screen import Table, output, print_json
from ticdc_source.errors import OptionError, nearest
from ticdc_source.options.kafka_client import REFUSED, SETTINGS, WITHOUT_EFFECT
from ticdc_source.options.option import ALL_OUTPUTS, Option
from ticdc_source.options.options import OPTIONS

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "the options of the source, with defaults and meaning"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """A property of the Kafka client.

    Attributes:
        name: as it is given, with `kafka.`.
        same_as: another name that kafka-python has for it; None if it has the same one.
        effect: `used`, `none` or `refused`.
        meaning: why it is refused, or empty.
    """

    name: str
    same_as: str | None = None
    effect: str = "used"
    meaning: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("name", nargs="?", type=argument(words), metavar="NAME", help="a name, or a part of it")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(arguments: argparse.Namespace) -> int:
    """Show options."""
    wanted = (arguments.name or "").lower()
    options = [option for option in OPTIONS.values() if wanted in option.name.lower()]
    settings = [setting for setting in _settings() if wanted in setting.name.lower()]
    if not options and not settings:
        names = [option.name for option in OPTIONS.values()] + [setting.name for setting in _settings()]
        near = nearest(arguments.name, names, 3)
        msg = f"No option has '{arguments.name}' in its name" + (f"; did you mean {', '.join(near)}?" if near else "")
        raise OptionError(msg)
    if arguments.json:
        print_json({"version": 1, "options": list(map(_as_json, options)), "kafka": list(map(asdict, settings))})
    else:
        _show(options, settings)
    return 0


def _settings() -> list[_Setting]:
    used = [
        _Setting(
            name=f"kafka.{setting.java or setting.name}",
            same_as=f"kafka.{setting.name}"
            if setting.java and setting.java.replace(".", "_") != setting.name
            else None,
        )
        for setting in SETTINGS
    ]
    ignored = [_Setting(name=f"kafka.{name}", effect="none") for name in sorted(WITHOUT_EFFECT)]
    refused = [_Setting(name=f"kafka.{name}", effect="refused", meaning=why) for name, why in REFUSED.items()]
    return [*used, *ignored, *refused]


def _show(options: list[Option], settings: list[_Setting]) -> None:
    screen = output()
    if options:
        table = Table("option", "default", "meaning", title="Options")
        for option in options:
            table.add_row((option.name, "cyan"), option.default, option.meaning + _scope(option))
        screen.show(table, ())
    if settings:
        table = Table("property", "", title="Properties of the Kafka client")
        for setting in settings:
            same = f"the same as {setting.same_as}" if setting.same_as else ""
            text = {"used": same, "none": "has no effect here", "refused": f"refused: {setting.meaning}"}[
                setting.effect
            ]
            table.add_row((setting.name, "cyan"), text)
        screen.show(table)


def _scope(option: Option) -> str:
    scope = {"batch": " (batch reads only)", "stream": " (streams only)", None: ""}[option.only]
    others = [each for each in ALL_OUTPUTS if each not in option.outputs]
    return scope + (f" (not with outputFormat {' or '.join(others)})" if others else "")


def _as_json(option: Option) -> dict[str, object]:
    return {
        "name": option.name,
        "default": option.default or None,
        "meaning": option.meaning,
        "only": option.only,
        "outputs": list(option.outputs),
        "secret": option.secret,
    }
