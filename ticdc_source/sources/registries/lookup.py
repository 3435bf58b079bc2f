"""`schema_text`: the schema that an id names. Each is asked for once in a process."""

from __future__ import annotations

import logging
import threading
import time
from functools import lru_cache
from typing import TypeAlias
from uuid import UUID

from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.sources.registries.answers import NoAnswerError
from ticdc_source.sources.registries.confluent import schema_by_id
from ticdc_source.sources.registries.glue import schema_by_version_id

__all__ = ["SchemaId", "schema_text"]

_log = logging.getLogger(__name__)
# An id of a registry with Confluent's API, or a `SchemaVersionId` of AWS Glue.
SchemaId: TypeAlias = int | UUID
_ASKS_AGAIN_S = 30.0  # for a schema that the registry did not have


class _Schemas:
    """The schemas of one registry that are known in this process."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._known: dict[SchemaId, str] = {}
        self._missing: dict[SchemaId, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def text(self, schema_id: SchemaId) -> str:
        """Return a schema; see `schema_text`."""
        with self._lock:  # one question at a time: many tasks want the same schema
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


@lru_cache(maxsize=64)
def _schemas_of(settings: RegistrySettings) -> _Schemas:
    return _Schemas(settings)


def schema_text(settings: RegistrySettings, schema_id: SchemaId) -> str:
    """Return the Avro schema that an id names. An id never changes its meaning, so it is remembered.

    Args:
        settings: where the registry is.
        schema_id: the id.

    Raises:
        DecodeError: the registry has no such schema.
        SchemaRegistryUnavailableError: it does not answer, or refuses; or the options do not say where it is.
    """
    return _schemas_of(settings).text(schema_id)


def _asked(settings: RegistrySettings, schema_id: SchemaId) -> str:
    ask = schema_by_version_id if isinstance(schema_id, UUID) else schema_by_id
    began = time.monotonic()
    for tries in range(settings.retries + 1):
        if tries:
            time.sleep(settings.retry_interval_s)
        try:
            return ask(settings, schema_id)  # type: ignore[arg-type] # `ask` is chosen by the type of the id
        except NoAnswerError as error:
            reason = str(error)
            _log.warning(
                "The schema registry does not answer (try %d of %d): %s", tries + 1, settings.retries + 1, reason
            )
    msg = (
        f"The schema registry has not answered in {time.monotonic() - began:.1f} s and {settings.retries + 1} tries "
        f"(fetchOffset.numRetries), asked for schema {schema_id}: {reason}. Check schema.registry.url and the network"
    )
    raise SchemaRegistryUnavailableError(msg)
