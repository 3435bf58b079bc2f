"""The metadata of a column says what messages and DDL say about it: keys, NULL, generated, default, comment."""

import warnings
from typing import Any

import pytest

from tests.support.captured import Captured, load
from tests.support.messages import TSO, Message, canal, cell, debezium, debezium_ddl, declared, open_message, open_row
from ticdc_source.errors import SchemaError
from ticdc_source.spark.schema import to_spark

FACTS = ("primary_key", "handle_key", "unique_key", "nullable", "generated", "default")
# Tables that have keys of all kinds, defaults of all types, and generated columns.
TELLING = {"types_a": ("t_gen", "t_default", "dflt_bt"), "ops": ("comp", "uk_only", "uk_null", "nokey", "ddl_t_4")}
# Defaults that a statement writes in another way than information_schema.
AS_WRITTEN = {"2001-02-03 04:05:06.789", "2001-02-03 04:05:06.5", "ab", "ab\\0\\0"}


def facts(schema: Any) -> dict[str, dict[str, str]]:
    """Return, by column, the metadata that says something beside the type."""
    return {
        item.name: {
            key.removeprefix("ticdc."): value
            for key, value in item.metadata.items()
            if key.removeprefix("ticdc.") in (*FACTS, "comment")
        }
        for item in to_spark(schema)
        if "ticdc.table" in item.metadata
    }


def of(*messages: Message, **options: str) -> dict[str, dict[str, str]]:
    """Infer the columns of messages; return what their metadata says."""
    return facts(Captured.of(*messages).schema(**options))


def wrong(scenario: str, tables: dict[str, tuple[str, ...]] | None, table_ddl: bool) -> tuple[int, list[Any]]:
    """Return how many facts the metadata of a scenario's tables has, and those that are not true."""
    captured = load(scenario)
    latest = {(entry["schema"], entry["table"]): entry for entry in captured.header["tables"]}
    count, differences = 0, []
    for (database, table), entry in latest.items():
        if not entry["ddl"].startswith("CREATE TABLE") or (tables and table not in tables.get(database, ())):
            continue
        options = {"tableDDL": entry["ddl"]} if table_ddl else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = facts(captured.only(database, table).schema(tables=f"`{database}`.`{table}`", **options))
            except SchemaError as error:
                assert "No row of" in str(error)  # noqa: PT017 (some tables have DDL only)
                continue
        truths = {column["name"]: column for column in entry["columns"]}
        for name, said in found.items():
            truth = truths.get(name)
            if truth is None:  # the column was dropped
                continue
            true: dict[str, str | None] = {
                "primary_key": str(name in entry["primary_key"]).lower(),
                "handle_key": str(name in (entry["handle_key"] or ())).lower(),
                "nullable": str(truth["nullable"]).lower(),
                "generated": str("generated" in truth).lower(),
                "default": truth.get("default"),
            }
            keys = true.keys() & said.keys()
            if table_ddl:  # but for the handle key, if the messages contradict the DDL of now
                keys |= true.keys() - {"handle_key"}
            count += len(keys)
            differences += [
                (table, name, key, said.get(key), true[key])
                for key in keys
                if said.get(key) != true[key] and said.get(key) not in AS_WRITTEN
            ]
    return count, differences


SCENARIOS = [
    f"{scenario}.{kind}"
    for scenario in ("open-protocol.default", "canal-json.tidb-extension", "debezium.tidb-extension",
                     "debezium.tidb-extension.disable-schema")
    for kind in ("types", "ops")
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_fact_contradicts_the_truth(scenario: str) -> None:
    count, differences = wrong(scenario, TELLING, table_ddl=False)

    assert differences == []
    assert count > 30


@pytest.mark.slow("it infers every table of the corpus in all protocols")
@pytest.mark.parametrize("table_ddl", [False, True], ids=["messages", "tableDDL"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_fact_of_any_table_contradicts_the_truth(scenario: str, table_ddl: bool) -> None:
    """The same holds for every table of the corpus; with SHOW CREATE TABLE as `tableDDL`, facts are known too."""
    count, differences = wrong(scenario, None, table_ddl)

    assert differences == []
    assert count > 100


@pytest.mark.parametrize("scenario", SCENARIOS[1::2])
def test_keys_are_told_apart(scenario: str) -> None:
    """A unique key is no primary key, and only one of several unique keys is the handle key."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = facts(load(scenario).only("ops", "uk_only").schema(tables="ops.uk_only"))

    assert {name: said["unique_key"] for name, said in found.items()} == dict.fromkeys("abcd", "true")
    assert {said["primary_key"] for said in found.values()} == {"false"}
    handles = {name: said.get("handle_key") for name, said in found.items()}
    # debezium's `tableChanges` name (a, b) as the primary key, which the DDL text contradicts: that tells nothing.
    other = None if "debezium" in scenario else "false"
    assert handles == {"a": other, "b": other, "c": "true", "d": "false"}


def ddl(sql: str, commit_ts: int = TSO - 9) -> Message:
    return canal("QUERY", None, isDdl=True, sql=sql, _tidb={"commitTs": commit_ts})


UK_ONLY = [canal("INSERT", [dict.fromkeys("abc", "1")], None, dict.fromkeys("abc", "int"), None, pkNames=[])]


def keys(*messages: Message, **options: str) -> list[str]:
    """Return the columns that are marked as the key by which rows are merged."""
    schema = to_spark(Captured.of(*messages).schema(**options))
    return [field.name for field in schema if field.metadata.get("ticdc.key") == "true"]


@pytest.mark.parametrize(
    ("definitions", "key"),
    [
        ("a int NOT NULL, UNIQUE KEY u (a)", ["a"]),
        ("a int NOT NULL UNIQUE, b int NOT NULL UNIQUE", ["a"]),
        ("b int NOT NULL UNIQUE, a int NOT NULL, UNIQUE v (a)", ["a"]),  # TiDB makes the index of v first
        ("a int NOT NULL, b int NOT NULL, c int NOT NULL, UNIQUE (a, b), UNIQUE (c)", ["c"]),
        ("a int, b int NOT NULL, c int NOT NULL, UNIQUE (a), UNIQUE (b, c)", ["b", "c"]),
        ("a int NOT NULL, b int AS (a) STORED NOT NULL, UNIQUE (b)", ["b"]),
        ("a int NOT NULL, v int AS (a) VIRTUAL NOT NULL, c int NOT NULL, UNIQUE (v), UNIQUE (a, c)", ["a", "c"]),
        ("a int NOT NULL, c int NOT NULL, UNIQUE (a, (c + 1)), UNIQUE (a, c)", ["a", "c"]),
        ("a int NOT NULL, z int NOT NULL, UNIQUE (z, a)", []),  # the messages lack z
        ("a int NOT NULL, KEY (a), UNIQUE (b), b int", []),
        ("a int NOT NULL, b int NOT NULL, UNIQUE (a) WHERE b > 0, UNIQUE (a, b)", ["a", "b"]),  # equal where b is 0
    ],
)
@pytest.mark.parametrize("told_by", ["DDL", "tableDDL"])
def test_ddl_states_the_key_that_messages_leave_open(definitions: str, key: list[str], told_by: str) -> None:
    """Without a primary key, canal-json names no key: DDL does, by TiCDC's rule (docs/wire.md, item 52)."""
    create = f"CREATE TABLE t ({definitions})"

    if told_by == "DDL":
        assert keys(ddl(create), *UK_ONLY) == key
    else:
        assert keys(*UK_ONLY, tableDDL=create) == key
    assert keys(*UK_ONLY) == []


@pytest.mark.parametrize(
    ("alter", "key"),
    [
        ("ALTER TABLE t DROP INDEX u", ["a", "b"]),
        ("ALTER TABLE t RENAME INDEX u TO w, DROP KEY w", ["a", "b"]),
        ("DROP INDEX a_2 ON t", ["c"]),
        ("ALTER TABLE t DROP INDEX u, DROP INDEX a_2", []),
        ("ALTER TABLE t DROP INDEX nobody_knows", []),
        ("ALTER TABLE t DROP CONSTRAINT a_check", ["c"]),
        ("ALTER TABLE t DROP CONSTRAINT u", ["a", "b"]),  # in MySQL, that drops a unique key too
        ("ALTER TABLE t ADD UNIQUE INDEX IF NOT EXISTS a_2 (b), DROP INDEX u", ["a", "b"]),  # a_2 is there
        ("ALTER TABLE t DROP INDEX u, ADD COLUMN IF NOT EXISTS c int NOT NULL", []),
        ("CREATE UNIQUE INDEX w ON t (a) WHERE b > 0; DROP INDEX u ON t", ["a", "b"]),
        ("ALTER TABLE t DROP INDEX IF EXISTS u, ADD CONSTRAINT u UNIQUE (b)", ["b"]),
        ("ALTER TABLE t MODIFY c int", ["a", "b"]),
        ("ALTER TABLE t DROP COLUMN c, ADD COLUMN c int NOT NULL", ["a", "b"]),
        ("CREATE UNIQUE INDEX w ON t (b); DROP INDEX u ON t", ["b"]),
        ("ALTER TABLE t ADD PRIMARY KEY (b)", ["b"]),
        ("ALTER TABLE t RENAME COLUMN a TO x, RENAME COLUMN x TO a", ["c"]),
        ("ALTER TABLE t RENAME COLUMN a TO c, RENAME COLUMN c TO a", []),  # which is which is not followed
        ("ALTER TABLE t DROP INDEX u, RENAME COLUMN b TO c, RENAME COLUMN c TO b", []),
        ("ALTER TABLE t DROP INDEX a_2, CHANGE c b int NOT NULL, CHANGE b c int NOT NULL", []),
        ("ALTER TABLE t CHANGE a x int NOT NULL, CHANGE x a int NOT NULL, DROP INDEX u", ["a", "b"]),
        ("ALTER TABLE t ADD COLUMN z int NOT NULL, ADD VECTOR INDEX i ((vec_l2_distance(v))), ADD CHECK (a > 0)",
         ["c"]),
        ("DROP TABLE t", []),
    ],
)  # fmt: skip
def test_an_alter_changes_the_key(alter: str, key: list[str]) -> None:
    """Indexes begin, end and get other names; of what is not followed, no key is stated."""
    columns = "a int NOT NULL, b int NOT NULL, c int NOT NULL"
    create = f"CREATE TABLE t ({columns}, KEY (a), UNIQUE KEY (a, b), UNIQUE u (c))"

    assert keys(ddl(create, TSO - 99), ddl(alter), *UK_ONLY) == key
    assert keys(ddl(alter), *UK_ONLY) == []  # without the CREATE TABLE there may be other keys


DROPPED = "ALTER TABLE t DROP PRIMARY KEY"
MOVED = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (u)"
CREATED = "CREATE TABLE t (id int NOT NULL PRIMARY KEY, u int NOT NULL)"


@pytest.mark.parametrize(
    ("create", "query", "key"),
    [
        ("", DROPPED, []),
        (CREATED, DROPPED, []),
        (CREATED.replace("u int NOT NULL", "u int NOT NULL UNIQUE"), DROPPED, ["u"]),
        ("", MOVED, ["u"]),
        (CREATED, MOVED, ["u"]),
    ],
)
@pytest.mark.parametrize("rows_after", [False, True])
@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
def test_a_key_that_the_table_no_longer_has_is_no_key(
    protocol: str, create: str, query: str, key: list[str], *, rows_after: bool
) -> None:
    """After DROP PRIMARY KEY, messages of before name no key column, whether or not rows have come since."""
    if not rows_after and not create and key:
        return  # only the new rows tell that they have the key

    def row(commit_ts: int, keys: list[str]) -> Message:
        if protocol == "canal-json":
            names = keys if query == MOVED or commit_ts == TSO else []  # it does not name a unique key
            return canal("INSERT", [{"id": "1", "u": "1"}], None, {"id": "int", "u": "int"}, None, pkNames=names,
                         _tidb={"commitTs": commit_ts})  # fmt: skip
        own = 11 if query == MOVED or commit_ts == TSO else 19
        cells = {name: cell(3, 1, own if name in keys else 1, h=name in keys) for name in ("id", "u")}
        return open_message(({"ts": commit_ts, "scm": "test", "tbl": "t", "t": 1}, {"u": cells}))

    def event(commit_ts: int, text: str) -> Message:
        if protocol == "canal-json":
            return canal("ALTER", None, None, None, isDdl=True, sql=text, _tidb={"commitTs": commit_ts})
        return open_message(({"ts": commit_ts, "scm": "test", "tbl": "t", "t": 2}, {"q": text, "t": 3}))

    messages = [*([event(TSO - 9, create)] if create else []), row(TSO, ["id"]), event(TSO + 5, query)]
    schema = Captured.of(*messages, *([row(TSO + 9, key)] if rows_after else [])).schema()

    assert [item.name for item in schema if b"ticdc.key" in (item.metadata or {})] == key
    said = facts(schema)
    assert said["id"]["primary_key"] == "false"
    assert [name for name, of_column in said.items() if of_column.get("handle_key") == "true"] == key


def test_what_messages_say_of_the_key_counts_more_than_ddl() -> None:
    """A key that messages name stays; `tableDDL` decides before DDL of the topic; a table without a key has none."""
    create = ddl("CREATE TABLE t (a int NOT NULL UNIQUE, b int NOT NULL, c int)")
    named = canal("INSERT", [{"a": "1", "b": "2"}], None, {"a": "int", "b": "int"}, None, pkNames=["b"])

    assert keys(create, named) == ["b"]
    assert keys(create, *UK_ONLY, tableDDL="CREATE TABLE t (a int, b int NOT NULL UNIQUE)") == ["b"]
    found = of(ddl("CREATE TABLE t (a int, b int, c int)"), *UK_ONLY)
    assert {said["handle_key"] for said in found.values()} == {"false"}


ROW = canal(
    "INSERT", [{"a": "1", "b": "x", "c": "2"}], None, {"a": "int", "b": "varchar", "c": "int"}, None, pkNames=None
)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("c int", {"nullable": "true"}),
        ("c int NOT NULL DEFAULT '7' COMMENT 'it''s'", {"nullable": "false", "default": "7", "comment": "it's"}),
        ("c int DEFAULT NULL", {"nullable": "true"}),
        ("c int DEFAULT -5 PRIMARY KEY",
         {"nullable": "false", "default": "-5", "primary_key": "true", "handle_key": "true"}),
        ("c int KEY", {"nullable": "false", "primary_key": "true", "handle_key": "true"}),
        ("c int UNIQUE KEY COMMENT ''", {"nullable": "true", "unique_key": "true", "comment": ""}),
        ("c int AS (a + 1) STORED NOT NULL", {"nullable": "false", "generated": "true"}),
        ("c int GENERATED ALWAYS AS (if(a, 'DEFAULT', 2)) VIRTUAL", {"nullable": "true", "generated": "true"}),
        ("c int REFERENCES o (c) ON DELETE SET NULL", {"nullable": "true"}),
        ("c datetime(6) DEFAULT now(6) ON UPDATE now(6)", {"nullable": "true", "default": "CURRENT_TIMESTAMP(6)"}),
        ("c timestamp NULL DEFAULT current_timestamp()", {"nullable": "true", "default": "CURRENT_TIMESTAMP"}),
        ("c varchar(9) COLLATE utf8mb4_bin DEFAULT 'a''b'", {"nullable": "true", "default": "a'b"}),
        ("c varchar(36) DEFAULT (uuid())", {"nullable": "true", "default": "uuid()"}),
        ("c varchar(36) DEFAULT (concat('a, b', 'c'))", {"nullable": "true"}),
        ("c int DEFAULT (NULL)", {"nullable": "true"}),
        ("c bigint DEFAULT NEXT VALUE FOR sq NOT NULL", {"nullable": "false"}),
        ("c varchar(9) CHARACTER SET utf8mb4 DEFAULT _utf8mb4'x'", {"nullable": "true", "default": "x"}),
        ("c bit(3) DEFAULT b'101'", {"nullable": "true", "default": "b'101'"}),
        ("c bool DEFAULT true", {"nullable": "true", "default": "1"}),
        ("c decimal(5,2) DEFAULT 1.50 COLUMN_FORMAT DEFAULT", {"nullable": "true", "default": "1.50"}),
        ("c serial", {"nullable": "false", "unique_key": "true", "handle_key": "true"}),
        ("c bigint SERIAL DEFAULT VALUE", {"nullable": "false", "unique_key": "true", "handle_key": "true"}),
        ("c bigint /*T![auto_rand] AUTO_RANDOM(5) */ NOT NULL", {"nullable": "false"}),
        ("c int, PRIMARY KEY (`c`, a) /*T![clustered_index] CLUSTERED */",
         {"nullable": "false", "primary_key": "true", "handle_key": "true"}),
        ("c int, CONSTRAINT u UNIQUE INDEX i (c(3) DESC, (a + 1))", {"nullable": "true", "unique_key": "true"}),
        ("c int, UNIQUE (c)", {"nullable": "true", "unique_key": "true"}),
        ("c int, KEY i (c), CONSTRAINT f FOREIGN KEY (c) REFERENCES o (c)", {"nullable": "true"}),
    ],
)  # fmt: skip
def test_a_definition_says_its_facts(column: str, expected: dict[str, str]) -> None:
    """Each attribute of a column, and each key, is found in a DDL of the topic and in `tableDDL`."""
    statement = f"CREATE TABLE t (a int, b varchar(5), {column})"
    expected = {
        "primary_key": "false", "handle_key": "false", "unique_key": "false", "generated": "false", **expected
    }  # fmt: skip

    assert of(ddl(statement), ROW, schemaHints="c string")["c"] == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE t MODIFY c bigint NOT NULL",
         {"nullable": "false", "unique_key": "true", "handle_key": "true"}),
        ("ALTER TABLE t CHANGE c c bigint COMMENT 'new'", {"nullable": "true", "unique_key": "true", "comment": "new"}),
        ("ALTER TABLE t CHANGE c d int, CHANGE d c bigint", {"nullable": "true", "unique_key": "true"}),
        ("ALTER TABLE t ADD PRIMARY KEY (c), MODIFY c bigint",
         {"nullable": "false", "unique_key": "true", "primary_key": "true", "handle_key": "true"}),
        ("ALTER TABLE t ALTER COLUMN c SET DEFAULT 8",
         {"nullable": "true", "unique_key": "true", "default": "8", "comment": "old"}),
        ("ALTER TABLE t ALTER c DROP DEFAULT", {"nullable": "true", "unique_key": "true", "comment": "old"}),
        ("ALTER TABLE t DROP INDEX u", {"nullable": "true", "default": "7", "comment": "old", "unique_key": None}),
        ("DROP INDEX u ON t", {"nullable": "true", "default": "7", "comment": "old", "unique_key": None}),
        ("ALTER TABLE t ADD PRIMARY KEY (c), DROP COLUMN b",
         {"nullable": "false", "unique_key": "true", "default": "7", "comment": "old", "primary_key": "true",
          "handle_key": "true"}),
        ("CREATE UNIQUE INDEX v ON t (c, a)",
         {"nullable": "true", "unique_key": "true", "default": "7", "comment": "old"}),
        ("ALTER TABLE t DROP COLUMN c, ADD COLUMN (c int NOT NULL)", {"nullable": "false"}),
        ("CREATE OR REPLACE VIEW v AS SELECT 1",
         {"nullable": "true", "unique_key": "true", "default": "7", "comment": "old"}),
    ],
)  # fmt: skip
def test_an_alter_changes_what_it_names(sql: str, expected: dict[str, str | None]) -> None:
    """A new definition replaces the old one except for keys; which columns an index had, its end does not say."""
    create = ddl("CREATE TABLE t (a int, b varchar(5), c int DEFAULT 7 COMMENT 'old', UNIQUE KEY u (c))", TSO - 99)
    expected = {
        "primary_key": "false", "handle_key": "false", "unique_key": "false", "generated": "false", **expected
    }  # fmt: skip

    found = of(create, ddl(sql), ROW)["c"]

    assert found == {key: value for key, value in expected.items() if value is not None}


def test_a_rename_takes_the_facts_along() -> None:
    """A column or a table that gets another name keeps what was said about it, and LIKE copies it."""
    messages = (
        ddl("CREATE TABLE s (x int PRIMARY KEY COMMENT 'key', b varchar(5), c int)", TSO - 99),
        ddl("ALTER TABLE s RENAME COLUMN x TO a", TSO - 98),
        canal("QUERY", None, isDdl=True, table="s2", sql="CREATE TABLE s2 LIKE s", _tidb={"commitTs": TSO - 97}),
        canal("RENAME", None, isDdl=True, sql="RENAME TABLE s2 TO t", _tidb={"commitTs": TSO - 96}),
    )
    first, second = ((key, (value or b"").replace(b'"table":"t"', b'"table":"s"')) for key, value in messages[:2])

    found = of(first, second, *messages[2:], ROW)

    assert (found["a"]["primary_key"], found["a"]["comment"], found["a"]["nullable"]) == ("true", "key", "false")


def test_lost_flags_say_nothing() -> None:
    """Flags 0 may be lost flags, and MySQL's flags lack some facts: none is made up."""
    for flags in (0, 4097):
        columns = {"id": cell(3, 1, flags), "v": cell(15, "YQ==", flags)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert of(open_message(open_row({"u": columns}))) == {"id": {}, "v": {}}, flags
    marked = {"id": cell(3, 1, 0, h=True), "v": cell(15, "a", 64)}
    assert of(open_message(open_row({"u": marked})))["id"] == {"handle_key": "true"}


def test_pk_names_say_the_primary_key() -> None:
    """`pkNames` names the primary key; an empty one says that there is none, and not what the handle key is."""
    row: dict[str, Any] = {"data": [{"id": "1", "v": "a"}], "mysql_type": {"id": "int", "v": "varchar"}}

    assert of(canal(**row)) == {
        "id": {"primary_key": "true", "handle_key": "true"},
        "v": {"primary_key": "false", "handle_key": "false"},
    }
    assert of(canal(**row, pkNames=[])) == {"id": {"primary_key": "false"}, "v": {"primary_key": "false"}}
    assert of(canal(**row, pkNames=None)) == {"id": {}, "v": {}}


def test_a_comment_that_is_not_utf_8_is_shown_with_replacements() -> None:
    """Bytes that are not UTF-8 in a comment or default become U+FFFD: only people read them."""
    columns = [declared("id", "INT", comment="c?"), declared("n", "VARCHAR", defaultValueExpression="d?")]
    key, value = debezium_ddl(TSO - 9, "", columns)
    row = debezium("c", None, {"id": 1, "n": "2"})

    found = of((key, (value or b"").replace(b"?", b"\xff")), row)

    assert (found["id"]["comment"], found["n"]["default"]) == ("c\ufffd", "d\ufffd")


FIELDS = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "int32", "optional": True, "field": "n", "default": 7},
    {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "field": "d", "default": 11356},
]
RECORD = debezium("c", None, {"id": 1, "n": 2, "d": 3}, FIELDS, key={"id": 1})


def test_a_schema_of_debezium_says_null_and_default() -> None:
    """`optional` is NULL; a default counts if it is written as in MySQL, and a number of days is not."""
    assert of(RECORD) == {
        "id": {"handle_key": "true", "nullable": "false"},
        "n": {"handle_key": "false", "nullable": "true", "default": "7"},
        "d": {"handle_key": "false", "nullable": "true"},
    }


@pytest.mark.parametrize("text", [True, False], ids=["text", "no-text"])
def test_table_changes_say_keys_defaults_and_comments(text: bool) -> None:
    """The `tableChanges` of a DDL say them too, but not `generated`, nor that a default is CURRENT_TIMESTAMP."""
    columns = [
        declared("id", "INT", optional=False, generated=False, comment="the key"),
        declared("n", "INT", optional=True, generated=True, defaultValueExpression="7"),
        declared("d", "DATETIME", optional=True, defaultValueExpression="1970-01-01 00:00:00"),
    ]
    create = "CREATE TABLE t (id int PRIMARY KEY COMMENT 'the key', n int DEFAULT 7, d datetime DEFAULT now())"
    change = {"type": "CREATE", "id": '"test"."t"', "table": {"columns": columns, "primaryKeyColumnNames": ["id"]}}
    row = debezium("c", None, {"id": 1, "n": 2, "d": 3}, key={"id": 1})

    facts = of(debezium_ddl(TSO - 9, create if text else "", columns, tableChanges=[change]), row)

    from_text = {"unique_key": "false", "generated": "false"} if text else {}
    now = {"default": "CURRENT_TIMESTAMP"} if text else {}
    assert facts == {
        "id": {"primary_key": "true", "handle_key": "true", "nullable": "false", "comment": "the key", **from_text},
        "n": {"primary_key": "false", "handle_key": "false", "nullable": "true", "default": "7", **from_text},
        "d": {"primary_key": "false", "handle_key": "false", "nullable": "true", **now, **from_text},
    }
