"""What DDL events do to rows of a target, without Spark: SQLite evaluates the expressions."""

import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import pytest
from pyspark.sql import types as spark

from ticdc_lakehouse.errors import UnexplainedChangeError
from ticdc_lakehouse.targets.column_types import common_type
from ticdc_lakehouse.targets.ddl_state import DDLState, types_as_property
from ticdc_lakehouse.targets.followed_ddl import DDLReader, DestructiveDDL, doubts_of
from ticdc_source.errors import SchemaError, warn
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.table_name import TableName

T = TableName("db", "t")
LONG = spark.LongType()
NEW = DDLState()
Image: TypeAlias = dict[str, int | None]


def ddl(commit_ts: int | None, query: str, table: TableName = T) -> DDLEvent:
    return DDLEvent(position=0, index=0, commit_ts=commit_ts, table=table, query=query, type="")


class Target:
    """The target `lake.t`."""

    name = "lake.t"

    def stored(self, type_: spark.DataType) -> spark.DataType:
        return type_

    def widened(self, old: spark.DataType, new: spark.DataType) -> spark.DataType | None:
        return common_type(old, new)


def after(
    *events: DDLEvent,
    state: DDLState | None = NEW,
    policy: DestructiveDDL = DestructiveDDL.APPLY,
    columns: Mapping[str, spark.DataType] = MappingProxyType({}),
    doubts: Callable[[str], None] = warn,
    keeps_altered: bool = False,
    rows: Sequence[int] = (),
) -> DDLState:
    """Return the state of the target `lake.t`, which has rows of these commit-ts, after events."""
    target: Any = Target()
    reader = DDLReader(
        target=target, columns=None if state is None else columns, policy=policy, doubts=doubts,
        has_rows=lambda after, until: any(after < ts <= until for ts in rows),
    )  # fmt: skip
    now = reader.after(state or NEW, events)
    return now if keeps_altered else replace(now, altered=(state or NEW).altered)


def computed(expressions: Mapping[str, str], row: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return a row after the expressions, all of them computed from the row as it was."""
    names = list(expressions)
    columns = ", ".join(f"? AS `{name}`" for name in row)
    chosen = ", ".join(expressions.values()) or "1"
    with sqlite3.connect(":memory:") as database:
        (values,) = database.execute(f"SELECT {chosen} FROM (SELECT {columns})", list(row.values()))  # noqa: S608
    return {**row, **dict(zip(names, values, strict=False))} if names else dict(row)


def kept(state: DDLState) -> DDLState:
    return DDLState.of_properties({**state.as_properties(), **types_as_property(state.types)})


def on_rows(state: DDLState, row: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return a stored row after what is pending; the columns of the target are those of the row."""
    return computed(state.on_rows({name: LONG for name in row if name != "ts"}, "ts"), row)


def test_values_pass_through_a_name_that_no_row_has_had() -> None:
    """Of two renames without a row in between, the target never gets the first name, and the second has the values."""
    state = after(
        ddl(10, "ALTER TABLE t RENAME COLUMN a TO b"),
        ddl(20, "ALTER TABLE t RENAME COLUMN b TO c"),
        ddl(30, "ALTER TABLE t RENAME COLUMN c TO d"),
    )

    assert on_rows(state, {"ts": 9, "a": 7, "d": None}) == {"ts": 9, "a": 7, "d": 7}
    assert on_rows(state, {"ts": 9, "a": 7, "b": None}) == {"ts": 9, "a": 7, "b": 7}
    assert all(one.filled for one in state.filled(["a", "d"]).assignments)
    assert [one.filled for one in state.filled(["a", "b"]).assignments] == [True, False, False]


def test_an_event_that_comes_after_a_later_one() -> None:
    """What the later event has set in the rows of the target stays."""
    state = after(ddl(20, "ALTER TABLE t ADD c bigint DEFAULT 8")).filled(["c"])

    assert on_rows(after(ddl(10, "ALTER TABLE t ADD c bigint DEFAULT 7"), state=state), {"ts": 5, "c": 8})["c"] == 8


@pytest.mark.parametrize("statement", ["TRUNCATE TABLE t", "DROP TABLE t", "truncate t"])
def test_an_emptied_table(statement: str) -> None:
    """The largest commit-ts counts, and what was to be set in rows before it is forgotten."""
    state = after(
        ddl(5, "ALTER TABLE t ADD c bigint DEFAULT 7"), ddl(10, statement), ddl(20, "ALTER TABLE t ADD d bigint")
    )

    assert (state.truncated_ts, [one.column for one in state.assignments]) == (10, ["d"])
    assert after(ddl(8, statement), ddl(5, "ALTER TABLE t ADD c bigint DEFAULT 7"), state=state) == state
    assert kept(state) == state


@pytest.mark.parametrize("action", ["DROP PARTITION p", "TRUNCATE PARTITION p", "EXCHANGE PARTITION p WITH TABLE u"])
def test_a_partition_cannot_be_removed(action: str) -> None:
    """Which rows go is not known: `apply` fails and says what to do; the property says that it was done."""
    event = ddl(10, f"ALTER TABLE t {action}")

    with pytest.raises(SchemaError, match=rf"{action}.*db\.t.*lake\.t.*'ticdc.handled_ddl_ts' = '10'"):
        after(event)
    with pytest.warns(UserWarning, match=rf"{action} of db\.t removes rows without events; lake\.t stays as it is"):
        assert after(event, policy=DestructiveDDL.WARN) == DDLState()
    assert after(event, state=DDLState(handled_ts=10)) == DDLState(handled_ts=10)


def test_the_policy_fail() -> None:
    """With `fail`, also an event that could be applied ends the stream."""
    with pytest.raises(SchemaError, match=r"TRUNCATE TABLE t of db\.t removes rows.*ticdc.handled_ddl_ts"):
        after(ddl(10, "TRUNCATE TABLE t"), policy=DestructiveDDL.FAIL)


def test_events_without_a_commit_ts() -> None:
    """Which rows are older is not known, so nothing is set, and that is said."""
    with pytest.warns(UserWarning, match=r"ADD c bigint DEFAULT 7 of db\.t is not applied.*no commit-ts"):
        assert after(ddl(None, "ALTER TABLE t ADD c bigint DEFAULT 7")) == DDLState()
    with pytest.raises(SchemaError, match="the message has no commit-ts"):
        after(ddl(None, "TRUNCATE TABLE t"))


@pytest.mark.parametrize(("statement", "reason"), [
    ("ALTER TABLE t ADD c datetime DEFAULT CURRENT_TIMESTAMP", "older rows of lake.t get NULL in c.*CURRENT_TIMESTAMP"),
    ("ALTER TABLE t ADD c varchar(36) DEFAULT (uuid())", "get NULL in c.*the expression"),
    ("ALTER TABLE t ADD c bigint AS (a + 1)", "get NULL in c, because it is a generated column"),
    ("ALTER TABLE t ADD c date DEFAULT '24-01-01'", "get NULL in c, because its default '24-01-01' is not a value of"),
    ("ALTER TABLE t ADD c 'x", "not applied to older rows of lake.t"),
])  # fmt: skip
def test_what_cannot_be_told_is_said(statement: str, reason: str) -> None:
    """A default that TiDB computed, and a text that cannot be read, give NULL and a warning."""
    with pytest.warns(UserWarning, match=reason):
        state = after(ddl(10, statement))

    assert on_rows(state, {"ts": 9, "c": None})["c"] is None


def test_a_renamed_table() -> None:
    """A target that does not exist begins with rows of the old name's target; one that exists was renamed."""
    event = ddl(10, "RENAME TABLE db.old TO db.t")

    with pytest.raises(SchemaError, match=r"rows of db\.t are in .* of db\.old.*Rename .* of db\.old to lake\.t"):
        after(event, state=None)
    with pytest.warns(UserWarning, match=r"lake\.t begins with the rows that change"):
        after(event, state=None, policy=DestructiveDDL.WARN)


def test_a_column_whose_values_tidb_converts() -> None:
    """It is a doubt, unless the new type holds all values or somebody has done it."""
    state = DDLState(types=(("c", "decimal(10,2)"), ("v", "varchar(100)")))
    columns = {"c": spark.DecimalType(10, 2), "v": spark.StringType()}
    event = ddl(10, "ALTER TABLE t MODIFY COLUMN c decimal(10,1)")

    with pytest.warns(UserWarning, match=r"changes column c from decimal\(10,2\) to decimal\(10,1\).*lake\.t keep"):
        assert after(event, state=state, columns=columns) == state.typed({"c": "decimal(10,1)"})
    for query in ("CHANGE v w tinytext", "RENAME COLUMN v TO w, MODIFY w tinytext"):
        with pytest.raises(SchemaError, match=r"column w from varchar\(100\) to tinytext.*on_doubtful_ddl='warn'"):
            after(ddl(10, f"ALTER TABLE t {query}"), state=state, columns=columns, doubts=doubts_of("fail"))
    fail = doubts_of("fail")
    assert after(event, state=replace(state, handled_ts=10), columns=columns, doubts=fail).handled_ts == 10
    wider = ddl(11, "ALTER TABLE t MODIFY c decimal(12,3), MODIFY v varchar(101), MODIFY not_there int")
    assert after(wider, state=state, columns=columns, doubts=fail).type_of("c") == "decimal(12,3)"
    assert after(wider, state=None, doubts=fail).assignments == ()


def test_ddl_that_comes_again_is_looked_at_once() -> None:
    """TiCDC sends it again when it restarts: the types have changed since then."""
    columns = {"v": spark.StringType()}
    narrow, wide = (ddl(10 * number, f"ALTER TABLE t MODIFY v varchar({number})") for number in (1, 2))
    known = DDLState.of_properties({"ticdc.column_types": '{"v":"varchar(1)"}'})
    state = after(narrow, wide, state=known, columns=columns, doubts=doubts_of("fail"), keeps_altered=True)
    later = replace(DDLState.of_properties(state.as_properties()), types=(("v", "varchar(2)"),))

    assert after(narrow, wide, state=later, columns=columns, doubts=doubts_of("fail")) == later
    with pytest.raises(SchemaError, match="changes column v from"):
        after(narrow, state=replace(later, altered=()), columns=columns, doubts=doubts_of("fail"))


@pytest.mark.parametrize("has_places", [False, True])
def test_a_key_that_was_dropped_and_added_is_not_dropped_by_a_copy(*, has_places: bool) -> None:
    """The table has its key, whether the copy of the ADD comes with that of the DROP or not; nobody is told again."""
    columns = {"id": spark.LongType()}
    drop, add = (
        ddl(ms << 18, f"ALTER TABLE t {what}") for ms, what in ((1, "DROP PRIMARY KEY"), (2, "ADD PRIMARY KEY (id)"))
    )
    again = drop
    if has_places:
        drop, add = replace(drop, place=(0, 1)), replace(add, place=(0, 2))
        again = replace(drop, commit_ts=(1 << 18) + 1, place=(0, 5))
    state = after(drop, add, columns=columns, doubts=lambda _: None, keeps_altered=True)

    assert state.key_dropped_ts == 0
    assert after(again, state=state, columns=columns, doubts=doubts_of("fail"), keeps_altered=True) == state


def test_ddl_that_only_places_order_comes_again() -> None:
    """Its copies have other places: they are told by their time, which is before that of the last one known."""
    columns = {"v": spark.StringType()}
    first, last = (
        replace(ddl(ms << 18, f"ALTER TABLE t MODIFY v varchar({ms})"), place=(0, offset))
        for ms, offset in ((1, 3), (2, 4))
    )
    again = [
        replace(one, commit_ts=(one.commit_ts or 0) + 1, place=(0, offset)) for one, offset in ((first, 7), (last, 8))
    ]
    known = DDLState.of_properties({"ticdc.column_types": '{"v":"varchar(1)"}'})
    fail = doubts_of("fail")
    state = after(first, last, state=known, columns=columns, doubts=fail, keeps_altered=True)

    assert after(again[0], state=state, columns=columns, doubts=fail) == state
    assert after(*again, state=state, columns=columns, doubts=fail).type_of("v") == "varchar(2)"
    back = replace(first, commit_ts=3 << 18, place=(0, 9))
    with pytest.raises(SchemaError, match="changes column v from"):
        after(back, state=state, columns=columns, doubts=fail)


def test_a_table_is_renamed_onto_another_target() -> None:
    """A target of another table is refused with every policy but `warn`, until somebody renames the targets."""
    event = ddl(10, "RENAME TABLE db.t TO db.t_old, db.t_new TO db.t")
    other, own = DDLState(table="db.t"), DDLState(table="`db`.`t_new`")

    for policy in (DestructiveDDL.APPLY, DestructiveDDL.FAIL):
        with pytest.raises(SchemaError, match=r"with the rows of db\.t.*of db\.t_new.*'ticdc.handled_ddl_ts' = '10'"):
            after(event, state=other, policy=policy)
    with pytest.warns(UserWarning, match=r"lake\.t has the rows of both tables"):
        assert after(event, state=other, policy=DestructiveDDL.WARN) == other
    assert after(event, state=replace(other, handled_ts=10)) == replace(other, handled_ts=10)
    renamed = after(event, state=own)
    assert renamed == DDLState(table="db.t", renamed_ts=10)
    assert after(event, state=DDLState.of_properties(renamed.as_properties())) == renamed


def test_a_table_is_created_over_rows_of_another_one() -> None:
    """Only a table of the same name, which was renamed or whose DROP did not come, can have rows from before it."""
    event = ddl(10, "CREATE TABLE t (id int primary key, v varchar(5))")
    created = DDLState(types=(("id", "int"), ("v", "varchar(5)")))

    for policy in (DestructiveDDL.APPLY, DestructiveDDL.FAIL):
        with pytest.raises(UnexplainedChangeError, match=r"lake\.t has rows of another table.*handled_ddl_ts' = '10'"):
            after(event, policy=policy, rows=[9, 11])
    with pytest.warns(UserWarning, match=r"lake\.t.*has the rows of both tables from now on"):
        assert after(event, policy=DestructiveDDL.WARN, rows=[9]) == created
    assert after(event, rows=[11]) == created  # it comes again
    handled = replace(created, handled_ts=10)
    for rows in ([9], []):  # changes of the other table may come late
        assert after(event, state=DDLState(handled_ts=10), rows=rows) == replace(handled, truncated_ts=9)
    later = replace(created, handled_ts=20)
    assert after(event, state=DDLState(handled_ts=20), rows=[9]) == later  # they were put there by hand
    assert after(event, state=DDLState(handled_ts=20), rows=[]) == replace(later, truncated_ts=9)
    assert after(event, state=DDLState(handled_ts=10), rows=[9], policy=DestructiveDDL.FAIL) == handled
    with pytest.raises(UnexplainedChangeError):  # what was done by hand was something else
        after(event, state=DDLState(handled_ts=9), rows=[8])
    assert after(ddl(9, "DROP TABLE t"), event, rows=[8]) == replace(created, truncated_ts=9)
    assert after(replace(event, place=(0, 1)), rows=[9]) == created
    assert after(replace(event, commit_ts=None), rows=[9]) == created


def test_what_a_column_was_before_the_rows_went_is_forgotten() -> None:
    """The property of assignments stays when the last of them goes, and brings none back."""
    added = after(ddl(10, "ALTER TABLE t ADD COLUMN c int"), ddl(11, "ALTER TABLE t RENAME COLUMN c TO d"))
    emptied = added.emptied(20)
    properties = {**added.as_properties(), **emptied.as_properties()}

    assert added.assignments
    assert DDLState.of_properties(properties).assignments == ()


# Any order of arrival

FEW, MANY = "abc", "abcdefgh"  # of few, most have had rows; of many, some are gone before a row has them


def history(seed: int) -> tuple[list[tuple[int, str, dict[str, int | None]]], list[DDLEvent], dict[str, Image]]:
    """Return the row images (ts, key, columns) and the DDL events of a random table, and its rows at the end."""
    chance = random.Random(seed)
    named = FEW if seed % 2 else MANY
    columns = ["a"]
    rows: dict[str, Image] = {}
    images, events = [], []
    for ts in range(1, 40):
        absent = [name for name in named if name not in columns]
        action = chance.choice(["row"] * 5 + ["add", "rename", "drop", "swap"])
        if action == "add" and absent:
            name, value = chance.choice(absent), chance.choice([None, ts])
            events.append(ddl(ts, f"ALTER TABLE t ADD {name} bigint{'' if value is None else f' DEFAULT {value}'}"))
            columns.append(name)
            for row in rows.values():
                row[name] = value
        elif action == "drop" and len(columns) > 1:
            name = chance.choice(columns)
            events.append(ddl(ts, f"ALTER TABLE t DROP COLUMN {name}"))
            columns.remove(name)
            for row in rows.values():
                row.pop(name)
        elif action == "rename" and absent:
            old, new = chance.choice(columns), chance.choice(absent)
            events.append(ddl(ts, f"ALTER TABLE t RENAME COLUMN {old} TO {new}"))
            columns[columns.index(old)] = new
            for row in rows.values():
                row[new] = row.pop(old)
        elif action == "swap" and len(columns) > 1:
            one, two = chance.sample(columns, 2)
            events.append(ddl(ts, f"ALTER TABLE t RENAME COLUMN {one} TO {two}, RENAME COLUMN {two} TO {one}"))
            for row in rows.values():
                row[one], row[two] = row[two], row[one]
        else:
            key = chance.choice("kmnop")
            rows[key] = {name: chance.randrange(100, 1000) for name in columns}
            images.append((ts, key, dict(rows[key])))
    rows["z"] = dict.fromkeys(columns, 0)  # a column that no row has had is not in the target
    images.append((40, "z", dict(rows["z"])))
    return images, events, rows


def arrivals(
    seed: int, images: Sequence[tuple[int, str, Image]], events: Sequence[DDLEvent]
) -> Iterator[tuple[list[tuple[int, str, Image]], list[DDLEvent]]]:
    """Yield micro-batches: rows in any order, some twice; DDL events in theirs, of which the last may come again."""
    chance = random.Random(seed)
    waiting = [*images, *chance.sample(images, len(images) // 3)]
    chance.shuffle(waiting)
    at = 0
    while waiting or at < len(events):
        count, again = chance.randrange(4), chance.choice((0, 0, 0, 1, 3))
        start, at = max(0, at - again), min(at + chance.randrange(3), len(events))
        yield waiting[:count], list(events[start:at])
        waiting = waiting[count:]


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_arrival_gives_the_table_of_tidb(seed: int) -> None:
    """However rows and DDL events are mixed over micro-batches, the target ends with the rows that TiDB has."""
    images, events, rows = history(seed)
    target: dict[str, Image] = {}
    columns: list[str] = []
    properties: dict[str, str] = {}
    for batch, ddls in arrivals(seed, images, events):
        state = after(*ddls, state=DDLState.of_properties(properties))
        seen = list(dict.fromkeys(name for _, _, image in batch for name in image))
        columns += [name for name in seen if name not in columns]
        columns += [*state.replaced(columns, seen)]
        sets = state.on_rows(dict.fromkeys(columns, LONG), "ts")
        pending = state.pending_ts(columns)
        for key, row in target.items():
            whole = {**dict.fromkeys(columns), **row}
            target[key] = computed(sets, whole) if (row["ts"] or 0) <= pending else whole
        state = state.filled(columns)
        properties = state.as_properties()
        typed = dict.fromkeys(columns, LONG)
        changes = state.on_changes(typed, dict.fromkeys(seen, LONG), "ts")
        for ts, key, image in batch:
            if key not in target or ts > (target[key]["ts"] or 0):
                target[key] = computed(changes, {"ts": ts, **dict.fromkeys(seen), **image})

    own_rows = {key: {name: row.get(name) for name in rows[key]} for key, row in target.items()}
    assert own_rows == rows, f"seed {seed}"
