"""Whoever writes a topic by hand from a protocol's page gets the rows that the page promises."""

import io
import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from tests.sources.storage.test_corpus import read_files
from tests.support.captured import Captured
from tests.support.paths import ROOT
from tests.support.registry import serving

PAGES = ROOT / "docs/protocols"
RECORDS = ("CREATE TABLE", "INSERT", "UPDATE", "DELETE", "WATERMARK")
PAID = "2026-09-21 14:13:26"

# The rows of the order: change type, second of the commit, status, paid_at.
ROWS = [
    ("insert", 25, "new", "None"),
    ("update_preimage", 26, "new", "None"),
    ("update_postimage", 26, "paid", f"{PAID}+00:00"),
    ("delete", 27, "paid", f"{PAID}+00:00"),
]
EVENTS = [("ddl", None), ("row", "insert"), ("row", "update"), ("row", "delete"), ("watermark", None)]

_FENCED = re.compile(r"^```(json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RECORD = re.compile(r"^\*\*([A-Z ]+)\*\*(?:, key (.+?))?(?:, schema (\d+))?:$", re.MULTILINE)
_SCHEMA = re.compile(r"^\*\*Schema (\d+)\*\*", re.MULTILINE)
_FILE = re.compile(r"^`([\w./]+)`:$", re.MULTILINE)
_KEY = re.compile(r"`(.+)`(?: \(schema (\d+)\))?")
_WORDS = {"null": None, "empty": b""}
_HEX = re.compile(r"^ *(key|value)? *((?:[0-9a-f]{2})+(?: (?:[0-9a-f]{2})+)*)(?: {2,}.*)?$")

pytestmark = pytest.mark.filterwarnings("ignore:TIMESTAMP columns:UserWarning", "ignore:The messages of:UserWarning")


class Printed(NamedTuple):
    """A message of a page: its key and its schema as they are written there, and the block with its value."""

    key: str
    schema: str | None
    language: str
    text: str


def section(name: str) -> str:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    return page.partition("\n## The messages\n")[2].partition("\n## ")[0]


def block_after(text: str, start: int) -> tuple[str, str]:
    found = _FENCED.search(text, start)
    assert found is not None
    return found[1], found[2]


def printed(name: str) -> dict[str, Printed]:
    """Return the messages of a page by what they are."""
    text = section(name)
    return {each[1]: Printed(each[2] or "", each[3], *block_after(text, each.end())) for each in _RECORD.finditer(text)}


def joined(text: str) -> bytes:
    """Return JSON without the line breaks that the page has for its readers."""
    return "".join(line.strip() for line in text.splitlines()).encode()


def from_hex(text: str) -> tuple[bytes, bytes]:
    """Return the key and the value of a block of hexadecimal digits and JSON."""
    parts, part = {"key": b"", "value": b""}, "value"
    for line in text.splitlines():
        digits = _HEX.match(line)
        if digits is None:
            parts[part] += joined(line)
        else:
            part = digits[1] or part
            parts[part] += bytes.fromhex(digits[2])
    return parts["key"], parts["value"]


def framed(schema_id: str, schemas: Mapping[str, str], row: str) -> bytes:
    """Write the JSON form of a record in Avro, behind the header of Confluent's registry."""
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(json.loads(schemas[schema_id])), json.loads(row, parse_float=Decimal))
    return b"\0" + int(schema_id).to_bytes(4, "big") + body.getvalue()


def messages(name: str, *, as_printed: bool) -> Iterator[tuple[bytes | None, bytes]]:
    schemas = schemas_of(name)
    for message in printed(name).values():
        if message.language == "text":
            key, value = from_hex(message.text)
            yield (None if message.key == "null" else key), value
            continue
        match = _KEY.fullmatch(message.key)
        if message.schema is not None:
            assert match is not None
            yield framed(match[2], schemas, match[1]), framed(message.schema, schemas, message.text)
        else:
            value = message.text.encode() if as_printed else joined(message.text)
            yield _WORDS[message.key] if match is None else match[1].encode(), value


def schemas_of(name: str) -> dict[str, str]:
    text = section(name)
    return {each[1]: block_after(text, each.end())[1] for each in _SCHEMA.finditer(text)}


def check_rows(table: pa.Table, total: object) -> None:
    rows = table.to_pylist()

    assert [
        (row["_change_type"], row["_commit_timestamp"].second, row["status"], str(row["paid_at"])) for row in rows
    ] == ROWS
    assert {row["order_id"] for row in rows} == {1000105}
    assert [repr(row["total"]) for row in rows] == [repr(total)] * 4


@pytest.mark.parametrize("as_printed", [True, False], ids=["as-printed", "as-sent"])
@pytest.mark.parametrize(
    "name", ["open-protocol", "canal-json", "debezium", "simple", "avro", "debezium-avro"], ids=lambda name: name
)
def test_the_messages_of_a_page_are_read(name: str, as_printed: bool) -> None:
    """With and without the line breaks of the page, without options: typed rows, DDL, a watermark."""
    captured = Captured.of(*messages(name, as_printed=as_printed))
    with serving(schemas_of(name)) as registry:
        options: dict[str, Any] = {"schema.registry.url": registry.url} if schemas_of(name) else {}
        table = captured.read(**options)
        events = captured.read(outputFormat="event", **options).to_pylist()

    assert tuple(printed(name)) == RECORDS
    check_rows(table, Decimal("4694.45"))
    assert str(table.schema.field("total").type) == "decimal128(12, 2)"
    assert [(event["_event_type"], event["_op"]) for event in events] == EVENTS
    assert events[0]["ddl_query"].startswith("CREATE TABLE `orders`")
    assert [events[0]["ddl_kind"], events[-1]["watermark_ts"]] == ["create_table", 1790000008000 << 18]


def test_debezium_with_the_schema_of_the_page_is_read() -> None:
    """With the schema beside each payload, rows have their types without DDL; decimals are doubles then."""
    schema = json.loads(block_after(section("debezium"), section("debezium").index("**The schema**"))[1])
    rows = list(messages("debezium", as_printed=False))[1:4]
    whole = [(key, json.dumps({**json.loads(value), "schema": schema}).encode()) for key, value in rows]

    check_rows(Captured.of(*whole).read(), 4694.45)


def test_the_bytes_of_avros_page_are_its_record() -> None:
    """The annotated bytes of the INSERT are what its JSON form becomes."""
    text = section("avro")
    _, shown = block_after(text, text.index("In bytes"))

    assert from_hex(shown) == list(messages("avro", as_printed=False))[1]


def test_the_files_of_csvs_page_are_read(tmp_path: Path) -> None:
    """The files that the page shows are a changefeed."""
    text = section("csv")
    for each in _FILE.finditer(text):
        file = tmp_path / each[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        content = block_after(text, each.end())[1]
        file.write_bytes((content.replace("\n", "\r\n") if file.suffix == ".csv" else content).encode())
    events: list[dict[str, Any]] = read_files(tmp_path, outputFormat="event").to_pylist()

    check_rows(read_files(tmp_path), Decimal("4694.45"))
    assert [(event["_event_type"], event["_op"]) for event in events] == EVENTS
