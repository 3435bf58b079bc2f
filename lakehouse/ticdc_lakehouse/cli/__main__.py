"""The command `ticdc-lakehouse`, or `python -m ticdc_lakehouse.cli`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ticdc_lakehouse.cli import audit, sync
from ticdc_source import __version__
from ticdc_source.developer_api import command_line, run

COMMANDS = {"sync": sync, "audit": audit}


def main(arguments: Sequence[str] | None = None) -> int:
    return run(parser(), arguments)


def parser() -> argparse.ArgumentParser:
    return command_line(
        "ticdc-lakehouse",
        __version__,
        "Keep a copy of TiDB's tables in Delta or Iceberg, and prove that they are equal.",
        COMMANDS,
    )


if __name__ == "__main__":
    sys.exit(main())
