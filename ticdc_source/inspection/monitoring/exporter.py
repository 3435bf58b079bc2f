"""Tells Prometheus the metrics of progress.py, computed when it asks, so lags rise with time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, Protocol

from ticdc_source.errors import OptionError

Kind = Literal["counter", "gauge"]


class Registry(Protocol):
    """What registers collectors: a `prometheus_client.CollectorRegistry`."""

    def register(self, collector: object, /) -> None:
        """Ask the collector whenever Prometheus asks."""

    def unregister(self, collector: object, /) -> None:
        """Ask it no more."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A metric of Prometheus.

    Attributes:
        member: the member of `StreamProgress`, or of what else is reported, that it has.
    """

    name: str
    kind: Kind
    member: str
    meaning: str


_LABELS = ("query", "table")


class ProgressCollector:
    """What a Prometheus registry asks. Each report has the labels and the members of the metrics.

    Raises:
        ImportError: `prometheus-client` is not installed.
    """

    def __init__(self, reports: Callable[[], Iterable[object]], metrics: Sequence[Exported]) -> None:
        from prometheus_client import core  # noqa: PLC0415 (only those who use Prometheus need it)

        self._families: Mapping[Kind, Callable[..., object]] = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
        }
        self._reports = reports
        self._metrics = metrics

    def describe(self) -> Sequence[object]:
        """Return nothing: the registry then does not ask for values when the collector is registered."""
        return ()

    def collect(self) -> Iterator[object]:
        reports = [(report, [value or "" for value in attrgetter(*_LABELS)(report)]) for report in self._reports()]
        for exported in self._metrics:
            family = self._families[exported.kind](exported.name, exported.meaning, labels=_LABELS)
            member = attrgetter(exported.member)
            for report, labels in reports:
                value = member(report)
                if value is not None:
                    family.add_metric(labels, float(value))  # type: ignore[attr-defined]
            yield family


@contextmanager
def served(port: int) -> Iterator[Registry]:
    """Serve a registry over HTTP while the block runs.

    Raises:
        OptionError: `prometheus-client` is not installed, or the port is taken.
    """
    try:
        import prometheus_client  # noqa: PLC0415 (only those who use Prometheus need it)
    except ImportError:
        msg = "Metrics for Prometheus need prometheus-client: pip install 'ticdc-source[prometheus]'"
        raise OptionError(msg) from None
    registry: Any = prometheus_client.CollectorRegistry()
    try:
        server, thread = prometheus_client.start_http_server(port, registry=registry)
    except OSError as error:
        msg = f"Metrics for Prometheus cannot be served on port {port}: {error.strerror}"
        raise OptionError(msg) from None
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
