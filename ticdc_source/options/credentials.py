"""Secrets, and Kafka's settings of TLS, without I/O.

Source: KIP-651 for PEM stores. No error message here holds the value of an option that may be secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ticdc_source.errors import OptionError

__all__ = ["ClientSettings", "Secret", "proxy_url", "tls"]

ClientSettings: TypeAlias = dict[str, Any]  # by name; Any: each setting of kafka-python has a type of its own


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A text that `repr`, `str` and formats never show."""

    _value: str

    def reveal(self) -> str:
        """Return the text, for the code that sends it."""
        return self._value

    def __repr__(self) -> str:
        """Hide the text; `str` and formats use this method too."""
        return "Secret(***)"


_PROXIES = ("socks5", "socks5h", "http")  # of kafka-python


def proxy_url(text: str) -> Secret:
    """Parse the URL of a proxy, which may hold a password: kafka-python's errors would show one that is malformed.

    Raises:
        ValueError: it is not the URL of a proxy.
    """
    try:
        parsed = urlsplit(text.strip())
        complete = parsed.scheme in _PROXIES and bool(parsed.hostname) and parsed.port is not None
    except ValueError:
        complete = False
    if not complete:
        msg = "expected a URL such as socks5://user:password@host:1080 (or socks5h://…, http://…), with a port"
        raise ValueError(msg)
    return Secret(text.strip())


def tls(given: ClientSettings) -> ClientSettings:
    """Return the settings of TLS, with PEM texts as `ssl_*_pem`; none if the security protocol has no TLS.

    Args:
        given: The parsed settings by kafka-python's names, and Java's for stores that are not PEM.

    Raises:
        OptionError: A key or its certificate is missing, or is given twice.
    """
    if not given.get("security_protocol", "PLAINTEXT").endswith("SSL"):
        return {}
    settings = {name: value for name, value in given.items() if name.startswith("ssl_")}
    for store, file, texts in (
        ("truststore", "ssl_cafile", ("ssl_truststore_pem",)),
        ("keystore", "ssl_certfile", ("ssl_keystore_key_pem", "ssl_keystore_chain_pem")),
    ):
        if file in settings and any(text in settings for text in texts):
            msg = f"kafka.ssl.{store}.location and certificates given as text exclude each other"
            raise OptionError(msg)
    if ("ssl_keystore_key_pem" in settings) != ("ssl_keystore_chain_pem" in settings):
        msg = "Options 'kafka.ssl.keystore.key' and 'kafka.ssl.keystore.certificate.chain' must be given together"
        raise OptionError(msg)
    return settings
