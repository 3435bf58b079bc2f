"""Java's own format of key stores, JKS: trusted certificates, and keys with their certificates.

Sources: OpenJDK's `sun.security.provider.JavaKeyStore` for the format, `KeyProtector` for how keys are encrypted. SHA-1
and the words in its check are the format's.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

__all__ = ["MAGIC", "JavaKeyStore", "read_jks"]

MAGIC = b"\xfe\xed\xfe\xed"

_VERSIONS = (1, 2)
_KEY, _CERTIFICATE = 1, 2  # tags of entries
_WORDS = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_ALGORITHM = bytes.fromhex("060a2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1
_OCTETS = 0x04
_LONG_LENGTH = 0x80


class JavaKeyStore(NamedTuple):
    """What is in a store, all as DER.

    Attributes:
        key: the first key, as PKCS #8; None if there is none.
        chain: the key's certificates, its own first.
        trusted: the trusted certificates.
    """

    key: bytes | None
    chain: tuple[bytes, ...]
    trusted: tuple[bytes, ...]


def read_jks(
    data: bytes, password: str | None, key_password: str | None = None, *, with_key: bool = True
) -> JavaKeyStore:
    """Read a store.

    Args:
        data: its bytes.
        password: of the store; None to trust it unchecked, as Java does then.
        key_password: of the key; None if it is the store's.
        with_key: whether the key is wanted.

    Raises:
        ValueError: a password is wrong, or the store is damaged.
    """
    try:
        return _read(data, password, (key_password if key_password is not None else password) if with_key else None)
    except (IndexError, struct.error) as error:
        msg = "the store is damaged"
        raise ValueError(msg) from error


def _read(data: bytes, password: str | None, key_password: str | None) -> JavaKeyStore:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + _WORDS + body).digest()  # noqa: S324
        if not hmac.compare_digest(digest, expected):
            msg = "the store's password is wrong, or it is damaged"
            raise ValueError(msg)
    cursor = _Cursor(body)
    magic, version = cursor.take(len(MAGIC)), cursor.number(4)
    if magic != MAGIC or version not in _VERSIONS:
        msg = "it is no JKS store"
        raise ValueError(msg)
    key: bytes | None = None
    chain: tuple[bytes, ...] = ()
    trusted: list[bytes] = []
    for _ in range(cursor.number(4)):
        tag = cursor.number(4)
        cursor.take(cursor.number(2))  # its alias
        cursor.take(8)  # when it was made
        if tag == _CERTIFICATE:
            trusted.append(cursor.certificate(version))
        elif tag == _KEY:
            encrypted = cursor.take(cursor.number(4))
            certificates = tuple(cursor.certificate(version) for _ in range(cursor.number(4)))
            if key is None and key_password is not None:
                key, chain = _decrypted(encrypted, key_password), certificates
        else:
            msg = "the store is damaged"
            raise ValueError(msg)
    return JavaKeyStore(key, chain, tuple(trusted))


class _Cursor:
    """Reads a store from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self._at += size
        if self._at > len(self._data):
            raise IndexError
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        """Return the number that the next bytes are."""
        return int.from_bytes(self.take(size), "big")

    def certificate(self, version: int) -> bytes:
        """Return the next certificate."""
        if version == _VERSIONS[-1]:
            self.take(self.number(2))  # its type, X.509
        return self.take(self.number(4))


def _decrypted(encrypted: bytes, password: str) -> bytes:
    """Return a key that was encrypted with `KeyProtector`: its text XOR a stream of digests."""
    content = _content(encrypted)
    salt, text, check = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    secret = password.encode("utf-16-be")
    stream, digest = b"", salt
    while len(stream) < len(text):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324
        stream += digest
    key = bytes(one ^ other for one, other in zip(text, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324
        msg = "the key's password is wrong"
        raise ValueError(msg)
    return key


def _content(encrypted: bytes) -> bytes:
    """Return the octets of an EncryptedPrivateKeyInfo, whose algorithm must be Java's own."""
    at = encrypted.find(_ALGORITHM)
    at = encrypted.find(bytes([_OCTETS]), at + len(_ALGORITHM)) if at >= 0 else -1
    if at < 0:
        msg = "the key is encrypted in an unknown way"
        raise ValueError(msg)
    size = encrypted[at + 1]
    start = at + 2
    if size >= _LONG_LENGTH:
        start += size - _LONG_LENGTH
    return encrypted[start:]
