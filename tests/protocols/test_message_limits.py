"""Compressed messages take a bounded memory: one that is too large is a bad record, and many are read in parts."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from tests.support.captured import Captured, load, make_options, rows
from tests.support.messages import Message, canal, cell, debezium, open_message, open_row
from ticdc_source.errors import DecodeError
from ticdc_source.protocols import decoder_of
from ticdc_source.protocols.compression import Compression
from ticdc_source.protocols.decoding import splits_of

LIMIT = 64 << 10
PACK: dict[str, Callable[[bytes], bytes]] = {
    "lz4": lambda text: bytes(cramjam.lz4.compress(text)),
    "snappy": lambda text: bytes(cramjam.snappy.compress_raw(text)),
}
PROTOCOLS = ("canal-json", "debezium", "open-protocol")


def message(protocol: str, number: int, size: int, codec: str) -> Message:
    pack, text = PACK[codec], "x" * size
    if protocol == "canal-json":
        key, value = canal("INSERT", [{"id": str(number), "v": text}], None, {"id": "int", "v": "longtext"})
    elif protocol == "debezium":
        fields = [{"field": "id", "type": "int32"}, {"field": "v", "type": "string"}]
        key, value = debezium("c", None, {"id": number, "v": text}, fields, key={"id": number})
    else:
        key, value = open_message(open_row({"u": {"id": cell(3, number), "v": cell(15, text)}}))
        frame = pack((value or b"")[8:])
        return key, len(frame).to_bytes(8, "big") + frame
    return key, pack(value or b"")


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_message_that_becomes_too_large_is_a_bad_record(protocol: str, codec: str) -> None:
    """`mode` decides about it; the messages around it are read."""
    messages = [message(protocol, number, size, codec) for number, size in enumerate((10, 2 * LIMIT, 10))]
    captured = Captured.of(*messages)

    decoded = captured.read(mode="PERMISSIVE", maxMessageBytes=str(LIMIT)).to_pylist()

    assert [row["id"] for row in decoded] == [0, None, 2]
    assert f"decompresses to more than {LIMIT} bytes: set 'maxMessageBytes'" in decoded[1]["_corrupt_record"]
    assert [row["id"] for row in captured.read(mode="DROPMALFORMED", maxMessageBytes=str(LIMIT)).to_pylist()] == [0, 2]
    assert [row["id"] for row in captured.read().to_pylist()] == [0, 1, 2]
    with pytest.raises(DecodeError, match="maxMessageBytes") as raised:
        captured.read(maxMessageBytes=str(LIMIT))
    assert raised.value.address.offset == 1


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_limit_is_exact(codec: str, more: int) -> None:
    """A message of as many bytes as the limit is read, one with a byte more is not."""
    text = b'{"a":"' + b"x" * (LIMIT - 8 + more) + b'"}'
    packed = PACK[codec](text)

    if more > 0:
        with pytest.raises(DecodeError, match="maxMessageBytes"):
            Compression("auto", LIMIT).decompressed(packed)
    else:
        assert Compression("auto", LIMIT).decompressed(packed) == text
        assert Compression(codec, LIMIT).decompressed(packed) == text


@pytest.mark.parametrize("output", ["changelog", "event"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_chunk_of_compressed_messages_is_read_in_parts(protocol: str, output: str) -> None:
    """No part has more unpacked bytes than a chunk may have, and one message; the rows are those of the whole chunk."""
    key, value = message(protocol, 7, 10, "lz4")
    plain = (key, value if protocol == "open-protocol" else Compression("lz4").decompressed(value or b""))
    messages = [message(protocol, number, 500 * (number % 5), ("lz4", "snappy")[number % 2]) for number in range(40)]
    captured = Captured.of(*(each for number in messages for each in (number, plain)))
    most = 3000
    options: dict[str, Any] = {"outputFormat": output}
    options |= {} if output == "event" else {"protocol": protocol}

    in_parts = captured.read(maxBytesPerBatch=str(most), **options)

    assert in_parts.to_pylist() == captured.read(**options).to_pylist()
    decoder = decoder_of(protocol, make_options(maxBytesPerBatch=str(most)))
    (chunk,) = captured.fetch(captured.ranges()[0])
    parts = list(splits_of(decoder, chunk))
    assert len(parts) > 5
    assert all(part.unpacked < most + 3000 for part in parts)


def test_a_part_may_end_inside_a_record() -> None:
    """A record of open-protocol holds many events, each compressed: it is read in parts too."""
    rows = [open_row({"u": {"id": cell(3, number), "v": cell(15, "x" * 900)}}) for number in range(10)]
    key, value = open_message(*rows)
    frames = [PACK["lz4"]((open_message(row)[1] or b"")[8:]) for row in rows]
    packed = b"".join(len(frame).to_bytes(8, "big") + frame for frame in frames)
    captured, plain = Captured.of((key, packed)), Captured.of((key, value))

    decoded = captured.read(maxBytesPerBatch="2000")

    assert decoded.to_pylist() == plain.read().to_pylist()
    decoder = decoder_of("open-protocol", make_options(maxBytesPerBatch="2000"))
    assert len(list(splits_of(decoder, next(captured.fetch(captured.ranges()[0]))))) > 2


def test_a_claim_check_file_that_is_too_large_is_a_bad_record(tmp_path: Path) -> None:
    """The limit is that of messages; no more of the file is read."""
    captured = load("canal-json.claim-check.large")
    for name, content in captured.files.items():
        (tmp_path / name).write_bytes(content)
    options: dict[str, Any] = {"tables": "large.doc", "claimCheckLocation": str(tmp_path), "mode": "PERMISSIVE"}
    schema = captured.schema(**options)

    decoded = captured.read(schema=schema, maxMessageBytes="1k", **options).to_pylist()

    bad = [json.loads(row["_corrupt_record"])["reason"] for row in decoded if row["_corrupt_record"]]
    assert bad
    assert all("claim-check file" in reason and "maxMessageBytes" in reason for reason in bad)


MEASURED = """
import sys
from tests.protocols.test_message_limits import bomb, canal
from tests.support.captured import Captured, make_options
from ticdc_source.pipeline.read import read

count, mebibytes = map(int, sys.argv[1:])
message = bomb(mebibytes)
captured = Captured.of(canal("INSERT", [{"id": "1", "v": "a"}], None, {"id": "int", "v": "text"}), *[message] * count)
table = captured.read(mode="PERMISSIVE", protocol="canal-json")
bad = len(table) - table["_corrupt_record"].null_count
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(len(message[1]), len(table) - bad, bad, int(peak) // 1024)
"""


def bomb(mebibytes: int) -> Message:
    """Make an insert in canal-json whose text has so many MiB, compressed with LZ4 to a 255th of that."""
    key, value = canal("INSERT", [{"id": "2", "v": "@"}], None, {"id": "int", "v": "text"})
    head, tail = (value or b"").split(b"@")
    frame = b"\x04\x22\x4d\x18\x60\x70\x73"  # independent blocks of 4 MiB at most; a checksum of that
    middle = _block(b"x" * (4 << 20))
    return key, b"".join([frame, _block(head), *[middle] * (mebibytes // 4), _block(tail), bytes(4)])


def _block(text: bytes) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(text, store_size=False))
    return len(packed).to_bytes(4, "little") + packed


@pytest.mark.slow("decompresses gigabytes")
@pytest.mark.skipif(sys.platform != "linux", reason="/proc says the peak")
@pytest.mark.parametrize(("count", "mebibytes", "size"), [(10, 104, 428_000), (1, 2032, 8_350_000)])
def test_messages_that_would_become_gigabytes_take_little_memory(count: int, mebibytes: int, size: int) -> None:
    """Ten values of 418 KB and one of 8 MB, which took 1.26 GiB and more, take less than 400 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(count), str(mebibytes)], check=True, capture_output=True, text=True
    )

    length, rows, bad, peak = map(int, done.stdout.split())
    assert (rows, bad) == (1, count)
    assert length == pytest.approx(size, rel=0.05)
    assert peak < 400


def compressed(codec: str, text: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(text) if codec == "snappy" else cramjam.lz4.compress(text))


@pytest.mark.parametrize("codec", ["snappy", "lz4"])
def test_compressed_json_of_every_length_is_recognized(codec: str) -> None:
    """JSON of any length, compressed or plain, comes out as it was written."""
    chooser = random.Random(seed := 7)
    for size in [*range(300), 1000, 16_384, 100_000]:
        text = b'{"a":"' + bytes(chooser.choice(b'abc{}",:') for _ in range(size)) + b'"}'

        assert Compression().decompressed(text) == text, seed
        assert Compression().decompressed(compressed(codec, text)) == text, seed
        assert Compression(codec).decompressed(compressed(codec, text)) == text, seed


@pytest.mark.parametrize("value", [b"", b"{}", b"garbage", b"\xff" * 9, b"\x00\x00{", bytes(range(9))])
def test_a_value_that_is_not_compressed_stays_as_it_is(value: bytes) -> None:
    """Bytes that only resemble a block are passed on; the parser refuses them."""
    assert Compression().decompressed(value) == value


@pytest.mark.parametrize(("codec", "expected"), [("lz4", "not compressed with lz4"), ("none", "it looks compressed")])
def test_the_wrong_codec_is_an_error_that_names_the_setting(codec: str, expected: str) -> None:
    """With another codec a record fails, and the error has its address."""
    key, value = canal("INSERT", [{"id": "1"}], None, {"id": "int"})
    options: dict[str, Any] = {"valueCompression": codec, "protocol": "canal-json"}

    with pytest.raises(DecodeError, match=expected) as raised:
        rows((key, compressed("snappy", value or b"")), **options)

    assert raised.value.address.offset == 0
