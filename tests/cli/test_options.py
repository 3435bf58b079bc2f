"""`ticdc-source options`: the table of options."""

from tests.cli.conftest import Command
from ticdc_source.options.kafka_client import SETTINGS
from ticdc_source.options.options import OPTIONS


def test_all_options(ticdc_source: Command) -> None:
    """Each option is there with its default and meaning, and each known property of the Kafka client."""
    found = ticdc_source("options", "--json").json

    assert {each["name"]: (each["default"] or "", each["meaning"]) for each in found["options"]} == {
        option.name: (option.default, option.meaning) for option in OPTIONS
    }
    refused = {each["name"]: each["refused"] for each in found["kafka"]}
    assert len(refused) == len(SETTINGS)
    assert (refused["kafka.security.protocol"], refused["kafka.auto.offset.reset"]) == (False, True)


def test_some_options(ticdc_source: Command) -> None:
    """A part of a name, in any case, selects options."""
    done = ticdc_source("options", "TIMEzone")

    assert done.code == 0
    assert "timeZone" in done.out
    assert "protocol" not in done.out.splitlines()[2]
    assert "Properties of the Kafka client" not in done.out


def test_a_name_that_is_not_there(ticdc_source: Command) -> None:
    """A misspelt name is exit code 2, and the right one is named."""
    done = ticdc_source("options", "startngOffsets")

    assert done.code == 2
    assert "did you mean startingOffsets" in done.err
