"""Large messages: claim check and handle-key-only, as TiCDC's encoders write them, and broken ones."""

import base64
import errno
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.test_corpus import LARGE, differences, quoted
from tests.support.captured import Captured, Record, load, make_options, random_sizes, rows, single, whole
from tests.support.messages import TSO, canal, cell, dump, framed, open_message, open_row
from tests.support.mutations import mangled
from tests.support.truth import true_rows
from ticdc_source.errors import ClaimCheckUnavailableError, DecodeError, OptionError, SchemaError, TiCDCSourceError
from ticdc_source.pipeline.read import read
from ticdc_source.pipeline.spec import ReadState, read_spec
from ticdc_source.planning.read_context import context_of_schema
from ticdc_source.protocols import PROTOCOLS, large_messages
from ticdc_source.protocols.decoding import small_portions
from ticdc_source.sources.storage.files import redacted

CLAIMED = [scenario for scenario in LARGE if "claim-check" in scenario]
KEY_ONLY = [scenario for scenario in LARGE if "handle-key-only" in scenario]
TABLE = quoted("large", "doc")
SEED = 20261121


def stored(files: Mapping[str, bytes], folder: Path) -> str:
    """Write claim-check files to a folder; return it."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder)


def compare(captured: Captured, decoded: list[dict[str, Any]]) -> Counter[str]:
    losses: Counter[str] = Counter()
    true = list(true_rows(captured, "large", "doc"))
    assert len(decoded) == len(true)
    for row, truth in zip(decoded, true, strict=True):
        assert not differences(captured.header, truth, row, losses), truth
    return losses


@pytest.mark.parametrize("sizes", [whole, single, random_sizes(SEED)], ids=["whole", "single", f"random-{SEED}"])
@pytest.mark.parametrize("scenario", CLAIMED)
def test_every_row_in_claim_check_storage_is_the_sql_truth(scenario: str, sizes: Any, tmp_path: Path) -> None:
    """Schema and values are those of the whole messages, raw or wrapped, compressed or not."""
    captured = load(scenario)

    decoded = captured.read(tables=TABLE, sizes=sizes, claimCheckLocation=stored(captured.files, tmp_path)).to_pylist()

    assert not compare(captured, decoded)
    assert any(len(row["body"] or "") > 3000 for row in decoded)


@pytest.mark.parametrize("sizes", [whole, single], ids=["whole", "single"])
@pytest.mark.parametrize("scenario", KEY_ONLY)
def test_every_key_is_the_sql_truth(scenario: str, sizes: Any) -> None:
    """With onHandleKeyOnly=null a large row has its key columns only; other rows are whole."""
    captured = load(scenario)

    decoded = captured.read(tables=TABLE, sizes=sizes, onHandleKeyOnly="null").to_pylist()

    assert compare(captured, decoded)["handle-key-only"] > 0
    assert any(row["body"] is not None for row in decoded)
    assert all(row["tenant"] is not None and row["name"] is not None for row in decoded)


@pytest.mark.parametrize(
    ("scenario", "option", "expected"),
    [
        *((scenario, "claimCheckLocation", "set 'claimCheckLocation'") for scenario in CLAIMED),
        *(
            (scenario, "onHandleKeyOnly", "set onHandleKeyOnly=null to read the others as NULL")
            for scenario in KEY_ONLY
        ),
    ],
)
def test_without_its_option_a_large_message_is_an_error(scenario: str, option: str, expected: str) -> None:
    """The error has the address and names the option; the schema comes from the rows that are whole."""
    captured = load(scenario)

    with pytest.raises(DecodeError, match=expected) as raised:
        captured.read(tables=TABLE)

    assert astuple(raised.value.address)[:4] == ("captured", 0, 2, "large.doc")
    assert option in str(raised.value)


@pytest.mark.parametrize("scenario", [*CLAIMED, *KEY_ONLY])
def test_large_messages_are_counted(scenario: str, tmp_path: Path) -> None:
    """Metrics count the events from storage, and those with their key columns only."""
    captured = load(scenario)
    options = {"claimCheckLocation": stored(captured.files, tmp_path), "onHandleKeyOnly": "null"}
    schema = captured.schema(tables=TABLE, **options)
    parsed = make_options(tables=TABLE, **options)
    read_context = context_of_schema(schema, parsed)
    assert read_context is not None
    spec, state = read_spec(schema, parsed, read_context), ReadState()

    for wanted in captured.ranges():
        list(read(captured.fetch(wanted), spec, state))

    large = sum(flag for records in captured.partitions.values() for record in records for flag in record.large)
    assert large > 0
    assert (state.counters.claim_checks, state.counters.key_only) == ((large, 0) if scenario in CLAIMED else (0, large))


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update has two images and one file; files of other tables are not read."""
    captured = load("open-protocol.claim-check.large")
    location = stored(captured.files, tmp_path)
    schema = captured.schema(tables=TABLE, claimCheckLocation=location)
    other = open_message(open_row({"u": {"id": cell(3, 1)}}, table="other", ccl="s3://nowhere/x.json", ohk=True))
    captured = Captured(captured.header, {**captured.partitions, 9: [Record(*other)]}, captured.files)
    opened: Counter[str] = Counter()
    original = large_messages._read
    monkeypatch.setattr(
        large_messages, "_read", lambda where, name, most: (opened.update([name]), original(where, name, most))[1]
    )

    captured.read(tables=TABLE, schema=schema, claimCheckLocation=location)

    assert opened == dict.fromkeys(captured.files, 1)


@pytest.mark.parametrize("scenario", [*CLAIMED, *KEY_ONLY])
def test_other_output_formats_have_the_same_rows(scenario: str, tmp_path: Path) -> None:
    """Envelopes and events have the whole rows; with keys only, an event's JSON has only the keys."""
    captured = load(scenario)
    location = stored(captured.files, tmp_path)
    true = {(row.partition, row.offset, row.index): row for row in true_rows(captured, "large", "doc")}
    large = {
        (partition, offset, index)
        for partition, records in captured.partitions.items()
        for offset, record in enumerate(records)
        for index, flag in enumerate(record.large)
        if flag
    }
    for output in ("envelope", "event"):
        decoded = captured.read(
            tables=TABLE, outputFormat=output, claimCheckLocation=location, onHandleKeyOnly="null"
        ).to_pylist()
        rows_found = [row for row in decoded if row["before"] or row["after"]]
        assert len(rows_found) == len(true)
        for row in rows_found:
            position = tuple(row["_sequence"][part] for part in ("partition", "offset", "index"))
            image = row["after"] or row["before"]
            cells = image if output == "envelope" else json.loads(image)
            cut = scenario in KEY_ONLY and position in large
            body = true[position].values["body"]
            assert cells.get("body") == (None if cut else body)
            assert cells["name"] == true[position].values["name"]
            if output == "event":
                assert (len(cells) == 2) == cut


def claimed_canal(address: str, **extension: Any) -> tuple[bytes | None, bytes | None]:
    return canal(
        "INSERT", [{"id": "1"}], None, {"id": "int"}, {"id": 4},
        _tidb={"commitTs": TSO, "claimCheckLocation": address, **extension},
    )  # fmt: skip


def whole_canal(**more: Any) -> bytes:
    message = canal(
        "INSERT", [{"id": "1", "body": "x" * 5000}], None, {"id": "int", "body": "longtext"}, {"id": 4, "body": 2005},
        **{"_tidb": {"commitTs": TSO}, **more},
    )  # fmt: skip
    return message[1] or b""


def wrapped(value: bytes, key: bytes | None = None) -> bytes:
    return dump({"key": None if key is None else base64.b64encode(key).decode(),
                 "value": base64.b64encode(value).decode()})  # fmt: skip


@pytest.mark.parametrize("content", [whole_canal(), wrapped(whole_canal())], ids=["raw", "wrapped"])
@pytest.mark.parametrize(
    "address",
    [
        "file:///tmp/claims/a.json",
        "s3://bucket/some/prefix/a.json",
        "a.json",
        "gcs://b//a.json",
        "file:///tmp/../../etc/a.json",
        "azblob://c/ü/a.json",
    ],
)
def test_only_the_base_name_of_an_address_counts(address: str, content: bytes, tmp_path: Path) -> None:
    """The file is read from claimCheckLocation, wherever TiCDC wrote it."""
    location = stored({"a.json": content}, tmp_path)

    (decoded,) = rows(claimed_canal(address), claimCheckLocation=location)

    assert (decoded["id"], decoded["body"]) == (1, "x" * 5000)


@pytest.mark.parametrize(
    "address",
    [
        "/", "file:///tmp/", "..", "s3://b/..", "s3://b/.", "s3://b/ ", "s3://b/...", "s3://b/a\\..\\b.json",
        "s3://b/a.json\0", "s3://b/a.json\n", "s3://b/a*.json", "s3://b/%2e%2e%2fa.json", "s3://b/zip:::a.json",
        "s3://b/a.json?versionId=secret", "s3://b/a.json#x", "C:a.json", "s3://b/$HOME", "s3://b/~root",
    ],
)  # fmt: skip
def test_a_name_that_could_lead_elsewhere_is_refused(address: str, tmp_path: Path) -> None:
    """A name that leads out of the folder, or that a storage may interpret, is an error."""
    location = stored({"a.json": whole_canal()}, tmp_path / "claims")
    stored({"a.json": b"no", "b.json": b"no"}, tmp_path)

    good = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, {"id": 4})

    with pytest.raises(DecodeError, match="does not end in a file name") as raised:
        rows(good, claimed_canal(address), claimCheckLocation=location)

    assert raised.value.address.offset == 1
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("address", [7, True, ["a.json"], {"a": 1}])
def test_an_address_that_is_not_text_is_an_error(address: Any, tmp_path: Path) -> None:
    """The message is broken."""
    with pytest.raises(DecodeError, match="where a name is expected"):
        rows(claimed_canal(address), claimCheckLocation=str(tmp_path))


OPEN_HEAD = {"ts": TSO, "scm": "test", "tbl": "t", "t": 1}
OPEN_ROW = {"u": {"id": cell(3, 1, 11), "body": cell(251, "eA==", 64)}}


def open_file(head: Mapping[str, Any] = OPEN_HEAD, body: Any = OPEN_ROW, version: int = 1) -> bytes:
    return wrapped(framed(dump(body)), version.to_bytes(8, "big") + framed(dump(head)))


def test_an_open_protocol_file_is_a_whole_record(tmp_path: Path) -> None:
    """Key and value of the file are framed as in Kafka."""
    stub = open_message(open_row({"u": {"id": cell(3, 1, 11)}}, ohk=True, ccl="file:///x/a.json"))

    (decoded,) = rows(stub, claimCheckLocation=stored({"a.json": open_file()}, tmp_path))

    assert (decoded["id"], decoded["body"]) == (1, "x")


CANAL, OPEN = "canal-json", "open-protocol"
BROKEN: list[tuple[str, bytes | None, str]] = [
    (CANAL, None, "no file a.json of claimCheckLocation"),
    (OPEN, None, "no file a.json of claimCheckLocation"),
    (CANAL, b"", "it is empty"),
    (OPEN, b"", "it is empty"),
    (CANAL, whole_canal()[:-9], "the JSON is broken"),
    (CANAL, wrapped(whole_canal())[:-9], "Unterminated string"),
    (OPEN, open_file()[:-9], "Unterminated string"),
    (CANAL, wrapped(whole_canal()[:-9]), "the JSON is broken"),
    (OPEN, wrapped(framed(dump(OPEN_ROW))[:-3], (1).to_bytes(8, "big") + framed(dump(OPEN_HEAD))), "cut short"),
    (CANAL, b"null", "the JSON is broken|where an object is expected"),
    (CANAL, b"[]", "where an object is expected"),
    (CANAL, b"\x00\xff", "the JSON is broken"),
    (OPEN, whole_canal(), "not open-protocol: no key"),
    (OPEN, wrapped(framed(dump(OPEN_ROW))), "not open-protocol: no key"),
    (OPEN, open_file(version=2), "not version 1"),
    (CANAL, b'{"key":null,"value":"*"}', "base64|padding|Non-base64|Incorrect"),
    (CANAL, b'{"key":null,"value":null}', "NoneType|bytes-like"),
    (CANAL, b'{"key":7,"value":"e30="}', "int|bytes-like"),
    (CANAL, b"{}", "holds another event"),
    (CANAL, wrapped(whole_canal(database="other")), "holds another event"),
    (CANAL, wrapped(whole_canal(type="DELETE")), "holds another event"),
    (CANAL, wrapped(whole_canal(_tidb={"commitTs": TSO + 1})), "holds another event"),
    (CANAL, wrapped(whole_canal(_tidb=None)), "holds another event"),
    (CANAL, wrapped(claimed_canal("s3://b/a.json")[1] or b""), "it lacks the row, too"),
    (CANAL, wrapped(whole_canal(_tidb={"commitTs": TSO, "onlyHandleKey": True})), "it lacks the row, too"),
    (OPEN, open_file({**OPEN_HEAD, "ts": TSO + 1}), "holds another event"),
    (OPEN, open_file({**OPEN_HEAD, "tbl": "u"}), "holds another event"),
    (OPEN, open_file({**OPEN_HEAD, "ohk": True}), "it lacks the row, too"),
    (OPEN, open_file({**OPEN_HEAD, "ccl": "s3://b/a.json"}), "it lacks the row, too"),
    (OPEN, wrapped(b"", (1).to_bytes(8, "big")), "it holds 0 events"),
    (
        OPEN,
        wrapped(framed(b"{}", b"{}"), (1).to_bytes(8, "big") + framed(dump(OPEN_HEAD), dump(OPEN_HEAD))),
        "2 events",
    ),
]


@pytest.mark.parametrize(("protocol", "content", "expected"), BROKEN)
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_a_broken_file_is_a_bad_record(
    protocol: str, content: bytes | None, expected: str, mode: str, tmp_path: Path
) -> None:
    """A file may be missing, cut short, of another form or of another event. `mode` says what happens then."""
    location = stored({} if content is None else {"a.json": content}, tmp_path)
    if protocol == CANAL:
        good = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, {"id": 4}, _tidb={"commitTs": TSO})
        stub = claimed_canal("file:///x/a.json")
    else:
        good = open_message(open_row({"u": {"id": cell(3, 1, 11)}}))
        stub = open_message(open_row({"u": {"id": cell(3, 1, 11)}}, ohk=True, ccl="file:///x/a.json"))
    options = {"claimCheckLocation": location, "mode": mode}

    if mode == "FAILFAST":
        with pytest.raises(DecodeError, match=expected) as raised:
            rows(good, stub, **options)
        assert astuple(raised.value.address)[:4] == ("captured", 0, 1, "test.t")
        assert "a.json" in raised.value.reason
        return
    decoded = rows(good, stub, **options)

    assert [row["id"] for row in decoded] == ([1, None] if mode == "PERMISSIVE" else [1])
    if mode == "PERMISSIVE":
        report = json.loads(decoded[1]["_corrupt_record"])
        assert (report["offset"], base64.b64decode(report["value"])) == (1, stub[1])


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (
            "nosuch://bucket/claims",
            r"file a.json of claimCheckLocation nosuch://bucket/claims cannot be read: ValueError",
        ),
        ("nosuch://user:secret@bucket/claims", "claimCheckLocation nosuch://bucket/claims cannot be read"),
    ],
)
def test_storage_that_cannot_be_read_is_an_error_in_every_mode(location: str, expected: str, mode: str) -> None:
    """The message is not to blame: no row is dropped or marked as bad if the storage is not there."""
    with pytest.raises(ClaimCheckUnavailableError, match=expected) as raised:
        rows(claimed_canal("s3://b/a.json"), claimCheckLocation=location, mode=mode)

    assert "secret" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_folder_without_permission_is_such_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the reason that the system gives."""
    from fsspec.implementations import local

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", f"{tmp_path}?token=secret")

    monkeypatch.setattr(local.LocalFileSystem, "open", refuse)
    with pytest.raises(ClaimCheckUnavailableError, match=r"PermissionError \(Permission denied\)$") as raised:
        rows(claimed_canal("s3://b/a.json"), claimCheckLocation=str(tmp_path))

    assert "secret" not in str(raised.value)


def test_without_fsspec_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "fsspec", None)

    with pytest.raises(ClaimCheckUnavailableError, match=r"ticdc-source\[large-messages\]"):
        rows(claimed_canal("s3://b/a.json"), claimCheckLocation=str(tmp_path))


def test_a_url_of_fsspec_is_a_location() -> None:
    """The location may be on any file system that fsspec knows."""
    import fsspec

    storage = fsspec.filesystem("memory")
    storage.pipe("/claims/deep/a.json", wrapped(whole_canal()))
    try:
        for location in ("memory://claims/deep", "memory:///claims/deep/", "memory://claims/deep//"):
            assert len(rows(claimed_canal("s3://b/a.json"), claimCheckLocation=location)) == 1
    finally:
        storage.rm("/claims", recursive=True)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/data/claims", "/data/claims"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("s3://key:secret@bucket/a", "s3://bucket/a"),
        ("s3://key:sec/ret@bucket/a", "s3://bucket/a"),
        ("https://u:secret@h/a?sig=secret#secret", "https://h/a"),
        ("zip://a.zip::ftp://u:secret@h/b?x=secret", "zip://a.zip::ftp://h/b"),
        ("simplecache::s3://key:secret@bucket/a", "simplecache::s3://bucket/a"),
        ("https://u:sec?ret@h/a", "https://"),
        ("u:secret@host/a", "host/a"),
        ("//u:secret@host/a", "//host/a"),
        ("/data/a#b?c", "/data/a#b?c"),
        ("bucket/a?key=secret&endpoint=http://h", "bucket/a"),
        ("https://h/a?mail=x@y", "https://h/a"),
        ("s3://bucket/a?secret-access-key=secret&region=x", "s3://bucket/a"),
    ],
)
def test_secrets_of_a_location_are_not_shown(location: str, shown: str) -> None:
    """User, password, query and fragment are left out."""
    assert redacted(location) == shown


@pytest.mark.parametrize("location", ["s3://bucket/a?secret-access-key=secret&region=x", "gcs://b?secret", "", " "])
def test_ticdcs_own_storage_uri_is_refused_without_being_shown(location: str) -> None:
    """Fsspec does not understand its query, which may hold secrets."""
    with pytest.raises(
        OptionError, match="Option 'claimCheckLocation': expected a path, or a URL without query"
    ) as raised:
        make_options(claimCheckLocation=location)

    assert "secret" not in str(raised.value)


def test_a_message_without_the_option_shows_no_secret_of_its_address() -> None:
    """The error says where TiCDC wrote the file, and not with which credentials."""
    with pytest.raises(DecodeError, match=r"s3://bucket/a/b\.json;") as raised:
        rows(claimed_canal("s3://u:secret@bucket/a/b.json?secret-access-key=secret"))

    assert "secret" not in str(raised.value)


def test_rows_with_keys_only_do_not_narrow_the_schema() -> None:
    """The schema has all columns of the whole rows, in table order."""
    key_only = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, _tidb={"commitTs": TSO, "onlyHandleKey": True})
    full = canal("INSERT", [{"a": "x", "id": "2", "b": "y"}], None, {"id": "int", "a": "text", "b": "text"})

    decoded = rows(key_only, full, key_only, onHandleKeyOnly="null")

    assert [name for name in decoded[0] if not name.startswith("_")] == ["a", "id", "b"]
    assert [(row["id"], row["a"]) for row in decoded] == [(1, None), (2, "x"), (1, None)]


def test_not_null_in_a_users_schema_is_kept() -> None:
    """A NULL in place of a missing value is an error if the user's schema says NOT NULL."""
    key_only = canal("INSERT", [{"id": "1"}], None, {"id": "int"}, _tidb={"commitTs": TSO, "onlyHandleKey": True})
    full = canal("INSERT", [{"id": "2", "a": "x"}], None, {"id": "int", "a": "text"})
    captured = Captured.of(full, key_only)
    schema = captured.schema(onHandleKeyOnly="null")
    index = schema.get_field_index("a")
    schema = schema.set(index, schema.field(index).with_nullable(nullable=False))

    with pytest.raises(SchemaError, match="Column a is NOT NULL"):
        captured.read(schema=schema, onHandleKeyOnly="null")


def test_chunks_name_few_files() -> None:
    """One record of a chunk names files at most; no record is lost or moved."""
    stub, plain = claimed_canal("s3://b/a.json"), canal("INSERT", [{"id": "1"}], None, {"id": "int"})
    opened = open_message(*[open_row({"u": {"id": cell(3, 1)}}, ohk=True, ccl="s3://b/a.json") for _ in range(5)])
    files = {stub[1]: 1, plain[1]: 0, opened[1]: 5}
    chooser = random.Random(SEED)
    captured = Captured.of(*(chooser.choice((stub, plain, opened)) for _ in range(500)))
    (chunk,) = captured.fetch(captured.ranges()[0])

    portions = list(small_portions([chunk], list(PROTOCOLS.values())))

    assert [offset for portion in portions for offset in portion.offsets] == chunk.offsets
    assert [value for portion in portions for value in portion.values] == chunk.values
    assert [key for portion in portions for key in portion.keys] == chunk.keys
    assert all(sum(map(bool, (files[value] for value in portion.values))) == 1 for portion in portions)


def test_chunks_without_large_messages_stay_as_they_are() -> None:
    """Such chunks are not copied."""
    captured = Captured.of(*[canal("INSERT", [{"id": "1"}], None, {"id": "int"})] * 99)
    (chunk,) = captured.fetch(captured.ranges()[0])

    assert [portion is chunk for portion in small_portions([chunk], list(PROTOCOLS.values()))] == [True]


@pytest.mark.parametrize("scenario", CLAIMED)
@pytest.mark.parametrize(
    ("files", "errors"), [(12, 2), pytest.param(60, 15, marks=pytest.mark.slow("60 reads of each scenario"))]
)
def test_a_mangled_file_gives_rows_or_a_known_error(scenario: str, files: int, errors: int, tmp_path: Path) -> None:
    """A read ends with rows or with a DecodeError that has the message's address, whatever the file holds."""
    captured = load(scenario)
    location = stored(captured.files, tmp_path)
    schema = captured.schema(tables=TABLE, claimCheckLocation=location)
    chooser = random.Random(f"{SEED} {scenario}")
    addresses, others = [], Counter[str]()

    for _ in range(files):
        name = chooser.choice(sorted(captured.files))
        (tmp_path / name).write_bytes(mangled(captured.files[name], chooser))
        try:
            decoded = captured.read(schema=schema, tables=TABLE, claimCheckLocation=location)
        except DecodeError as error:
            addresses.append(error.address)
        except TiCDCSourceError:
            others["errors"] += 1
        else:
            others["rows"] += 1
            decoded.validate(full=True)
        (tmp_path / name).write_bytes(captured.files[name])

    assert len(addresses) >= errors, others
    assert all(address.offset is not None for address in addresses)


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 256, "é" * 128])
def test_a_name_that_no_file_can_have_is_a_bad_record(name: str, tmp_path: Path) -> None:
    """The file system refuses it, and that is no fault of the storage: one such message must not end each read."""
    captured = Captured.of(canal("INSERT", [{"id": "7"}], None, {"id": "int"}), claimed_canal(f"file:///x/{name}.json"))
    options: dict[str, Any] = {"claimCheckLocation": str(tmp_path)}

    assert [row["id"] for row in captured.read(mode="DROPMALFORMED", **options).to_pylist()] == [7]
    with pytest.raises(DecodeError, match="does not end in a file name") as raised:
        captured.read(**options)
    assert raised.value.address.offset == 1
    assert len(str(raised.value)) < 600


def test_a_name_that_is_too_long_for_the_storage_is_a_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some storages have shorter names than most."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENAMETOOLONG, "File name too long")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.open", refuse)
    captured = Captured.of(canal("INSERT", [{"id": "7"}], None, {"id": "int"}), claimed_canal("file:///x/a.json"))

    assert len(captured.read(mode="DROPMALFORMED", claimCheckLocation=str(tmp_path))) == 1


def test_a_symbolic_link_in_the_folder_is_followed(tmp_path: Path) -> None:
    """Who may write to the folder decides what rows say, with links or without; the file must be the message's."""
    (tmp_path / "elsewhere").write_bytes(whole_canal())
    (folder := tmp_path / "claims").mkdir()
    (folder / "a.json").symlink_to(tmp_path / "elsewhere")
    (folder / "b.json").symlink_to("/etc/hostname")
    plain = canal("INSERT", [{"id": "7"}], None, {"id": "int"})

    decoded = Captured.of(plain, claimed_canal("s3://x/a.json")).read(claimCheckLocation=str(folder)).to_pylist()

    assert [row["id"] for row in decoded] == [7, 1]
    with pytest.raises(DecodeError, match="does not hold the message"):
        Captured.of(plain, claimed_canal("s3://x/b.json")).read(claimCheckLocation=str(folder))
