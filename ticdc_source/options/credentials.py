"""Secrets, and Kafka's security settings: SASL logins and TLS stores, without I/O.

Sources: Kafka's `JaasConfig` for the syntax of JAAS (Java's StreamTokenizer); KIP-651 for PEM stores. No error message
here holds the value of an option that may be secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ticdc_source.errors import OptionError

__all__ = ["ClientSettings", "Secret", "proxy_url", "sasl", "tls"]

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


_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM")
_LOGIN_MODULES = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_JAAS_FORM = '<login module> required username="…" password="…";'

_TOKEN = re.compile(
    r"""\s*(?:"((?:[^"\\\n]|\\.)*)"  # 1: text in double quotes
    |'((?:[^'\\\n]|\\.)*)'           # 2: or in single quotes
    |([=;])                          # 3: a sign
    |([^\s"'=;]+))                   # 4: or a word""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def sasl(given: ClientSettings) -> ClientSettings:
    """Return kafka-python's SASL settings; none if the security protocol has no SASL.

    Args:
        given: The parsed settings by kafka-python's names, with `sasl_jaas_config`.

    Raises:
        OptionError: The settings are not a complete login.
    """
    settings = {name: value for name, value in given.items() if name.startswith("sasl_")}
    jaas = settings.pop("sasl_jaas_config", None)
    protocol = given.get("security_protocol", "PLAINTEXT")
    if not protocol.startswith("SASL_"):
        return {}  # Java's client ignores these settings too
    mechanism = settings.get("sasl_mechanism")
    if mechanism not in _MECHANISMS:
        msg = (
            f"Option 'kafka.sasl.mechanism' must be one of {', '.join(_MECHANISMS)} with "
            f"kafka.security.protocol={protocol}"
        )
        raise OptionError(msg)
    if jaas is not None:
        module, entries = _parse_jaas(jaas.reveal())
        if module not in _LOGIN_MODULES:
            msg = (
                "Option 'kafka.sasl.jaas.config' has a login module that only Java's client has; there are "
                f"{' and '.join(_LOGIN_MODULES)} here"
            )
            raise OptionError(msg)
        if mechanism not in _LOGIN_MODULES[module]:
            msg = f"Option 'kafka.sasl.jaas.config' has a {module}, which does not fit kafka.sasl.mechanism={mechanism}"
            raise OptionError(msg)
        if "username" not in entries or "password" not in entries:
            msg = f"Option 'kafka.sasl.jaas.config' lacks a username or a password; expected {_JAAS_FORM}"
            raise OptionError(msg)
        settings["sasl_plain_username"] = entries["username"]
        settings["sasl_plain_password"] = Secret(entries["password"])
    if mechanism in _WITH_PASSWORD and not {"sasl_plain_username", "sasl_plain_password"} <= settings.keys():
        msg = f"kafka.sasl.mechanism={mechanism} needs the option 'kafka.sasl.jaas.config': {_JAAS_FORM}"
        raise OptionError(msg)
    return settings


def _parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the class name of the login module without its package, and its entries.

    The package does not matter: platforms rename it (`kafkashaded.org.apache.kafka…`).
    """
    tokens, start, text = [], 0, text.strip()
    while start < len(text):
        match = _TOKEN.match(text, start)
        if match is None:
            raise _malformed_jaas()
        double, single, sign, word = match.groups()
        quoted = double if double is not None else single
        tokens.append((sign, word if quoted is None else _unescape(quoted)))
        start = match.end()
    signs = [sign for sign, _ in tokens]
    words = [word for _, word in tokens]
    entries = len(tokens) - 3
    expected = [None, None, *[None, "=", None] * (entries // 3), ";"]
    if entries < 0 or signs != expected or words[1].lower() not in _FLAGS:
        raise _malformed_jaas()
    return words[0].rpartition(".")[2], dict(zip(words[2:-1:3], words[4:-1:3], strict=True))


def _malformed_jaas() -> OptionError:
    return OptionError(f"Option 'kafka.sasl.jaas.config' is not of the form: {_JAAS_FORM}")


def _unescape(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), quoted)


_CONVERSIONS = {
    "truststore": (
        "keytool -importkeystore -srckeystore <store> -destkeystore trust.p12 -deststoretype PKCS12 && "
        "openssl pkcs12 -in trust.p12 -nokeys -out trust.pem"
    ),
    "keystore": (
        "keytool -importkeystore -srckeystore <store> -destkeystore key.p12 -deststoretype PKCS12 && "
        "openssl pkcs12 -in key.p12 -out key.pem"
    ),
}


def tls(given: ClientSettings) -> ClientSettings:
    """Return kafka-python's TLS settings, and PEM texts as `ssl_*_pem`; none if the security protocol has no TLS.

    Args:
        given: The parsed settings by kafka-python's names, with `ssl_truststore_type` and `ssl_keystore_type`.

    Raises:
        OptionError: A store is not PEM, or a key or its certificate is missing.
    """
    settings = {name: value for name, value in given.items() if name.startswith("ssl_")}
    types = {store: settings.pop(f"ssl_{store}_type", None) for store in ("truststore", "keystore")}
    if not given.get("security_protocol", "PLAINTEXT").endswith("SSL"):
        return {}
    for store, file, texts in (
        ("truststore", "ssl_cafile", ("ssl_truststore_pem",)),
        ("keystore", "ssl_certfile", ("ssl_keystore_key_pem", "ssl_keystore_chain_pem")),
    ):
        store_type = types[store]
        if store_type is None:
            # Java's default type is JKS. Without I/O, only the file's name shows what the store is.
            binary = re.search(r"\.(jks|p12|pfx|pkcs12)$", settings.get(file, ""), re.IGNORECASE)
            store_type = "PEM" if binary is None else "JKS or PKCS12"
        if store_type != "PEM":
            msg = (
                f"Option 'kafka.ssl.{store}.type': Python's TLS reads only PEM, not {store_type}. Convert the "
                f"store ({_CONVERSIONS[store]}), then set kafka.ssl.{store}.type=PEM and "
                f"kafka.ssl.{store}.location"
            )
            raise OptionError(msg)
        if file in settings and any(text in settings for text in texts):
            msg = f"kafka.ssl.{store}.location and certificates given as text exclude each other"
            raise OptionError(msg)
    if ("ssl_keystore_key_pem" in settings) != ("ssl_keystore_chain_pem" in settings):
        msg = "Options 'kafka.ssl.keystore.key' and 'kafka.ssl.keystore.certificate.chain' must be given together"
        raise OptionError(msg)
    return settings
