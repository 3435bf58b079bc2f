"""SQL texts as tokens, by MySQL's lexical grammar as TiDB reads it; and a reader that walks over them.

Source: pingcap/tidb, pkg/parser/lexer.go. As texts may be hostile, the time is linear in their length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ticdc_source.schema.table_name import TableName


class Token(NamedTuple):
    """One token.

    Attributes:
        type: "word", "name" (in backticks), "text" (in quotes), "number", "sign", "bad" or "end".
        text: the token; words are in upper case, and bad tokens say what is wrong.
        plain: the token as written; bit literals always as `b'101'` or `x'1F'`.
    """

    type: str
    text: str
    plain: str


END = Token("end", "", "")

_LETTER = r"[^\x00-#%-/:-@\[-^`{-\x7f\s]"  # of a word: a letter, a digit, _, $, and what is not ASCII
_BEHIND_NAME = r"(?<=[^\x00-#%-/:-@\[-^{-\x7f\s])"  # behind such a letter, or a backtick
_EXPONENT = r"[eE][+-]?[0-9]+"
# What begins at a position. No pattern fails after more than a word, so nothing is read more than a few times.
_TOKEN = re.compile(
    rf"""
    \s+ | (?:\#|--(?=[\s\x00-\x1f\x7f]|\Z))[^\n]*
    | (?P<executed>/\*(?:!(?:[0-9]{{5,6}})?|T!(?:\[[\w,]*\])?))  # a comment that MySQL or TiDB executes
    | (?P<comment>/\*)
    | (?P<closing>\*/)
    | (?P<quote>[nN]?'|["`])
    | (?P<b>[bB]'[01]*'|0b[01]+(?!{_LETTER})) | (?P<x>[xX]'[0-9a-fA-F]*'|0[xX][0-9a-fA-F]+(?!{_LETTER}))
    | (?P<bad>[bBxX]'[^']*'?)
    | {_BEHIND_NAME}\.(?P<part>{_LETTER}*)  # behind a name and its dot is a name, also `2024` or `1e3`
    | (?P<number>\.[0-9]+(?:{_EXPONENT})?|[0-9]+(?:\.[0-9]*(?:{_EXPONENT})?|{_EXPONENT}|(?!{_LETTER})))
    | (?P<word>{_LETTER}+)
    | (?P<sign>->>?|<=>|[<>:!]=|<>|<<|>>|&&|\|\||.)
    """,
    re.DOTALL | re.VERBOSE,
)
# The content of quotes, up to the closing quote or the end; and its escapes.
_QUOTED = {
    "'": re.compile(r"[^'\\]*(?:(?:''|\\.)[^'\\]*)*", re.DOTALL),
    '"': re.compile(r'[^"\\]*(?:(?:""|\\.)[^"\\]*)*', re.DOTALL),
    "`": re.compile(r"[^`]*(?:``[^`]*)*"),
    "printed": re.compile(r"[^']*(?:''[^']*)*"),
}
_ESCAPED = {
    "'": re.compile(r"''|\\.", re.DOTALL),
    '"': re.compile(r'""|\\.', re.DOTALL),
    "`": re.compile("``"),
    "printed": re.compile("''"),
}
# What a backslash and a character stand for, if not the character itself.
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def tokens_of(sql: str, *, printed: bool = False) -> list[Token]:
    """Return the tokens of a text; adjacent texts are one, as in MySQL.

    `printed` is for output of `SHOW CREATE TABLE`, which does not escape backslashes in single quotes.

    Raises:
        ValueError: a quote or a comment is not closed, or a bit literal has other characters.
    """
    tokens: list[Token] = []
    for type_, group in groupby(scan(sql, printed=printed), key=lambda token: token.type):
        alike = list(group)
        if type_ == "bad":
            raise ValueError(alike[0].text)
        if type_ == "text":
            text = "".join(token.text for token in alike)
            alike = [Token("text", text, text)]
        tokens += alike
    return tokens


def scan(sql: str, *, printed: bool = False) -> Iterator[Token]:
    """Yield the tokens of any text, without comments; errors become "bad" tokens."""
    position, is_executed = 0, False
    while (piece := _TOKEN.match(sql, position)) is not None:
        plain, position = piece[0], piece.end()
        match piece.lastgroup:
            case "word":
                yield Token("word", plain.upper(), plain)
            case "number" | "sign" as type_:
                yield Token(type_, plain, plain)
            case "quote":
                quote = plain[-1]
                style = "printed" if printed and quote == "'" else quote
                body = _QUOTED[style].match(sql, position)
                if body is None or not sql.startswith(quote, body.end()):
                    yield Token("bad", "a quote is not closed", plain)
                    return
                position = body.end() + 1
                text = _ESCAPED[style].sub(lambda escape: _ESCAPES.get(escape[0][1], escape[0][1]), body[0])
                yield Token("name" if quote == "`" else "text", text, text)
            case "part":
                yield Token("sign", ".", ".")
                if piece["part"]:
                    yield Token("word", piece["part"].upper(), piece["part"])
            case "b" | "x" as base:
                digits = plain[2:].rstrip("'")
                yield Token("number", f"{base}'{digits}'", f"{base}'{digits}'")
            case "executed":
                is_executed = True
            case "closing" if is_executed:
                is_executed = False
            case "closing":
                position -= 1
                yield Token("sign", "*", "*")
            case "comment":
                position = sql.find("*/", position) + len("*/")
                if position < piece.end():
                    yield Token("bad", "a comment is not closed", plain)
                    return
            case "bad":
                yield Token("bad", f"{plain:.40} is not a number", plain)
    if is_executed:
        yield Token("bad", "a comment is not closed", "")


class Reader:
    """Walks over the tokens of one statement."""

    def __init__(self, tokens: Sequence[Token], database: str) -> None:
        self.tokens = tokens
        self.index = 0
        self.database = database

    @property
    def next(self) -> Token:
        return self.tokens[self.index] if self.index < len(self.tokens) else END

    def take(self) -> Token:
        token = self.next
        self.index += 1
        return token

    def skip(self, *words: str) -> bool:
        """Step over these words or signs if they are next; return whether they are."""
        here = self.tokens[self.index : self.index + len(words)]
        if tuple(token.text for token in here) != words or any(token.type in ("name", "text") for token in here):
            return False
        self.index += len(words)
        return True

    def is_word(self, words: frozenset[str]) -> bool:
        return self.next.type == "word" and self.next.text in words

    def need(self, *words: str) -> None:
        if not self.skip(*words):
            raise ValueError(f"{' '.join(words)} expected, found {self.next.plain or 'the end'!r}")

    def seek(self, *words: str) -> None:
        """Step over everything up to and including these words, or raise ValueError."""
        while not self.skip(*words):
            if self.take() is END:
                self.need(*words)

    def name(self) -> str:
        token = self.take()
        if token.type not in ("word", "name"):
            raise ValueError(f"a name expected, found {token.plain or 'the end'!r}")
        return token.plain

    def table(self) -> TableName:
        first = self.name()
        return TableName(first, self.name()) if self.skip(".") else TableName(self.database, first)

    def column(self) -> str:
        name = self.name()
        while self.skip("."):
            name = self.name()
        return name.lower()

    def parts(self) -> Iterator[Reader]:
        """Yield a reader for each part of the rest, split at commas outside brackets."""
        part: list[Token] = []
        depth = 0
        for token in self.tokens[self.index :]:
            if token.type == "sign":
                depth += (token.text == "(") - (token.text == ")")
                if token.text == "," and not depth:
                    yield Reader(part, self.database)
                    part = []
                    continue
            part.append(token)
        self.index = len(self.tokens)
        yield Reader(part, self.database)

    def bracket(self) -> Reader:
        """Step over a pair of brackets, or raise ValueError; return a reader for their content."""
        self.need("(")
        start, depth = self.index, 1
        while depth:
            token = self.take()
            if token is END:
                raise ValueError("a bracket is not closed")
            if token.type == "sign":
                depth += (token.text == "(") - (token.text == ")")
        return Reader(self.tokens[start : self.index - 1], self.database)
