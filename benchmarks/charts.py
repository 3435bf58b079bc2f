"""The chart of a result as PNG, by matplotlib: `python -m benchmarks.charts RESULT.json` draws it again."""

import json
import sys
from pathlib import Path
from textwrap import wrap

from benchmarks.results import caption

NO_CHART = "no chart without matplotlib: pip install --group benchmarks, in the clone (pip 25.1 or newer)"
_COLOURS = ("#1f6fb4", "#b8bcc2", "#e8903a", "#5aa469", "#8e6bbd", "#c94f4f", "#5b6470")


def draw(result: Path) -> Path | None:
    """Draw the chart of a result into a PNG file next to it; None if it has no chart, or matplotlib is missing."""
    content = json.loads(result.read_text(encoding="utf-8"))
    chart = content["chart"]
    if chart is None:
        return None
    try:
        import matplotlib as mpl  # noqa: PLC0415 (in the dependency group `benchmarks`)
    except ImportError:
        return None
    mpl.use("agg")
    from matplotlib import pyplot  # noqa: PLC0415

    bars = list(dict.fromkeys(name for values in chart["series"].values() for name in values))
    count = 1 if chart["stacked"] else len(chart["series"])
    figure, axes = pyplot.subplots(figsize=(7, 1.6 + 0.28 * len(bars) * (count + 0.6)), layout="constrained")
    ends = dict.fromkeys(bars, 0.0)
    for number, (label, values) in enumerate(chart["series"].items()):
        positions = [bars.index(name) + (0 if chart["stacked"] else (number - (count - 1) / 2) * 0.8 / count)
                     for name in values]  # fmt: skip
        starts = [ends[name] for name in values] if chart["stacked"] else 0.0
        colour = _COLOURS[number % len(_COLOURS)]
        drawn = axes.barh(positions, list(values.values()), 0.8 / count, left=starts, label=label, color=colour)
        if chart["stacked"]:
            ends.update({name: ends[name] + value for name, value in values.items()})
        else:
            axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=9)
    axes.set_yticks(range(len(bars)), bars)
    axes.invert_yaxis()
    axes.set_xlabel(chart["unit"])
    axes.spines[["top", "right"]].set_visible(False)
    narrow = {"ncols": 7, "columnspacing": 1, "handlelength": 1.2}
    axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), **narrow)
    figure.suptitle("\n".join([*wrap(caption(result), 90), content["command"]]), fontsize=9)
    path = result.with_suffix(".png")
    figure.savefig(path, dpi=110, metadata={"Software": None, "Title": caption(result)})
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(draw(Path(name)) or NO_CHART)
