"""`ticdc-source inspect` of Avro behind a schema registry: what messages show of the changefeed."""

import pytest

from tests.cli.test_inspect import chunks_of, inspected
from tests.support.captured import load
from tests.support.corpus import Line
from tests.support.registry import registry_options


@pytest.mark.parametrize(
    "name",
    [
        "avro.default",
        "avro.glue.tidb-extension",
        "avro.watermark",
        "debezium-avro.default",
        "debezium-avro.watermark",
    ],
)
def test_what_avro_shows_is_the_changefeed(name: str) -> None:
    """Protocol, tables, extension and old rows are those of the changefeed, and no record is bad."""
    captured = load(name)
    config = captured.header["config"]
    records = [
        Line(partition, record.key, record.value, {})
        for partition, records in captured.partitions.items()
        for record in records
    ]

    report = inspected(chunks_of(records), 3, registry_options(captured.header))
    (found,) = report.topics[0].protocols
    settings = {each.name: each.value for each in found.settings}

    assert found.protocol == captured.header["protocol"]
    assert not found.bad
    assert settings["enable-tidb-extension"] == str(config.get("enable-tidb-extension", False)).lower()
    lacks_old_rows = not config.get("debezium.output-old-value", True)
    assert ("no-old-rows" in {each.code for each in report.findings}) == lacks_old_rows
    rows = {(each["schema"], each["table"]) for record in captured.partitions.values() for one in record
            if (each := one.truth)["op"] in ("insert", "update")}  # fmt: skip
    assert len(found.tables) >= len(rows)
