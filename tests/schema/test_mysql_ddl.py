"""Column types from DDL texts."""

import pytest

from tests.support.captured import Captured, load, make_options
from ticdc_source.errors import OptionError
from ticdc_source.options.options import Options
from ticdc_source.planning.inference import infer_table
from ticdc_source.planning.read_schema import check_types
from ticdc_source.schema.ddl import declared_tables
from ticdc_source.schema.ddl_event import DDLEvent
from ticdc_source.schema.model import Column
from ticdc_source.schema.mysql_ddl import history as ddl_history
from ticdc_source.schema.mysql_ddl.history import history_of, versions_of_tables
from ticdc_source.schema.mysql_ddl.old_rows import Added, Renamed, name_before, old_row_changes, renamed_tables
from ticdc_source.schema.mysql_ddl.statements import Change, Create, Define, Drop, Rename, RenameTable, steps
from ticdc_source.schema.table_name import TableName
from ticdc_source.schema.types import ColumnType

SHOWN = r"""
CREATE TABLE `t` (
  `id` bigint(20) unsigned NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */ COMMENT 'the, (id',
  `a` int(8) unsigned zerofill DEFAULT NULL,
  `b` bit(3) DEFAULT b'101',
  `e` enum('a','b,c','d''e','"q")','日本','') COLLATE utf8mb4_bin DEFAULT 'a',
  `s` set('x','y') CHARACTER SET latin1 DEFAULT NULL,
  `v` vector(3) DEFAULT NULL,
  `g` int(11) GENERATED ALWAYS AS (`a` + 1) VIRTUAL,
  `g2` varchar(20) GENERATED ALWAYS AS (json_unquote(json_extract(`j`, _utf8mb4'$.k'))) STORED,
  `j` json DEFAULT NULL,
  `ts` timestamp(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  `vb` varchar(10) CHARACTER SET binary,
  `Mixed ``Case` decimal(10, 2) unsigned DEFAULT '1.00',
  `flag` tinyint(1) NOT NULL DEFAULT '0',
  `d0` decimal DEFAULT NULL, `y` year(4), `f` float(10,3), `f53` float(53), `dp` double precision, `lv` long varchar,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
  UNIQUE KEY `k` (`a`,`b`) /*T![global_index] GLOBAL */, KEY `ke` ((lower(`s`))),
  VECTOR INDEX `vi` ((VEC_COSINE_DISTANCE(`v`))), CONSTRAINT `c1` CHECK ((`a` > 1))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin /*T![auto_rand_base] AUTO_RANDOM_BASE=30001 */ COMMENT='x;y'
/*T![ttl] TTL=`ts` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE='ON' */
PARTITION BY RANGE COLUMNS(`ts`) (PARTITION `p0` VALUES LESS THAN ('2024'));
"""
TYPES = {
    "id": "bigint unsigned", "a": "int unsigned", "b": "bit(3)", "e": """enum('a','b,c','d''e','"q")','日本','')""",
    "s": "set('x','y')", "v": "vector(3)", "g": "int", "g2": "varchar(20)", "j": "json", "ts": "timestamp(6)",
    "vb": "varbinary(10)", "mixed `case": "decimal(10,2) unsigned", "flag": "tinyint(1)", "d0": "decimal(10,0)",
    "y": "year", "f": "float", "f53": "double", "dp": "double", "lv": "mediumtext",
}  # fmt: skip


def test_every_column_of_a_create_table_has_its_type() -> None:
    """Comments, defaults, keys, checks and partitions of SHOW CREATE TABLE change nothing."""
    (step,) = steps(SHOWN, "db")

    assert isinstance(step, Create)
    assert step.table == ("db", "t")
    assert {name: str(type_) for name, type_ in step.columns.items()} == TYPES


def test_several_texts_are_several_tables() -> None:
    """One text may have names with and without a database."""
    tables = declared_tables(f"{SHOWN} create table if not exists `x`.`y` (a serial, primary key (a) nonclustered)")

    assert {str(name): len(created.columns) for name, created in tables.items()} == {"``.t": len(TYPES), "x.y": 1}


T = TableName("db", "t")


def ddl_event(commit_ts: int, query: str, table: TableName = T) -> DDLEvent:
    return DDLEvent(position=0, index=0, commit_ts=commit_ts, table=table, query=query, type="")


@pytest.mark.parametrize(("sql", "changes"), [
    ("alter table t add column (x int, y bit)", ["Add x int", "Add y bit(1)"]),
    ("alter table t add c decimal(5) not null first, add index i (c), add key (c), add constraint x unique (c)",
     ["Add c decimal(5,0)"]),
    ("alter table t add `index` int, drop `key`, drop index i, drop primary key, drop column if exists x",
     ["Add index int", "Drop key", "Drop x"]),
    ("alter table db.t modify column a varchar(3) character set utf8mb4 collate utf8mb4_bin after b",
     ["Set a varchar(3)"]),
    ("alter table t modify t.a text charset = binary", ["Set a blob"]),
    ("alter table t change a b enum('x') , change c c int", ["Set a b enum('x')", "Set c int"]),
    ("alter table t rename column a to B, rename index i to j", ["Rename a b"]),
    ("alter table t alter column e set default 77, comment = 'add x int', auto_increment = 5", []),
    ("alter table t add partition (partition p values less than ('1'))", []),
    ("alter table t exchange partition p with table o", []),
    ("alter table t rename to u", ["To db.u"]),
    ("RENAME TABLE `db`.`t` TO `x`.`u`, a to b;", ["To x.u", "To db.b"]),
    ("create view v as select a, b from t", []),
    ("create unique index i on t (a)", []),
    ("truncate table t", []),
    ("create table t (a char(3), b text, c char(2) charset utf8mb4) charset=binary",
     ["Create a binary(3), b blob, c char(2)"]),
    ("set x = 1; insert into t values ('create table')", []),
    ("/*!40101 alter table t add a int /* drop b */, */ drop c", ["Add a int", "Drop c"]),
    ("create table t (a int /*T![auto_inc] , b /*+ x */ bit */)", ["Create a int, b bit(1)"]),
    ("alter table 2024_t add 1st int, add t.2nd enum('a' 'b')", ["Add 1st int", "Add 2nd enum('ab')"]),
])  # fmt: skip
def test_what_a_statement_does_to_columns(sql: str, changes: list[str]) -> None:
    """Each form that TiDB has, quoted or not; keys, partitions and options do nothing."""
    done = []
    for step in steps(sql, "db"):
        match step:
            case Define(_, column, type_):
                done.append(f"Add {column} {type_}")
            case Change(_, column, to, type_):
                done.append(f"Set {column} {to} {type_}" if column != to else f"Set {column} {type_}")
            case Drop(_, column):
                done.append(f"Drop {column}")
            case Rename(_, column, to):
                done.append(f"Rename {column} {to}")
            case RenameTable(_, to):
                done.append(f"To {to}")
            case Create(_, columns):
                done.append("Create " + ", ".join(f"{name} {type_}" for name, type_ in columns.items()))
    assert done == changes


@pytest.mark.parametrize(("default", "value"), [
    ("'a' \"b\"", "ab"), ("_utf8mb4'日'", "日"), ("N'a'", "a"), ("'it''s\\t'", "it's\t"),
    ("_binary x'00FF'", "x'00FF'"), ("_utf8mb4 0x41", "x'41'"), ("0b101", "b'101'"), ("B'101'", "b'101'"),
    ("-1.5e3", "-1.5e3"), (".5", ".5"), ("(8)", "8"), ("true", "1"), ("null", None), ("/*!50000 7 */", "7"),
    ("date '2024-01-31'", "2024-01-31"),
])  # fmt: skip
def test_a_default_is_a_value_however_it_is_written(default: str, value: str | None) -> None:
    """Older rows get the value of each form of literal that MySQL has."""
    for between in (" ", " /* c */ "):
        event = ddl_event(10, f"ALTER TABLE t ADD COLUMN c varchar(9) DEFAULT{between}{default} COMMENT 'DEFAULT 1'")

        assert old_row_changes(event) == [Added("c", ColumnType("varchar", length=9), value)]


def history(*ddl: tuple[int, str], table: TableName = T) -> dict[str, list[str]]:
    events = [ddl_event(ts, sql) for ts, sql in ddl]
    columns = versions_of_tables(events).get(table.folded, {})
    return {name: [f"{start.commit_ts} {type_}" for start, type_ in versions] for name, versions in columns.items()}


def test_versions_begin_after_their_ddl() -> None:
    """A changed type holds for rows after the DDL's commit-ts; an added column has its type from the start."""
    versions = history(
        (30, "alter table t modify a decimal(12,4), add c bit(3)"),
        (10, "create table t (a decimal(10,2), b int)"),
        (20, "alter table t drop b"),
        (40, "alter table t add b varchar(5)"),
        (50, "alter table t rename column c to d"),
    )

    assert versions == {
        "a": ["9 decimal(10,2)", "30 decimal(12,4)"],
        "b": ["9 int", "40 varchar(5)"],
        "c": ["0 bit(3)"],
        "d": ["49 bit(3)"],
    }


def test_a_copy_of_a_ddl_counts_once() -> None:
    """open-protocol sends DDL to every partition, and TiCDC sends it again after a restart."""
    ddl = [(10, "create table t (a int)"), (20, "alter table t rename column a to b")]

    assert history(*ddl, *ddl) == history(*ddl) == {"a": ["9 int"], "b": ["19 int"]}


def test_a_table_takes_its_types_to_its_new_name() -> None:
    """RENAME TABLE and CREATE TABLE … LIKE carry the types along."""
    ddl = (10, "create table t (a int)"), (20, "rename table t to db.u"), (30, "create table t (b int)")

    assert history(*ddl, table=TableName("db", "U")) == {"a": ["19 int"]}
    assert history(*ddl) == {"a": ["9 int"], "b": ["29 int"]}
    like = [ddl_event(10, "create table t (a int)"), ddl_event(20, "create table u like t", TableName("db", "u"))]
    assert list(versions_of_tables(like)[TableName("db", "u")]) == ["a"]


@pytest.mark.parametrize("sql", ["alter table t modify a enum('x", "alter table t change", "create table t (a int"])
def test_a_text_that_cannot_be_parsed_is_skipped(sql: str, caplog: pytest.LogCaptureFixture) -> None:
    """DDL never fails a read: a log line names the text, and the types that it may have changed are dropped."""
    assert history((10, "create table t (a int)"), (20, sql)) == {}
    assert "db.t is ignored" in caplog.text


@pytest.mark.parametrize(
    "text", ["nonsense", "alter table t add a int", "create table t (a enum('x)", "create table t"]
)
def test_an_option_that_is_not_a_create_table_is_an_error(text: str) -> None:
    """The option is checked at load(), whether it is needed or not."""
    with pytest.raises(OptionError, match="tableDDL"):
        check_types(make_options(tableDDL=text))


def columns_of(captured: Captured, options: Options) -> tuple[Column, ...]:
    sample = captured.sample(options)
    return infer_table(sample).columns


def test_ddl_texts_say_what_content_compatible_messages_say() -> None:
    """For every column, the type in the text of the DDL event is the one that content-compatible messages have."""
    plain = load("canal-json.plain.types")
    full = load("canal-json.content-compatible.types")
    checked = 0
    for table in ("t_int", "t_num", "t_str", "t_bin", "t_time", "t_enum", "t_json", "t_all", "t_default"):
        options = make_options(tables=f"types_a.{table}")
        from_ddl, in_full = (columns_of(each, options) for each in (plain, full))
        for text, message in zip(from_ddl, in_full, strict=True):
            assert (text.name, str(text.type)) == (message.name, str(message.type))
            checked += 1
    assert checked > 150


def test_a_backslash_in_a_printed_label_stands_for_itself() -> None:
    """TiDB's `SHOW CREATE TABLE` does not escape backslashes; a statement written by hand, which does, is read too."""
    name = TableName("", "t")
    printed = declared_tables(r"CREATE TABLE `t` (`a` enum('back\slash','c:\new','x''y'), `b\c` int)")
    written = declared_tables(r"CREATE TABLE t (a enum('it\'s','b') COMMENT 'don\'t')")

    assert printed[name].columns["a"].labels == ("back\\slash", "c:\\new", "x'y")
    assert "b\\c" in printed[name].columns
    assert written[name].columns["a"].labels == ("it's", "b")


def test_all_tables_of_a_micro_batch_share_one_pass_over_its_ddl() -> None:
    """What DDL says of each of many tables takes one pass over all texts, whoever asks, and the next list another."""
    ddl_history._histories.cache_clear()
    names = [TableName("passes", f"t{number}") for number in range(20)]
    changes = [{"table": name.table} for name in names]  # debezium's form, of which no hash can be made
    events = [
        DDLEvent(
            position=0, index=0, commit_ts=number, table=name, type="", table_changes=changes,
            query=f"CREATE TABLE {name.table} (id int PRIMARY KEY, v{number} int NOT NULL)",
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    for number, name in enumerate(names):
        assert list(versions_of_tables(list(events))[name]) == ["id", f"v{number}"]
        assert history_of(events, name).facts_of("id").primary_key is True
        assert history_of(events, name).handle_key(["id"]) == frozenset({"id"})
    assert history_of(events, TableName("passes", "unknown")).handle_key(["id"]) is None
    assert ddl_history._histories.cache_info().misses == 1

    assert len(versions_of_tables(events[:2])[names[0]]) == 2
    assert ddl_history._histories.cache_info().misses == 2


@pytest.mark.parametrize("statement", [
    "RENAME TABLE t TO T", "ALTER TABLE t RENAME TO DB.T", "ALTER TABLE t RENAME COLUMN id TO ID",
    "ALTER TABLE t CHANGE id ID int not null",
])  # fmt: skip
def test_a_name_in_other_letters_is_the_same_name(statement: str) -> None:
    """A rename that changes letters only keeps types and keys, and changes no older row."""
    rename = ddl_event(2, statement, TableName("DB", "T"))
    events = [ddl_event(1, "CREATE TABLE t (id int primary key, a decimal(9,2))"), rename]

    assert history_of(events, T).handle_key({"id", "a"}) == frozenset({"id"})
    added = ddl_event(3, "ALTER TABLE t ADD b int")
    assert history_of([*events, added], T).handle_key({"id", "a"}) == frozenset({"id"})
    assert str(versions_of_tables(events)[T]["a"][-1][1]) == "decimal(9,2)"
    assert not [change for change in old_row_changes(rename) if isinstance(change, Renamed)]
    assert name_before(rename, TableName("DB", "T")) is None
    assert renamed_tables(rename) == []
