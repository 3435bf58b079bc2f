"""What may come instead of a schema."""

from __future__ import annotations

from ticdc_source.errors import DecodeError
from ticdc_source.schema.json_text import loads

__all__ = ["NoAnswerError", "schema_in", "unknown_schema"]


class NoAnswerError(Exception):
    """The registry does not answer now; another try may help. Its text holds no secret."""


def unknown_schema(schema_id: object, where: str) -> DecodeError:
    """Return the error for a schema that a registry does not have."""
    return DecodeError(
        f"schema {schema_id} is not in {where}. Is that the registry of the changefeed (`schema-registry`), and has "
        "nobody deleted the schema?"
    )


def schema_in(text: object, schema_id: object, where: str) -> str:
    """Return the schema in an answer.

    Raises:
        DecodeError: it is no JSON.
    """
    try:
        loads(text if isinstance(text, str) else "")
    except ValueError:
        msg = f"what {where} has as schema {schema_id} is no Avro schema"
        raise DecodeError(msg) from None
    return str(text)
