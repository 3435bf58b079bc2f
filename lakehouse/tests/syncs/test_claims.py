"""Whose tables they are, and whether they have all rows: what is checked and claimed before and after a start."""

import json
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest

from lakehouse.tests.syncs.context import config, context
from lakehouse.tests.targets.memory import Lake
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs.checkpoint import claimed, lost_before, starts_of
from ticdc_lakehouse.syncs.micro_batch import MicroBatch, _check_columns
from ticdc_lakehouse.syncs.status import StatusTable, TableStatus
from ticdc_lakehouse.targets.target import CommitFacts
from ticdc_source.errors import CheckpointError, ClaimCheckUnavailableError, DecodeError
from ticdc_source.schema.table_name import TableName
from ticdc_source.spark.tables import Tables

CREATED, LATER = 100, 200


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> StatusTable:
    """A status table in a lake of its own, which does not exist yet."""
    Lake(None).serve(monkeypatch)  # type: ignore[arg-type]  # no rows are read
    return StatusTable(None, config())  # type: ignore[arg-type]


def test_the_first_sync_owns_its_tables(status: StatusTable) -> None:
    """Before its first micro-batch nothing says which checkpoint it has; after it, that checkpoint alone may write."""
    status.check(None, -1, ["b", "a"])
    status.check("one", -1, ["a", "b"])  # it was killed before its first micro-batch
    starts = iter([{"a": {"0": 7}}])  # asked for once
    first, again = (status.change(partial(claimed, config(), lambda: next(starts), "one"), "one") for _ in range(2))
    assert first == again == status.check("one", 3, ["a", "b"])
    assert first["lost_until"] > 2**58

    with pytest.raises(CheckpointError, match="are written by a sync with another checkpoint"):
        status.change(lambda _: pytest.fail("it is not the writer"), "two")
    for other in ("two", None):  # another checkpoint, or none any more
        with pytest.raises(CheckpointError, match="are written by a sync with another checkpoint"):
            status.check(other, -1, ["a", "b"])
    with pytest.raises(TargetError, match=r"copies of a, b, and this sync reads a, c.*ALTER TABLE"):
        status.check("one", 3, ["a", "c"])


def test_a_checkpoint_without_its_tables_is_refused(status: StatusTable) -> None:
    """If the tables are gone or elsewhere, going on would make tables that lack all earlier rows."""
    with pytest.raises(CheckpointError, match=r"The checkpoint has micro-batch 5, and delta.`/l/_ticdc_sync` does not"):
        status.check("one", 5, ["t"])
    assert not status.opened().exists()


def test_a_table_of_somebody_else_is_no_status_table(status: StatusTable) -> None:
    """A table of the same name that no sync has made is left alone."""
    status.check(None, -1, ["t"])
    for value in ("null", "{}", "not JSON", '{"topics": 1}'):
        status.opened().set_properties({"ticdc.sync": value})
        with pytest.raises(TargetError, match="was not created by a sync"):
            status.check(None, -1, ["t"])


@pytest.mark.parametrize(("starts", "option", "whole"), [
    ({"t": {"0": 0, "1": 0}}, {}, True),
    ({"t": {"0": 0, "1": 7}}, {}, False),
    ({"t": {"0": 0}, "u": {"0": 7}}, {}, False),
    ({}, {}, True),
    (None, {}, False),
    ({"t": {"0": 0}}, {"failondataloss": "false"}, False),
    ({"t": {"0": 0}}, {"failOnDataLoss": "true"}, True),
])  # fmt: skip
def test_what_a_topic_has_lost_is_told_by_its_first_offsets(
    starts: dict[str, dict[str, int]] | None, option: dict[str, str], whole: bool
) -> None:
    """Offset 0 everywhere means that nothing is lost; otherwise anything that was written before the start may be."""
    lost = lost_before(config(source=option), starts)

    assert (lost is None) == whole
    assert lost is None or lost > 2**58  # a commit-ts of this decade


def test_what_was_lost_is_told_once_and_when_may_lose_changes() -> None:
    """The offsets at which the stream has started are read in its first micro-batch alone."""
    first = claimed(config(), lambda: {"t": {"0": 0}}, "one", {"writer": None})
    assert (first["lost_until"], first["may_lose"]) == (None, False)

    assert claimed(config(), lambda: pytest.fail("known"), "one", first) == first
    loses = claimed(config(source={"failOnDataLoss": "false"}), lambda: pytest.fail("known"), "one", first)
    assert loses["may_lose"]
    assert loses["lost_until"] > 2**58


def test_the_first_offset_of_a_checkpoint_tells_where_the_stream_started() -> None:
    """It is in the last line of the file; members that are no topics are left out."""
    end = {"$init": {"t": {"0": 3}, "$ids": {"t": "x"}}, "t": {"0": 9}}

    assert starts_of(f"v1\n{{}}\n{json.dumps(end)}") == {"t": {"0": 3}}
    for text in ("", "v1", 'v1\n{}\n{"t": {"0": 9}}', "v1\n{}\nnull"):
        assert starts_of(text) is None


def micro_batch(lost_until: int | None) -> MicroBatch:
    shared = context(config(), lost_until=lost_until)
    return MicroBatch(context=shared, changes=Tables(), facts=CommitFacts(), statuses={})


def test_a_table_is_not_set_aside_for_what_every_table_needs() -> None:
    """Claim checks that cannot be read end the micro-batch, and a file that is missing sets its table aside."""
    batch = replace(micro_batch(None), is_replay=True)  # no records need to be kept
    batch.changes.errors["s.t"] = ClaimCheckUnavailableError("the storage is gone")
    batch.changes.errors["s.u"] = DecodeError("no file x")

    with pytest.raises(ClaimCheckUnavailableError):
        batch.apply(["s.t"])
    assert [(each.status.state, each.status.reason) for each in batch.apply(["s.u"])] == [("set aside", "no file x")]


@pytest.mark.parametrize(("lost_until", "created", "since"), [
    (None, CREATED, CREATED),
    (CREATED - 1, CREATED, CREATED),
    (CREATED, CREATED, None),  # a topic partition may have lost the first rows
    (LATER, CREATED, None),
    (None, None, None),
])  # fmt: skip
def test_a_table_is_complete_if_nothing_after_its_create_can_be_lost(
    lost_until: int | None, created: int | None, since: int | None
) -> None:
    """CREATE in one topic partition says nothing about rows in another one that has lost its beginning."""
    status = TableStatus(table_name=str(TableName("s", "t")), target="t")
    batch = micro_batch(lost_until)

    assert batch._complete_since(status, created) == since
    known = replace(status, complete_since=CREATED)
    assert batch._complete_since(known, LATER) == CREATED
    assert batch._complete_since(replace(known, bad_records=1), None) is None


def test_a_target_that_somebody_has_changed_is_refused() -> None:
    """Columns that it had must be there if it has rows; a log's may have other names; the error says what to do."""
    status = TableStatus(table_name="s.t", target="lake.s.t", columns=("id", "Price"))
    full, empty = (Mock(frame=lambda rows=rows: Mock(head=lambda _: rows)) for rows in ([1], []))
    _check_columns(status, ["id", "price", "more"], full)
    _check_columns(status, ["id"], empty)  # killed between two statements
    _check_columns(replace(status, kind="log"), ["id", "old_price"], full)

    for columns, error in ((["id"], "lake.s.t has lost these columns: Price"), ([], "lake.s.t no longer exists")):
        with pytest.raises(TargetError, match=f"{error}.*Restore the target, and resume s.t. Or load the table"):
            _check_columns(status, columns, full)
