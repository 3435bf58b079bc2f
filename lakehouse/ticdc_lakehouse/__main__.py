"""`python -m ticdc_lakehouse`: the command `ticdc-lakehouse`."""

import sys

from ticdc_lakehouse.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
