"""Byte templates: many messages are compared with one template."""

import pyarrow as pa
import pytest

from ticdc_source.protocols.byte_template import ByteTemplate, bytes_of, messages_of, numbers_of


def of(*messages: bytes) -> pa.BinaryArray:
    """Make an array of messages."""
    array = messages_of(messages)
    assert array is not None
    return array


TEMPLATE = ByteTemplate(b'{"n":', 3, b',"rest":')


def test_messages_that_differ_only_in_gaps_fit() -> None:
    """Constants are compared. Gaps, and the bytes behind the last part, are not."""
    messages = of(b'{"n":123,"rest":1}', b'{"n":abc,"rest":', b'{"n":,,,,"rest":null')

    assert TEMPLATE.fits(messages)
    assert TEMPLATE.end == len(b'{"n":123,"rest":')
    assert TEMPLATE.gap(messages, 0).to_pylist() == [b"123", b"abc", b",,,"]


@pytest.mark.parametrize(
    "other", [b"", b"{", b'{"n":', b'{"n":12', b'{"n":1234,"rest":1}', b'{"n":12,"rest":1}', b' {"n":123,"rest":1}']
)
def test_a_message_that_differs_does_not_fit(other: bytes) -> None:
    """A message that is too short, or has other bytes in place of a constant, does not fit."""
    like = b'{"n":123,"rest":1}'

    assert not TEMPLATE.fits(of(like, other, like))
    assert not TEMPLATE.fits(of(other))
    assert TEMPLATE.fitting(of(like, other)).to_pylist()[1] is False


def test_a_template_may_begin_at_an_offset() -> None:
    """Bytes before the start are not compared, and `end` counts them."""
    template = ByteTemplate(b"b", 1, b"d", start=3)

    assert template.end == 6
    assert template.fitting(of(b"xyzbcd", b"xyzbce", b"zzzb d-")).to_pylist() == [True, False, True]


@pytest.mark.parametrize("text", [b"-12", b" 12", b"012", b"1 2", b"+12", b"1e2", b"1.2", b"\xd9\xa1a"])
def test_a_number_has_digits_only(text: bytes) -> None:
    """A gap with a sign, white space, a leading zero or a digit that is not ASCII is not a number."""
    assert numbers_of(of(b"123", text), 3) is None
    assert numbers_of(of(b"123", b"100"), 3) == pa.array([123, 100])


def test_bytes_of_an_array_are_those_of_its_values() -> None:
    """The array may be empty, or have empty values."""
    assert bytes_of(of()) == bytes_of(of(b"", b"")) == b""
    assert bytes_of(of(b"a", b"", b"bc")) == b"abc"
