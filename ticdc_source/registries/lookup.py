"""`schema_text`: the schema that an id names. Each is asked for once in a process."""

from __future__ import annotations

import logging
import threading
import time
from typing import TypeAlias
from uuid import UUID

from ticdc_source.errors import DecodeError, SchemaRegistryUnavailableError
from ticdc_source.options.registry import RegistrySettings
from ticdc_source.registries.answers import NoAnswerError
from ticdc_source.registries.confluent import schema_by_id
from ticdc_source.registries.glue import schema_by_version_id

__all__ = ["SchemaId", "schema_text"]

_log = logging.getLogger(__name__)
# An id of a registry with Confluent's API, or a `SchemaVersionId` of AWS Glue.
SchemaId: TypeAlias = int | UUID
_ASKS_AGAIN_S = 30.0  # for a schema that the registry did not have

_known: dict[tuple[RegistrySettings, SchemaId], str] = {}
_missing: dict[tuple[RegistrySettings, SchemaId], tuple[float, DecodeError]] = {}
_lock = threading.Lock()


def schema_text(settings: RegistrySettings, schema_id: SchemaId) -> str:
    """Return the Avro schema that an id names. An id never changes its meaning, so it is remembered.

    Args:
        settings: where the registry is.
        schema_id: the id.

    Raises:
        DecodeError: the registry has no such schema.
        SchemaRegistryUnavailableError: it does not answer, or refuses; or the options do not say where it is.
    """
    place = (settings, schema_id)
    with _lock:  # one question at a time: many tasks want the same schema
        text = _known.get(place)
        if text is None:
            since, error = _missing.get(place, (float("-inf"), None))
            if error is not None and time.monotonic() - since < _ASKS_AGAIN_S:
                raise DecodeError(error.reason)
            try:
                text = _known[place] = _asked(settings, schema_id)
            except DecodeError as error:
                _missing[place] = (time.monotonic(), error)
                raise
    return text


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
