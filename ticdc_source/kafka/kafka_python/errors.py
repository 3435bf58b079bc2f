"""kafka-python's errors → ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import kafka.errors

from ticdc_source.errors import DecodeError, KafkaUnavailableError, OptionError, TiCDCSourceError
from ticdc_source.kafka.client import LogTruncatedError, OffsetOutOfRangeError, UnknownPartitionsError

__all__ = ["AUTHENTICATION_ERRORS", "is_untrusted", "our_errors", "translated"]

AUTHENTICATION_ERRORS = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
)


@contextmanager
def our_errors(servers: str, timeout_ms: float) -> Iterator[None]:
    """Translate the errors of the block; those of parsers on bytes that are no records stay what they are.

    Args:
        servers: the bootstrap servers, for messages.
        timeout_ms: the time-out that was in force, for messages.
    """
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
        raise translated(error, servers, timeout_ms) from error


def is_untrusted(error: BaseException) -> bool:
    """Return whether a TLS handshake failed because of the broker's certificate.

    kafka-python keeps only the text of the reason.
    """
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def translated(
    error: Exception, servers: str, timeout_ms: float, reason: BaseException | None = None
) -> TiCDCSourceError:
    """Return kafka-python's `error` as one of ours; texts of brokers and sockets hold no secrets.

    Args:
        error: what was raised.
        servers: the bootstrap servers, for the message.
        timeout_ms: the time-out that was in force, in milliseconds.
        reason: why the last connection failed, if that is known.
    """
    if isinstance(error, TiCDCSourceError):
        return error
    if isinstance(error, AUTHENTICATION_ERRORS):
        return OptionError(
            f"Kafka at {servers} refuses the login: {error}. Check kafka.sasl.mechanism and kafka.sasl.jaas.config"
        )
    if isinstance(error, kafka.errors.AuthorizationError):
        what = ", ".join(map(str, error.args))
        return OptionError(f"Kafka at {servers} does not permit this user to read {what} ({type(error).__name__})")
    if is_untrusted(error):
        return OptionError(
            f"The certificate of Kafka at {servers} is not trusted: {error}. Check kafka.ssl.truststore.location"
        )
    because = "" if reason is None or str(reason) == str(error) else f"; last connection: {reason}"
    return KafkaUnavailableError(
        f"Kafka at {servers} did not answer in {timeout_ms:.0f} ms: {error}{because}. Check "
        "kafka.bootstrap.servers, kafka.security.protocol and the network; kafka.default.api.timeout.ms says how long "
        "to wait"
    )
