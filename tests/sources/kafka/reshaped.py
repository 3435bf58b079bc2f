"""kafka-python as another version might be built: it works, but not as `compatibility.GUARDS` expects."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.parser import KafkaProtocol

from ticdc_source.sources.kafka.kafka_python.compatibility import ANSWERS, CONNECTIONS, RECORD_BATCHES, differences

# The difference that each one makes.
SAID = {
    CONNECTIONS: "KafkaConnectionManager.bootstrap_async has other parameters: self, patience",
    ANSWERS: "KafkaProtocol.receive_bytes has other parameters: self, arrived",
    RECORD_BATCHES: "Fetcher.PartitionRecords.__init__ has other parameters: self, more, named",
}


@contextmanager
def reshaped(guard: str) -> Iterator[str]:
    """Change what a guard looks at, for as long as the block runs; give the one warning that comes of it."""
    with pytest.MonkeyPatch.context() as patch:
        if guard == CONNECTIONS:
            plain_bootstrap = KafkaConnectionManager.bootstrap_async

            def bootstrap_async(self: Any, *patience: Any) -> Any:
                return plain_bootstrap(self, *patience)

            patch.setattr(KafkaConnectionManager, "bootstrap_async", bootstrap_async)
        elif guard == ANSWERS:
            plain_receive = KafkaProtocol.receive_bytes

            def receive_bytes(self: Any, arrived: bytes) -> Any:
                return plain_receive(self, arrived)

            patch.setattr(KafkaProtocol, "receive_bytes", receive_bytes)
        else:

            class PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
                def __init__(self, *more: Any, **named: Any) -> None:
                    super().__init__(*more, **named)

            patch.setattr(Fetcher, "PartitionRecords", PartitionRecords)
        differences.cache_clear()
        try:
            with pytest.warns(UserWarning, match="kafka-python") as caught:
                differences()
            (warning,) = caught
            yield str(warning.message)  # another one is an error
        finally:
            differences.cache_clear()
