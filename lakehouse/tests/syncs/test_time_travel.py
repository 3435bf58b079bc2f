"""Which version of a table is the table at a commit-ts, and when nobody knows; no engine is needed."""

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from lakehouse.tests.syncs.context import config
from ticdc_lakehouse.errors import TargetError
from ticdc_lakehouse.syncs import time_travel
from ticdc_lakehouse.syncs.checkpoint import claimed
from ticdc_lakehouse.syncs.status import LeftOut, Loading, Pause, SetAside, TableStatus
from ticdc_lakehouse.syncs.time_travel import _History, _last_tso, _newest, _points, selected
from ticdc_lakehouse.targets.target import Commit, CommitFacts
from ticdc_source.errors import OptionError
from ticdc_source.schema.tso import of_ms

WRITER = "query"


def commits(*resolved: int | None, writer: str = WRITER, first: int = 0) -> list[Commit]:
    made = [Commit(number, CommitFacts(ts, writer, number)) for number, ts in enumerate(resolved, first)]
    return made[::-1]


def status(**given: Any) -> TableStatus:
    """Return the status of a table that follows since its CREATE TABLE at 10."""
    values = {"kind": "table", "complete_since": 10, "resolved_ts": 100, **given}
    return TableStatus(table_name="s.a", target="lake.s.a", **values)


def pause(from_ts: int, to_ts: int, complete_since: int | None = 10) -> Pause:
    return Pause(reason="EXCHANGE", ended="", complete_since=complete_since, from_ts=from_ts, to_ts=to_ts)


def version_at(monkeypatch: pytest.MonkeyPatch, its: TableStatus, history: list[Commit], commit_ts: int) -> int | None:
    """Return the version of a table at a commit-ts; None if it did not exist."""
    target: Any = object()
    monkeypatch.setattr(time_travel, "_rows", lambda _target, version: version)
    found: Any = _History(status=its, target=target, points=_points(history)).at(commit_ts)
    return None if found is None else int(found)


def test_a_version_counts_if_it_completes_a_commit_ts() -> None:
    """What is between two of them does not: a part of a load, or a repair of older rows."""
    load = [Commit(9, CommitFacts(None, "load-50", 0)), Commit(8, CommitFacts(30, "repair-30", 0))]
    history = [*commits(40, 60, first=10), *load, *commits(20, 35)]
    assert [one.version for one in _points(history).values()] == [0, 1, 10, 11]
    again = [Commit(3, CommitFacts(20, "load-20", 1)), *commits(20)]
    assert [one.version for one in _points(again).values()] == [3]


@pytest.mark.parametrize(("commit_ts", "version"), [(20, 0), (21, 0), (59, 0), (60, 1), (1000, 2), (9, None)])
def test_the_newest_version_up_to_a_commit_ts(
    monkeypatch: pytest.MonkeyPatch, commit_ts: int, version: int | None
) -> None:
    """A table does not change between its micro-batches; before its CREATE TABLE it was not there."""
    assert version_at(monkeypatch, status(), commits(20, 60, 90), commit_ts) == version


@pytest.mark.parametrize(
    ("given", "commit_ts", "why"),
    [
        ({"complete_since": None}, 60, "is not known to be complete"),
        ({"complete_since": 70, "loaded_ts": 70}, 60, "is complete since"),
        ({"phase": SetAside(reason="a type", since="now"), "resolved_ts": 50}, 60, "it is set aside. a type"),
        ({"phase": Loading(reason="EXCHANGE"), "resolved_ts": 50}, 60, "it is healing. EXCHANGE"),
        ({"pauses": (pause(50, 70),)}, 60, "Choose a time before or after that. The reason was: EXCHANGE"),
        ({"pauses": (pause(80, 90, None),)}, 60, "is not known to be complete"),
        ({"complete_since": 85, "loaded_ts": 85, "pauses": (pause(70, 85),)}, 87, "has no version of"),
        ({"loaded_ts": 15, "complete_since": 15}, 17, "has no version of"),
    ],
)
def test_what_is_not_known_is_an_error(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], commit_ts: int, why: str
) -> None:
    """A table that did not follow, or was not complete, has no state, and the error says which table and why."""
    with pytest.raises(TargetError, match=f"^s.a .*{why}"):
        version_at(monkeypatch, status(**given), commits(20, 60, 90), commit_ts)


def test_a_pause_that_is_over_hides_no_other_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a healing and after it, the table has its states."""
    healed = status(complete_since=80, loaded_ts=80, pauses=(pause(60, 80),))
    history = [*commits(95, first=8), Commit(7, CommitFacts(80, "load-80", 3)), *commits(20, 60)]
    assert [version_at(monkeypatch, healed, history, ts) for ts in (20, 60, 80, 94, 95)] == [0, 1, 7, 7, 8]


def history(*resolved: int, writer: str = WRITER, **given: Any) -> _History:
    return _History(status=status(**given), target=None, points=_points(commits(*resolved, writer=writer)))


ONE, LOADED, EMPTY = history(20, 60, 90), history(75, writer="load-75"), history(kind=None)
LOADS = [history(*its, writer="load") for its in ((30, 75), (75,), (75, 80))]


@pytest.mark.parametrize(("histories", "committed", "moment", "newest"), [
    # That of the newest micro-batch that has ended: one that is under way is in some of the tables only,
    *(([ONE, LOADED, *empty], *case) for empty in ([], [EMPTY]) for case in (
        (2, 1000, 90), (1, 1000, 60), (2, 59, 20), (-1, 1000, None), (2, 19, None))),
    # or, if each has it, there may be a new table that no status tells of.
    ([ONE], 0, 1000, 20), ([ONE, ONE], 0, 1000, 20), ([ONE, ONE], 1, 1000, 60),
    # Tables that were loaded at one TSO have it. A single table has each of its own.
    (LOADS, -1, 1000, 75), (LOADS, -1, 74, None), (LOADS[:1], -1, 74, 30),
    ([*LOADS, EMPTY], -1, 1000, None), ([EMPTY], 2, 1000, None),  # rows may be on their way
])  # fmt: skip
def test_all_tables_have_the_chosen_commit_ts(
    histories: list[_History], committed: int, moment: int, newest: int | None
) -> None:
    """It is the newest one up to the moment that all tables can have."""
    assert _newest(histories, WRITER, committed=committed, moment=moment) == newest


def test_a_table_that_was_created_again_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows of before are not known to be complete, which is an error, and not a database without the table."""
    again = status(complete_since=70)
    with pytest.raises(TargetError, match=r"s\.a has no state at .*: it is complete since"):
        version_at(monkeypatch, again, commits(50, 90), 60)
    assert version_at(monkeypatch, again, commits(80, 90), 60) is None


def test_a_target_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with rows whose target was dropped is not left out of the database; one without rows is."""
    spark: Any = None
    monkeypatch.setattr(time_travel, "existing_target", lambda _spark, _name: None)
    with pytest.raises(TargetError, match=r"The target lake\.s\.a of s\.a is gone"):
        _History.of(spark, status())
    assert _History.of(spark, status(kind=None)).at(60) is None


def test_tables_are_selected_by_pattern() -> None:
    """Each pattern must match a table that is copied, in any case."""
    own = [status(), replace(status(), table_name="s.b"), replace(status(), table_name="s.c", phase=LeftOut())]
    assert selected(own, ()) == selected(own, ["S.*"]) == selected(own, ["s.a", "s.B", "s.*"]) == own[:2]
    assert selected(own, "s.B") == own[1:2]
    assert selected(own, (), with_left_out=True) == selected(own, ["s.c", "s.*"], with_left_out=True) == own
    for wrong, why in (("s.c", r"has no table s\.c\. It has s\.a, s\.b$"), ("orders", "Write it as shop.orders")):
        with pytest.raises(OptionError, match=why):
            selected(own, ["s.a", wrong])
    with pytest.raises(OptionError, match="It has none yet: run it first"):
        selected([], ())


def test_a_moment_has_a_time_zone() -> None:
    """A time without one could mean several; a TSO is a moment too."""
    assert _last_tso(datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)) == of_ms(1001) - 1
    assert _last_tso(of_ms(1_767_225_600_000)) == of_ms(1_767_225_600_000)
    for wrong in (1_767_225_600, "2026-01-01", None):
        with pytest.raises(OptionError, match="TSO"):
            _last_tso(wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="has no time zone"):
        _last_tso(datetime(2026, 1, 1))  # noqa: DTZ001 (that is the mistake)


@pytest.mark.parametrize(
    ("consistency", "is_first", "before", "since"),
    [("latest", True, None, None), ("latest", False, 0, None), ("resolved", True, None, 0), ("resolved", False, 7, 7)],
)
def test_since_when_micro_batches_end_at_their_resolved_ts(
    consistency: Any, is_first: bool, before: int | None, since: int | None
) -> None:
    """A sync that has always been `resolved` has all its states, and one that is `latest` has none.

    What was applied until the change may be newer than its micro-batch, so states begin after it.
    """
    own = config(consistency=consistency)
    stated = {"writer": None if is_first else WRITER, "exact_since": before}
    assert claimed(own, dict, WRITER, stated)["exact_since"] == since
    if consistency == "resolved":
        changed = claimed(own, dict, WRITER, {"writer": WRITER})["exact_since"]
        assert changed > of_ms(int(datetime.now(timezone.utc).timestamp() * 1000))
