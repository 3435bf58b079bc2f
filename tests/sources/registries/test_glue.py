"""Schemas from AWS Glue Schema Registry, as moto has it."""

import json
import logging
from collections.abc import Iterator
from uuid import UUID, uuid4

import boto3  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer

from tests.support.captured import make_options
from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError
from ticdc_source.options.logins import RegistrySettings
from ticdc_source.sources.schema_registry import schema_text

SCHEMA = json.dumps({"type": "record", "name": "t", "namespace": "default.d", "fields": []})
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


@pytest.fixture(scope="module")
def glue() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


def settings(url: str, **given: str) -> RegistrySettings:
    tries = {"fetchOffset.numRetries": "0", "http.connect.timeout.ms": "500", "http.read.timeout.ms": "500"}
    return RegistrySettings.of(make_options(**{"glue.endpoint": url, "glue.region": "us-east-1", **tries, **given}))


def registered(url: str, name: str, schema: str) -> UUID:
    """Register a schema as TiCDC does; return its version id."""
    client = boto3.client("glue", region_name="us-east-1", endpoint_url=url)
    made = client.create_schema(SchemaName=name, DataFormat="AVRO", Compatibility="NONE", SchemaDefinition=schema)
    return UUID(made["SchemaVersionId"])


def test_a_schema_is_found_by_its_version_id(glue: str) -> None:
    """The id in the message's header is enough: no name of a registry or a schema is needed."""
    assert schema_text(settings(glue), registered(glue, "t-value", SCHEMA)) == SCHEMA


def test_a_schema_that_is_missing_is_a_bad_record(glue: str) -> None:
    """It concerns its own record."""
    missing = uuid4()

    with pytest.raises(DecodeError, match=f"schema {missing} is not in AWS Glue Schema Registry"):
        schema_text(settings(glue), missing)


def test_a_registry_that_does_not_answer_is_an_error_in_time() -> None:
    """The error names the id, and what to check."""
    with pytest.raises(SchemaRegistryUnavailableError, match=r"EndpointConnectionError\. Check"):
        schema_text(settings("http://127.0.0.1:9"), uuid4())


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that AWS's own credentials are missing."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    with pytest.raises(SchemaRegistryUnavailableError, match="Unable to locate credentials"):
        schema_text(settings("http://127.0.0.1:9", **{"http.connect.timeout.ms": "501"}), uuid4())
