"""Show events as they arrive, one per line: commit time, offset, kind, table, key, and what changed.

For an update, only the changed columns are shown. Times are in UTC. Binary values are shown in hexadecimal, and long
values are cut unless --full is given.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import re
from collections.abc import Iterator
from datetime import datetime, timezone

from ticdc_source.cli.arguments import add_connection, argument, count, options_of, words
from ticdc_source.cli.screen import Line, errors, literal, output, print_json, visible
from ticdc_source.errors import OptionError, counted
from ticdc_source.inspection.tail import CORRUPT, Event, Start, Tail
from ticdc_source.options import parsers
from ticdc_source.options.parsers import ParseError
from ticdc_source.schema.json_text import loads

SUMMARY = "show events as they arrive, with what changed"
_KINDS = {
    "insert": "green",
    "update": "yellow",
    "delete": "red",
    "ddl": "magenta",
    "watermark": "bright_black",
    "corrupt": "bold red",
}
_CUT = 40  # characters of a value
_CUT_BYTES = 16  # of a binary value
_DDL_CUT = 200
_BYTES = ("key", "value", "bytes_at_index")  # in base64, of what cannot be read


class _Number(str):
    """A number with all of its digits."""

    __slots__ = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument(
        "--from",
        dest="start",
        type=argument(_start),
        default="-10",
        metavar="WHERE",
        help="where to start: earliest, latest, a Kafka timestamp in ISO 8601 (UTC by default), or -N for N "
        "records before the end of each partition, as in --from=-5 (default: %(default)s)",
    )
    parser.add_argument(
        "--tables",
        type=argument(_tables),
        metavar="DB.TABLE[,…]",
        help="show only these tables, such as shop.*, and watermarks",
    )
    parser.add_argument(
        "--kind",
        type=argument(parsers.subset_of(*_KINDS)),
        metavar="KIND[,…]",
        help=f"show only these kinds: {', '.join(_KINDS)}",
    )
    parser.add_argument("--max-events", type=argument(count), metavar="N", help="stop after N events")
    parser.add_argument(
        "--follow",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="at the end, wait for new events until Ctrl-C (the default)",
    )
    parser.add_argument("--full", action="store_true", help="show whole values and statements")
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object per event, with the columns of outputFormat=event"
    )


def _start(text: str) -> Start:
    if text in ("earliest", "latest"):
        return Start(earliest=text == "earliest")
    if re.fullmatch(r"-[0-9]{1,18}", text):
        return Start(back=int(text[1:]))
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        at_ms = round(moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp() * 1000)
    except (ValueError, OverflowError):
        at_ms = -1
    if at_ms < 0:
        raise ParseError(
            "expected earliest, latest, -N, or a time since 1970 in ISO 8601, such as 2026-11-23T08:00:00Z"
        )
    return Start(at_ms=at_ms)


def _tables(text: str) -> str:
    parsers.table_patterns(words(text))
    return text


def run(arguments: argparse.Namespace) -> int:
    given = options_of(arguments)
    if arguments.tables:
        if any(name.lower() == "tables" for name in given):
            raise OptionError("--tables and --conf tables=… are the same: use only one of them")
        given["tables"] = arguments.tables
    screen = output()
    shown = 0
    with Tail(given) as tail:
        for event in tail.events(arguments.start, follow=arguments.follow):
            kind = _kind(event)
            if arguments.kind is not None and kind not in arguments.kind:
                continue
            if arguments.json:
                print_json(event, indent=None, default=_jsonable)
            else:
                screen.print(*_line(event, kind, tail, full=arguments.full))
            shown += 1
            if arguments.max_events is not None and shown >= arguments.max_events:
                break
        if not shown and arguments.kind is not None:
            kinds = " or ".join(kind for kind in _KINDS if kind in arguments.kind)
            read = f"{counted(tail.scanned, 'record')} of {arguments.subscribe}"
            errors().print(f"No {kinds} among {read} (--from sets where tail begins)")
    return 0


def _kind(event: Event) -> str:
    if event[CORRUPT] is not None:
        return "corrupt"
    return str(event["_op"] or event["_event_type"])


def _line(event: Event, kind: str, tail: Tail, *, full: bool) -> Line:
    moment = event["_commit_timestamp"]
    time = moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:23] if isinstance(moment, datetime) else " " * 23
    style = _KINDS[kind]
    table = ".".join(str(event[part]) for part in ("_database", "_table") if event[part])
    return (
        (f"{time} {event['_topic']}-{event['_partition']}:{event['_offset']} ", "bright_black"),
        (f"{kind:9} ", style),
        (f"{visible(table)} " if table else "", "bold" if kind != "watermark" else style),
        (visible("".join(_details(event, kind, tail, full=full))), style if kind in {"watermark", "corrupt"} else ""),
    )


def _details(event: Event, kind: str, tail: Tail, *, full: bool) -> Iterator[str]:
    if kind == "ddl":
        statement = " ".join(str(event["ddl_query"]).split())
        yield statement if full or len(statement) <= _DDL_CUT else statement[:_DDL_CUT] + "…"
        return
    if kind == "watermark":
        yield str(event["watermark_ts"])
        return
    if kind == "corrupt":
        report = loads(str(event[CORRUPT]))
        yield report["reason"]
        where = ", ".join(f"{part} {report[part]}" for part in ("table", "column") if report[part])
        yield f" ({where})" if where else ""
        if full:
            yield "".join(f" {part}={literal(report[part])}" for part in _BYTES if report.get(part) is not None)
        return
    binary = tail.binary.get((str(event["_database"]), str(event["_table"])), set())
    before, after = _row(event["before"]), _row(event["after"])
    key = _row(event["key"])

    def pairs(row: dict[str, object]) -> str:
        return " ".join(f"{name}={_shown(value, is_binary=name in binary, full=full)}" for name, value in row.items())

    yield f"[{pairs(key)}]" if key else "[no key]"
    if kind == "update" and before:
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name) or (name in before) != (name in after):
                old, new = (
                    _shown(row[name], is_binary=name in binary, full=full) if name in row else "absent"
                    for row in (before, after)
                )
                yield f" {name}: {old} → {new}"
        return
    row = after or before
    yield " " + pairs({name: value for name, value in row.items() if name not in key})


def _row(text: object) -> dict[str, object]:
    row = loads(text, parse_float=_Number) if isinstance(text, str) else {}
    return row if isinstance(row, dict) else {}


def _shown(value: object, *, is_binary: bool, full: bool) -> str:
    """Format a value: text in quotes, binary as hexadecimal digits; both are cut unless `full`."""
    if is_binary and isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
        except binascii.Error:  # not binary in this message
            pass
        else:
            return (
                f"0x{data.hex()}"
                if full or len(data) <= _CUT_BYTES
                else f"0x{data[:_CUT_BYTES].hex()}… ({len(data)} B)"
            )
    text = str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
    if full or len(text) <= _CUT:
        return text
    return f"{text[:_CUT]}… ({len(text)} characters)"


def _jsonable(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
