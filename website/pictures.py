"""`python -m website.pictures`, or `make pictures`: draw terminals with what commands print of the demo.

Broker and clocks are those of the examples, so that a picture changes only with what its command prints.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from examples.local_kafka import LocalKafka
from examples.local_kafka.__main__ import TOPIC, fill
from ticdc_lakehouse.cli.sync import shown as shown_status
from ticdc_lakehouse.syncs.status import TableStatus
from ticdc_source.cli.__main__ import parser
from ticdc_source.cli.arguments import given_by_user, options_of
from ticdc_source.cli.inspect import show
from ticdc_source.cli.lag import shown as shown_lag
from ticdc_source.cli.screen import Screen
from ticdc_source.inspection.inspect import inspect
from ticdc_source.inspection.topic_lag import LagWatch
from ticdc_source.options.names import without_secrets
from ticdc_source.schema.tso import utc

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
INSPECT = "ticdc-source inspect --bootstrap-servers broker:9092 --subscribe tidb-shop --conf tables=shop.orders"
LAG = "ticdc-source lag --bootstrap-servers broker:9092 --subscribe tidb-shop --checkpoint /data/checkpoints/orders"
STATUS = "ticdc-lakehouse sync sync.toml --status"

_LAST = 1_790_000_107.338  # the last watermark of the demo's topic
_LONG_AFTER = _LAST + 66 * 86_400 + 12 * 3_600  # whoever tries the demo does so long after its last watermark
_UNREAD = 150  # records in each partition that the stream of the picture has not read
_WIDTH = 118  # columns
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # from elsewhere: any monospaced font will do


def draw_inspect(bootstrap: str, topic: str) -> str:
    """Return the picture of what `INSPECT` prints, as SVG."""
    given = options_of(parser().parse_args(shlex.split(INSPECT)[1:]))
    inspection = inspect({**given, "kafka.bootstrap.servers": bootstrap, "subscribe": topic}, now=lambda: _LONG_AFTER)
    inspection.options = without_secrets(given_by_user(given))
    inspection.topics[0].topic = TOPIC
    inspection.findings = [
        replace(each, message=each.message.replace(topic, TOPIC), topic=TOPIC) for each in inspection.findings
    ]
    return _drawn(INSPECT, lambda screen: show(inspection, screen))


def draw_lag(bootstrap: str, topic: str) -> str:
    """Return the picture of what `LAG` prints while a stream is some seconds behind, as SVG."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    with tempfile.TemporaryDirectory() as folder:
        with LagWatch(given, now=lambda: _LAST + 0.8) as watch:
            ends = {str(each.partition): each.end for each in watch.look().partitions}
        for name in ("offsets", "commits"):
            (Path(folder) / name).mkdir()
        offsets = json.dumps({topic: {partition: end - _UNREAD for partition, end in ends.items()}})
        (Path(folder) / "offsets/0").write_text(f"v1\n{{}}\n{offsets}", encoding="utf-8")
        (Path(folder) / "commits/0").write_text("v1\n{}", encoding="utf-8")
        with LagWatch(given, checkpoint=folder, now=lambda: _LAST + 0.8) as watch:
            report = watch.look()
    report.partitions = [replace(each, topic=TOPIC) for each in report.partitions]
    return _drawn(LAG, lambda screen: screen.show(*shown_lag(report)))


def draw_status() -> str:
    """Return the picture of what `STATUS` prints of a sync that has read the demo's topic, as SVG."""
    first, last = (int(seconds * 1000) << 18 for seconds in (1_790_000_000, _LAST))
    rows = {"shop.customers": 600, "shop.order_items": 5_164, "shop.orders": 2_273}  # as the page's sync wrote them
    statuses = [
        TableStatus(table_name=name, target=name, kind="table", complete_since=first, resolved_ts=last, images=number)
        for name, number in rows.items()
    ]
    lines = shown_status(statuses, _LAST + 6.1, utc(last + (2_000 << 18)) or "", "/data/lake/_ticdc_sync.json")
    return _drawn(STATUS, lambda screen: screen.show(*lines))


def _drawn(command: str, show_on: Callable[[Screen], None]) -> str:
    """Return a terminal with a command and what it prints."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    show_on(Screen(printed := io.StringIO(), _WIDTH, is_terminal=True))
    console.print(f"[bold green]$[/] {command}\n", soft_wrap=True)
    console.print(Text.from_ansi(printed.getvalue()))
    name = " ".join(command.split()[:2])
    drawn = console.export_svg(title=name, theme=MONOKAI, unique_id=name.replace(" ", "-"))
    return "\n".join(line.rstrip() for line in _FONTS.sub("", drawn).splitlines()) + "\n"


def draw(bootstrap: str, topic: str) -> Iterable[tuple[Path, str]]:
    """Yield each picture: its file, and its SVG."""
    yield IMAGES / "inspect.svg", draw_inspect(bootstrap, topic)
    yield IMAGES / "lag.svg", draw_lag(bootstrap, topic)
    yield IMAGES / "status.svg", draw_status()


def main() -> int:
    """Start a broker with the demo's messages, and write the pictures."""
    with LocalKafka() as kafka:
        fill(kafka.bootstrap_servers, "canal-json")
        for path, drawn in draw(kafka.bootstrap_servers, TOPIC):
            path.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
