"""The installed kafka-python is built as the table of private names expects; another one is reported, once."""

import functools
import importlib
import re
import warnings
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.parser import KafkaProtocol

from tests.conftest import ROOT
from tests.kafka.reshaped import SAID, reshaped
from ticdc_source.kafka.batches.cut import ChunkLimits
from ticdc_source.kafka.kafka_python.compatibility import (
    ANSWERS,
    CONNECTIONS,
    GUARDS,
    RECORD_BATCHES,
    TESTED,
    Expectation,
    differences,
    facts,
)
from ticdc_source.kafka.kafka_python.connect import connect
from ticdc_source.kafka.kafka_python.receiving import Memory, Receiver
from ticdc_source.kafka.kafka_python.slicing import SliceLimits, slice_fetches
from ticdc_source.kafka.patience import Limit, Patience

EXPECTATIONS = [expectation for guard in GUARDS.values() for expectation in guard.expectations]


def test_the_installed_kafka_python_is_as_expected() -> None:
    """The fast ways are taken, and nobody is warned: a version that ends one of them is noticed here."""
    differences.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert differences() == {}
    assert facts().client == f"kafka-python {TESTED}"
    assert facts().fallback is None


def test_the_upper_bound_is_the_version_that_tests_ran_on() -> None:
    """A newer kafka-python is allowed once tests have run on it."""
    bound = re.search(r'"kafka-python[^"]*<=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert bound is not None
    assert bound[1] == TESTED == version("kafka-python")


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda expectation: expectation.name)
def test_every_name_is_looked_at(expectation: Expectation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever name a version lacks, that is the difference."""
    assert expectation.difference() is None
    module, _, path = expectation.name.partition(":")
    *parents, last = path.split(".")
    holder: Any = functools.reduce(getattr, parents, importlib.import_module(module))
    if last == "__init__":  # every class has one
        monkeypatch.setattr(holder, last, lambda _self, _other: None, raising=False)
    else:
        monkeypatch.delattr(holder, last)
    assert expectation.difference() is not None


@pytest.mark.parametrize(
    ("expectation", "difference"),
    [
        (Expectation("kafka.nets:A"), "kafka.nets cannot be imported (No module named 'kafka.nets')"),
        (Expectation("kafka:KafkaConsumer.polls"), "there is no kafka.KafkaConsumer.polls"),
        (Expectation("kafka:KafkaConsumer", members=("poll", "polls")), "KafkaConsumer has no polls"),
        (Expectation("kafka:KafkaConsumer.DEFAULT_CONFIG", members=("a",)), "KafkaConsumer.DEFAULT_CONFIG has no a"),
        (Expectation("kafka:KafkaConsumer.seek", uses=("sought",)), "KafkaConsumer.seek does not use sought"),
        (
            Expectation("kafka:KafkaConsumer.seek", parameters=("self", "at")),
            "KafkaConsumer.seek has other parameters: self, partition, offset",
        ),
    ],
)
def test_the_text_of_a_difference(expectation: Expectation, difference: str) -> None:
    """The difference names what is missing, and where."""
    assert expectation.difference() == difference


@pytest.mark.parametrize("guard", GUARDS)
def test_another_kafka_python_is_reported_once(guard: str) -> None:
    """One warning in a process names the version, the difference and what is done; so do the facts for metrics."""
    with reshaped(guard) as warning:
        assert f"kafka-python {version('kafka-python')} is not built as {TESTED}" in warning
        assert f"Rows are the same, but {SAID[guard]}: {GUARDS[guard].instead}" in warning
        for _ in range(2):
            assert differences() == {guard: SAID[guard]}
            assert facts().fallback == f"{guard}: {SAID[guard]}"


def test_without_the_connections_nothing_else_matters() -> None:
    """The plain client uses none of the other private names."""
    with reshaped(RECORD_BATCHES), reshaped(CONNECTIONS):
        assert list(differences()) == [CONNECTIONS]


def test_without_record_batches_no_fetch_is_sliced() -> None:
    """The consumer keeps its own class."""
    fetcher = Fetcher.__new__(Fetcher)
    consumer: Any = SimpleNamespace(_fetcher=fetcher)
    with reshaped(RECORD_BATCHES):
        own = fetcher.PartitionRecords

        assert not slice_fetches(
            consumer, SliceLimits(ChunkLimits(max_records=1, max_bytes=1, include_headers=False), 1)
        )
        assert fetcher.PartitionRecords is own


def test_without_answers_the_parser_keeps_its_method() -> None:
    """Bytes are given to the parser as they arrive."""
    with reshaped(ANSWERS):
        parser = KafkaProtocol(client_id="t")
        Receiver(parser, Memory())

        assert "receive_bytes" not in vars(parser)


def test_without_connections_the_client_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No class with private names is used."""
    made: list[Any] = []
    monkeypatch.setattr("ticdc_source.kafka.kafka_python.plain_client.PlainClient", lambda *given: made.append(given))
    patience = Patience("b:1", "no broker answers", Limit(1, "an option"))
    with reshaped(CONNECTIONS):
        connect({"the": "config"}, patience)

    assert made == [({"the": "config"}, patience)]


def test_a_missing_module_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version without the modules that hold the private names is noticed before they are imported."""
    plain_import = importlib.import_module

    def import_module(name: str) -> Any:
        if name == "kafka.net.compat":
            raise ModuleNotFoundError(name)
        return plain_import(name)

    monkeypatch.setattr(importlib, "import_module", import_module)

    assert GUARDS[CONNECTIONS].difference() == "kafka.net.compat cannot be imported (kafka.net.compat)"
