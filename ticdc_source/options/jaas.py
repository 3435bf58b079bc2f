"""The text of `sasl.jaas.config`: a login module and its entries.

Source: Kafka's `JaasConfig` for the syntax, which is that of Java's StreamTokenizer. No error message holds a part of
the text, because it may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ticdc_source.errors import OptionError

__all__ = ["OPTION", "LoginModule", "parse_jaas"]

OPTION = "kafka.sasl.jaas.config"

_FLAGS = ("required", "requisite", "sufficient", "optional")
_FORM = '<login module> required <name>="…" <name>="…";, such as <login module> required username="…" password="…";'

_TOKEN = re.compile(
    r"""\s*(?:"((?:[^"\\\n]|\\.)*)"  # 1: text in double quotes
    |'((?:[^'\\\n]|\\.)*)'           # 2: or in single quotes
    |([=;])                          # 3: a sign
    |([^\s"'=;]+))                   # 4: or a word""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class LoginModule(NamedTuple):
    """A login module of Java, with its entries.

    Attributes:
        name: its class without the package: platforms rename that (`kafkashaded.org.apache.kafka…`).
        entries: values by name.
    """

    name: str
    entries: Mapping[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Parse the text.

    Raises:
        OptionError: it is not of the form that Java's client reads.
    """
    tokens, start, text = [], 0, text.strip()
    while start < len(text):
        match = _TOKEN.match(text, start)
        if match is None:
            raise _malformed()
        double, single, sign, word = match.groups()
        quoted = double if double is not None else single
        tokens.append((sign, word if quoted is None else _unescape(quoted)))
        start = match.end()
    signs = [sign for sign, _ in tokens]
    words = [word for _, word in tokens]
    entries = len(tokens) - 3
    expected = [None, None, *[None, "=", None] * (entries // 3), ";"]
    if entries < 0 or signs != expected or words[1].lower() not in _FLAGS:
        raise _malformed()
    return LoginModule(words[0].rpartition(".")[2], dict(zip(words[2:-1:3], words[4:-1:3], strict=True)))


def _malformed() -> OptionError:
    return OptionError(f"Option '{OPTION}' is not of the form: {_FORM}")


def _unescape(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), quoted)
