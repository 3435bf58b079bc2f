"""`python -m examples.data.make_data CORPUS`: cut the bundled data out of the corpus.

The corpus has one stream of transactions, encoded by TiCDC three times, with the SQL truth of each event.
The cut is at a watermark, with which TiCDC promises that it has sent every change up to its commit-ts, and which it
sends to every partition. So the messages before the last copy of that watermark hold the same transactions in
each protocol, however they are packed and spread. `verify` checks all of this.
"""

import argparse
import base64
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from examples.data.bundle import PROTOCOLS, Cell, Message, TableTruth, write_messages, write_truth

SCENARIOS = {
    "open-protocol": "stream.open-protocol",
    "canal-json": "stream.canal-json.tidb-extension",
    "debezium": "stream.debezium.tidb-extension.disable-schema",
}
ROW_OPERATIONS = ("delete", "update", "insert")  # also the order in which a transaction applies them

Json: TypeAlias = dict[str, Any]


def main() -> int:
    """Cut, verify, write."""
    parser = argparse.ArgumentParser(prog="python -m examples.data.make_data", description=__doc__)
    parser.add_argument("corpus", type=Path, help="the folder with the corpus's stream.*.jsonl.gz")
    parser.add_argument(
        "--changes",
        type=int,
        default=16_000,
        help="cut at the first watermark after this number of changes (%(default)s)",
    )
    arguments = parser.parse_args()

    streams = {name: _read(arguments.corpus / f"{SCENARIOS[name]}.jsonl.gz") for name in PROTOCOLS}
    cut = watermark_after(streams["canal-json"], arguments.changes)
    lengths = {name: length_up_to(stream, cut) for name, stream in streams.items()}
    verify(streams, lengths, cut)

    truths = final_states(streams["canal-json"], lengths["canal-json"])
    verify_states(truths, streams["canal-json"][lengths["canal-json"] :], arguments.corpus)
    written = [write_truth(truths)]
    for name, stream in streams.items():
        messages = [_message(record) for record in stream[1 : lengths[name]]]
        written.append(write_messages(name, messages))
    for path in written:
        print(f"{path.stat().st_size:>9,} bytes {path.name}")
    print(f"{sum(path.stat().st_size for path in written):>9,} bytes, cut after commit-ts {cut}")
    return 0


def _read(path: Path) -> list[Json]:
    """Read a stream: its header, then its records."""
    with gzip.open(path, "rb") as lines:
        return [json.loads(line) for line in lines]


def _message(record: Json) -> Message:
    key, value = (None if text is None else base64.b64decode(text) for text in (record["key_b64"], record["value_b64"]))
    return Message(record["partition"], key, value)


def events_of(records: Iterable[Json]) -> Iterator[Json]:
    """Yield the truth of each event; a record of open-protocol has several."""
    for record in records:
        yield from record["truth"].get("events", [record["truth"]])


def watermark_after(stream: Sequence[Json], changes: int) -> int:
    """Return the first watermark after this number of row changes."""
    seen = 0
    for event in events_of(stream[1:]):
        seen += event["op"] in ROW_OPERATIONS
        if event["op"] == "watermark" and seen >= changes:
            return int(event["commit_ts"])
    raise SystemExit(f"the stream has no watermark after {changes} changes")


def length_up_to(stream: Sequence[Json], cut: int) -> int:
    """Return the number of lines up to the last copy of a watermark."""
    places = [
        place
        for place, record in enumerate(stream[1:], 1)
        if record["truth"]["op"] == "watermark" and record["truth"]["commit_ts"] == cut
    ]
    return places[-1] + 1


def verify(streams: dict[str, list[Json]], lengths: dict[str, int], cut: int) -> None:
    """Fail unless each prefix holds exactly what was committed up to the cut, and all hold the same.

    Repeated changes count: deliveries are counted, not only compared as sets.
    """
    contents = {}
    for name, stream in streams.items():
        inside = [event for event in events_of(stream[1 : lengths[name]]) if event["op"] != "watermark"]
        outside = [event for event in events_of(stream[lengths[name] :]) if event["op"] != "watermark"]
        _require(max(event["commit_ts"] for event in inside) <= cut, f"{name}: an event after the cut is inside")
        _require(min(event["commit_ts"] for event in outside) > cut, f"{name}: an event before the cut is outside")
        contents[name] = Counter(_identity(event) for event in inside if event["op"] in ROW_OPERATIONS)
        queries = {event["ddl_query"] for event in inside if event["op"] == "ddl"}
        _require(sum("add column" in query for query in queries) == 2, f"{name}: an ADD COLUMN is missing")
    first = contents[PROTOCOLS[0]]
    for name, content in contents.items():
        _require(content == first, f"{name} and {PROTOCOLS[0]} hold different changes")


def _require(condition: bool, message: str) -> None:  # noqa: FBT001 (like assert, but not removed by -O)
    if not condition:
        raise SystemExit(message)


def _identity(event: Json) -> str:
    """Return everything that SQL says about a change, and whether TiCDC sent it a second time."""
    names = ("table", "op", "commit_ts", "replay", "columns")
    return json.dumps([event.get(name) for name in names], sort_keys=True)


def final_states(stream: Sequence[Json], length: int) -> dict[str, TableTruth]:
    """Return the rows after the truth of a prefix was replayed once, in the order of its commits."""
    definitions: dict[str, Json] = {}  # the newest version of each table; all begin before the cut
    for definition in stream[0]["tables"]:
        definitions[f"{definition['schema']}.{definition['table']}"] = definition
    events = [event for event in events_of(stream[1:length]) if event["op"] in ROW_OPERATIONS]
    events.sort(key=lambda event: (event["commit_ts"], ROW_OPERATIONS.index(event["op"])))
    truths = {}
    for name, definition in definitions.items():
        mine = [event for event in events if f"{event['schema']}.{event['table']}" == name]
        rows: dict[str, list[Cell]] = {}
        for event in mine:
            if "replay" not in event:
                _apply(event, definition, rows)
        changes = Counter(event["op"] for event in mine)
        truths[name] = TableTruth(
            table=name,
            key=definition["primary_key"],
            columns={column["name"]: column["mysql_type"] for column in definition["columns"]},
            changes={operation: changes[operation] for operation in reversed(ROW_OPERATIONS)},
            repeated=sum("replay" in event for event in mine),
            rows=list(rows.values()),
        )
    return truths


def _apply(event: Json, definition: Json, rows: dict[str, list[Cell]]) -> None:
    """Apply a change; a column that was added later has its default in older rows."""
    columns = {column["name"]: column for column in event["columns"]}
    image = "before" if event["op"] == "delete" else "after"
    key = json.dumps([columns[name][image] for name in definition["primary_key"]])
    if event["op"] == "delete":
        del rows[key]
    else:
        rows[key] = [
            columns[column["name"]]["after"] if column["name"] in columns else column.get("default")
            for column in definition["columns"]
        ]


def verify_states(truths: dict[str, TableTruth], rest: Iterable[Json], corpus: Path) -> None:
    """Fail if a row that no later event changes differs from the corpus's own final state."""
    touched = set()
    for event in events_of(rest):
        for column in event.get("columns", ()):
            if column["name"] in event["handle_key"]:
                touched |= {(event["table"], column.get(image)) for image in ("before", "after")}
    with gzip.open(corpus / "stream.final-state.jsonl.gz", "rb") as lines:
        final = {f"{row['schema']}.{row['table']}/{row['key']}": row["row"] for row in map(json.loads, lines)}
    checked = 0
    for name, truth in truths.items():
        for row in truth.rows:
            cells = dict(zip(truth.columns, row, strict=True))
            key = cells[truth.key[0]]
            if (name.partition(".")[2], key) not in touched:
                _require(final.get(f"{name}/{key}") == cells, f"{name}: row {key} is not as at the end")
                checked += 1
    rows = sum(len(truth.rows) for truth in truths.values())
    print(f"{checked:,} of {rows:,} rows equal those of the corpus's final state")


if __name__ == "__main__":
    sys.exit(main())
