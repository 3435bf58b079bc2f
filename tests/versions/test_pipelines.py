"""Declarative pipelines: the files of `inspect --pipeline`, AUTO CDC, and one read for many tables."""

import json
import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from examples.local_kafka import create_topic, delete_topic, produce
from examples.local_kafka.jars import Release, kafka_jars
from lakehouse.tests.engines.engines import SESSION
from tests.fixtures import Kafka
from tests.support.messages import TSO, Message, canal
from tests.support.pages import blocks
from tests.support.paths import PACKAGES, ROOT
from tests.versions.environments import interpreter
from tests.versions.test_versions import CONNECT_NEEDS
from ticdc_source.cli.__main__ import main

PAGE = ROOT / "docs/guides/pipelines.md"
PYSPARK = "4.2.1"
WITH_HISTORY = "4.3.0"  # AUTO CDC keeps versions; Spark's test catalog has no newer release than 4.2, and runs
DELTA = Release("4.4.0-spark-4.2", Path(__file__).with_name("delta-pom.xml"), "Delta")
DELTA_SETTINGS = {
    "spark.sql.sources.default": "delta",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
MANY = tuple(f"t{number:02}" for number in range(16))  # tables from one read
KEPT = MANY[:2]  # by AUTO CDC, and by `newest`
APPENDED = (*KEPT, "without", "at_times")
TABLES = (*MANY, *APPENDED[2:])
ROWS = 20  # of each table, before changes
# With `output-raw-change-event=true`, TiCDC sends an update of the key whole: the new row, and the old one.
RAW: tuple[dict[str, str | None], dict[str, str]] = ({"id": "105", "name": "c5"}, {"id": "5", "name": "a5"})
_CALL = re.compile(r'(?:append|keep|newest)\("(\w+?)(?:_changes)?"')
CATALOG = "org.apache.spark.sql.connector.catalog"
KEYED = Release("4.2.0", Path(__file__).with_name("catalyst-pom.xml"), "catalyst-tests")
KEYED_SETTINGS = {"spark.sql.catalog.keyed": f"{CATALOG}.SharedTablesInMemoryRowLevelOperationTableCatalog"}
SECONDS = 290  # for a command; 60 on two idle cores
# A pipeline leaves its tables; those of the catalog for tests end with the server, so a view keeps their rows.
SPARK = "from pyspark.sql import SparkSession\n\nspark = SparkSession.active()\n"
KEPT_VIEW = """
@dp.materialized_view(name="{0}_kept")
def rows():
    return spark.read.table("keyed.default.{0}")
"""


def change(kind: str, table: str, at: int, row: dict[str, str | None], old: dict[str, str] | None = None) -> Message:
    types = {name: "int" if name == "id" else "varchar(20)" for name in row}
    keys = {"without": [], "at_times": ["id"] if at % 2 else []}.get(table, ["id"])
    olds = None if old is None else [old]
    commit = {"commitTs": TSO + at}
    return canal(kind, [row], olds, types, database="shop", table=table, pkNames=keys, _tidb=commit)


def shop() -> list[Message]:
    messages: list[Message] = []
    for table in TABLES:
        at = len(messages)
        messages += [change("INSERT", table, at + n, {"id": str(n), "name": f"a{n}"}) for n in range(ROWS)]
        messages += [
            change("UPDATE", table, at + ROWS + n, {"id": str(n), "name": f"b{n}"}, {"id": str(n), "name": f"a{n}"})
            for n in range(0, ROWS, 3)
        ]
        messages += [change("DELETE", table, at + 2 * ROWS + n, {"id": str(n), "name": f"a{n}"}) for n in (1, 2)]
        messages.append(change("UPDATE", table, at + 3 * ROWS, *RAW))
        messages.append(messages[at])  # sent again
    return messages


def later() -> list[Message]:
    """What follows `shop`: another update of the key, and old changes sent again."""
    messages = shop()[: ROWS // 2]  # of t00
    for at, table in enumerate(TABLES, 10_000):
        messages += [
            change("UPDATE", table, at, {"id": "103", "name": "c3"}, {"id": "3", "name": "b3"}),
            change("DELETE", table, at, {"id": "4", "name": "a4"}),
            change("INSERT", table, at, {"id": "1", "name": "c1"}),
        ]
    return messages


BEFORE = {(n, f"{'a' if n % 3 else 'b'}{n}") for n in range(ROWS) if n not in (1, 2, 5)} | {(105, "c5")}
AFTER = BEFORE - {(3, "b3"), (4, "a4")} | {(103, "c3"), (1, "c1")}


def changes_of(table: str, messages: Iterable[Message]) -> int:
    """Count the changes of a table; an update is two."""
    values = [value or b"" for _, value in messages]
    return sum(1 + (b'"UPDATE"' in value) for value in values if b'"%s"' % table.encode() in value)


def on_page(language: str, part: str) -> str:
    (text,) = (block.text for block in blocks(PAGE) if block.language == language and part in block.text)
    return text


class Project:
    """A folder with the pipeline of the page, in which its commands run."""

    def __init__(self, folder: Path, settings: dict[str, str], jars: Iterable[Path], pyspark: str = PYSPARK) -> None:
        self.folder = folder
        self._pyspark = pyspark
        self._run, self._read = on_page("sh", "spark-pipelines").splitlines()
        (folder / "transformations").mkdir()
        spec = on_page("text", "storage:").replace("file:///data/pipelines/shop", f"{folder.as_uri()}/storage")
        (folder / "spark-pipeline.yml").write_text(spec.replace("shop.py", "transformations/**"))
        # Not with `--conf`: of more than ten settings, Spark's own too, PySpark takes the last ones.
        given = {
            **SESSION,
            **settings,
            "spark.jars": ",".join(map(str, jars)),
            "spark.sql.catalogImplementation": "hive",
        }
        (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in given.items()))

    def run(self, **files: str) -> str:
        """Run the pipeline with these files and no others, and return what it prints."""
        for path in (self.folder / "transformations").iterdir():
            if path.is_file():
                path.unlink()
        for name, text in files.items():
            (self.folder / "transformations" / f"{name}.py").write_text(text)
        return self._printed(self._run)

    def rows(self, *tables: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of tables, by id."""
        select = "SELECT '{0}', to_json(struct(*), map('ignoreNullFields', 'false')) FROM {0}"
        printed = self._printed(
            self._read.replace("SELECT * FROM orders", " UNION ALL ".join(map(select.format, tables)))
        )
        rows: dict[str, list[dict[str, Any]]] = {table: [] for table in tables}
        for table, row in re.findall(r"^(\w+)\t(\{.*\})$", printed, re.MULTILINE):
            rows[table].append(json.loads(row))
        return {table: sorted(found, key=lambda row: row["id"]) for table, found in rows.items()}

    def _printed(self, command: str) -> str:
        python = interpreter(self._pyspark, *CONNECT_NEEDS, "pyyaml>=6")
        program, *arguments = shlex.split(command, comments=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        done = subprocess.run(
            [str(python.with_name(program)), *arguments],
            cwd=self.folder,
            env={
                **environment,
                "SPARK_CONF_DIR": str(self.folder),
                "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
                "PYSPARK_PYTHON": str(python),
                "PYSPARK_DRIVER_PYTHON": str(python),
                "PYTHONPATH": PACKAGES,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        return done.stdout


def inspected(broker: Kafka, topic: str, platform: str, *tables: str) -> str:
    """Return the file that `inspect --pipeline` writes, with these tables."""
    printed = StringIO()
    with redirect_stdout(printed):
        main(["inspect", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", topic, "--pipeline", platform])
    lines = ((line, _CALL.match(line)) for line in printed.getvalue().splitlines())
    return "\n".join(line for line, call in lines if call is None or call[1] in tables)


def kept_by_auto_cdc(broker: Kafka, topic: str, *tables: str) -> str:
    """Return the file for Databricks, with targets in the catalog for tests."""
    text = inspected(broker, topic, "databricks", *tables).replace("{name}_changes", "{name}_view")
    text = text.replace("_table(name)", '_table("keyed.default." + name)')
    text = SPARK + text.replace("target=name", 'target="keyed.default." + name')
    return text + "".join(map(KEPT_VIEW.format, tables))


@pytest.fixture
def topic(broker: Kafka) -> Iterator[str]:
    """A topic with the messages of `shop`."""
    topic = f"shop-{uuid.uuid4().hex[:12]}"
    create_topic(broker.bootstrap_servers, topic, 1)
    send(broker, topic, shop())
    yield topic
    delete_topic(broker.bootstrap_servers, topic)


def send(broker: Kafka, topic: str, messages: Iterable[Message]) -> None:
    produce(broker.bootstrap_servers, topic, [(0, *message, [], None) for message in messages])


@pytest.mark.slow("a server of Spark Connect")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS * 3)
@pytest.mark.parametrize("appended", ["parquet", pytest.param("delta", marks=pytest.mark.long("the same again"))])
def test_a_pipeline_has_the_tables_of_tidb(broker: Kafka, topic: str, tmp_path: Path, appended: str) -> None:
    """Tables with a key equal TiDB's, by a view or by AUTO CDC; others are appended, and so are many from one read."""
    jars = sorted(kafka_jars(KEYED).glob("*.jar"))
    settings = dict(KEYED_SETTINGS)
    if appended == "delta":
        jars += kafka_jars(DELTA).glob("*.jar")
        settings |= DELTA_SETTINGS
    project = Project(tmp_path, settings, jars)
    shop_of = inspected(broker, topic, "oss", *APPENDED)
    many = on_page("python", "records").replace("broker:9092", broker.bootstrap_servers).replace("tidb-shop", topic)
    keyed = kept_by_auto_cdc(broker, topic, *KEPT)

    first = project.run(shop=shop_of, many=many, keyed=keyed)
    send(broker, topic, later())
    second = project.run(shop=shop_of)

    assert "Run is COMPLETED" in first, first
    assert "Run is COMPLETED" in second, second
    once = {f"shop_{table}": changes_of(table, shop()) for table in MANY}
    sent = [*shop(), *later()]
    twice = {f"{table}_changes" if table in KEPT else table: changes_of(table, sent) for table in APPENDED}
    found = project.rows(*KEPT, *(f"{table}_kept" for table in KEPT), *once, *twice)
    assert {name: len(found[name]) for name in (*once, *twice)} == once | twice
    for table in KEPT:
        assert found[table] == [{"id": key, "name": name} for key, name in sorted(AFTER)]
        kept = found[f"{table}_kept"]
        assert {tuple(row) for row in kept} == {("id", "name", "__spark_autocdc_metadata")}
        assert [(row["id"], row["name"]) for row in kept] == sorted(BEFORE)


@pytest.mark.long("a server of Spark Connect")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
def test_delta_is_no_target_of_auto_cdc_yet(broker: Kafka, topic: str, tmp_path: Path) -> None:
    """The refusal that the page quotes."""
    project = Project(tmp_path, DELTA_SETTINGS, kafka_jars(DELTA).glob("*.jar"))

    said = project.run(file=SPARK + inspected(broker, topic, "databricks", *KEPT))

    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in said, said


@pytest.mark.long("a server of Spark Connect")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.timeout(SECONDS * 2)
def test_auto_cdc_keeps_versions(broker: Kafka, topic: str, tmp_path: Path) -> None:
    """With `stored_as_scd_type=2`, a version ends at the commit that starts the next one, or removes the row."""
    project = Project(tmp_path, KEYED_SETTINGS, kafka_jars(KEYED).glob("*.jar"), WITH_HISTORY)
    (table, *_) = KEPT
    file = kept_by_auto_cdc(broker, topic, table).replace("stored_as_scd_type=1", "stored_as_scd_type=2")

    said = project.run(file=file)

    assert "Run is COMPLETED" in said, said
    end = {1: 2 * ROWS + 1, 2: 2 * ROWS + 2, 5: 3 * ROWS}
    versions: set[tuple[int, str, int, int | None]] = {(105, "c5", 3 * ROWS, None)}
    for n in range(ROWS):
        first = end.get(n) if n % 3 else ROWS + n
        versions.add((n, f"a{n}", n, first))
        if not n % 3:
            versions.add((n, f"b{n}", ROWS + n, end.get(n)))
    kept = project.rows(f"{table}_kept")[f"{table}_kept"]
    found = [(row["id"], row["name"], *(_since_start(row[at]) for at in ("__START_AT", "__END_AT"))) for row in kept]
    assert len(found) == len(versions)
    assert set(found) == versions


def _since_start(sequence: dict[str, int] | None) -> int | None:
    return None if sequence is None else sequence["commit_ts"] - TSO
