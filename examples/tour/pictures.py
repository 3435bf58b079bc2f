"""The pictures of the tour, as SVG, by matplotlib (`pip install --group tour`)."""

import io
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import matplotlib as mpl
from matplotlib import dates, pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from examples.tour.queries import Answers, Count, Ddl, Delay, Image, Watermark

# Told apart by everybody who sees colours, and in grey (Okabe and Ito).
COLOURS = {"insert": "#009E73", "update": "#56B4E9", "delete": "#D55E00", "watermark": "#CC79A7", "ddl": "#000000"}
PALE = {"insert": "#CDEBE0", "update": "#DCEFFA", "delete": "#F7DCCB"}
LINE, AREA = "#0072B2", "#BFDCEC"
WIDTH = 9.0  # inches
MOST_IMAGES = 12
LONGEST = 13  # characters of a value

_DATES: Any = dates  # has no types


def draw(answers: Answers, shown: Sequence[str] = ()) -> dict[str, str]:
    """Draw all pictures; return the SVG of each by its name.

    `shown` are the columns of the row, by default all that change.
    """
    mpl.use("agg")
    # Letters become shapes, so pictures look alike everywhere; ids do not change from run to run.
    mpl.rcParams.update({"svg.fonttype": "path", "svg.hashsalt": "tour", "font.size": 9, "axes.titlesize": 10})
    figures = {
        "row": draw_row(answers.table, answers.images, shown),
        "events": draw_events(answers.counts, answers.ddl),
        "delay": draw_delay(answers.delays),
        "watermarks": draw_watermarks(answers.watermarks),
    }
    return {name: _svg(figure) for name, figure in figures.items()}


def draw_row(table: str, images: Sequence[Image], columns: Sequence[str] = ()) -> Figure:
    """Draw what changed in a row: an image in each column of the picture, a column of the table in each line."""
    shown = images[-MOST_IMAGES:]
    names = [name for name in images[0].values if len({image.values[name] for image in images}) > 1]
    names = list(columns) or names or list(images[0].values)
    figure, axes = pyplot.subplots(figsize=(WIDTH, 0.95 + 0.4 * len(names)), layout="constrained")
    for x, image in enumerate(shown):
        before = shown[x - 1].values if x else None
        for y, name in enumerate(names):
            changed = before is None or image.values[name] != before[name] or image.change_type == "delete"
            colour = PALE[image.change_type] if changed else "white"
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="#b0b0b0", linewidth=0.6))
            if changed:
                axes.text(x + 0.5, y + 0.5, _shortened(image.values[name]), ha="center", va="center", fontsize=8)
    axes.set(xlim=(0, len(shown)), ylim=(len(names), 0), ylabel="column")
    axes.set_xticks(
        [x + 0.5 for x in range(len(shown))],
        [f"{image.change_type}\n{image.committed:%H:%M:%S}.{image.committed.microsecond // 10_000:02}"
         for image in shown], fontsize=7,
    )  # fmt: skip
    axes.set_yticks([y + 0.5 for y in range(len(names))], names, fontsize=8)
    axes.tick_params(length=0)
    axes.set_xlabel("change and time of its commit (UTC)")
    axes.set_title(f"A row of {table}: coloured values are new", loc="left")
    return figure


def draw_events(counts: Sequence[Count], ddl: Sequence[Ddl]) -> Figure:
    """Draw how many events of each kind were committed in each second, stacked, and when DDL was."""
    figure, axes = _axes(2.9)
    kinds = [kind for kind in COLOURS if kind != "ddl" and any(count.kind == kind for count in counts)]
    seconds = _every_second([count.second for count in counts])
    by_kind = {(count.kind, count.second): count.events for count in counts}
    heights = [[by_kind.get((kind, second), 0) for second in seconds] for kind in kinds]
    colours = [COLOURS[kind] for kind in kinds]
    axes.stackplot(_numbers(seconds), heights, labels=kinds, colors=colours, step="post", linewidth=0)
    for number, event in enumerate(ddl):
        axes.axvline(
            _numbers([event.committed])[0], color="black", linewidth=0.8, linestyle=":", label=None if number else "DDL"
        )
    axes.set_ylabel("events per second")
    axes.set_xlabel("time of the commit (UTC)")
    axes.set_title("Events by kind", loc="left")
    axes.legend(frameon=False, ncols=5, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_ylim(bottom=0)
    return figure


def draw_delay(delays: Sequence[Delay]) -> Figure:
    """Draw the delay from commit to Kafka, by the second of Kafka's timestamp."""
    figure, axes = _axes(2.6)
    seconds = _numbers([delay.second for delay in delays])
    axes.fill_between(
        seconds, [delay.largest for delay in delays], step="post", color=AREA, linewidth=0, label="largest in a second"
    )
    axes.step(seconds, [delay.median for delay in delays], where="post", color=LINE, linewidth=1.4, label="median")
    axes.set_ylabel("delay (s)")
    axes.set_xlabel("Kafka's timestamp (UTC)")
    axes.set_title("From commit to Kafka", loc="left")
    axes.legend(frameon=False, ncols=2, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_ylim(bottom=0)
    return figure


def draw_watermarks(watermarks: Sequence[Watermark]) -> Figure:
    """Draw how far the topic is behind: the lag rises until the next watermark."""
    figure, axes = _axes(2.2)
    times: list[datetime] = []
    lags: list[float] = []
    for watermark in watermarks:
        points = [watermark.after] if watermark.before is None else [watermark.before, watermark.after]
        times += [watermark.arrived] * len(points)
        lags += points
    axes.plot(_numbers(times), lags, color=LINE, linewidth=1.1)
    axes.set_ylabel("lag (s)")
    axes.set_ylim(bottom=0)
    axes.set_title("Watermark lag", loc="left")
    axes.set_xlabel("Kafka's timestamp (UTC)")
    return figure


def _axes(height: float) -> tuple[Figure, Axes]:
    figure, axes = pyplot.subplots(figsize=(WIDTH, height), layout="constrained")
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    """Leave out what says nothing, and write times as times of day."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, color="#d0d0d0")
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(_DATES.AutoDateLocator())
    axes.xaxis.set_major_formatter(_DATES.DateFormatter("%H:%M:%S"))


def _numbers(times: Sequence[datetime]) -> list[float]:
    """Return times as matplotlib counts them."""
    return [float(number) for number in _DATES.date2num(times)]


def _every_second(seconds: Sequence[datetime]) -> list[datetime]:
    """Return all seconds from the first to one after the last, also those in which nothing was."""
    first, last = min(seconds), max(seconds)
    return [first + timedelta(seconds=number) for number in range(int((last - first).total_seconds()) + 2)]


def _shortened(value: str | None) -> str:
    """Return a value as it fits into a cell: date and time in two lines."""
    if value is None:
        return "NULL"
    first, _, rest = value.partition(" ")
    lines = (first, rest) if rest and len(value) > LONGEST else (value,)
    return "\n".join(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in lines)


def _svg(figure: Figure) -> str:
    """Return a figure as an SVG element, for a file or a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
