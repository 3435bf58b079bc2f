"""What an error says, without secrets: the errors of stores and catalogs repeat URLs, headers and settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ticdc_source.developer_api import HIDDEN, is_option, without_secrets

SECRET_NAME = re.compile("secret|password|token|credential|access.?key|account.?key|private.?key", re.IGNORECASE)
_USER_OF_URL = re.compile(r"(?<=://)[^\s/@]+@")
_QUERY_OF_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?#'\"`<>]*)\?[^\s'\"`<>]*", re.IGNORECASE)
_NAMED = re.compile(
    r"((?:secret|password|token|credential|access.?key|account.?key|private.?key|signature|\bsig)[\w.-]*[\"']?\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;&)}\]]+)",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic|AWS4-HMAC-SHA256)\s+[^\s,;'\"]+", re.IGNORECASE)
_QUOTED = re.compile("\"([^\"]*)\"|'([^']*)'")
_SHORTEST = 4  # characters of a secret that is hidden wherever it stands, also within a word


class Redaction:
    """Hides secrets in texts: those that were given, and what looks like one.

    Args:
        secret: the names of settings that are secret, whatever their names say.
    """

    def __init__(self, options: Mapping[str, str], settings: Mapping[str, str], secret: Collection[str] = ()) -> None:
        shown = without_secrets(options)
        values = {
            text
            for name, text in options.items()
            if shown[name] != text and (is_option(name) or SECRET_NAME.search(name))
        }
        values |= {text for name, text in settings.items() if name in secret or SECRET_NAME.search(name)}
        values |= {part for text in values for match in _QUOTED.findall(text) for part in match}
        self._given = _one_of(text for text in values if text.strip())

    def text(self, text: str) -> str:
        if self._given is not None:
            text = self._given.sub(HIDDEN, text)
        text = _USER_OF_URL.sub(f"{HIDDEN}@", text)
        text = _QUERY_OF_URL.sub(rf"\1?{HIDDEN}", text)
        text = _AUTHORIZATION.sub(rf"\1 {HIDDEN}", text)
        return _NAMED.sub(rf"\1{HIDDEN}", text)


def _one_of(values: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds these texts, the longest first; None if there are none."""
    patterns = [
        re.escape(text) if len(text) >= _SHORTEST else rf"(?<!\w){re.escape(text)}(?!\w)"
        for text in sorted(values, key=len, reverse=True)
    ]
    return re.compile("|".join(patterns)) if patterns else None
