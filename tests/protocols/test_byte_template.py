"""Many messages held against one template."""

import pyarrow as pa
import pytest

from ticdc_source.protocols.byte_template import ByteTemplate, bytes_of, messages_of, numbers_of


def of(*messages: bytes) -> pa.BinaryArray:
    """Make an array of messages."""
    array = messages_of(messages)
    assert array is not None
    return array


STENCIL = ByteTemplate(b'{"n":', 3, b',"rest":')


def test_messages_that_differ_in_the_gaps_alone_fit() -> None:
    """Constants are compared, gaps are not; what comes behind the last part is nobody's business."""
    messages = of(b'{"n":123,"rest":1}', b'{"n":abc,"rest":', b'{"n":,,,,"rest":null')

    assert STENCIL.fits(messages)
    assert STENCIL.end == len(b'{"n":123,"rest":')
    assert STENCIL.gap(messages, 0).to_pylist() == [b"123", b"abc", b",,,"]


@pytest.mark.parametrize(
    "other", [b"", b"{", b'{"n":', b'{"n":12', b'{"n":1234,"rest":1}', b'{"n":12,"rest":1}', b' {"n":123,"rest":1}']
)
def test_one_message_that_differs_fits_not(other: bytes) -> None:
    """A message that is too short, or has something else where a constant should be, is told from the others."""
    like = b'{"n":123,"rest":1}'

    assert not STENCIL.fits(of(like, other, like))
    assert not STENCIL.fits(of(other))
    assert STENCIL.fitting(of(like, other)).to_pylist()[1] is False


def test_a_stencil_may_begin_further_on() -> None:
    """With a start, what lies before it is not compared, and `end` counts it."""
    template = ByteTemplate(b"b", 1, b"d", start=3)

    assert template.end == 6
    assert template.fitting(of(b"xyzbcd", b"xyzbce", b"zzzb d-")).to_pylist() == [True, False, True]


@pytest.mark.parametrize("text", [b"-12", b" 12", b"012", b"1 2", b"+12", b"1e2", b"1.2", b"\xd9\xa1a"])
def test_a_number_is_digits_alone(text: bytes) -> None:
    """A sign, white space, a leading zero or a digit that is not ASCII make a gap no number."""
    assert numbers_of(of(b"123", text), 3) is None
    assert numbers_of(of(b"123", b"100"), 3) == pa.array([123, 100])


def test_bytes_of_an_array_are_those_of_its_values() -> None:
    """Also of an empty one, and of one of empty values."""
    assert bytes_of(of()) == bytes_of(of(b"", b"")) == b""
    assert bytes_of(of(b"a", b"", b"bc")) == b"abc"
