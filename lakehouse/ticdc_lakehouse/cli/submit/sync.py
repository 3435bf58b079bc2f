"""The program that `spark-submit` runs: `spark-submit "$(ticdc-lakehouse sync --script)" sync.toml`."""

import sys

from ticdc_lakehouse.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["sync", *sys.argv[1:]]))
