"""The entry point: connects to brokers, and again after a failure. kafka-python is imported only then."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ticdc_source.errors import KafkaUnavailableError, OptionError, TiCDCSourceError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.sources.kafka.patience import Limit, Patience

if TYPE_CHECKING:
    from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient
    from ticdc_source.sources.kafka.kafka_python.slicing import BatchReader

    Client: TypeAlias = NetworkClient
    PartitionReader: TypeAlias = BatchReader

# As in pyproject.toml, but packages may also be unpacked by hand, or come with a platform.
REQUIRED = "kafka-python>=3.0.12,<3.1"
_LEAST, _BELOW = (tuple(map(int, bound.split("."))) for bound in re.findall(r"[\d.]+", REQUIRED))
_API_TIMEOUT = "kafka.default.api.timeout.ms"

Connect: TypeAlias = "Callable[[ClientSettings, Patience], Client]"
Answer = TypeVar("Answer")


def installed() -> str:
    """Return the installed version of the library.

    Raises:
        OptionError: there is none, or its private names may differ.
    """
    try:
        version = str(importlib.import_module("kafka").__version__)
    except Exception as error:  # noqa: BLE001 (another package of this name may raise anything)
        reason = f"it cannot be imported ({error})"
    else:
        numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
        if _LEAST <= numbers < _BELOW:
            return version
        reason = f"version {version} is installed"
    raise OptionError(
        f'Reading Kafka needs {REQUIRED}, but {reason}: pip install "{REQUIRED}" on the driver and all executors'
    )


def connect(settings: ClientSettings, patience: Patience) -> Client:
    """Connect to brokers.

    Raises:
        KafkaUnavailableError: no broker answered in time.
        OptionError: a certificate file cannot be read, the login is refused, or kafka-python has another version.
    """
    installed()
    from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient  # noqa: PLC0415 (after the check)

    return NetworkClient(settings, patience)


class RetryingClient:
    """Connects at the first request, and again after a failure.

    A request may take `default_api_timeout_ms`, the first connection `bootstrap_timeout_ms`. A stream that has reached
    its brokers waits `broker_timeout_ms` for both, to survive a restart of the cluster. Before the first answer, wrong
    options are more likely, so permanent causes end the wait after some seconds; see `patience`.

    Args:
        reached: whether the brokers have already answered the driver of this stream.
        is_first: whether this is the first contact with the brokers, by the driver.
    """

    def __init__(
        self, settings: ClientSettings, connect: Connect, *, reached: bool = False, is_first: bool = False
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._reached = reached
        self._is_first = is_first
        self.client: Client | None = None

    @property
    def stream_limit(self) -> Limit | None:
        """How long a stream waits once it has reached its brokers; None for a batch read."""
        stream_ms = self._settings.broker_timeout_ms
        return None if stream_ms is None else Limit(stream_ms, "brokerTimeoutMs")

    def close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()

    def ask(self, request: Callable[[Client, Patience], Answer], *, retries: int = 0, interval_ms: float = 0) -> Answer:
        """Return the answer to a request; retry with a new client while brokers do not answer.

        If brokers answer with an error, the request is repeated `retries` times, `interval_ms` apart.

        Raises:
            TiCDCSourceError: whatever `request` raises; KafkaUnavailableError if the deadline has passed.
        """
        patience: Patience | None = None
        while True:
            try:
                if self.client is None:
                    self.client = self._connect(self._settings, patience or self._connection_wait())
                if patience is None:
                    pending = self._limit(self._settings.default_api_timeout_ms, _API_TIMEOUT)
                    patience = Patience(self._servers, "a request is pending", pending)
                answer = request(self.client, patience)
            except KafkaUnavailableError:
                self.close()
                if retries <= 0 or patience is None or patience.is_over:
                    raise
                retries -= 1
            except TiCDCSourceError:
                self.close()
                raise
            else:
                self._reached = True
                patience.answered()
                return answer
            time.sleep(min(interval_ms, patience.left_ms) / 1000)
            patience.check()

    @property
    def _servers(self) -> str:
        return ",".join(self._settings.bootstrap_servers)

    def _connection_wait(self) -> Patience:
        # Name the option that took effect: by default, the first one has the value of the second.
        ms = self._settings.bootstrap_timeout_ms
        is_set = ms != self._settings.default_api_timeout_ms
        limit = self._limit(ms, "kafka.bootstrap.timeout.ms" if is_set else _API_TIMEOUT)
        if self._is_first and not self._reached:
            limit = limit._replace(ends_if_refused=not is_set)
        return Patience(self._servers, "no broker answers", limit)

    def _limit(self, ms: float, option: str) -> Limit:
        if self.stream_limit is not None and self._reached:
            return self.stream_limit
        return Limit(ms, option, ends_early=not self._reached)
