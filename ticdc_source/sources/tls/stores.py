"""Java's key stores → PEM, in memory.

JKS, Java's own format, is read here (`jks.py`), and PKCS #12 with the package `cryptography`. A file's first bytes say
what it is: Java, too, reads a PKCS #12 file as "JKS".
"""

from __future__ import annotations

import importlib.util
import secrets
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ticdc_source.errors import AccessRefusedError
from ticdc_source.options.secret import Secret
from ticdc_source.sources.tls import jks

__all__ = ["KeyPEM", "StoreError", "certificates_of", "is_java", "key_of"]

_MAGIC: Mapping[bytes, str] = MappingProxyType({
    jks.MAGIC: "JKS",
    b"\xce\xce\xce\xce": "JCEKS",
    b"\x30": "PKCS12",
})  # fmt: skip
_CONVERSIONS: Mapping[str, str] = MappingProxyType({
    "truststore": (
        "keytool -importkeystore -srckeystore <store> -destkeystore trust.p12 -deststoretype PKCS12 && "
        "openssl pkcs12 -in trust.p12 -nokeys -out trust.pem"
    ),
    "keystore": (
        "keytool -importkeystore -srckeystore <store> -destkeystore key.p12 -deststoretype PKCS12 && "
        "openssl pkcs12 -in key.p12 -out key.pem"
    ),
})  # fmt: skip


class StoreError(Exception):
    """A store cannot be read; the message says why, and has no secret."""


class KeyPEM(NamedTuple):
    """A key and its certificates.

    Attributes:
        pem: both as PEM, the key encrypted.
        password: a new password of the key.
    """

    pem: bytes
    password: Secret


def is_java(path: str) -> bool:
    """Return whether a file is a key store of Java: not PEM, which is text.

    Raises:
        OSError: it cannot be read.
    """
    return _type_of(path) is not None


def _type_of(path: str) -> str | None:
    with Path(path).open("rb") as file:
        start = file.read(4)
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)


def certificates_of(path: str, password: Secret | None) -> str:
    """Return the certificates of a trust store as PEM.

    Raises:
        AccessRefusedError: a package is missing that reads it.
        StoreError: it cannot be read, or has no certificate.
        OSError: the file cannot be read.
    """
    content = _read(path, "truststore", password, None)
    if not content.trusted:
        msg = "the store has no trusted certificate"
        raise StoreError(msg)
    return "".join(map(ssl.DER_cert_to_PEM_cert, content.trusted))


def key_of(path: str, password: Secret | None, key_password: Secret | None) -> KeyPEM:
    """Return the key of a key store, with its certificates.

    Raises:
        AccessRefusedError: a package is missing that reads it.
        StoreError: it cannot be read, or has no key.
        OSError: the file cannot be read.
    """
    content = _read(path, "keystore", password, key_password)
    if content.key is None or not content.chain:
        msg = "the store has no key with a certificate"
        raise StoreError(msg)
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (an optional package)

    new = secrets.token_urlsafe(32)
    pem = serialization.load_der_private_key(content.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(new.encode()),
    )
    return KeyPEM(pem + "".join(map(ssl.DER_cert_to_PEM_cert, content.chain)).encode(), Secret(new))


def _read(path: str, store: str, password: Secret | None, key_password: Secret | None) -> jks.JavaKeyStore:
    kind = _type_of(path)
    if kind is None:
        msg = "it is neither a PKCS12 nor a JKS store"
        raise StoreError(msg)
    # A trust store of Java's has nothing to decrypt, and nothing to encrypt.
    needs_package = kind == "PKCS12" or store == "keystore"
    if kind == "JCEKS" or (needs_package and importlib.util.find_spec("cryptography") is None):
        msg = (
            f"Option 'kafka.ssl.{store}.location': Python's TLS reads only PEM, and this is a {kind} store"
            + (
                ". Convert"
                if kind == "JCEKS"
                else ", which the package cryptography can read. Install it where the "
                "driver and the executors run (pip install cryptography), or convert"
            )
            + f" the store ({_CONVERSIONS[store]}), then set kafka.ssl.{store}.type=PEM and kafka.ssl.{store}.location"
        )
        raise AccessRefusedError(msg)
    data = Path(path).read_bytes()
    text = None if password is None else password.reveal()
    if kind == "PKCS12":
        return _pkcs12(data, text)
    try:
        key_text = None if key_password is None else key_password.reveal()
        return jks.read_jks(data, text, key_text, with_key=store == "keystore")
    except ValueError as error:
        raise StoreError(str(error)) from None


def _pkcs12(data: bytes, password: str | None) -> jks.JavaKeyStore:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415

    try:
        content = pkcs12.load_pkcs12(data, None if password is None else password.encode())
        key = content.key and content.key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        others = _der(item.certificate for item in content.additional_certs)
        own = () if content.cert is None else _der([content.cert.certificate])
    except Exception as error:
        msg = "the store's password is wrong, or it is damaged"
        raise StoreError(msg) from error
    # Beside a key, the others are its chain; in a trust store they are what is trusted.
    return jks.JavaKeyStore(key=key or None, chain=own + others if key else (), trusted=others if key else own + others)


def _der(certificates: Iterable[object]) -> tuple[bytes, ...]:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return tuple(one.public_bytes(Encoding.DER) for one in certificates if isinstance(one, x509.Certificate))
