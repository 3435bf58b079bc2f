"""kafka-python's errors → ours."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import kafka.errors

from ticdc_source.errors import AccessRefusedError, DecodeError, KafkaUnavailableError, TiCDCSourceError
from ticdc_source.sources.kafka.answers import LogTruncatedError, OffsetOutOfRangeError, UnknownPartitionsError
from ticdc_source.sources.kafka.patience import Cause


class NoTokenError(kafka.errors.KafkaConnectionError):  # type: ignore[misc]  # kafka-python has no types
    """There is no valid token when a broker asks for one."""


AUTHENTICATION_ERRORS = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
)

# Errors that a retry does not change, at any server.
_FINAL = (
    *AUTHENTICATION_ERRORS,
    kafka.errors.AuthorizationError,
    kafka.errors.IncompatibleBrokerVersion,
    kafka.errors.UnsupportedVersionError,
)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # kafka-python keeps only the text of a TLS handshake's reason
_NO_ANSWER = (kafka.errors.KafkaTimeoutError, kafka.errors.RequestTimedOutError)

_LOGIN_OPTIONS = "(kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.jaas.config)"
# The question to the user if the other side closes the connection, by `kafka.security.protocol`.
_QUESTIONS = {
    "PLAINTEXT": "does it want SASL or TLS? (kafka.security.protocol)",
    "SSL": "does it speak TLS, and does it want SASL? (kafka.security.protocol)",
    "SASL_PLAINTEXT": f"does it want TLS, or refuse the login? {_LOGIN_OPTIONS}",
    "SASL_SSL": f"does it speak TLS, or refuse the login? {_LOGIN_OPTIONS}",
}
_HANG_UP = re.compile(r"socket disconnected|ECONNRESET|Connection reset|EPIPE|Broken pipe|EOF")
_FRAME = re.compile(r"Invalid frame length: (-?\d+)")
_TLS_ALERT = 0x1503  # its first two bytes, in place of the length of Kafka's answer


@contextmanager
def our_errors(servers: str) -> Iterator[None]:
    """Translate the block's errors, except those of parsers on bytes that are not records."""
    try:
        yield
    except (TiCDCSourceError, UnknownPartitionsError):
        raise
    except kafka.errors.OffsetOutOfRangeError as error:
        raise OffsetOutOfRangeError(*error.args) from error
    except kafka.errors.LogTruncationError as error:
        raise LogTruncatedError(str(error)) from error
    except (kafka.errors.CorruptRecordError, kafka.errors.UnsupportedCodecError) as error:
        raise DecodeError(str(error)) from error
    except (kafka.errors.KafkaError, OSError, RuntimeError) as error:
        raise translated(error, servers) from error


def is_final(error: BaseException) -> bool:
    """Whether a retry would fail in the same way at every server."""
    return isinstance(error, _FINAL) or _UNTRUSTED in str(error)


def cause_of(error: kafka.errors.KafkaError, protocol: str, *, accepted: bool) -> Cause:
    """Why a server failed, and what to do about it.

    Args:
        protocol: `kafka.security.protocol`.
        accepted: whether the server had accepted a connection as a broker does.
    """
    text = _plain(error)
    if isinstance(error, NoTokenError):
        return Cause(text)
    name_error = next((cause for cause in _chain(error) if isinstance(cause, socket.gaierror)), None)
    if name_error is not None:
        if name_error.errno == socket.EAI_NONAME:
            return Cause("no such host", is_permanent=True)
        return Cause(f"the host name cannot be resolved: {name_error.strerror}")
    if "DNS Resolution failure" in text:  # kafka-python's own words, without the reason
        return Cause("no such host", is_permanent=True)
    if isinstance(error, _NO_ANSWER) or "Connection timed out" in text:
        return Cause("no answer")
    if "ECONNREFUSED" in text:
        return Cause("ECONNREFUSED (nothing listens there)", is_refused=True)
    question = _QUESTIONS[protocol]
    frame = _FRAME.search(text)
    if frame is not None:
        is_alert = int(frame[1]) >> 16 == _TLS_ALERT
        return Cause(f"answers {'with a TLS alert' if is_alert else 'otherwise than Kafka'}: {question}", is_alert)
    if _HANG_UP.search(text):
        return Cause(f"closes the connection: {question}", accepted)
    if "WRONG_VERSION_NUMBER" in text:
        return Cause(f"answers, but not with TLS: {question}", is_permanent=True)
    return Cause(text)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _plain(error: BaseException) -> str:
    return re.sub(r"\bKafka(Connection|Timeout)?Error(: |$)", "", str(error)) or type(error).__name__


def translated(error: Exception, servers: str) -> TiCDCSourceError:
    """Translate kafka-python's error to ours; texts of brokers and sockets have no secrets."""
    if isinstance(error, TiCDCSourceError):
        return error
    if isinstance(error, kafka.errors.IllegalSaslStateError):
        return AccessRefusedError(
            f"Kafka at {servers} has no login on this listener (IllegalSaslStateError), but kafka.security.protocol "
            "asks for SASL. Set it to PLAINTEXT or SSL, or use the address of the SASL listener"
        )
    if isinstance(error, AUTHENTICATION_ERRORS):
        return AccessRefusedError(
            f"Kafka at {servers} refuses the login: {error}. Check kafka.sasl.mechanism and kafka.sasl.jaas.config"
        )
    if isinstance(error, kafka.errors.AuthorizationError):
        what = ", ".join(map(str, error.args))
        return AccessRefusedError(
            f"Kafka at {servers} does not permit this user to read {what} ({type(error).__name__}). Grant it, for "
            "example with kafka-acls"
        )
    if _UNTRUSTED in str(error):
        return AccessRefusedError(
            f"The certificate of Kafka at {servers} is not trusted: {error}. Check kafka.ssl.truststore.location"
        )
    return KafkaUnavailableError(
        f"Kafka at {servers} does not answer as it should: {_plain(error)}. Check kafka.bootstrap.servers, "
        "kafka.security.protocol and the network"
    )
