"""TiCDC's own compression of messages: found by the first bytes, or named by `valueCompression`."""

import random
from typing import Any

import cramjam
import pytest

from tests.support.captured import rows
from tests.support.messages import canal
from ticdc_source.errors import DecodeError
from ticdc_source.protocols.compression import Compression


def compressed(codec: str, text: bytes) -> bytes:
    """Compress as TiCDC does: raw snappy blocks, LZ4 frames."""
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
