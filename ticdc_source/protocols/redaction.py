r"""Redaction: values of columns → nonsense of the same length and type, so that messages still decode alike.

Digits become digits that are not larger, so numbers stay in the range of their type, and zero stays zero. Letters
become letters of the same case, and other characters another one of as many bytes. Quotes, escapes, punctuation and the
words true, false and null stay, and so do years. The same value becomes the same nonsense in one file.

What a value of a column is, each protocol's `redaction.py` says.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum

from ticdc_source.errors import DecodeError
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.protocols.compression import Compression, codec_of

__all__ = ["Path", "Redactor", "Treatment", "Wanted"]

# Where a JSON value is: names of members; the place in an array is not part of it.
Path = tuple[str, ...]


class Treatment(Enum):
    """What becomes of a JSON value."""

    KEEP = "keep"
    REDACT = "redact"
    BASE64 = "base64"  # redact what it encodes


# Says what becomes of a value, given where it is and the scalar members of its object before it.
Wanted = Callable[[Path, Mapping[str, bytes]], Treatment]

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\s+', re.DOTALL)
_PIECE = re.compile(
    r"(?P<escape>\\\\x[0-9a-fA-F]{2}|\\\\u[0-9a-fA-F]{4}|\\\\U[0-9a-fA-F]{8}|\\\\[0-7]{3}|\\\\\\\\|\\\\\\.|\\\\.|\\u[0-9a-fA-F]{4}|\\.)"
    r"|(?P<date>\d{4}-\d\d-\d\d)"
    r"|(?P<number>\d+(?:\.\d+)?)(?P<exponent>[eE][+-]?\d+)?"
    r"|(?P<word>\b(?:true|false|null)\b)"
    r"|(?P<letters>[A-Za-z]+)"
    r"|(?P<other>.)",
    re.DOTALL | re.ASCII,
)
_ZONE = re.compile(r"(?<=[\d])([TZ])(?=\d|$)")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={1,2}")
# The last letter before the padding stands for fewer bits, of which the others are zero.
_LAST = {1: ("AEIMQUY", "cgkosw", "048"), 2: ("AQ", "gw", "")}
_GO_BYTE = 5  # characters of \\\\xHH, the backslash escaped
_OF_BYTES = {1: "~", 2: "é", 3: "東", 4: "𝄞"}


class Redactor:
    """Redacts the values of one file.

    Args:
        salt: makes the nonsense of this file: whoever does not know it cannot try values out.
        registry: where the schemas of Avro messages are.
    """

    def __init__(self, salt: bytes, registry: RegistrySettings | None = None) -> None:
        self._salt = salt
        self.registry = registry or RegistrySettings()

    def json(self, text: bytes, wanted: Wanted) -> bytes:
        """Return a JSON document with redacted values, in as many bytes; compressed as it was.

        What is no JSON is redacted as a whole.
        """
        return self.plain(text, lambda plain: self._json(plain, wanted))

    def plain(self, text: bytes, redact: Callable[[bytes], bytes]) -> bytes:
        """Return a message with its plain bytes redacted, compressed as it was."""
        codec = codec_of(text)
        try:
            plain = Compression().decompressed(text)
        except DecodeError:
            return self.unknown(text)
        if codec == "none" or plain is text:
            return redact(text)
        import cramjam  # noqa: PLC0415 (only compressed topics need it)

        redacted = redact(plain)
        return bytes(cramjam.snappy.compress_raw(redacted) if codec == "snappy" else cramjam.lz4.compress(redacted))

    def unknown(self, data: bytes) -> bytes:
        """Return bytes of which nothing is known, redacted."""
        return self._text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def text(self, data: bytes) -> bytes:
        """Return a text without escapes, redacted, in as many bytes."""
        return self._text(data.decode("utf-8", "surrogateescape"), raw=True).encode("utf-8", "surrogateescape")

    def number(self, text: str) -> str:
        """Return a number, redacted: it is not larger."""
        return self._text(text)

    def _json(self, text: bytes, wanted: Wanted) -> bytes:
        try:
            return b"".join(self._tokens(text, wanted))
        except (IndexError, ValueError):  # broken JSON
            return self.unknown(text)

    def _tokens(self, text: bytes, wanted: Wanted) -> Iterator[bytes]:
        """Yield the tokens of a document, scalar values redacted."""
        path: list[str] = []  # the member at each depth; "" in an array
        siblings: list[dict[str, bytes]] = []
        is_name = False
        end = 0
        for match in _TOKEN.finditer(text):
            if match.start() != end:
                raise ValueError
            end = match.end()
            token = match[0]
            if token in (b"{", b"["):
                path.append("")
                siblings.append({})
                is_name = token == b"{"
            elif token in (b"}", b"]"):
                path.pop()
                siblings.pop()
                is_name = False
            elif token == b",":
                is_name = bool(path) and path[-1] != ""
            elif token == b":":
                is_name = False
            elif not token.isspace():
                if is_name:
                    path[-1] = token[1:-1].decode("utf-8", "surrogateescape")
                else:
                    where = tuple(name for name in path if name)
                    treatment = wanted(where, siblings[-1] if siblings else {})
                    if siblings:
                        siblings[-1][path[-1]] = token
                    token = self._scalar(token, treatment)
            yield token
        if end != len(text) or path:
            raise ValueError

    def _scalar(self, token: bytes, treatment: Treatment) -> bytes:
        if treatment is Treatment.KEEP or token in (b"true", b"false", b"null"):
            return token
        if token[:1] != b'"':
            return self._text(token.decode()).encode()
        text = token[1:-1].decode("utf-8", "surrogateescape")
        redacted = self._encoded(text) if treatment is Treatment.BASE64 else self._text(text)
        return b'"' + redacted.encode("utf-8", "surrogateescape") + b'"'

    def _encoded(self, text: str) -> str:
        """Return base64 of redacted bytes; text that is no base64 is redacted as it is."""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return self._text(text)
        redacted = self._text(data.decode("utf-8", "surrogateescape"), raw=True)
        return base64.b64encode(redacted.encode("utf-8", "surrogateescape")).decode()

    def _text(self, text: str, *, raw: bool = False) -> str:
        """Return nonsense for a text with its escapes; `raw` texts have none."""
        noise = _noise(self._salt, text)
        is_padded = not raw and _BASE64.fullmatch(text) is not None and len(text) % 4 == 0
        if raw:
            pieces = "".join(self._piece(match, noise) for match in _PIECE.finditer(text.replace("\\", "\0")))
            return pieces.replace("\0", "\\")
        redacted = "".join(self._piece(match, noise) for match in _PIECE.finditer(text))
        return _with_last(redacted, noise) if is_padded else redacted

    def _piece(self, match: re.Match[str], noise: Iterator[int]) -> str:
        text = match[0]
        if match["escape"] is not None or match["word"] is not None:
            return _escape(text, noise)
        if match["date"] is not None:
            return _date(text, noise)
        if match["number"] is not None:
            return _number(match["number"], noise) + (match["exponent"] or "")
        if match["letters"] is not None:
            if text in "TZ" and _ZONE.match(match.string, match.start()):  # of a time in ISO 8601
                return text
            return "".join(_letter(letter, noise) for letter in text)
        return _other(text)


def _noise(salt: bytes, text: str) -> Iterator[int]:
    """Yield numbers below 256 for ever, the same for the same text."""
    seed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=salt[:64]).digest()
    while True:
        yield from seed
        seed = hashlib.blake2b(seed, key=salt[:64]).digest()


def _letter(letter: str, noise: Iterator[int]) -> str:
    return chr(ord("a" if letter.islower() else "A") + next(noise) % 26)


def _number(text: str, noise: Iterator[int]) -> str:
    """Return a number that is not larger, without zeros in front that were not there."""
    digits, is_first = [], True
    for digit in text:
        if digit == ".":
            digits.append(digit)
            continue
        value = ord(digit) - ord("0")
        least = 1 if is_first and value else 0
        digits.append(str(least + next(noise) % (value - least + 1)))
        is_first = is_first and not value
    return "".join(digits)


def _date(text: str, noise: Iterator[int]) -> str:
    """Return a date of the same year; parts that are zero stay so."""
    year, month, day = text.split("-")
    month = month if month == "00" else f"{1 + next(noise) % 12:02}"
    day = day if day == "00" else f"{1 + next(noise) % 28:02}"
    return f"{year}-{month}-{day}"


def _escape(text: str, noise: Iterator[int]) -> str:
    r"""Return an escape; of Go's \xHH, which stands for a byte, another byte of its half."""
    if not text.startswith("\\\\x") or len(text) != _GO_BYTE:
        return text
    high = "89abcdef"[next(noise) % 8] if text[3] in "89abcdefABCDEF" else text[3]
    return f"\\\\x{high}{'0123456789abcdef'[next(noise) % 16]}"


def _other(character: str) -> str:
    if character < "\x80" or "\ud800" <= character <= "\udfff":  # punctuation, or a byte that is no UTF-8
        return character
    return _OF_BYTES[len(character.encode())]


def _with_last(text: str, noise: Iterator[int]) -> str:
    padding = len(text) - len(text.rstrip("="))
    place = len(text) - padding - 1
    if place < 0:
        return text
    last = text[place]
    upper, lower, digits = _LAST[padding]
    choices = digits if last.isdigit() else upper if last.isupper() else lower if last.islower() else ""
    chosen = choices[next(noise) % len(choices)] if choices else last
    return text[:place] + chosen + text[place + 1 :]
