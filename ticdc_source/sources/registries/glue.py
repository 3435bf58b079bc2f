"""AWS Glue Schema Registry: `GetSchemaVersion` by `SchemaVersionId`, with boto3 and AWS's own credentials."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from ticdc_source.errors import SchemaRegistryUnavailableError
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.sources.registries.answers import NoAnswerError, schema_in, unknown_schema

__all__ = ["schema_by_version_id"]

_WHERE = "AWS Glue Schema Registry"
_ABSENT = frozenset({"EntityNotFoundException"})
_REFUSALS = frozenset({
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
    "InvalidClientTokenId", "IncompleteSignature", "InvalidInputException", "ValidationException",
})  # fmt: skip


class _Glue(Protocol):
    """What is used of boto3's client."""

    def get_schema_version(self, *, SchemaVersionId: str) -> Mapping[str, object]: ...  # noqa: N803 (AWS's name)


def schema_by_version_id(settings: RegistrySettings, schema_id: UUID) -> str:
    """Ask AWS Glue for a schema.

    Raises:
        DecodeError: it does not have it.
        SchemaRegistryUnavailableError: it refuses, or boto3, the region or credentials are missing.
        NoAnswerError: it does not answer.
    """
    try:
        import botocore.exceptions as failures  # noqa: PLC0415 (only topics with Glue's ids need it)
    except ImportError:
        msg = (
            "The messages are Avro with ids of AWS Glue Schema Registry: install boto3 on driver and executors "
            '(pip install "ticdc-source[glue]", or pip install boto3)'
        )
        raise SchemaRegistryUnavailableError(msg) from None
    try:
        client = _client(settings.region, settings.endpoint, settings.connect_s, settings.read_s)
        answer = client.get_schema_version(SchemaVersionId=str(schema_id))
    except failures.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _ABSENT:
            raise unknown_schema(schema_id, _WHERE) from None
        if code in _REFUSALS:
            msg = f"{_WHERE} refuses ({code}), asked for schema {schema_id}. Check AWS's credentials and glue.region"
            raise SchemaRegistryUnavailableError(msg) from None
        raise NoAnswerError(code or type(error).__name__) from None
    except (failures.NoRegionError, failures.NoCredentialsError, failures.PartialCredentialsError) as error:
        msg = f"{_WHERE} cannot be asked: {error} Set glue.region, and credentials as for every AWS client"
        raise SchemaRegistryUnavailableError(msg) from None
    except (failures.BotoCoreError, ValueError) as error:  # their texts may have URLs with secrets
        raise NoAnswerError(type(error).__name__) from None
    if answer.get("DataFormat", "AVRO") != "AVRO":
        raise unknown_schema(schema_id, f"{_WHERE} as Avro")
    return schema_in(answer.get("SchemaDefinition"), schema_id, _WHERE)


@lru_cache(maxsize=8)
def _client(region: str | None, endpoint: str | None, connect_s: float, read_s: float) -> _Glue:
    import boto3  # type: ignore[import-untyped]  # noqa: PLC0415 (as above)
    from botocore.config import Config  # noqa: PLC0415

    waits = Config(connect_timeout=connect_s, read_timeout=read_s, retries={"max_attempts": 1})
    session = boto3.session.Session()  # of its own: the default one keeps the credentials that it found first
    client: _Glue = session.client("glue", region_name=region, endpoint_url=endpoint, config=waits)
    return client
