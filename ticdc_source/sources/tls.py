"""The TLS context of a connection to brokers, to a token endpoint or to a schema registry, from PEM and PKCS #12.

A file's first bytes decide what it is, not its name or `ssl.…store.type`: Java, too, reads a PKCS #12 file as "JKS".
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import secrets
import shlex
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ticdc_source.errors import AccessRefusedError
from ticdc_source.options.logins import TLSSettings
from ticdc_source.options.parsers import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, PKCS12KeyAndCertificates

_ONLY_JAVAS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
# A sequence whose length takes more than a byte; a PKCS #12 store (RFC 7292) begins with its version, 3.
_DER = re.compile(rb"\x30(?:\x80|\x81.|\x82..|\x83...|\x84....)(?P<store>\x02\x01\x03)?", re.DOTALL)


class _StoreError(ValueError):
    """A store cannot be read; the message has no secret."""


def tls_context(tls: TLSSettings, prefix: str = "kafka.") -> ssl.SSLContext:
    """Build a TLS context; kafka-python would retry an unreadable file until the time is over.

    Raises:
        AccessRefusedError: a certificate or key cannot be loaded, or the package for its store is missing; it names
            the option, which begins with `prefix`.
    """
    context = _new_context()
    context.check_hostname = tls.check_hostname
    _load_trusted(context, tls, prefix)
    with _naming(f"{prefix}ssl.keystore.{'location' if tls.certfile else 'key'}, {prefix}ssl.key.password"):
        _load_key(context, tls)
    with _naming("kafka.ssl_crlfile"):
        if tls.crlfile:
            context.load_verify_locations(tls.crlfile)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    with _naming("kafka.ssl_ciphers"):
        if tls.ciphers:
            context.set_ciphers(tls.ciphers)
    return context


def endpoint_context(tls: TLSSettings | None) -> ssl.SSLContext:
    """Build the TLS context for a token endpoint, which trusts the brokers' and public authorities.

    Raises:
        AccessRefusedError: as for `tls_context`.
    """
    context = _new_context()
    if tls is not None:
        _load_trusted(context, tls, "kafka.")
    context.load_default_certs()
    return context


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextlib.contextmanager
def _naming(option: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError) as error:  # ssl.SSLError is an OSError; TypeError: text that is not ASCII
        reason = str(error) if isinstance(error, _StoreError) else "not PEM, which begins with -----BEGIN"
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
        raise AccessRefusedError(f"{option}: the certificates or the key cannot be loaded: {reason}") from None


def _load_trusted(context: ssl.SSLContext, tls: TLSSettings, prefix: str) -> None:
    file, text = tls.cafile, tls.truststore_pem
    with _naming(f"{prefix}ssl.truststore.{'location' if file else 'certificates'}"):
        if file and _is_pkcs12(file):
            store = _read(file, tls.truststore_password)
            # Beside a key, the store's own certificate is the client's.
            own = [store.cert] if store.cert and not store.key else []
            file, text = None, _pem([*own, *store.additional_certs]).decode()
            if not text:
                raise _StoreError("the store has no trusted certificate")
        if file or text:
            context.load_verify_locations(cafile=file, cadata=text)
        else:
            context.load_default_certs()


def _load_key(context: ssl.SSLContext, tls: TLSSettings) -> None:
    file, password, pem = tls.certfile, tls.password, None
    if tls.keystore_key_pem is not None:
        pem = f"{tls.keystore_key_pem.reveal()}\n{tls.keystore_chain_pem}\n".encode()
    elif file and _is_pkcs12(file):
        password = Secret(secrets.token_urlsafe(32))
        pem = _key_of(_read(file, tls.keystore_password), password)
    with contextlib.ExitStack() as stack:
        if pem is not None:
            # Only files can be loaded: this one is temporary, and readable for nobody else (mode 0600). It has a
            # store's key encrypted, and a key in text as given.
            written = stack.enter_context(tempfile.NamedTemporaryFile("wb"))
            written.write(pem)
            written.flush()
            file = written.name
        if file:
            # A password is always passed, maybe an empty one: otherwise OpenSSL asks on the terminal.
            context.load_cert_chain(file, tls.keyfile, "" if password is None else password.reveal())


def _is_pkcs12(path: str) -> bool:
    """Whether a file is a PKCS #12 store, not PEM; DER and Java's own formats are errors."""
    with Path(path).open("rb") as file:
        start = file.read(9)
    quoted, stem = shlex.quote(path), Path(path).stem
    kind = _ONLY_JAVAS.get(start[:4])
    if kind is not None:
        raise _StoreError(
            f"{path} is a {kind} store, which only Java reads. Convert it to PKCS12 (keytool -importkeystore "
            f"-srckeystore {quoted} -srcstoretype {kind} -destkeystore {shlex.quote(f'{stem}.p12')} -deststoretype "
            "PKCS12), and set the option to that file"
        )
    der = _DER.match(start)
    if der is not None and der["store"] is None:
        raise _StoreError(
            f"{path} is DER. Convert it to PEM (openssl x509 -inform DER -in {quoted} -out "
            f"{shlex.quote(f'{stem}.pem')}; of a key: openssl pkey), and set the option to that file"
        )
    return der is not None


def _read(path: str, password: Secret | None) -> PKCS12KeyAndCertificates:
    if importlib.util.find_spec("cryptography") is None:
        store, made = shlex.quote(path), shlex.quote(f"{Path(path).stem}.pem")
        raise _StoreError(
            f"{path} is a PKCS12 store, which the package cryptography reads. Install it where the driver and the "
            "executors run (pip install cryptography), or convert the store to PEM (openssl pkcs12 -in "
            f"{store} -out {made}), and set the option to that file"
        )
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 (an optional package)

    data = Path(path).read_bytes()
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.reveal().encode())
    except Exception as error:
        raise _StoreError(f"the password of {path} is wrong, or the file is damaged") from error


def _key_of(store: PKCS12KeyAndCertificates, password: Secret) -> bytes:
    """The key, encrypted with a password, and its certificates as PEM."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    chain = _pem([*([store.cert] if store.cert else []), *store.additional_certs])
    if not store.key or not chain:
        raise _StoreError("the store has no key with a certificate")
    encryption = serialization.BestAvailableEncryption(password.reveal().encode())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return store.key.private_bytes(encoding, form, encryption) + chain


def _pem(certificates: Iterable[PKCS12Certificate]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates)
