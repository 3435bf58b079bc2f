"""The samples and tables in TiCDC's documentation are read as the documentation says (tests/data/documented)."""

import datetime
import json
import re
from decimal import Decimal
from typing import Any

import pytest

from tests.support.captured import Captured, Record, rows
from tests.support.documented import (
    as_message,
    blocks,
    codes,
    first_of_twice,
    log,
    sample,
    table,
)
from tests.support.messages import TSO, Message, canal, cell, dump, open_message, open_row
from ticdc_source.errors import DecodeError
from ticdc_source.protocols import PROTOCOLS
from ticdc_source.protocols.events import Split
from ticdc_source.schema.ddl_kinds import ddl_kind
from ticdc_source.spark.schema import to_spark

OPEN, CANAL, DEBEZIUM = "open-protocol", "canal-json", "debezium"
INTEGERS = ("c_tinyint", "c_smallint", "c_mediumint", "c_int", "c_bigint", "id")


def split(protocol: str, message: Message) -> Split:
    """Split one message into events."""
    captured = Captured.of(message)
    return PROTOCOLS[protocol].split(next(captured.fetch(captured.ranges()[0])))


def log_capture() -> Captured:
    """Return the log of the open protocol as a capture of two partitions."""
    return Captured({}, {partition: [Record(*message) for message in found] for partition, found in log().items()})


def described(*messages: Message, **options: str) -> dict[str, Any]:
    """Infer the columns of messages: Spark's fields by name."""
    return {item.name: item for item in to_spark(Captured.of(*messages).schema(**options))}


# The open protocol


def test_the_rows_of_the_log_are_refused() -> None:
    """The log is of a release that wrote no flags: an error says which ones did not, and what to do."""
    with pytest.raises(DecodeError, match=r"column '\w+' has no flags .* up to v4\.0\.4 .* Upgrade TiCDC"):
        log_capture().read()


def test_the_log_has_its_ddl_once_and_four_watermarks() -> None:
    """With `outputFormat=event`, the DDL that both partitions have comes once, and each resolved event comes."""
    found = log_capture().read(outputFormat="event", mode="DROPMALFORMED").to_pylist()

    kinds = [row["_event_type"] for row in found]
    (ddl,) = (row for row in found if row["_event_type"] == "ddl")
    assert (kinds.count("row"), kinds.count("watermark")) == (0, 4)
    assert (ddl["ddl_type"], ddl["ddl_type_code"], ddl["_commit_version"]) == ("create table", 3, 415508856908021766)
    assert f"{ddl['ddl_query']};" == blocks(OPEN, "Log", "sql")[0].strip()
    assert [(row["_sequence"]["partition"], row["watermark_ts"]) for row in found if row["watermark_ts"]] == [
        (0, 415508856908021766),
        (0, 415508881038376963),
        (1, 415508856908021766),
        (1, 415508881038376963),
    ]


def type_codes() -> list[Any]:
    """Return the rows of the table of type codes: (type, code, whether it is the binary one of two, example)."""
    found = []
    for names, numbers, examples in table(OPEN, "Column type code"):
        parts = codes(examples)
        for index, name in enumerate(names.split(" / ")):
            for code in numbers.split(" / "):
                example = json.loads(parts[min(index, len(parts) - 1)]) if parts else None
                found.append(pytest.param(name, int(code), index == 1, example, id=f"{name}-{code}"))
    return found


VALUES = {
    "TINYINT": 1, "BOOLEAN": 1, "SMALLINT": 1, "INT": 123, "FLOAT": pytest.approx(153.123), "DOUBLE": 153.123,
    "NULL": None, "TIMESTAMP": datetime.datetime(1973, 12, 30, 15, 30, tzinfo=datetime.timezone.utc), "BIGINT": 123,
    "MEDIUMINT": 123, "DATE": datetime.date(2000, 1, 1), "TIME": datetime.timedelta(hours=23, minutes=59, seconds=59),
    "DATETIME": datetime.datetime.fromisoformat("2015-12-20 23:58:58"), "YEAR": 1970, "VARCHAR": "test", "CHAR": "test",
    "VARBINARY": b"\x89PNG\r\n\x1a\n", "BINARY": b"\x89PNG\r\n\x1a\n", "BIT": 81, "JSON": '{"key1": "value1"}',
    "DECIMAL": "129012.1230000", "ENUM": 1, "SET": 3,
    **{f"{size}TEXT": "测试text" for size in ("TINY", "MEDIUM", "LONG", "")},
    **{f"{size}BLOB": "测试text".encode() for size in ("TINY", "MEDIUM", "LONG", "")},
}  # fmt: skip


@pytest.mark.parametrize(("name", "code", "binary", "example"), type_codes())
def test_a_type_code_is_its_type(name: str, code: int, binary: bool, example: Any) -> None:
    """Each type code is the type of its row, and the example beside it, with flags, is read as that value."""
    if name == "GEOMETRY":
        with pytest.raises(Exception, match="type code 255 is not supported"):
            rows(open_message(open_row({"u": {"c": cell(code, "", 64)}})))
        return
    message = open_message(open_row({"u": {"c": {**example, "t": code, "f": 65 if binary else 64}}}))

    hint = {"schemaHints": "c string"} if name == "NULL" else {}  # the message does not say the type
    field = described(message, **hint)["c"]
    value = rows(message, **hint)[0]["c"]

    mysql_type = {"BOOLEAN": "tinyint", "NULL": None}.get(name, name.lower())
    assert field.metadata.get("ticdc.mysql_type") == mysql_type
    assert (str(value) if name == "DECIMAL" else value) == VALUES[name]


FLAGS = {name: int(value, 16) for _, value, name in table(OPEN, "Bit flags of columns")}
# What a flag says about a column: a key of its metadata and the value there, on the column of an INT or a VARCHAR.
SAID = {
    "BinaryFlag": ("ticdc.mysql_type", 15, "varbinary", "varchar"),
    "HandleKeyFlag": ("ticdc.handle_key", 3, "true", "false"),
    "GeneratedColumnFlag": ("ticdc.generated", 3, "true", "false"),
    "PrimaryKeyFlag": ("ticdc.primary_key", 3, "true", "false"),
    "UniqueKeyFlag": ("ticdc.unique_key", 3, "true", "false"),
    "NullableFlag": ("ticdc.nullable", 3, "true", "false"),
    "UnsignedFlag": ("ticdc.mysql_type", 3, "int unsigned", "int"),
}


def with_flags(code: int, flags: int) -> dict[str, str]:
    """Return the metadata of a column with these flags."""
    value = 1 if code == 3 else ""
    found: dict[str, str] = described(open_message(open_row({"u": {"c": cell(code, value, flags)}})))["c"].metadata
    return found


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_says_one_thing(name: str) -> None:
    """Each flag has its one meaning and no other, alone and among all others."""
    if name == "MultipleKeyFlag":  # an index of several columns, or one that is not unique: no metadata says that
        assert with_flags(3, 33) == with_flags(3, 1)
        return
    key, code, set_, clear = SAID[name]
    other = 0 if name == "BinaryFlag" else 1  # flags 0 may also be lost flags

    alone, others, neither = (with_flags(code, flags) for flags in (FLAGS[name] | other, 255 & ~FLAGS[name], 1 ^ 64))

    assert (alone[key], others[key]) == (set_, clear)
    said = {item for item in SAID.values() if item[1] == code and item[0] not in (key, "ticdc.mysql_type")}
    assert {item[0]: alone[item[0]] for item in said} == {item[0]: "false" for item in said}
    assert neither["ticdc.nullable"] == "true"


def ddl_codes() -> list[Any]:
    """Return the rows of the table of DDL codes."""
    return [pytest.param(name, int(code), id=name.replace(" ", "-")) for name, code in table(OPEN, "DDL type code")]


# The words in which TiDB's own names differ from the page's.
TIDB_NAMES = {
    "rebase auto id": "rebase auto_increment ID", "shard rowid": "shard row ID",
    "add table partition": "add partition", "drop table partition": "drop partition",
    "truncate table partition": "truncate partition",
}  # fmt: skip


KINDS = {
    "create schema": "create_database", "drop schema": "drop_database",
    "modify schema charset and collate": "alter_database", "add table partition": "alter_table",
    "drop table partition": "drop_partition", "truncate table partition": "truncate_partition", "lock table": "other",
    "unlock table": "other", "repair table": "other",
}  # fmt: skip
KEPT = ("create table", "drop table", "truncate table", "rename table", "recover table", "create view", "drop view",
        "create sequence", "alter sequence", "drop sequence")  # fmt: skip


@pytest.mark.parametrize("as_text", [False, True], ids=["number", "text"])
@pytest.mark.parametrize(("name", "code"), ddl_codes())
def test_a_ddl_code_is_its_type(name: str, code: int, as_text: bool) -> None:
    """Each DDL code has the name of its row, as a number and as the text that the page prints."""
    head = {"ts": TSO, "scm": "test", "tbl": "t", "t": 2}

    (event,) = split(OPEN, open_message((head, {"q": "…", "t": str(code) if as_text else code}))).ddl

    name = name.lower()
    kind = name.replace(" ", "_") if name in KEPT else KINDS.get(name, "alter_table")
    assert (event.type, event.type_code) == (TIDB_NAMES.get(name, name), code)
    assert ddl_kind(event) == kind


# Canal-JSON


def filled(found: dict[str, Any]) -> Message:
    """Return a sample of Canal-JSON as a message, with the members that the page leaves out."""
    types = {name: re.sub("^c_", "", name) for name in INTEGERS} | {"id": "int"}
    given = {name: value for name, value in found.items() if value != {}}
    message = {"database": "test", "table": "tp_int", "pkNames": ["id"], "mysqlType": types, **given}
    return canal(message.pop("type", "INSERT"), **message)


ROW = {
    "c_tinyint": 0, "c_smallint": 32767, "c_mediumint": 8388607, "c_int": 0, "c_bigint": 9223372036854775807, "id": 2,
}  # fmt: skip
INSERTED = {**ROW, "c_tinyint": 127, "c_int": 2147483647}


def test_canal_insert() -> None:
    """Integers of every size are read, and the commit-ts comes from the TiDB extension."""
    found = rows((b"", dump(sample(CANAL, "DML event"))))[0]

    assert {name: found[name] for name in INTEGERS} == INSERTED
    assert found["_commit_version"] == 429918007904436226


def test_canal_ddl_and_watermark() -> None:
    """A DDL event has its statement, type and commit-ts, a watermark its timestamp."""
    (event,) = split(CANAL, (None, dump(sample(CANAL, "DDL event")))).ddl
    (mark,) = split(CANAL, (None, dump(sample(CANAL, "WATERMARK event")))).watermarks

    assert (event.type, event.query, event.commit_ts) == ("QUERY", "drop database if exists test", 429918007904436226)
    assert mark.ts == 429918007904436226


@pytest.mark.parametrize("writer", ["TiCDC", "official Canal"])
def test_canal_update(writer: str) -> None:
    """An UPDATE has both whole rows, whether `old` has every column or the changed ones only."""
    before, after = rows(filled(sample(CANAL, f"Event of Update type: {writer}")))

    assert [row["_change_type"] for row in (before, after)] == ["update_preimage", "update_postimage"]
    assert {name: before[name] for name in INTEGERS} == INSERTED
    assert {name: after[name] for name in INTEGERS} == ROW


@pytest.mark.parametrize("release", ["since v5.4", "before v5.4"])
def test_canal_delete(release: str) -> None:
    """A DELETE has its row, in the form before v5.4 as well as in the later one."""
    found = sample(CANAL, "Changes in the old field of the Delete events")
    if release == "since v5.4":
        found = first_of_twice(found)

    (row,) = rows(filled(found))

    assert (found["old"] is None) == (release == "since v5.4")
    assert row["_change_type"] == "delete"
    assert {name: row[name] for name in INTEGERS} == ROW


# What TiCDC writes for the page's INSERT: 123.456, 'abc' in all four strings, 'a', 'a,b', b'1000001'.
PARAMETERS = {
    "c_decimal": "123.4560", "c_char": "abc", "c_varchar": "abc", "c_binary": "abc" + "\0" * 13, "c_varbinary": "abc",
    "c_enum": "1", "c_set": "3", "c_bit": "65", "id": "1",
}  # fmt: skip
BARE = {
    "id": ("int", 1), "c_decimal": ("decimal(38,4)", "123.4560"), "c_char": ("string", "abc"),
    "c_varchar": ("string", "abc"), "c_binary": ("binary", b"abc" + bytes(13)), "c_varbinary": ("binary", b"abc"),
    "c_enum": ("int", 1), "c_set": ("bigint", 3), "c_bit": ("bigint", 65),
}  # fmt: skip
WHOLE = {**BARE, "c_decimal": ("decimal(10,4)", "123.4560"), "c_enum": ("string", "a"), "c_set": ("string", "a,b")}


@pytest.mark.parametrize(
    ("writer", "table_ddl", "expected"),
    [("TiCDC", False, BARE), ("official Canal", False, WHOLE), ("TiCDC", True, WHOLE), ("official Canal", True, WHOLE)],
    ids=["TiCDC", "official-Canal", "TiCDC-tableDDL", "official-Canal-tableDDL"],
)
def test_canal_type_parameters(writer: str, table_ddl: bool, expected: dict[str, Any]) -> None:
    """Precision and labels come from `mysqlType` if it has them, and from the page's CREATE TABLE as `tableDDL`."""
    message = filled({**sample(CANAL, f"mysqlType field: {writer}"), "table": "t", "data": [PARAMETERS]})
    statement = blocks(CANAL, "mysqlType field: TiCDC", "sql")[0].partition(";")[0]
    options = {"tableDDL": statement} if table_ddl else {}

    fields = described(message, **options)
    row = rows(message, **options)[0]

    assert {
        name: (fields[name].dataType.simpleString(), str(row[name]) if name == "c_decimal" else row[name])
        for name in expected
    } == expected


def sql_types() -> list[Any]:
    """Return the rows of the table of Java SQL types."""
    return [pytest.param(name, int(code), id=name) for name, code in table(CANAL, "SQL Type field")]


# A value of each type as Canal-JSON writes it, and as it is read.
TEXTS = {
    "Boolean": ("1", 1), "Float": ("1.5", 1.5), "Double": ("1.5", 1.5), "Decimal": ("1.50", "1.50"), "Date":
    ("2000-01-01", datetime.date(2000, 1, 1)), "Datetime": ("2015-12-20 23:58:58", VALUES["DATETIME"]), "Timestamp":
    ("1973-12-30 15:30:00", VALUES["TIMESTAMP"]), "Time": ("23:59:59", VALUES["TIME"]), "Year": ("1970", 1970), "Enum":
    ("1", 1), "Set": ("3", 3), "Bit": ("81", 81), "JSON": ('{"a": 1}', '{"a": 1}'), "TiDBVectorFloat32":
    ("[1,2.5]", [1.0, 2.5]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "code"), sql_types())
def test_a_sql_type_beside_its_mysql_type(name: str, code: int) -> None:
    """Each MySQL type is read as itself beside the Java type of its row; 2004 is what makes text binary."""
    mysql_type = {"Boolean": "tinyint", "TiDBVectorFloat32": "vector"}.get(name, name.lower())
    binary = code == 2004
    text, value = TEXTS.get(name, ("aÿ", b"a\xff" if binary else "aÿ"))
    written = mysql_type if name == "Boolean" else name  # as the table has it
    message = canal(data=[{"c": text}], mysql_type={"c": written}, sql_type={"c": code}, pkNames=[])

    found = rows(message)[0]["c"]

    assert described(message)["c"].metadata["ticdc.mysql_type"] == mysql_type
    assert (str(found) if name == "Decimal" else found) == value


# A value of each Java type, which several MySQL types may have.
OF_JAVA = {
    "CHAR": ("a", "a"), "DECIMAL": ("1.50", Decimal("1.50")), "INTEGER": ("4294967295", 4294967295), "SMALLINT":
    ("65535", 65535), "REAL": ("1.5", 1.5), "DOUBLE": ("0.1", 0.1), "VARCHAR": ("a", "a"), "DATE": TEXTS["Date"],
    "TIME": TEXTS["Time"], "TIMESTAMP": TEXTS["Datetime"], "BLOB": ("aÿ", b"a\xff"), "CLOB": ("aÿ", "aÿ"),
    "BIGINT": ("-9223372036854775808", -(2**63)), "TINYINT": ("255", 255), "Bit": ("81", 81),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The messages of test.t do not fully say")
@pytest.mark.parametrize(
    ("name", "code"), [pytest.param(name, int(code), id=name) for name, code in table(CANAL, "Java SQL types")]
)
def test_a_sql_type_alone_gives_a_type_that_holds_its_values(name: str, code: int) -> None:
    """Without `mysqlType`, the Java type of the row decides; it is as wide as the types that share it."""
    text, value = OF_JAVA[name]
    message = canal(data=[{"c": text}], mysql_type=None, sql_type={"c": code}, pkNames=[])

    assert rows(message)[0]["c"] == value


# Debezium


@pytest.mark.parametrize("schema", [True, False], ids=["schema", "debezium-disable-schema"])
def test_debezium_row(schema: bool) -> None:
    """The row of the page has both images, and what its source says."""
    key, value = as_message(DEBEZIUM, "DML event")
    hint = {} if schema else {"schemaHints": "tiny smallint"}
    if not schema:
        key, value = (dump({"payload": json.loads(text or b"")["payload"]}) for text in (key, value))

    found = rows((key, value), includeMetadata="all", **hint)

    assert [(row["_change_type"], row["tiny"]) for row in found] == [("update_preimage", 2), ("update_postimage", 1)]
    assert {(row["_database"], row["_table"], row["_commit_version"], row["_cluster_id"]) for row in found} == {
        ("test", "table1", 1, "test_cluster")
    }
    assert {row["_build_ts"] for row in found} == {1701326309000}
    assert described((key, value), **hint)["tiny"].metadata["ticdc.key"] == "true"


def test_debezium_ddl_and_watermark() -> None:
    """The DDL of the page has its statement and the table afterwards, and the watermark its timestamp."""
    (event,) = split(DEBEZIUM, as_message(DEBEZIUM, "DDL event")).ddl
    (mark,) = split(DEBEZIUM, as_message(DEBEZIUM, "WATERMARK event")).watermarks

    assert (event.query, event.type, event.commit_ts) == ("RENAME TABLE test.table1 to test.table2", "ALTER", 1)
    assert event.table_changes is not None
    assert [column["name"] for column in event.table_changes[0]["table"]["columns"]] == ["id"]
    assert mark.ts == 3
