"""The lake in memory of `lakehouse/tests/targets`."""

from lakehouse.tests.targets.conftest import lake, quick

__all__ = ["lake", "quick"]
