"""`ticdc-source options`: the table of options."""

import pytest

from tests.cli.conftest import Command
from ticdc_source.options.kafka_client import SETTINGS
from ticdc_source.options.options import OPTIONS


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((), [option.name for option in (*OPTIONS, *SETTINGS)]),
        (("TIMEzone",), ["timeZone"]),
        (("kafka.client.id",), ["kafka.client.id"]),
    ],
)
def test_options_by_a_part_of_their_name(arguments: tuple[str, ...], shown: list[str], ticdc_source: Command) -> None:
    """Each option and each known property of the Kafka client is a row, in any case of the part."""
    done = ticdc_source("options", *arguments)

    assert [line.split()[0] for line in done.out.splitlines()[1:] if not line.startswith(" ")] == shown


def test_a_name_that_is_not_there(ticdc_source: Command) -> None:
    done = ticdc_source("options", "startngOffsets")

    assert (done.code, "did you mean startingOffsets" in done.err) == (2, True)
