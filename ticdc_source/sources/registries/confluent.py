"""Confluent's API, which Apicurio and Karapace have too: `GET /schemas/ids/{id}`.

Source: Schema Registry API Reference, "Schemas"; TiCDC's own decoder asks the same (pkg/sink/codec/avro,
confluent_schema_registry.go).
"""

from __future__ import annotations

import base64
import ssl
import urllib.request
from functools import lru_cache

from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.options.security import TLSSettings
from ticdc_source.schema.json_text import loads
from ticdc_source.sources.registries.answers import NoAnswerError, schema_in, unknown_schema
from ticdc_source.sources.tls.context import tls_context
from ticdc_source.sources.tls.requests import Answer, NotAnsweredError, Times, fetch

__all__ = ["schema_by_id"]

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_FOUND = 404
_REFUSALS = frozenset({401, 403})
_SUCCESS = range(200, 300)


def schema_by_id(settings: RegistrySettings, schema_id: int) -> str:
    """Ask the URLs, one after the other, for a schema.

    Raises:
        DecodeError: the registry does not have it.
        SchemaRegistryUnavailableError: it refuses, or no URL is given.
        NoAnswerError: no URL answers.
    """
    if not settings.urls:
        msg = (
            f"The messages are Avro with schema ids, such as {schema_id}: set schema.registry.url to the registry of "
            "the changefeed (its `schema-registry`)"
        )
        raise SchemaRegistryUnavailableError(msg)
    failures = []
    for url in settings.urls:
        try:
            return _schema_of(url, settings, schema_id)
        except NoAnswerError as error:
            failures.append(f"{url}: {error}")
    raise NoAnswerError("; ".join(failures))


def _schema_of(url: str, settings: RegistrySettings, schema_id: int) -> str:
    request = urllib.request.Request(  # noqa: S310 (http or https: `parsers.registry_urls`)
        f"{url}/schemas/ids/{schema_id}", headers={"Accept": _ACCEPT, **_login(settings)}
    )
    times = Times(settings.connect_s, settings.read_s, settings.connect_s + settings.read_s)
    proxies = None if settings.proxy is None else {"http": settings.proxy, "https": settings.proxy}
    try:
        context = _context(settings.tls) if url.startswith("https") else None
        answer = fetch(request, times, context, proxies)
    except NotAnsweredError as error:
        if error.is_untrusted:
            msg = (
                f"The certificate of the schema registry {url} is not trusted: {error}. Check "
                "schema.registry.ssl.truststore.location"
            )
            raise SchemaRegistryUnavailableError(msg) from None
        raise NoAnswerError(str(error)) from None
    if answer.status not in _SUCCESS:
        raise _refusal(answer, url, schema_id, settings)
    try:
        content = loads(answer.body)
        kind, references = content.get("schemaType", "AVRO"), content.get("references")
    except (ValueError, AttributeError):
        msg = f"{url} answers, but not as a schema registry. Check schema.registry.url: is it the URL of the API?"
        raise SchemaRegistryUnavailableError(msg) from None
    if kind != "AVRO" or references:
        what = "has references" if references else f"is {kind}, and not Avro"
        msg = f"schema {schema_id} in {url} {what}: TiCDC did not write it"
        raise DecodeError(msg)
    return schema_in(content.get("schema"), schema_id, url)


def _login(settings: RegistrySettings) -> dict[str, str]:
    if settings.token is not None:
        return {"Authorization": f"Bearer {settings.token.reveal()}"}
    if settings.user_info is not None:
        return {"Authorization": f"Basic {base64.b64encode(settings.user_info.reveal().encode()).decode()}"}
    return {}


@lru_cache(maxsize=8)
def _context(tls: TLSSettings) -> ssl.SSLContext:
    return tls_context(tls, "schema.registry.")


def _refusal(
    answer: Answer, url: str, schema_id: int, settings: RegistrySettings
) -> DecodeError | SchemaRegistryUnavailableError | NoAnswerError:
    """Return the error for an answer that is no success."""
    if answer.status == _NOT_FOUND and _is_of_registry(answer):
        return unknown_schema(schema_id, f"the schema registry {url}")
    if answer.status in _REFUSALS:
        given = "the login" if _login(settings) else "a request without a login"
        return SchemaRegistryUnavailableError(
            f"The schema registry {url} refuses {given} ({answer.status_text}), asked for schema {schema_id}. Check "
            "basic.auth.user.info or bearer.auth.token"
        )
    if answer.is_transient:
        return NoAnswerError(answer.status_text)
    return SchemaRegistryUnavailableError(
        f"{url} does not answer as a schema registry ({answer.status_text}), asked for schema {schema_id}. Check "
        "schema.registry.url"
    )


def _is_of_registry(answer: Answer) -> bool:
    """Return whether an answer says that there is no such schema, and not that there is no such page.

    Confluent's REST API has codes of its own for what is not found, such as 40403. Code 404 is that of a wrong path.
    """
    try:
        code = loads(answer.body)["error_code"]
    except (ValueError, TypeError, KeyError):
        return False
    return type(code) is int and code != _NOT_FOUND
