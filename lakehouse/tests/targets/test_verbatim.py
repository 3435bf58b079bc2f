"""SQL as it is written: nothing of the environment or of the settings gets into texts that come from a topic."""

import inspect
import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

import ticdc_lakehouse
from ticdc_lakehouse.targets.sessions import SUBSTITUTE, run_sql, verbatim, with_verbatim_sql

SETTING, CANARY = "spark.ticdc.canary", "sesame"
NAME = "${spark.ticdc.canary} ${env:PATH} ${system:java.home}"


@pytest.fixture
def canary(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with a setting that nobody must see."""
    spark.conf.set(SETTING, CANARY)
    yield spark
    spark.conf.unset(SETTING)


def test_spark_itself_would_tell(canary: SparkSession) -> None:
    """Without the guard, Spark puts settings into a statement: the other tests here test something."""
    assert canary.sql("SELECT '${spark.ticdc.canary}'").collect()[0][0] == CANARY
    assert canary.conf.get(SUBSTITUTE) == "true"


def test_a_statement_stays_as_it_is(canary: SparkSession) -> None:
    """Names, comments and literals in a statement keep what looks like a variable."""
    (row,) = run_sql(canary, f"SELECT '{NAME}' AS `{NAME}`").collect()

    assert row.asDict() == {NAME: NAME}
    assert canary.conf.get(SUBSTITUTE) == "true"


@pytest.mark.parametrize("before", ["true", "false"])
def test_expressions_of_a_function_stay_too(canary: SparkSession, before: str) -> None:
    """In a function with the guard, `expr`, `selectExpr`, `where` and names of tables do so, whoever fails in it."""
    frame = canary.range(1).select(F.col("id").alias(NAME))
    frame.createOrReplaceTempView("named")
    canary.conf.set(SUBSTITUTE, before)

    @with_verbatim_sql
    def chosen(given: DataFrame, *, fails: bool = False) -> DataFrame:
        if fails:
            raise ValueError
        return given.where(f"`{NAME}` = 0").select(F.expr(f"`{NAME}`")).selectExpr(f"`{NAME}`")

    with pytest.raises(ValueError, match=r"^$"):
        chosen(frame, fails=True)
    assert canary.conf.get(SUBSTITUTE) == before
    assert chosen(given=frame).collect() == [(0,)]
    assert canary.conf.get(SUBSTITUTE) == before
    canary.conf.unset(SUBSTITUTE)


def test_functions_run_side_by_side(canary: SparkSession) -> None:
    """The setting comes back with the last of those that run in one session, and not before."""
    began, ends = threading.Barrier(2), threading.Event()

    def wait() -> None:
        with verbatim(canary):
            began.wait(10)
            ends.wait(10)

    thread = threading.Thread(target=wait)
    with verbatim(canary):
        thread.start()
        began.wait(10)

    assert canary.conf.get(SUBSTITUTE) == "false"
    ends.set()
    thread.join()
    assert canary.conf.get(SUBSTITUTE) == "true"


def test_public_functions_are_guarded() -> None:
    """Each public function of a session or a frame takes texts as they are written."""
    public = [getattr(ticdc_lakehouse, name) for name in ticdc_lakehouse.__all__]
    of_spark = [
        one for one in public
        if inspect.isfunction(one) and {"spark", "changes"} & inspect.signature(one).parameters.keys()
    ]  # fmt: skip

    assert len(of_spark) >= 10
    assert not [one.__name__ for one in of_spark if not hasattr(one, "__wrapped__")]
