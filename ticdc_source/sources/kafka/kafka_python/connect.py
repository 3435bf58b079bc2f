"""Connects with kafka-python, if the installed version is one whose private names are known."""

from __future__ import annotations

import importlib
import re

from ticdc_source.errors import OptionError
from ticdc_source.options.kafka_client import ClientSettings
from ticdc_source.sources.kafka.client import Client
from ticdc_source.sources.kafka.patience import Patience

# As in pyproject.toml, which pip need not have followed: packages are also unpacked by hand, or come with a platform.
REQUIRED = "kafka-python>=3.0.12,<3.1"
_LEAST, _BELOW = (tuple(map(int, bound.split("."))) for bound in re.findall(r"[\d.]+", REQUIRED))


def installed() -> str:
    """Return which version of the library is installed.

    Raises:
        OptionError: none, or one that may be built differently inside.
    """
    try:
        version = str(importlib.import_module("kafka").__version__)
    except Exception as error:  # noqa: BLE001 (another package of this name may raise anything)
        reason = f"it cannot be imported ({error})"
    else:
        numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
        if _LEAST <= numbers < _BELOW:
            return version
        reason = f"version {version} is installed"
    msg = f'Kafka is read with {REQUIRED}, and here {reason}: pip install "{REQUIRED}" on the driver and all executors'
    raise OptionError(msg)


def connect(settings: ClientSettings, patience: Patience) -> Client:
    """Connect to brokers.

    Raises:
        KafkaUnavailableError: no broker answered in time.
        OptionError: a certificate file cannot be read, the brokers refuse the login, or kafka-python is another one.
    """
    installed()
    from ticdc_source.sources.kafka.kafka_python.network_client import NetworkClient  # noqa: PLC0415 (after the check)

    return NetworkClient(settings, patience)
