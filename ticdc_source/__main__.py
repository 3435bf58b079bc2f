"""`python -m ticdc_source`: the command `ticdc-source`."""

import sys

from ticdc_source.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
