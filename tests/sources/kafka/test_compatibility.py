"""The installed kafka-python is built as the table of private names expects; another one is reported, once."""

import ast
import functools
import importlib
import itertools
import re
import warnings
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka
import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.parser import KafkaProtocol

from tests.sources.kafka.reshaped import SAID, reshaped
from tests.support.paths import ROOT
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.sources.kafka.batches.cut import ChunkLimits
from ticdc_source.sources.kafka.client import ClientFacts
from ticdc_source.sources.kafka.kafka_python import compatibility
from ticdc_source.sources.kafka.kafka_python.compatibility import (
    ANSWERS,
    CONNECTIONS,
    GUARDS,
    RECORD_BATCHES,
    TESTED,
    Expectation,
    differences,
    facts,
)
from ticdc_source.sources.kafka.kafka_python.connect import connect
from ticdc_source.sources.kafka.kafka_python.receiving import Receiver
from ticdc_source.sources.kafka.kafka_python.slicing import SliceLimits, slice_fetches
from ticdc_source.sources.kafka.patience import Limit, Patience

EXPECTATIONS = [expectation for guard in GUARDS.values() for expectation in guard.expectations]


def test_the_installed_kafka_python_is_as_expected() -> None:
    """The fast ways are taken, and nobody is warned: a version that ends one of them is noticed here."""
    differences.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert differences() == {}
    assert facts().client == f"kafka-python {version('kafka-python')}"
    assert facts().fallback is None


def test_a_newer_version_that_is_built_as_the_tested_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the version is decides, not its number: a release that changes nothing here costs no speed."""
    monkeypatch.setattr(kafka, "__version__", "3.99.0")
    differences.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert differences() == {}
    assert facts() == ClientFacts("kafka-python 3.99.0", None)


def test_the_range_begins_with_the_tested_version() -> None:
    """Whoever installs the package may have any kafka-python 3 from the tested version on."""
    spec = re.search(r'"kafka-python(>=[^"]*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert spec is not None
    assert spec[1] == f">={TESTED},<4"


def names_of_the_page() -> set[str]:
    """The names in the first column of the table of private names."""
    page = (ROOT / "docs/design/0010-record-path.md").read_text(encoding="utf-8")
    _, table = page.split("| private name |", 1)
    rows = itertools.takewhile(lambda line: line.startswith("|"), table.splitlines()[2:])
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_design_page_lists_every_private_name() -> None:
    """Each name that a guard looks at, and each that is imported, is listed with its reason; and no other."""
    guarded = {expectation.name.partition(":")[2] for expectation in EXPECTATIONS}
    imported = {
        alias.name
        for file in Path(compatibility.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.")
        for alias in node.names
    }
    classes = {name.partition(".")[0] for name in guarded}

    assert names_of_the_page() == guarded | (imported - classes)
    assert imported - classes == {
        "AbstractTokenProvider",
        "SaslMechanism",
        "SaslMechanismGSSAPI",
        "register_sasl_mechanism",
    }


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
def test_another_kafka_python_is_reported_once(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning in a process names the version, the difference and what is done; so do the facts for metrics."""
    monkeypatch.setattr(kafka, "__version__", "3.99.0")
    with reshaped(guard) as warning:
        assert f"kafka-python 3.99.0 is not built as {TESTED}" in warning
        assert f"Rows are the same, but {SAID[guard]}: {GUARDS[guard].instead}" in warning
        for _ in range(2):
            assert differences() == {guard: SAID[guard]}
            assert facts() == ClientFacts("kafka-python 3.99.0", f"{guard}: {SAID[guard]}")


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
        Receiver(parser)

        assert "receive_bytes" not in vars(parser)


def test_without_connections_the_client_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No class with private names is used."""
    made: list[Any] = []
    monkeypatch.setattr(
        "ticdc_source.sources.kafka.kafka_python.plain_client.PlainClient", lambda *given: made.append(given)
    )
    patience = Patience("b:1", "no broker answers", Limit(1, "an option"))
    with reshaped(CONNECTIONS):
        connect(ClientSettings(client_id="me"), patience)

    assert made == [(ClientSettings(client_id="me"), patience)]


def test_a_missing_module_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version without the modules that hold the private names is noticed before they are imported."""
    plain_import = importlib.import_module

    def import_module(name: str) -> Any:
        if name == "kafka.net.compat":
            raise ModuleNotFoundError(name)
        return plain_import(name)

    monkeypatch.setattr(importlib, "import_module", import_module)

    assert GUARDS[CONNECTIONS].difference() == "kafka.net.compat cannot be imported (kafka.net.compat)"
