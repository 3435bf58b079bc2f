"""`schema_text`: the schema with an id. A process requests each schema once.

Confluent's API, also in Apicurio and Karapace, is `GET /schemas/ids/{id}` (Schema Registry API Reference, "Schemas";
TiCDC's decoder uses it, too: pkg/sink/codec/avro, confluent_schema_registry.go). AWS Glue Schema Registry has
`GetSchemaVersion` by `SchemaVersionId`, with boto3 and AWS's own credentials.
"""

from __future__ import annotations

import base64
import logging
import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol, TypeAlias
from uuid import UUID

from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError
from ticdc_source.options.logins import RegistrySettings, TLSSettings
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.http_requests import Answer, NotAnsweredError, Times, fetch
from ticdc_source.sources.tls import tls_context

_log = logging.getLogger(__name__)
# An id of a registry with Confluent's API, or a `SchemaVersionId` of AWS Glue.
SchemaId: TypeAlias = int | UUID
_ASKS_AGAIN_S = 30.0  # after it did not have a schema

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_FOUND = 404
_REFUSALS = frozenset({401, 403})
_SUCCESS = range(200, 300)

_GLUE = "AWS Glue Schema Registry"
_GLUE_REFUSALS = frozenset({
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
    "InvalidClientTokenId", "IncompleteSignature", "InvalidInputException", "ValidationException",
})  # fmt: skip


class _NoAnswerError(Exception):
    """The registry does not answer now; a retry may help. The text has no secret."""


class _Schemas:
    """The schemas of one registry that this process knows."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._known: dict[SchemaId, str] = {}
        self._missing: dict[SchemaId, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def text(self, schema_id: SchemaId) -> str:
        with self._lock:  # one request at a time: many tasks need the same schema
            text = self._known.get(schema_id)
            if text is not None:
                return text
            since, reason = self._missing.get(schema_id, (float("-inf"), ""))
            if time.monotonic() - since < _ASKS_AGAIN_S:
                raise DecodeError(reason)
            try:
                text = self._known[schema_id] = _asked(self._settings, schema_id)
            except DecodeError as error:
                self._missing[schema_id] = (time.monotonic(), error.reason)
                raise
        return text


_schemas_of = lru_cache(maxsize=64)(_Schemas)


def schema_text(settings: RegistrySettings, schema_id: SchemaId) -> str:
    """The Avro schema with an id; it is cached, as ids never change their meaning.

    Raises:
        DecodeError: the registry has no such schema.
        SchemaRegistryUnavailableError: it does not answer, or refuses, or the options do not name it.
    """
    return _schemas_of(settings).text(schema_id)


def _asked(settings: RegistrySettings, schema_id: SchemaId) -> str:
    began = time.monotonic()
    for tries in range(settings.retries + 1):
        if tries:
            time.sleep(settings.retry_interval_s)
        try:
            if isinstance(schema_id, UUID):
                return _from_glue(settings, schema_id)
            return _from_urls(settings, schema_id)
        except _NoAnswerError as error:
            reason = str(error)
            _log.warning(
                "The schema registry does not answer (try %d of %d): %s", tries + 1, settings.retries + 1, reason
            )
    raise SchemaRegistryUnavailableError(
        f"The schema registry has not answered in {time.monotonic() - began:.1f} s and {settings.retries + 1} tries "
        f"(fetchOffset.numRetries), asked for schema {schema_id}: {reason}. Check schema.registry.url and the network"
    )


def _unknown(schema_id: SchemaId, where: str) -> DecodeError:
    return DecodeError(
        f"schema {schema_id} is not in {where}. Check that this is the changefeed's registry (`schema-registry`), and "
        "that the schema was not deleted"
    )


def _checked(text: object, schema_id: SchemaId, where: str) -> str:
    try:
        loads(text if isinstance(text, str) else "")
    except ValueError:
        raise DecodeError(f"schema {schema_id} in {where} is not an Avro schema") from None
    return str(text)


def _from_urls(settings: RegistrySettings, schema_id: int) -> str:
    if not settings.urls:
        raise SchemaRegistryUnavailableError(
            f"The messages are Avro with schema ids, such as {schema_id}: set schema.registry.url to the registry of "
            "the changefeed (its `schema-registry`)"
        )
    failures = []
    for url in settings.urls:
        try:
            return _from_url(url, settings, schema_id)
        except _NoAnswerError as error:
            failures.append(f"{url}: {error}")
    raise _NoAnswerError("; ".join(failures))


def _from_url(url: str, settings: RegistrySettings, schema_id: int) -> str:
    request = urllib.request.Request(  # noqa: S310 (http or https: `parsers.registry_urls`)
        f"{url}/schemas/ids/{schema_id}", headers={"Accept": _ACCEPT, **_login(settings)}
    )
    times = Times(settings.connect_s, settings.read_s, settings.connect_s + settings.read_s)
    proxies = None if settings.proxy is None else {"http": settings.proxy, "https": settings.proxy}
    try:
        context = _context(settings.tls) if url.startswith("https") else None
        answer = fetch(request, times, context, proxies)
    except NotAnsweredError as error:
        if not error.is_untrusted:
            raise _NoAnswerError(str(error)) from None
        raise SchemaRegistryUnavailableError(
            f"The certificate of the schema registry {url} is not trusted: {error}. Check "
            "schema.registry.ssl.truststore.location"
        ) from None
    if answer.status not in _SUCCESS:
        raise _refusal(answer, url, schema_id, settings)
    try:
        content = loads(answer.body)
        kind, references = content.get("schemaType", "AVRO"), content.get("references")
    except (ValueError, AttributeError):
        raise SchemaRegistryUnavailableError(
            f"{url} answers, but not as a schema registry. Check schema.registry.url: is it the URL of the API?"
        ) from None
    if kind != "AVRO" or references:
        what = "has references" if references else f"is {kind}, not Avro"
        raise DecodeError(f"schema {schema_id} in {url} {what}: TiCDC did not write it")
    return _checked(content.get("schema"), schema_id, url)


def _login(settings: RegistrySettings) -> dict[str, str]:
    if settings.token is not None:
        return {"Authorization": f"Bearer {settings.token.reveal()}"}
    if settings.user_info is not None:
        return {"Authorization": f"Basic {base64.b64encode(settings.user_info.reveal().encode()).decode()}"}
    return {}


@lru_cache(maxsize=8)
def _context(tls: TLSSettings) -> ssl.SSLContext:
    return tls_context(tls, "schema.registry.")


def _refusal(answer: Answer, url: str, schema_id: int, settings: RegistrySettings) -> Exception:
    if answer.status == _NOT_FOUND and _is_of_registry(answer):
        return _unknown(schema_id, f"the schema registry {url}")
    if answer.status in _REFUSALS:
        given = "the login" if _login(settings) else "a request without a login"
        return SchemaRegistryUnavailableError(
            f"The schema registry {url} refuses {given} ({answer.status_text}), asked for schema {schema_id}. Check "
            "basic.auth.user.info or bearer.auth.token"
        )
    if answer.is_transient:
        return _NoAnswerError(answer.status_text)
    return SchemaRegistryUnavailableError(
        f"{url} does not answer as a schema registry ({answer.status_text}), asked for schema {schema_id}. Check "
        "schema.registry.url"
    )


def _is_of_registry(answer: Answer) -> bool:
    """Whether an answer means a missing schema, not a wrong URL.

    Confluent's REST API has its own codes for missing schemas, such as 40403; 404 means a wrong path.
    """
    try:
        code = loads(answer.body)["error_code"]
    except (ValueError, TypeError, KeyError):
        return False
    return type(code) is int and code != _NOT_FOUND


class _Glue(Protocol):
    """The used part of boto3's client."""

    def get_schema_version(self, *, SchemaVersionId: str) -> Mapping[str, object]: ...  # noqa: N803 (AWS's name)


def _from_glue(settings: RegistrySettings, schema_id: UUID) -> str:
    try:
        import botocore.exceptions as failures  # noqa: PLC0415 (only topics with Glue's ids need it)
    except ImportError:
        raise SchemaRegistryUnavailableError(
            "The messages are Avro with ids of AWS Glue Schema Registry: install boto3 on driver and executors "
            '(pip install "ticdc-source[glue]", or pip install boto3)'
        ) from None
    try:
        client = _glue_client(settings.region, settings.endpoint, settings.connect_s, settings.read_s)
        answer = client.get_schema_version(SchemaVersionId=str(schema_id))
    except failures.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code == "EntityNotFoundException":
            raise _unknown(schema_id, _GLUE) from None
        if code in _GLUE_REFUSALS:
            raise SchemaRegistryUnavailableError(
                f"{_GLUE} refuses ({code}), asked for schema {schema_id}. Check AWS's credentials and glue.region"
            ) from None
        raise _NoAnswerError(code or type(error).__name__) from None
    except (failures.NoRegionError, failures.NoCredentialsError, failures.PartialCredentialsError) as error:
        raise SchemaRegistryUnavailableError(
            f"{_GLUE} cannot be reached: {error} Set glue.region, and credentials as for every AWS client"
        ) from None
    except (failures.BotoCoreError, ValueError) as error:  # their texts may have URLs with secrets
        raise _NoAnswerError(type(error).__name__) from None
    if answer.get("DataFormat", "AVRO") != "AVRO":
        raise _unknown(schema_id, f"{_GLUE} as Avro")
    return _checked(answer.get("SchemaDefinition"), schema_id, _GLUE)


@lru_cache(maxsize=8)
def _glue_client(region: str | None, endpoint: str | None, connect_s: float, read_s: float) -> _Glue:
    import boto3  # type: ignore[import-untyped]  # noqa: PLC0415 (as above)
    from botocore.config import Config  # noqa: PLC0415

    waits = Config(connect_timeout=connect_s, read_timeout=read_s, retries={"max_attempts": 1})
    session = boto3.session.Session()  # a new one: the default session keeps the credentials that it found first
    client: _Glue = session.client("glue", region_name=region, endpoint_url=endpoint, config=waits)
    return client
