"""`python -m website.pictures`, or `make pictures`: draw a terminal with `ticdc-source inspect` over the demo's topic.

Broker and clock are those of the examples, so that the picture changes only with what the command prints.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from examples.local_kafka import LocalKafka
from examples.local_kafka.__main__ import TOPIC, fill
from ticdc_source.cli.__main__ import parser
from ticdc_source.cli.arguments import given_by_user, options_of
from ticdc_source.cli.inspect import show
from ticdc_source.cli.screen import Screen
from ticdc_source.inspection.inspect import inspect
from ticdc_source.options.names import without_secrets

INSPECT = Path(__file__).resolve().parents[1] / "docs/images/inspect.svg"
COMMAND = "ticdc-source inspect --bootstrap-servers broker:9092 --subscribe tidb-shop --conf tables=shop.orders"

_NOW = 1_790_000_107.0 + 66 * 86_400 + 12 * 3_600  # whoever tries the demo does so long after its last watermark
_WIDTH = 118  # columns
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # from elsewhere: any monospaced font will do


def draw(bootstrap: str, topic: str) -> str:
    """Return the picture of what `COMMAND` prints of the demo's topic, as SVG."""
    given = options_of(parser().parse_args(shlex.split(COMMAND)[1:]))
    inspection = inspect({**given, "kafka.bootstrap.servers": bootstrap, "subscribe": topic}, now=lambda: _NOW)
    inspection.options = without_secrets(given_by_user(given))
    inspection.topics[0].topic = TOPIC
    inspection.findings = [
        replace(each, message=each.message.replace(topic, TOPIC), topic=TOPIC) for each in inspection.findings
    ]
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    show(inspection, Screen(printed := io.StringIO(), _WIDTH, is_terminal=True))
    console.print(f"[bold green]$[/] {COMMAND}\n", soft_wrap=True)
    console.print(Text.from_ansi(printed.getvalue()))
    drawn = console.export_svg(title="ticdc-source inspect", theme=MONOKAI, unique_id="inspect")
    return "\n".join(line.rstrip() for line in _FONTS.sub("", drawn).splitlines()) + "\n"


def main() -> int:
    """Start a broker with the demo's messages, and write the picture."""
    with LocalKafka() as kafka:
        fill(kafka.bootstrap_servers, "canal-json")
        INSPECT.write_text(draw(kafka.bootstrap_servers, TOPIC), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
