"""CSV on the native path: the rows and the bad records of the general path, whatever the settings of the sink."""

import json
import random
from itertools import product

import pyarrow as pa
import pytest

from tests.pipeline.test_equivalence import outcome, plan_for
from tests.protocols.test_csv import TEXTS, written
from tests.support.captured import Captured, random_sizes, single, whole
from tests.support.messages import TSO
from tests.support.mutations import MUTATIONS
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.base import Learned
from ticdc_source.protocols.csv.template import template_of
from ticdc_source.sources.storage.file_format import FileSettings

SEED = 20261129
ROWS = 60
# By type: values as TiCDC writes them, with quotes if it writes texts so; and values that it never writes.
BARE = {
    "BIGINT": (["0", "-9223372036854775808", "9223372036854775807", "7"], ["true", "00", "9223372036854775808", ""]),
    "DOUBLE": (["0.1", "-1e+30", "3"], ["nan", "1e400", "false"]),
    "BIT": (["1", "0"], ["2", "x"]),
}
TEXT = {
    "VARCHAR": (TEXTS, ["\ufffd"]),
    "JSON": (['{"a": "b\\"c"}', "[]", "null"], ["{"]),
    "DECIMAL": (["12.50", "-0.01", "99999999.99"], ["1e3", "100000000.00", "x"]),
    "DATETIME": (["2026-01-31 23:59:59.123456", "0000-00-00 00:00:00.000000"], ["2026-02-30 00:00:00", ""]),
    "DATE": (["2026-01-31", "0000-00-00"], ["2026-1-1"]),
    "TIME": (["-838:59:59", "00:00:01"], ["25"]),
    "ENUM": (["a", "b,c"], ["z"]),
    "BLOB": (["", "AP8=", "YWJj"], ["a", "zz"]),
}
COLUMNS = {**BARE, **TEXT}
FACTS: dict[str, dict[str, object]] = {
    "DECIMAL": {"ColumnPrecision": "10", "ColumnScale": "2"},
    "DATETIME": {"ColumnScale": "6"},
    "ENUM": {"ColumnElems": ["a", "b,c"]},
    "BIT": {"ColumnPrecision": "1"},
}
SETTINGS = [
    FileSettings(quote=quote, delimiter=delimiter, null=null, include_commit_ts=has_ts, output_old_value=old)
    for quote, delimiter, null, has_ts, old in product(
        ('"', "'", ""), (",", "|+|"), ("\\N", "NULL"), (True, False), (None, True, False)
    )
    if quote or old is not None
] + [FileSettings(delimiter="é", terminator=b"|")]


def schema_file(version: int, names: list[str]) -> tuple[bytes | None, bytes]:
    columns: list[dict[str, object]] = [
        {"ColumnName": name.lower(), "ColumnType": name, **FACTS.get(name, {})} for name in names
    ]
    file = {"Table": "t", "Schema": 'd"b', "TableVersion": version, "Query": "", "TableColumns": columns}
    return None, json.dumps({**file, "TableColumnsTotal": len(columns)}, separators=(",", ":")).encode()


def key_of(version: int, *, is_cut: bool = False) -> bytes:
    return json.dumps({"TableVersion": version, **({"cut": True} if is_cut else {})}, separators=(",", ":")).encode()


def row(names: list[str], settings: FileSettings, chance: random.Random, odd_values: float = 0.01) -> bytes:
    """Return a message as TiCDC writes it, with a few values that it never writes."""

    def line(operation: str, *own: str) -> str:
        cells = []
        for name in names:
            usual, odd = COLUMNS[name]
            cell = chance.choice(odd if chance.random() < odd_values else usual) if chance.random() < 0.9 else None
            is_bare = name in BARE and cell is not None
            cells.append(str(cell) if is_bare else written(cell, settings))
        return settings.delimiter.join([*(written(one, settings) for one in (operation, "t", 'd"b')), *own, *cells])

    ts = [str(TSO + chance.randrange(9))] if settings.include_commit_ts else []
    if settings.output_old_value is False or (settings.output_old_value is None and chance.random() < 0.5):
        return line(chance.choice("IUD"), *ts).encode()
    if chance.random() < 0.3:
        return line("D", *ts, "true").encode() + settings.end_of_row + line("I", *ts, "true").encode()
    return line(chance.choice("ID"), *ts, "false").encode()


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            one,
            id=f"{one.quote}{one.delimiter}{one.null}-{one.include_commit_ts}-{one.output_old_value}",
            marks=pytest.mark.slow("another NULL") if one.null == "NULL" else (),
        )
        for one in SETTINGS
    ],
)
def test_the_native_path_has_the_rows_and_errors_of_the_general_path(settings: FileSettings) -> None:
    """Rows of two versions of a table, some cut short or damaged."""
    chance = random.Random(f"{SEED} {settings}")
    names = list(COLUMNS)
    versions = {1: names, 2: [*names[::-1]]}
    records = [schema_file(version, columns) for version, columns in versions.items()]
    for _ in range(ROWS):
        version = chance.choice((1, 1, 1, 2))
        message = row(versions[version], settings, chance)
        if chance.random() < 0.15:
            message = chance.choice(MUTATIONS)(message, chance)
        records.append((key_of(version, is_cut=chance.random() < 0.03), message))
    captured = Captured.of(*records)
    given = {
        "protocol": "csv",
        "mode": "PERMISSIVE",
        "tables": '`d"b`.t',
        "includeMetadata": "all",
        "csv.quote": settings.quote,
        "csv.delimiter": settings.delimiter,
        "csv.null": settings.null,
        "terminator": settings.end_of_row.decode().replace("\r", "\\r").replace("\n", "\\n"),
        "csv.includeCommitTs": str(settings.include_commit_ts).lower(),
        "csv.binaryEncodingMethod": chance.choice(("base64", "hex")),
        "invalidUtf8": chance.choice(("replace", "fail")),
        "preimages": chance.choice(("true", "false")),
    }
    if settings.output_old_value is not None:
        given["csv.outputOldValue"] = str(settings.output_old_value).lower()
    schema = Captured.of(*records[:2], (key_of(1), row(names, settings, random.Random(1)))).schema(**given)

    general = outcome(captured, schema, whole, native_path=False, **given)
    assert isinstance(general, pa.Table), general
    for sizes in (whole, random_sizes(SEED)):
        assert outcome(captured, schema, sizes, native_path=True, **given) == general, (SEED, settings)
    assert len(general) > ROWS / 2
    assert 0 < general["_corrupt_record"].null_count < len(general)


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize(
    "settings", [SETTINGS[0], SETTINGS[1], SETTINGS[-2]], ids=["detected", "old values", "no quote"]
)
def test_rows_as_ticdc_writes_them_take_the_native_path(settings: FileSettings) -> None:
    """No row is left to the general path if its texts need no escape without quotes."""
    chance = random.Random(SEED)
    names = [name for name in COLUMNS if settings.quote or name not in ("VARCHAR", "JSON")]
    messages = [(key_of(1), row(names, settings, chance, odd_values=0)) for _ in range(ROWS)]
    captured = Captured.of(schema_file(1, names), *messages)
    given = {
        "protocol": "csv",
        "csv.quote": settings.quote,
        "csv.delimiter": settings.delimiter,
        "csv.null": settings.null,
        "terminator": settings.end_of_row.decode().replace("\r", "\\r").replace("\n", "\\n"),
        "csv.includeCommitTs": str(settings.include_commit_ts).lower(),
        **({} if settings.output_old_value is None else {"csv.outputOldValue": str(settings.output_old_value).lower()}),
    }
    decoder = decoder_of("csv", captured.options(**given))
    (chunk,) = captured.fetch(captured.ranges()[0])
    split = decoder.split(chunk)
    (events,) = split.tables.values()
    assert decoder.facts.definitions is not None
    learned = Learned(definitions=decoder.facts.definitions(split.bootstraps))
    assert not decoder.decode(events, plan_for(captured, **given), learned).parsed


@pytest.mark.parametrize("settings", [FileSettings(quote="t"), FileSettings(quote="1"), FileSettings(delimiter="-")])
def test_bytes_with_two_meanings_are_left_to_the_general_path(settings: FileSettings) -> None:
    """A quote or delimiter that numbers or words may have makes no template."""
    assert template_of(b"", [True], settings) is None


FORMS = {"a": "INT", "b": "INT"}
BEGIN = f'"I","t","d""b",{TSO}'


def file_of(columns: dict[str, str]) -> tuple[bytes | None, bytes]:
    key, file = schema_file(1, list(columns.values()))
    parsed = json.loads(file)
    for column, name in zip(parsed["TableColumns"], columns, strict=True):
        column["ColumnName"] = name
    return key, json.dumps(parsed, separators=(",", ":")).encode()


@pytest.mark.usefixtures("native_path")
@pytest.mark.parametrize(
    ("columns", "rows", "options"),
    [
        (FORMS, [f"{BEGIN},1,2"], {}),
        ({"a": "INT", "v": "VARCHAR"}, [f'{BEGIN},1,"x 1e99999999999999999999 y"'], {"schemaHints": "v binary"}),
        ({"d": "DATETIME"}, [f'{BEGIN},"2026-01-31 10:00"', f'{BEGIN},"0000-00-00 00:00:00"'], {}),
        ({"d": "DATETIME"}, [f'{BEGIN},"2026-01-31 10"', f'{BEGIN},"0000-01-01 10"', f'{BEGIN},"x"'], {}),
        (FORMS, [f"{BEGIN},1,2", f"{BEGIN},false,1,2"], {"csv.null": "false"}),
        (FORMS, [f"{BEGIN},1,2", f'{BEGIN},N",N"'], {"csv.null": 'N"'}),
        (FORMS, [f"{BEGIN},1,2", '"I","t","d""b",7,1,2'], {"csv.null": "7"}),
    ],
)
def test_odd_values_and_settings_are_read_alike(
    columns: dict[str, str], rows: list[str], options: dict[str, str]
) -> None:
    """Rows in one chunk and one by one, on both paths, are the same."""
    given = {"protocol": "csv", "mode": "PERMISSIVE", **options}
    plain = [(key_of(1), row.encode()) for row in rows]
    captured = Captured.of(file_of(columns), *plain)
    schema = Captured.of(file_of(columns), plain[0]).schema(**given)

    outcomes = [
        outcome(captured, schema, sizes, native_path=path, **given)
        for sizes in (whole, single)
        for path in (True, False)
    ]

    assert isinstance(outcomes[0], pa.Table)
    assert all(each == outcomes[0] for each in outcomes)


@pytest.mark.usefixtures("native_path")
def test_a_version_that_is_defined_again_is_read_anew() -> None:
    """A schema file that changes a version's columns counts for the rows behind it."""
    row = key_of(1), f"{BEGIN},1,2".encode()
    captured = Captured.of(file_of(FORMS), row, file_of({"b": "INT", "a": "INT"}), row)
    given = {"protocol": "csv", "mode": "PERMISSIVE"}
    schema = Captured.of(file_of(FORMS), row).schema(**given)

    for path in (True, False):
        found = outcome(captured, schema, single, native_path=path, **given)
        assert isinstance(found, pa.Table)
        assert found.select(["a", "b"]).to_pylist() == [{"a": 1, "b": 2}, {"a": 2, "b": 1}]
