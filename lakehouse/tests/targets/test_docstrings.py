"""Every public function has an example that runs: in its docstring, or on a page."""

import inspect
import io
import re
from contextlib import redirect_stdout
from textwrap import dedent

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

import ticdc_lakehouse
import ticdc_source
from examples.data import read_messages
from lakehouse.tests.targets.changes import frame_of
from lakehouse.tests.targets.memory import Lake
from tests.support.pages import blocks, guides

FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (ticdc_source, ticdc_lakehouse)
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
}
_EXAMPLE = re.compile(r"Example:\n+ *```python\n(.*?)```", re.DOTALL)
RECORDS = 20
OF_A_SYNC = {f"ticdc_lakehouse.{name}" for name in ("sync", "as_of", "read_toml")}  # test_sync_database.py


def example_of(public: object) -> str:
    code = _EXAMPLE.search(inspect.getdoc(public) or "")
    return dedent(code[1]) if code else ""


DOCSTRINGS = {name: code for name in FUNCTIONS if (code := example_of(FUNCTIONS[name]))}


def test_every_public_function_has_an_example() -> None:
    """What has none in its docstring is called in a block of a page that is run, not only parsed."""
    run = [
        block.text for path in guides() for block in blocks(path) if block.language == "python" and not block.comment
    ]

    missing = [name for name in FUNCTIONS if name not in DOCSTRINGS]
    assert [name for name in missing if not any(f"{name.rpartition('.')[2]}(" in text for text in run)] == []


def records(spark: SparkSession) -> DataFrame:
    """Return records as Spark's Kafka source has them: the first of the demo's of one table."""
    messages = [m for m in read_messages("canal-json") if m.value and b'"table":"orders"' in m.value][:RECORDS]
    rows = [(m.key, m.value, "tidb-shop", m.partition, offset) for offset, m in enumerate(messages)]
    return spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset bigint")


def did(lake: Lake, name: str, names: dict[str, object]) -> bool:
    """Run the example of a docstring, and return whether it did something: it printed, or wrote into the lake."""
    printed, writes = io.StringIO(), len(lake.writes)
    with redirect_stdout(printed):
        exec(compile(DOCSTRINGS[name], name, "exec"), names)  # noqa: S102 (it is ours)
    return bool(printed.getvalue().strip()) or len(lake.writes) > writes


@pytest.mark.slow("Spark runs several reads")
def test_examples_of_records_run(lake: Lake) -> None:
    """The examples of the root read records."""
    names: dict[str, object] = {"spark": lake.spark, "records": records(lake.spark)}
    mine = [name for name in DOCSTRINGS if "lakehouse" not in name]

    assert [name for name in mine if not did(lake, name, names)] == []


@pytest.mark.slow("Spark runs several merges")
def test_examples_of_the_lakehouse_run(lake: Lake) -> None:
    """The examples of the lakehouse work on the target and the log that the first two of them make."""
    columns = StructType([StructField("id", IntegerType(), metadata={"ticdc.key": "true"})])
    changes = frame_of(lake.spark, [("insert", 10, 1), ("delete", 11, 2)], columns)
    names: dict[str, object] = {"spark": lake.spark, "batch_id": 0, "changes": changes}
    first = ["ticdc_lakehouse.merge_into", "ticdc_lakehouse.append_log"]
    others = [name for name in DOCSTRINGS if "lakehouse" in name and name not in {*first, *OF_A_SYNC}]

    assert [name for name in first + others if not did(lake, name, names)] == []
    assert len(others) > 3
