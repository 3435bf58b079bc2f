"""Declarative pipelines: the file of `inspect --pipeline`, AUTO CDC, and one read for many tables."""

import os
import subprocess
import uuid
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
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
PYSPARK = "4.2.1"  # Spark's test catalog has no newer release
DELTA = Release("4.4.0-spark-4.2", Path(__file__).with_name("delta-pom.xml"), "Delta")
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
MANY = 16  # tables from one read
KEPT = 3  # tables of AUTO CDC
ROWS = 20  # of each table, before changes
CATALOG = "org.apache.spark.sql.connector.catalog"
SECONDS = 580  # 60 on two idle cores
SPEC = "name: shop\nstorage: {folder}/storage\nlibraries: [{{glob: {{include: transformations/**}}}}]\n"
# A pipeline leaves its tables; those of the catalog for tests end with the server.
VIEWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession


def kept(name):
    @dp.materialized_view(name=f"{name}_kept")
    def rows():
        return SparkSession.active().read.table(f"keyed.default.{name}")


"""


def change(kind: str, table: str, at: int, row: dict[str, str | None], old: dict[str, str] | None = None) -> Message:
    types = {name: "int" if name == "id" else "varchar(20)" for name in row}
    keys = {"without": [], "at_times": ["id"] if at % 2 else []}.get(table, ["id"])
    olds = None if old is None else [old]
    commit = {"commitTs": TSO + at}
    return canal(kind, [row], olds, types, database="shop", table=table, pkNames=keys, _tidb=commit)


def shop() -> tuple[list[Message], dict[str, set[tuple[int, str]]]]:
    messages: list[Message] = []
    rows: dict[str, set[tuple[int, str]]] = {}
    for table in (*(f"t{number:02}" for number in range(MANY)), "without", "at_times"):
        at = len(messages)
        messages += [change("INSERT", table, at + n, {"id": str(n), "name": f"a{n}"}) for n in range(ROWS)]
        messages += [
            change("UPDATE", table, at + ROWS + n, {"id": str(n), "name": f"b{n}"}, {"id": str(n), "name": f"a{n}"})
            for n in range(0, ROWS, 3)
        ]
        messages += [change("DELETE", table, at + 2 * ROWS + n, {"id": str(n), "name": f"a{n}"}) for n in (1, 2)]
        messages.append(messages[at])  # sent again
        rows[table] = {(n, f"{'a' if n % 3 else 'b'}{n}") for n in range(ROWS) if n not in (1, 2)}
    return messages, rows


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """A function that runs a pipeline of these files, and returns what it prints."""

    def run(settings: dict[str, str], jars: list[Path], **files: str) -> str:
        python = interpreter(PYSPARK, *CONNECT_NEEDS, "pyyaml>=6")
        folder = tmp_path / "transformations"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        (tmp_path / "pipeline.yml").write_text(SPEC.format(folder=tmp_path.as_uri()))
        given = {**SESSION, "spark.sql.warehouse.dir": str(tmp_path / "warehouse"), **settings}
        given["spark.jars"] = ",".join(map(str, jars))
        defaults = tmp_path / "spark-defaults.conf"  # of many `--conf` the command takes the last ones
        defaults.write_text("".join(f"{name} {value}\n" for name, value in given.items()))
        command = [str(python.with_name("spark-pipelines")), "run", "--spec", "pipeline.yml"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={
                **environment,
                "SPARK_CONF_DIR": str(tmp_path),
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

    return run


def inspected(broker: Kafka, topic: str) -> str:
    printed = StringIO()
    with redirect_stdout(printed):
        main(["inspect", "--bootstrap-servers", broker.bootstrap_servers, "--subscribe", topic, "--pipeline", "oss"])
    return printed.getvalue()


def table(folder: Path, name: str) -> pa.Table:
    return ds.dataset(folder / "warehouse" / name, format="parquet").to_table()


@pytest.fixture
def filled(broker: Kafka) -> object:
    """A topic with the messages of `shop`."""
    topic = f"shop-{uuid.uuid4().hex[:12]}"
    create_topic(broker.bootstrap_servers, topic, 1)
    produce(broker.bootstrap_servers, topic, [(0, *message, [], None) for message in shop()[0]])
    yield topic
    delete_topic(broker.bootstrap_servers, topic)


@pytest.mark.slow("a server of Spark Connect")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
@pytest.mark.parametrize("appended", ["parquet", pytest.param("delta", marks=pytest.mark.long("the same again"))])
def test_a_pipeline_has_the_tables_of_tidb(
    broker: Kafka, filled: str, run: Callable[..., str], tmp_path: Path, appended: str
) -> None:
    """AUTO CDC keeps a table with a key equal to TiDB's; others are appended, and so are many tables from one read."""
    messages, rows = shop()
    catalog = kafka_jars(Release("4.2.0", Path(__file__).with_name("catalyst-pom.xml"), "catalyst-tests"))
    jars = sorted(catalog.glob("*.jar"))
    settings = {
        "spark.sql.catalog.keyed": f"{CATALOG}.SharedTablesInMemoryRowLevelOperationTableCatalog",
        "spark.sql.sources.default": appended,
    }
    if appended == "delta":
        jars += kafka_jars(DELTA).glob("*.jar")
        settings |= DELTA_SETTINGS
    program = inspected(broker, filled)
    keyed = program.replace("_table(name)", '_table("keyed.default." + name)')
    keyed = keyed.replace("target=name", 'target="keyed.default." + name')
    names = [f"t{number:02}" for number in range(KEPT)]
    keeps = tuple(f'keep("{name}"' for name in names)
    keyed = "\n".join(line for line in keyed.splitlines() if not line.startswith("keep(") or line.startswith(keeps))
    kept = VIEWS + "\n".join(f'kept("{name}")' for name in names)
    (many,) = (block.text for block in blocks(PAGE) if block.language == "python" and "records" in block.text)
    many = many.replace("broker:9092", broker.bootstrap_servers).replace("tidb-shop", filled)

    said = run(settings, jars, keyed=keyed, kept=kept, many=many)

    assert "Run is COMPLETED" in said, said
    for name in names:
        found = table(tmp_path, f"{name}_kept")
        assert found.column_names == ["id", "name", "__spark_autocdc_metadata"]
        assert sorted(zip(*found.select(["id", "name"]).to_pydict().values(), strict=True)) == sorted(rows[name])
    events = sum(1 for message in messages if b'"without"' in (message[1] or b""))
    assert table(tmp_path, "without").num_rows == events + len(range(0, ROWS, 3))  # an update is two rows
    assert table(tmp_path, "at_times").num_rows == events + len(range(0, ROWS, 3))
    for number in range(MANY):
        assert table(tmp_path, f"shop_t{number:02}").num_rows == table(tmp_path, "without").num_rows


@pytest.mark.long("a server of Spark Connect")
@pytest.mark.xdist_group("versions")
@pytest.mark.spark
@pytest.mark.versions
def test_delta_is_no_target_of_auto_cdc_yet(broker: Kafka, filled: str, run: Callable[..., str]) -> None:
    """The refusal that the page quotes."""
    settings = {**DELTA_SETTINGS, "spark.sql.sources.default": "delta"}
    said = run(settings, list(kafka_jars(DELTA).glob("*.jar")), file=inspected(broker, filled))

    assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in said, said
