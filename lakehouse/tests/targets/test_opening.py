"""Targets by name, the SQL that Delta and Iceberg are sent, and what their commits record."""

import json

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import IntegerType, StructType

from lakehouse.tests.targets.changes import frame_of
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.targets import opening
from ticdc_lakehouse.targets import target as target_module
from ticdc_lakehouse.targets.changelog import newest_images, read_changelog
from ticdc_lakehouse.targets.delta import DeltaTarget, _facts_in, commits_in
from ticdc_lakehouse.targets.iceberg import IcebergTarget
from ticdc_lakehouse.targets.opening import existing_target, open_target
from ticdc_lakehouse.targets.target import CommitFacts, NewColumn, Target, Upsert, last_of
from ticdc_lakehouse.targets.target_names import check_name, deleted_keys_of

FACTS = CommitFacts(resolved_ts=30, app_id="it's me", batch_id=7, content="2:5a", ends='{"0":9}')


@pytest.mark.parametrize(("name", "tombstones"), [
    ("lake.shop.orders", "lake.shop.orders__deleted"),
    ("delta.`/data/orders/`", "delta.`/data/orders__deleted`"),
])  # fmt: skip
def test_the_table_of_deleted_keys_is_beside_the_target(name: str, tombstones: str) -> None:
    """Its name is that of the target with a suffix, also if that is a path."""
    assert deleted_keys_of(name) == tombstones


@pytest.mark.parametrize(("commits", "number", "undone"), [
    ([("MERGE", 2), ("MERGE", 1)], 2, None),
    ([("RESTORE", 1), ("MERGE", 2), ("MERGE", 1), ("MERGE", 0)], 1, 2),
    ([("RESTORE", 0), ("MERGE", 2), ("MERGE", 1), ("MERGE", 0)], 0, 1),
    ([("RESTORE", 2), ("MERGE", 2), ("MERGE", 1), ("MERGE", 0)], 2, None),
    ([("RESTORE", 2), ("RESTORE", 1), ("MERGE", 2), ("MERGE", 1), ("MERGE", 0)], 2, None),
    ([("RESTORE", 0), ("RESTORE", 1), ("MERGE", 1), ("MERGE", 0)], 0, 1),
    ([("RESTORE", 0), ("MERGE", 1), ("CREATE", None)], -1, 1),
    ([("RESTORE", None), ("MERGE", 1), ("MERGE", 0)], -1, 0),
    ([("MERGE", 3), ("RESTORE", 0), ("MERGE", 1)], 3, None),
    ([("CREATE", None)], None, None),
])  # fmt: skip
def test_what_a_restore_undoes_is_not_held(
    commits: list[tuple[str, int | None]], number: int | None, undone: int | None
) -> None:
    """Delta's history has undone commits too: a number is that of a micro-batch, or the version of a RESTORE."""
    facts = [
        CommitFacts(None, "it's me", number if what == "MERGE" else None).as_properties() for what, number in commits
    ]
    history = [
        Row(version=len(commits) - 1 - at, operation=what, userMetadata=json.dumps(told),
            operationParameters={"version": None if number is None else str(number)} if what == "RESTORE" else None)
        for at, ((what, number), told) in enumerate(zip(commits, facts, strict=True))
    ]  # fmt: skip

    last = last_of(commits_in(history), "it's me")
    assert (last and last.number, last and last.undone) == (number, undone)


@pytest.mark.parametrize("name", [
    "", "lake.", "lake..t", "lake.a-b", "lake.shop.t t2", "lake.shop.t -- t", "lake.shop.t; SELECT 1", "lake.`t", "``",
    "lake.shop.a'b", "lake.`../../esc`", "lake.`..`.t", "lake.shop.`../../esc`", "lake.shop.`a/b`", "lake.`a\\b`.t",
    "lake.shop.`a:b`", "lake.shop.`a\nb`", "lake.shop.`.`", "delta.`shop/orders`", "delta.`../orders`",
])  # fmt: skip
def test_a_name_that_sql_or_hadoop_reads_otherwise_is_refused(name: str) -> None:
    """What is no name, leads out of the warehouse, or is a relative path is an error before anything else."""
    with pytest.raises(TargetError, match=r"The target .*(not a name in SQL|relative path|warehouse)"):
        check_name(name)


@pytest.mark.parametrize("name", [
    "t", "shop.t", "lake.shop.orders", "lake.shop.`my table`", "lake.`2024`.`it's a \"t``\"`", "lake.shop.`😀`",
    "lake.été.t",
    "delta.`/data/a:b/../c`", "delta.`s3a://bucket/a b`", "`DELTA`.`/data/t`", "lake.shop.`a.b`", "lake.shop.`...`",
])  # fmt: skip
def test_any_other_name_is_taken(name: str) -> None:
    """Blanks, quotes, dots and emoji in backticks, and absolute paths, are names of targets."""
    check_name(name)


def test_facts_are_recorded_and_read_back() -> None:
    """What a commit records comes back as it was, and a text of somebody else is no facts."""
    assert CommitFacts.of(FACTS.as_properties()) == FACTS
    assert CommitFacts().as_properties() == {}
    for text in (None, "", "by hand", "[1]", '"x"'):
        assert _facts_in(text) == CommitFacts()


class Recorded:
    """What a session was told."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.settings: list[dict[str, str | None]] = []
        self._patch = patch

    def by(self, target: Target) -> "Recorded":
        """Let statements of a target be noted with the settings at that moment, and change no row."""
        names = target.recording(FACTS)

        def sql(statement: str) -> object:
            self.statements.append(statement)
            self.settings.append({name: target.spark.conf.get(name, None) for name in names})
            return target.spark.range(1).toDF("num_affected_rows")

        self._patch.setattr(type(target.spark), "sql", lambda _self, statement: sql(statement))
        return self


@pytest.mark.parametrize("engine", opening.ENGINES.values())
def test_a_merge_is_one_statement_that_spark_can_read(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, engine: type[Target]
) -> None:
    """The statement has no error of syntax, whatever the names; its facts are set around it, and removed after it."""
    frame = frame_of(spark, [("insert", 10, 1, "a")], "`a ``b` int, v string")
    images = newest_images(read_changelog(frame), ["a `b"])
    target = engine(spark, "lake.shop.orders")
    tombstones = engine(spark, deleted_keys_of(target.name))
    upsert = Upsert(images=images.frame, keys=images.keys, values=images.others, sequence="_sequence",
                    removes=True, tombstones=tombstones)  # fmt: skip
    recorded = Recorded(monkeypatch).by(target)

    target.merge(upsert, FACTS)
    tombstones.merge(Upsert(images=images.frame, keys=images.keys, values=(), sequence="_sequence"), FACTS)
    target.create([NewColumn("a `b", IntegerType(), "it's")], {"x": "\\'"})
    target.create([NewColumn("id", IntegerType())], {})
    monkeypatch.undo()

    parser = spark._jsparkSession.sessionState().sqlParser()
    for statement in recorded.statements:
        parser.parsePlan(statement)
    assert [statement.split()[0] for statement in recorded.statements] == ["MERGE", "MERGE", *["CREATE"] * 4]
    assert "THEN DELETE" in recorded.statements[0]
    assert "THEN DELETE" not in recorded.statements[1]
    assert recorded.settings[0] == target.recording(FACTS)
    assert [spark.conf.get(name, None) for name in target.recording(FACTS)] == [None] * len(target.recording(FACTS))


def test_a_name_that_is_no_target_is_refused(spark: SparkSession) -> None:
    """A view, an unknown format, a catalog that says nothing, and one that is not there: the error says what to do."""
    spark.range(1).createOrReplaceTempView("a_view")

    with pytest.raises(TargetError, match="a_view is a view"):
        existing_target(spark, "a_view")
    with pytest.raises(TargetError, match=f"format='orc': it must be one of {', '.join(opening.ENGINES)}"):
        open_target(spark, "t_1", "orc")
    with pytest.raises(TargetError, match="Pass format='delta' or format='iceberg'"):
        open_target(spark, "t_1")
    assert isinstance(open_target(spark, "t_1", "iceberg"), IcebergTarget)
    assert existing_target(spark, "t_1") is None


def test_a_session_without_delta_is_told_in_one_sentence(spark: SparkSession) -> None:
    """Creating a table in an engine that the session lacks is an error that names the engine and the page."""
    target = DeltaTarget(spark, "a_table_in_delta")

    with pytest.raises(
        TargetError, match=r"this session has no Delta\. .*: see 'Tables in Delta and Iceberg' in "
    ) as error:
        target.create([NewColumn("id", IntegerType())], {})

    assert len(str(error.value)) < 300


def test_the_engine_of_a_table_is_asked_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process describes a table once to know its engine, and again if it was gone, or may be in another catalog."""
    schemas: list[StructType | None] = [StructType()]
    described: list[str] = []

    def provider_of(_: SparkSession, name: str) -> str:
        described.append(name)
        return "delta"

    for module in (opening, target_module):
        monkeypatch.setattr(module, "schema_of", lambda *_: schemas[-1])
    monkeypatch.setattr(opening, "_provider_of", provider_of)
    name = "lake.shop.asked_once"

    assert [isinstance(existing_target(spark, name), DeltaTarget) for _ in range(3)] == [True] * 3
    assert described == [name]
    schemas.append(None)
    assert existing_target(spark, name) is None
    schemas.append(StructType())
    assert isinstance(existing_target(spark, name), DeltaTarget)
    assert described == [name, name]
    monkeypatch.setattr(type(spark.catalog), "currentCatalog", lambda _: "other")
    existing_target(spark, name)
    assert described == [name] * 3


def test_a_process_does_not_remember_ever_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs that run one after another have a session each, and what is known belongs to a session and a table."""
    monkeypatch.setattr(target_module, "_MOST_REMEMBERED", 2)
    engines = target_module._Memory[str]()
    for session in ("1", "2", "2", "3"):
        engines[session, "lake", "t"] = "delta"

    assert list(engines) == [("3", "lake", "t")]
