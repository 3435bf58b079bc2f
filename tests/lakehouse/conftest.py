"""The lake in memory of `tests/targets`."""

from tests.targets.conftest import lake, quick

__all__ = ["lake", "quick"]
