"""The command, with a lease of seconds: `python -m lakehouse.tests.syncs.short_lease sync …`."""

import sys

from ticdc_lakehouse.cli.__main__ import main
from ticdc_lakehouse.syncs import lease

if __name__ == "__main__":
    lease.LEASE_S, lease._RENEW_S = 12.0, 2.0
    sys.exit(main())
