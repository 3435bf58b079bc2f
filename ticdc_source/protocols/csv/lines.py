r"""Rows of CSV as TiCDC's storage sink writes them: cut out of a file, and cut into fields.

With a quote, every text stands in quotes, and a quote in it is written twice; NULL and numbers have no quotes. Without
one, a backslash stands before a backslash and each character of the delimiter, and line ends are `\r` and `\n`
(pingcap/ticdc pkg/sink/codec/csv/csv_message.go, formatWithQuotes and formatWithEscapes).

An update with its old row is two rows, one behind the other: they are one message here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

import orjson

from ticdc_source.protocols.messages import parse_object, text, tso
from ticdc_source.sources.storage.file_format import FileSettings

_HEADER = b"ticdc-meta$operation"  # begins the first line of a file with `output-field-header`
_COMMIT_TS, _IS_UPDATE = "ticdc-meta$commit-ts", "ticdc-meta$is-update"
OWN_FIELDS = 3  # operation, table and schema
_LARGE = 64 << 10  # characters of a row
_TRUE = "true"
_BOOLEANS = (_TRUE, "false")
# A field as `_field` matches it: its quote, if it has one; what is in quotes; what is not; and what follows.
_Matched: TypeAlias = tuple[str, str, str, str]
_UNESCAPED = {"n": "\n", "r": "\r"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Key(NamedTuple):
    """What a row does not say itself.

    Attributes:
        header: the first line of its file, if that is a header.
        is_cut: whether the file ends in the row, so that its last field may be cut short.
    """

    version: int
    header: str | None = None
    is_cut: bool = False


class CSVCutter:
    """Cuts a file into messages; see `FileCutter`."""

    def __init__(self, version: int, settings: FileSettings) -> None:
        self._settings = settings
        self._terminator = settings.end_of_row
        self._quote = settings.quote.encode()
        self._deleted = self._quote + b"D" + self._quote + settings.delimiter.encode()
        self._left = b""
        self._rows = _Rows(settings)
        self._old: bytes | None = None  # the old row of an update
        self._is_first = True
        self._facts: dict[str, object] = {"TableVersion": version}
        self.key: bytes | None = orjson.dumps(self._facts)

    def cut(self, block: bytes) -> list[bytes]:
        pieces = (self._left + block).split(self._terminator)
        self._left = pieces.pop()
        return self._messages(pieces)

    def rest(self) -> list[bytes]:
        """Return the row in which the file ends: every row of TiCDC's has a terminator, and an old row its new one."""
        left, self._left = self._left, b""
        messages = self._messages([left])
        self.key = orjson.dumps({**self._facts, "cut": True})
        return messages + [each for each in (self._old, self._rows.rest()) if each]

    def _messages(self, pieces: list[bytes]) -> list[bytes]:
        messages = []
        if self._is_first and pieces:
            self._is_first = False
            if pieces[0].startswith(_HEADER):  # before rows are cut: no quotes are around its names
                header = pieces.pop(0).decode()
                self._facts["header"] = header
                self.key = orjson.dumps(self._facts)
                self._settings = with_header(self._settings, header)
        for row in self._rows.whole(pieces):
            if not row:
                continue
            if self._old is not None:
                messages.append(self._old + self._terminator + row)
                self._old = None
            elif row.startswith(self._deleted) and self._is_of_update(row):
                self._old = row
            else:
                messages.append(row)
        return messages

    def _is_of_update(self, row: bytes) -> bool:
        at = OWN_FIELDS + self._settings.include_commit_ts
        fields = fields_of(row, self._settings, at + 1)
        return fields.says_is_update and fields.texts[at] == _TRUE and self._settings.output_old_value is not False


class _Rows:
    """Puts rows together whose texts have the terminator in them."""

    def __init__(self, settings: FileSettings) -> None:
        self._quote, self._terminator = settings.quote.encode(), settings.end_of_row
        self._begun: list[bytes] = []  # the pieces of a row whose last text has no end yet

    def whole(self, pieces: list[bytes]) -> list[bytes]:
        """Return the rows that are whole with these pieces, which follow those of before."""
        if not self._quote:
            return pieces
        rows = []
        for piece in pieces:
            ends_text = piece.count(self._quote) % 2 == 1
            if self._begun:
                self._begun.append(piece)
                if ends_text:
                    rows.append(self.rest())
            elif ends_text:  # it begins one
                self._begun.append(piece)
            else:
                rows.append(piece)
        return rows

    def rest(self) -> bytes:
        """Return the row that has been begun; empty if none has."""
        row = self._terminator.join(self._begun)
        self._begun = []
        return row


def has_is_update(fields: Fields, settings: FileSettings) -> bool:
    """Return whether rows have the field is-update.

    A bare `true` or `false` behind the commit-ts is that field: TiCDC quotes text, and writes booleans as numbers.

    Raises:
        ValueError: csv.outputOldValue says so, and the field is neither `true` nor `false`; or without quotes, text
            looks the same, and csv.outputOldValue must say it.
    """
    if settings.output_old_value and not fields.says_is_update:
        msg = "no field behind the commit-ts says true or false: is csv.outputOldValue as for the changefeed?"
        raise ValueError(msg)
    if settings.output_old_value is not None or not fields.says_is_update:
        return bool(settings.output_old_value)
    if not settings.quote:
        msg = "whether output-old-value is on cannot be seen without quotes: set csv.outputOldValue"
        raise ValueError(msg)
    return True


def rows_of(message: bytes, settings: FileSettings) -> list[bytes]:
    """Return the rows of a message: one, or the old and the new row of an update."""
    if settings.end_of_row not in message:
        return [message]
    rows = _Rows(settings)
    whole = rows.whole(message.split(settings.end_of_row))
    return [*whole, *filter(None, [rows.rest()])]


@lru_cache(maxsize=16)
def _field(settings: FileSettings) -> re.Pattern[str]:
    """Return what matches one field, in the groups of `_Matched`."""
    between, quote, first = re.escape(settings.delimiter), re.escape(settings.quote), re.escape(settings.delimiter[:1])
    # Each loop takes many characters at once: the stack of Python's `re` grows with the turns of a loop.
    if quote:
        quoted = rf"({quote})([^{quote}]*(?:{quote}{quote}[^{quote}]*)*){quote}"
        plain = rf"(?!{quote})([^{first}]*(?:(?!{between}){first}[^{first}]*)*)"
        return re.compile(rf"(?:{quoted}|{plain})({between}|\Z)", re.DOTALL)
    return re.compile(rf"()()([^\\{first}]*(?:(?:\\.|(?!{between}){first})[^\\{first}]*)*)({between}|\Z)", re.DOTALL)


class Fields(NamedTuple):
    """The fields of a row.

    Attributes:
        says_is_update: whether the field behind the commit-ts is a bare `true` or `false`.
    """

    texts: list[str | None]
    quotes: list[str]
    says_is_update: bool


def fields_of(row: bytes, settings: FileSettings, max_fields: int | None = None) -> Fields:
    """Return the fields of a row.

    Raises:
        ValueError: a quote is not closed, or stands where it must not.
    """
    text, null, quote = row.decode("utf-8", "surrogateescape"), settings.null, settings.quote
    if len(text) > _LARGE:
        matched = _scanned(text, settings, max_fields)
    elif max_fields is None:
        matched = _field(settings).findall(text)
        if len(matched) > 1 and not matched[-2][3]:  # the row ended there, and findall matched nothing once more
            matched.pop()
    else:
        matches = islice(_field(settings).finditer(text), max_fields)
        matched = [(each[1] or "", each[2] or "", each[3] or "", each[4]) for each in matches]
    # What does not match is passed over: the matches are then shorter than the row.
    closing = sum(1 for opening, _, _, _ in matched if opening)
    if max_fields is None and len("".join(chain.from_iterable(matched))) + closing * len(quote) != len(text):
        msg = (
            "a quote in a row of CSV is not closed, or stands where it must not. Are terminator and csv.quote those of "
            f"the changefeed? {text[:40]!r}"
        )
        raise ValueError(msg)
    if quote:
        twice = quote + quote
        texts = [
            quoted.replace(twice, quote) if opening else None if plain == null else plain
            for opening, quoted, plain, _ in matched
        ]
    else:
        texts = [None if plain == null else _unescaped(plain) if "\\" in plain else plain for _, _, plain, _ in matched]
    at, quotes = OWN_FIELDS + settings.include_commit_ts, [opening for opening, _, _, _ in matched]
    return Fields(texts, quotes, len(matched) > at and not quotes[at] and texts[at] in _BOOLEANS)


def _scanned(text: str, settings: FileSettings, max_fields: int | None) -> list[_Matched]:
    """Return the fields of a large row, as the regular expression has them, which needs memory for each quote in it."""
    delimiter, quote = settings.delimiter, settings.quote
    matched: list[_Matched] = []
    at = 0
    while max_fields is None or len(matched) < max_fields:
        opening, end = "", -1
        if quote and text.startswith(quote, at):
            opening, close = quote, text.find(quote, at + 1)
            while close >= 0 and text.startswith(quote, close + 1):
                close = text.find(quote, close + 2)
            end = close + 1
        elif quote:
            end = text.find(delimiter, at)
        else:
            end = _end_of_escaped(text, at, delimiter)
        end = len(text) if end < 0 else end
        follows = delimiter if text.startswith(delimiter, end) else ""
        field = text[at + len(opening) : end - len(opening)]
        matched.append((opening, field if opening else "", "" if opening else field, follows))
        at = end + len(follows)
        if not follows:
            break
    return matched


def _end_of_escaped(text: str, at: int, delimiter: str) -> int:
    """Return where the next delimiter stands that no backslash escapes; -1 if there is none."""
    end = text.find(delimiter, at)
    while True:
        backslash = text.find("\\", at)
        if backslash < 0 or 0 <= end < backslash:
            return end
        at = backslash + 2
        if 0 <= end < at:
            end = text.find(delimiter, at)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda escape: _UNESCAPED.get(escape[1], escape[1]), text)


@lru_cache(maxsize=256)
def with_header(settings: FileSettings, header: str | None) -> FileSettings:
    if header is None:
        return settings
    own = header.split(settings.delimiter)[: OWN_FIELDS + 2]
    return replace(settings, include_commit_ts=_COMMIT_TS in own, output_old_value=_IS_UPDATE in own)


@lru_cache(maxsize=256)
def columns_of(header: str, settings: FileSettings, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return which of a table's columns a header names, in their order. No quotes are around them.

    Raises:
        ValueError: it names another column.
    """
    own = OWN_FIELDS + settings.include_commit_ts + bool(settings.output_old_value)
    delimiter = settings.delimiter
    rest, indexes = delimiter.join(header.split(delimiter)[own:]) + delimiter, []
    for index, name in enumerate(names):
        if rest[: len(name)].lower() == name.lower() and rest.startswith(delimiter, len(name)):
            rest = rest[len(name + delimiter) :]
            indexes.append(index)
    if rest:
        msg = (
            f"the header of the file names a column that the version of the table lacks: {rest[: -len(delimiter)]:.80}"
        )
        raise ValueError(msg)
    return tuple(indexes)


@lru_cache(maxsize=256)
def parsed_key(key: bytes) -> Key:
    """Return what the key of a message says.

    Raises:
        ValueError, TypeError, KeyError: it is not one of a row.
    """
    parsed = parse_object(key)
    header = parsed.get("header")
    return Key(tso(parsed["TableVersion"]), None if header is None else text(header), parsed.get("cut") is True)
