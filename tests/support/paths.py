"""Where the project is, for tests, and for the processes that they start."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = os.pathsep.join([str(ROOT), str(ROOT / "lakehouse")])  # PYTHONPATH for both packages and their tests
