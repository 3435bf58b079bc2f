"""The code of README and of docs/ runs, and prints what the pages say that it prints."""

import base64
import html
import io
import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from benchmarks.opponents import opponent_jars
from examples.data import read_messages
from examples.local_kafka import create_topic, produce
from tests.fixtures import Kafka
from tests.support.captured import TOPIC, Captured, Record
from tests.support.pages import README, Block, blocks, guides
from tests.support.paths import ROOT
from ticdc_lakehouse.cli.__main__ import parser as parser_of_lakehouse
from ticdc_lakehouse.syncs.sync_toml import read_toml
from website.pictures import draw

RUN = ("python", "sql")
PAGES = [path for path in guides() if any(block.language in RUN for block in blocks(path))]
PARSED = "parsed only: "
BAD_RECORDS = ROOT / "docs/guides/bad-records.md"

# Blocks of these languages are parts of files that tests/examples runs or parses: test_monitoring.py, test_dbt.py.
OF_EXAMPLES = {"yaml": ".yml", "jinja": ".sql"}


def texts_of_examples(suffix: str) -> list[str]:
    places = (ROOT / "examples", ROOT / "lakehouse/examples")
    return [path.read_text(encoding="utf-8") for place in places for path in sorted(place.rglob(f"*{suffix}"))]


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def example(path: Path, language: str) -> str:
    return next(block.text for block in blocks(path) if block.language == language)


@pytest.fixture(scope="module")
def shop(broker: Kafka) -> str:
    name = f"tidb-shop-{uuid.uuid4().hex[:12]}"
    create_topic(broker.bootstrap_servers, name, 3)
    messages = read_messages("canal-json")
    produce(broker.bootstrap_servers, name, [(m.partition, m.key, m.value, [], None) for m in messages])
    return name


def write_storage_sink(folder: Path) -> None:
    """Write the demo's rows as TiCDC's storage sink does: a message per line that ends in CR LF, a folder per version.

    Beside them are the other files of such a sink (`canal_json_txn_event_encoder.go`, `pkg/sink/cloudstorage`).
    """
    versions: dict[str, int] = {}
    for message in read_messages("canal-json"):
        assert message.value is not None
        event = json.loads(message.value)
        if event["isDdl"]:
            versions[event["table"]] = event["_tidb"]["commitTs"]
        if event["isDdl"] or event["type"] == "TIDB_WATERMARK":
            continue
        table, version = folder / event["database"] / event["table"], versions[event["table"]]
        file = table / str(version) / "2026-09-21" / f"CDC{1:020}.json"
        if not file.exists():
            (file.parent / "meta").mkdir(parents=True)
            (file.parent / "meta" / "CDC.index").write_text(f"{file.name}\n")
            (table / "meta").mkdir(exist_ok=True)
            (table / "meta" / f"schema_{version}_3131721815.json").write_text('{"Table": "orders"}')
        with file.open("ab") as lines:
            lines.write(message.value + b"\r\n")
    (folder / "metadata").write_text('{"checkpoint-ts":469237788138012675}')


# `make test` runs the pages that a new user reads first.
FIRST = {README, *(ROOT / "docs/guides" / f"{name}.md" for name in ("install", "topics-in-spark", "bad-records"))}


@pytest.mark.parametrize(
    "path",
    [path if path in FIRST else pytest.param(path, marks=pytest.mark.slow("Spark queries")) for path in PAGES],
    ids=ids,
)
def test_a_page_runs_as_printed(path: Path, spark: SparkSession, broker: Kafka, shop: str, tmp_path: Path) -> None:
    """Each block of Python and SQL does what the page says, down to the output below it.

    `changes` is the frame of README's first example on every page. A block that needs more than a broker is parsed.
    """
    places = {"broker:9092": broker.bootstrap_servers, "tidb-shop": shop, "/data": str(tmp_path)}

    def here(text: str) -> str:
        return re.sub("|".join(places), lambda found: places[found[0]], text)

    def run(block: Block) -> None:
        text = here(block.text)
        parsed_only = block.comment.startswith(PARSED)
        if block.language == "python":
            code = compile(text, str(path), "exec")
            if not parsed_only:
                exec(code, names)  # noqa: S102 (the pages are ours)
        elif parsed_only:
            spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        else:
            spark.sql(text)

    if "/data/cdc" in path.read_text(encoding="utf-8"):
        write_storage_sink(tmp_path / "cdc")
    names: dict[str, object] = {"spark": spark}
    listeners: list[StreamingQueryListener] = []
    exec(here(example(README, "python")), names)  # noqa: S102 (README is ours)
    try:
        for block in blocks(path):
            if block.language in RUN:
                printed = io.StringIO()
                with redirect_stdout(printed):
                    run(block)
                assert block.output is None or printed.getvalue().strip() == block.output.strip()
                if isinstance(listener := names.get("listener"), StreamingQueryListener):
                    listeners.append(listener)
    finally:
        for listener in listeners:  # a page that runs later would have what they print
            spark.streams.removeListener(listener)


@pytest.mark.parametrize("path", guides(), ids=ids)
def test_blocks_that_are_not_run_are_parsed(path: Path) -> None:
    """JSON, TOML and shell scripts have no error of syntax, and a block that is not run has a reason."""
    for block in blocks(path):
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml" and sys.version_info >= (3, 11):
            import tomllib

            tomllib.loads(block.text)
        elif block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, capture_output=True)
        elif block.language == "yaml" and path.stem == "platforms":
            assert yaml.safe_load(block.text)
        elif block.language in OF_EXAMPLES:
            assert any(block.text in text for text in texts_of_examples(OF_EXAMPLES[block.language]))
        assert block.language in {*RUN, *OF_EXAMPLES, "json", "toml", "sh", "text"}
        assert block.language not in RUN or block.comment in {"", "end"} or re.match(rf"{PARSED}\w+ ", block.comment)


@pytest.mark.long("another Spark, with the jars of its Kafka sink")
def test_kept_records_are_written_again(spark: SparkSession, broker: Kafka, tmp_path: Path) -> None:
    """The page's last block writes records as they were: key, value, headers, partition and order."""
    written, again = (f"records-{uuid.uuid4().hex[:12]}" for _ in range(2))
    sent = [(m.partition, m.key, m.value, [("h", b"\xfe")] if m.key else [], None) for m in read_messages("canal-json")]
    for name in (written, again):
        create_topic(broker.bootstrap_servers, name, 3)
    produce(broker.bootstrap_servers, written, [*sent[:600], (0, None, None, [], None), (0, b"", b"\xff", [], None)])
    *_, last = (block.text for block in blocks(BAD_RECORDS) if block.language == "python")
    places = {"broker:9092": broker.bootstrap_servers, "records-again": again, "/data": str(tmp_path)}
    for place, here in places.items():
        last = last.replace(place, here)
    _records(spark, broker, written).write.parquet(f"{tmp_path}/records")

    program = f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n{last}"
    jars = ",".join(map(str, opponent_jars()))
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--master local[2] --jars {jars} pyspark-shell"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)

    columns = ("_partition", "_offset", "_key", "_value", "_headers", "_tables", "_event_types")
    before, after = (
        _records(spark, broker, name).select(*columns).orderBy("_partition", "_offset").collect()
        for name in (written, again)
    )
    assert len(before) == 602
    assert after == before


def _records(spark: SparkSession, broker: Kafka, topic: str) -> DataFrame:
    reader = spark.read.format("ticdc").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", topic).option("outputFormat", "record").load()


def test_the_sync_toml_of_the_page_is_a_configuration() -> None:
    """The command of the page takes the file of the page."""
    both = list(blocks(ROOT / "lakehouse/docs/sync.md"))
    config = read_toml(next(block.text for block in both if block.language == "toml"))
    command = next(block.text for block in both if "ticdc-lakehouse sync sync.toml" in block.text)
    arguments = shlex.split(command.partition("ticdc-lakehouse ")[2].splitlines()[0])

    assert (config.format, config.reads) == ("delta", ("tidb-shop",))
    assert parser_of_lakehouse().parse_args(arguments).file == Path("sync.toml")


def test_the_pictures_are_what_commands_print(broker: Kafka, shop: str) -> None:
    """`make pictures` has been run since a command printed something else."""
    for path, drawn in draw(broker.bootstrap_servers, shop):
        assert words(path.read_text(encoding="utf-8")) == words(drawn)


def words(svg: str) -> list[str]:
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split()


def test_the_bad_record_of_the_page_is_one() -> None:
    """Reading the bytes of the example gives the example."""
    shown = json.loads(example(BAD_RECORDS, "json"))
    good = next(m for m in read_messages("canal-json") if m.value and b'"table":"orders"' in m.value and m.key == b"")
    records = [Record(good.key, good.value), Record(b"", base64.b64decode(shown["value"]))]

    rows_read = Captured({}, {0: records}).read(tables="shop.orders", mode="PERMISSIVE").to_pylist()

    assert json.loads(rows_read[1]["_corrupt_record"]) == {**shown, "topic": TOPIC}
