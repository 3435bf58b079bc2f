"""A table that is set aside, and goes on: each change is written once, wherever the command is killed or fails."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse.tests.syncs.memory_sync import MemorySync, ddl, events_of_one_message, insert, open_watermark, target
from lakehouse.tests.targets.memory import Lake
from tests.support.messages import canal
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.status import SetAside

pytestmark = [pytest.mark.spark, pytest.mark.slow("several micro-batches of some seconds each")]
LOG = target("e__log")


class ObstacleError(TargetError):
    """A table cannot be written."""


def obstruct(lake: Lake, name: str, error: type[Exception] = ObstacleError) -> None:
    """Let each commit of a table fail after it."""

    def committed(table: str) -> None:
        if table == name:
            raise error

    lake.committed = committed


def free(lake: Lake) -> None:
    """Let all commits succeed."""
    lake.committed = lambda _: None


def test_a_log_that_failed_after_its_commit_has_each_change_once(lake: Lake, tmp_path: Path) -> None:
    """The target tells what it has of the micro-batch in which it was set aside; nothing new in the topic is needed."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    sync.batch(0, insert("e", 1, 10, key=False), insert("k", 1, 11))
    obstruct(lake, LOG)
    failed = sync.batch(1, insert("e", 2, 20, key=False), insert("k", 2, 21))
    free(lake)
    assert list(tmp_path.glob("aside/*"))
    sync.batch(2, insert("e", 3, 30, key=False), insert("k", 3, 31))
    sync.end()
    assert list(failed.set_aside) == ["shop.e"]

    sync.start("shop.e")

    assert sync.ids("e__log") == [1, 2, 3]
    assert sync.ids("k") == [1, 2, 3]
    assert sync.reports[-1].resumed == ("shop.e",)
    assert not list(tmp_path.glob("aside/*"))
    assert sync.status("e").state == "following"
    assert sync.batch(3, insert("e", 4, 40, key=False)).set_aside == {}
    assert sync.ids("e__log") == [1, 2, 3, 4]


def test_a_resume_that_is_killed_writes_nothing_twice(lake: Lake, tmp_path: Path) -> None:
    """After a kill between the replay and the status, and more micro-batches, a second resume adds what is missing."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    sync.batch(0, insert("e", 1, 10, key=False))
    obstruct(lake, LOG)
    sync.batch(1, insert("e", 2, 20, key=False))
    free(lake)
    sync.batch(2, insert("e", 3, 30, key=False))
    sync.kill()
    obstruct(lake, LOG, KeyboardInterrupt)  # type: ignore[arg-type]  # what ends a process
    with pytest.raises(KeyboardInterrupt):
        sync.start("shop.e")
    free(lake)
    sync.kill()
    sync.start()
    sync.batch(3, insert("e", 4, 40, key=False))
    sync.batch(4, insert("e", 5, 50, key=False), committed=False)  # Spark repeats it
    assert sync.status("e").state == "set aside"
    sync.kill()

    sync.start("shop.e")
    assert sync.ids("e__log") == [1, 2, 3, 4]
    sync.batch(4, insert("e", 5, 50, key=False))

    assert sync.ids("e__log") == [1, 2, 3, 4, 5]


def test_records_that_were_applied_in_half_are_not_applied_again(lake: Lake, tmp_path: Path) -> None:
    """With consistency=resolved a replay leaves out what a held record has given before its table was set aside."""
    sync = MemorySync(lake, tmp_path, consistency="resolved", source={"protocol": "open-protocol"})
    sync.start()
    sync.batch(0, events_of_one_message("e", _1=10, _2=30, _3=45), open_watermark(20))
    assert sync.ids("e__log") == [1]
    lake.blocked = {LOG}
    sync.batch(1, events_of_one_message("e", _4=50), open_watermark(40))
    lake.blocked = set()
    sync.batch(2, events_of_one_message("e", _5=60), open_watermark(55))
    sync.end()
    assert sync.ids("e__log") == [1]

    sync.start("shop.e")
    assert sync.ids("e__log") == [1, 2, 3, 4]
    sync.batch(3, open_watermark(70))

    assert sync.ids("e__log") == [1, 2, 3, 4, 5]
    assert lake.tables[LOG].commits[-1].resolved_ts == 70


@pytest.mark.parametrize("aside", [False, True])
def test_what_was_held_back_is_not_applied_again_with_latest(lake: Lake, tmp_path: Path, *, aside: bool) -> None:
    """After a change from `resolved` to `latest`, a log gets of a held record only what it lacks, also in a replay."""
    sync = MemorySync(lake, tmp_path, consistency="resolved", source={"protocol": "open-protocol"})
    sync.start()
    sync.batch(0, events_of_one_message("e", _1=10, _2=30), open_watermark(20))
    sync.end()
    assert sync.ids("e__log") == [1]

    sync.config = replace(sync.config, consistency="latest")
    sync.start()
    lake.blocked = {LOG} if aside else set()
    sync.batch(1, events_of_one_message("e", _3=40), open_watermark(25))
    lake.blocked = set()
    if aside:
        sync.end()
        sync.start("shop.e")
    sync.batch(2, events_of_one_message("e", _4=50), open_watermark(60))

    assert sync.ids("e__log") == [1, 2, 3, 4]


def test_a_table_waits_for_ddl_that_comes_later(lake: Lake, tmp_path: Path) -> None:
    """Rows of a new type before their DDL, of another partition, set the table aside; with the DDL it goes on."""
    sync = MemorySync(lake, tmp_path)
    sync.start()
    sync.batch(0, insert("k", 1, 10, v="12"))
    new = canal("INSERT", [{"id": "2", "v": "5"}], None, {"id": "int", "v": "int"}, database="shop", table="k",
                pkNames=["id"], _tidb={"commitTs": 30})  # fmt: skip
    waits = sync.batch(1, new, insert("other", 1, 31))
    assert "column v is string in the target and int in the changes" in waits.set_aside["shop.k"]
    assert waits.set_aside["shop.k"].endswith("the sync resumes the table by itself")
    sync.batch(2, insert("other", 2, 32), ddl("other", "ALTER TABLE other ADD c int", 33, "ALTER"))
    assert isinstance(phase := sync.status("k").phase, SetAside)
    assert phase.ends_by == "ddl"

    create = ddl("k", "CREATE TABLE k (id int PRIMARY KEY, v int)", 21, "CREATE")
    explained = sync.batch(3, ddl("k", "DROP TABLE k", 20, "ERASE"), create, insert("other", 3, 34))

    assert explained.set_aside == {}
    assert sync.status("k").state == "following"
    assert lake.rows(target("k"), "id", "v") == [(2, 5)]
    assert sync.ids("other") == [1, 2, 3]
