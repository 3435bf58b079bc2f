"""What `ticdc-source capture --redact` hides beside the columns of rows."""

import pytest

from tests.support.messages import canal
from ticdc_source.protocols import INSPECTIONS
from ticdc_source.protocols.redaction import Redactor

SECRET, ENCODED = b"customer", b"Y3VzdG9tZXI="  # the second is the first in base64


@pytest.mark.parametrize("key", [SECRET, b'{"id":"%s"}' % SECRET, b'"%s"' % SECRET, b""])
def test_the_keys_of_canal_json_are_redacted(key: bytes) -> None:
    """The values of a row's key are neither in Kafka's key, nor in the member that output-row-key adds."""
    _, value = canal(
        data=[{"id": SECRET.decode()}],
        mysql_type={"id": "varchar"},
        sql_type={"id": 12},
        _tidb={"commitTs": 470613397578711040, "rowkey": ENCODED.decode()},
    )
    assert value is not None
    hidden_key, hidden = INSPECTIONS["canal-json"].redacted(key, value, Redactor(b"salt"))

    assert hidden_key is not None
    assert hidden is not None
    assert SECRET not in hidden_key + hidden
    assert ENCODED not in hidden
    assert b'"commitTs":470613397578711040' in hidden
    assert (len(hidden_key), len(hidden)) == (len(key), len(value))
