"""A DDL text as tokens. sqlglot's tokenizer knows quotes, escapes and comments, also TiDB's `/*T![…] */`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ticdc_source.errors import OptionError
from ticdc_source.events import TableName

__all__ = ["END", "Reader", "Token", "available", "tokens_of"]


class Token(NamedTuple):
    """A word, a quoted name, a text in quotes, or a sign.

    Attributes:
        type: "word", "name", "text", "sign" or "end".
        text: the token; a word is in upper case.
        plain: the token as it is written.
    """

    type: str
    text: str
    plain: str


_BITS = {"BIT_STRING": "b", "HEX_STRING": "x"}
_TYPES = {"IDENTIFIER": "name", "STRING": "text", "NATIONAL_STRING": "text"}
END = Token("end", "", "")


def available() -> bool:
    """Return whether sqlglot is installed."""
    return importlib.util.find_spec("sqlglot") is not None


def tokens_of(sql: str) -> list[Token]:
    """Return the tokens of a text.

    Raises:
        OptionError: sqlglot is not installed.
        ValueError: a quote or a comment is not closed.
    """
    try:
        from sqlglot import tokenize  # noqa: PLC0415 (an extra, only needed on the driver)
        from sqlglot.errors import SqlglotError  # noqa: PLC0415
    except ImportError:
        msg = 'DDL texts are read with sqlglot, which is not installed: pip install "ticdc-source[ddl]"'
        raise OptionError(msg) from None
    out: list[Token] = []
    command = False
    try:
        for token in tokenize(sql, read="mysql"):
            name, text = token.token_type.name, token.text
            if command and _TYPES.get(name) == "text":
                # sqlglot makes one text of everything after a RENAME that begins a statement. After the `x` no other
                # RENAME begins one: each text is read twice at most.
                for part in tokenize(f"x {text}", read="mysql")[1:]:
                    out += _tokens(part.token_type.name, part.text)
            else:
                out += _tokens(name, text)
            command = text.upper() == "RENAME"
    except SqlglotError as error:
        raise ValueError(str(error)) from None
    return out


def _tokens(name: str, text: str) -> list[Token]:
    """Return what one token of sqlglot is here: it makes one token of some pairs of words, such as `PRIMARY KEY`."""
    type_ = _TYPES.get(name)
    if type_ is not None:
        return [Token(type_, text, text)]
    if name in _BITS:
        literal = f"{_BITS[name]}'{text}'"
        return [Token("word", literal, literal)]
    return [Token("word" if re.match(r"\w", word) else "sign", word.upper(), word) for word in text.split() or [text]]


class Reader:
    """Walks over the tokens of one statement."""

    def __init__(self, tokens: Sequence[Token], database: str) -> None:
        self.tokens = tokens
        self.index = 0
        self.database = database

    @property
    def next(self) -> Token:
        """The next token; `END` after the last one."""
        return self.tokens[self.index] if self.index < len(self.tokens) else END

    def take(self) -> Token:
        """Step over a token."""
        token = self.next
        self.index += 1
        return token

    def skip(self, *words: str) -> bool:
        """Step over these words or signs, if they are next."""
        here = self.tokens[self.index : self.index + len(words)]
        if tuple(token.text for token in here) != words or any(token.type in ("name", "text") for token in here):
            return False
        self.index += len(words)
        return True

    def is_word(self, words: frozenset[str]) -> bool:
        """Return whether one of these words is next, unquoted."""
        return self.next.type == "word" and self.next.text in words

    def need(self, *words: str) -> None:
        """Step over these words, or raise ValueError."""
        if not self.skip(*words):
            msg = f"{' '.join(words)} expected, found {self.next.plain or 'the end'!r}"
            raise ValueError(msg)

    def name(self) -> str:
        """Step over a name, or raise ValueError."""
        token = self.take()
        if token.type not in ("word", "name"):
            msg = f"a name expected, found {token.plain or 'the end'!r}"
            raise ValueError(msg)
        return token.plain

    def table(self) -> TableName:
        """Step over a table's name."""
        first = self.name()
        return TableName(first, self.name()) if self.skip(".") else TableName(self.database, first)

    def column(self) -> str:
        """Step over a column's name, which may follow its table's; return it in lower case."""
        name = self.name()
        while self.skip("."):
            name = self.name()
        return name.lower()

    def parts(self) -> Iterator[Reader]:
        """Yield a reader for each part of the rest, split at the commas outside brackets."""
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
        """Step over a pair of brackets, or raise ValueError; return a reader of what is between them."""
        self.need("(")
        start, depth = self.index, 1
        while depth:
            token = self.take()
            if token is END:
                msg = "a bracket is not closed"
                raise ValueError(msg)
            if token.type == "sign":
                depth += (token.text == "(") - (token.text == ")")
        return Reader(self.tokens[start : self.index - 1], self.database)
