"""The order of avro's changes: deletes without a value have no commit-ts."""

from collections.abc import Mapping

import pytest

from tests.encoders.avro import Avro
from tests.encoders.tables import Column, Table
from tests.support.captured import Captured, single, whole
from tests.support.messages import TSO, Message

ORDERS = Table("shop", "orders", (Column("id", "bigint", nullable=False), Column("v", "int")), ("id",), ("id",))


def change(encoder: Avro, op: str, commit: int, row: Mapping[str, str]) -> Message:
    """Return a message: an insert of a row, or its delete."""
    side = "before" if op == "delete" else "after"
    columns = [{"name": one.name, "mysql_type": one.mysql_type, side: row.get(one.name)} for one in ORDERS.columns]
    event = {"op": op, "schema": "shop", "table": "orders", "commit_ts": TSO + commit, "columns": columns}
    message: Message = encoder.message([event], [ORDERS])
    return message


@pytest.mark.parametrize("before", [False, True])
def test_the_rank_of_a_delete_is_that_of_other_protocols_if_it_has_a_commit_ts(*, before: bool) -> None:
    """A delete with its own commit-ts has rank 0, as a primary key's update is split; one without has rank 1."""
    encoder = Avro(extension=True, before=before)
    row = {"id": "1", "v": "2"}
    captured = Captured.of(*(change(encoder, op, commit, row) for op, commit in (("insert", 1), ("delete", 5))))

    insert, delete = captured.read()["_sequence"].to_pylist()

    assert (insert["commit_ts"], insert["rank"]) == (TSO + 1, 1)
    assert (delete["commit_ts"], delete["rank"]) == ((TSO + 5, 0) if before else (TSO + 1, 1))


def test_a_delete_has_the_commit_ts_of_the_row_before_it() -> None:
    """However chunks are cut, deletes without a value lie between the rows that the topic partition has beside them."""
    encoder = Avro(extension=True)
    ops = [("insert", 1), ("insert", 2), ("delete", 3), ("delete", 4), ("insert", 5), ("delete", 6), ("insert", 6)]
    captured = Captured.of(*(change(encoder, op, commit, {"id": "1", "v": str(commit)}) for op, commit in ops))

    for sizes in (whole, single):
        found = captured.read(sizes=sizes)["_sequence"].to_pylist()
        assert [each["commit_ts"] - TSO for each in found] == [1, 2, 2, 2, 5, 5, 6]
        assert sorted(found, key=lambda each: tuple(each.values())) == found


def test_a_delete_before_all_rows_has_the_commit_ts_of_the_next() -> None:
    """Nothing is before the first row: the delete lies before it."""
    encoder = Avro(extension=True)
    changes = [change(encoder, op, commit, {"id": "1", "v": "1"}) for op, commit in (("delete", 3), ("insert", 5))]

    found = Captured.of(*changes).read()["_sequence"].to_pylist()

    assert [(each["commit_ts"] - TSO, each["rank"]) for each in found] == [(5, 1), (5, 1)]
