"""The tour as one HTML page, which needs no other file."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from html import escape
from string import Template
from typing import NamedTuple

from examples.tour import queries
from examples.tour.queries import Answers


class Section(NamedTuple):
    """A part of the page: its heading, what it says, the name of its picture, and the query behind it."""

    title: str
    text: str
    picture: str
    query: Callable[..., object]


SECTIONS = (
    Section(
        "What a table looks like",
        "Protocol, columns and types are found in the messages and in the DDL among them; nothing was declared. The "
        "columns of the key are those by which TiCDC identifies a row.",
        "",
        queries.columns,
    ),
    Section(
        "One row through time",
        "Every change carries the whole row, so one row's images, ordered by <code>_sequence</code>, are its history. "
        "Coloured values differ from the image before. What TiCDC sent twice is shown once.",
        "row",
        queries.images,
    ),
    Section(
        "Events by kind",
        "<code>outputFormat=event</code> returns the events of all tables: row changes, watermarks and DDL, each with "
        "the time of its commit. Dotted lines are DDL.",
        "events",
        queries.counts,
    ),
    Section(
        "From commit to Kafka",
        "The delay of a change is Kafka's timestamp minus the time of the commit. A peak is a changefeed that fell "
        "behind, or one that sent changes a second time.",
        "delay",
        queries.delays,
    ),
    Section(
        "Watermark lag",
        "A watermark says that its topic partition is complete up to a commit-ts. The lag rises until the next one "
        "comes. Shown is the partition that was furthest behind. Older watermarks, which TiCDC sends again after a "
        "restart, take nothing back.",
        "watermarks",
        queries.watermarks,
    ),
)

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
body { color: #222; background: #fff }
figure { margin: 1rem 0; overflow-x: auto }
svg { max-width: 100%; height: auto }
table { border-collapse: collapse }
td, th { text-align: left; padding: .15rem 1.2rem .15rem 0; border-bottom: 1px solid #ddd }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: 13px }
.note { border-left: 4px solid #0072B2; padding-left: .8rem }
</style>
</head>
<body>
<h1>$title</h1>
<p>$facts</p>
$body
</body>
</html>
""")


def page(answers: Answers, pictures: Mapping[str, str], note: str) -> str:
    """Return the page; `note` says what the times in it are."""
    parts: list[str] = []
    for section in SECTIONS:
        parts += [f"<h2>{section.title}</h2>", f"<p>{section.text}</p>"]
        if section.picture:
            parts.append(f'<figure id="{section.picture}">{pictures[section.picture]}</figure>')
        else:
            parts.append(_table(answers))
        if section.picture in {"delay", "watermarks"} and note:
            parts.append(f'<p class="note">{escape(note)}</p>')
        code = escape(inspect.getsource(section.query).rstrip())
        parts.append(f"<details><summary>The query</summary><pre>{code}</pre></details>")
    total = sum(count.events for count in answers.counts)
    facts = f"{total:,} events of the topic <code>{escape(answers.topic)}</code>, read with Spark."
    return _PAGE.substitute(title="A tour of a topic that TiCDC writes", facts=facts, body="\n".join(parts))


def table_lines(answers: Answers) -> list[Sequence[str]]:
    """Return the lines of the table of columns, its heading first."""
    lines = [(column.name, column.spark, column.mysql, "yes" if column.key else "") for column in answers.columns]
    return [("column", "type in Spark", "type in TiDB", "key"), *lines]


def _table(answers: Answers) -> str:
    heading, *lines = table_lines(answers)
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in line) for line in lines]
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    title = f"<caption>Columns of {escape(answers.table)}</caption>"
    return f'<table id="schema">{title}<tr>{head}</tr><tr>{"</tr><tr>".join(rows)}</tr></table>'
