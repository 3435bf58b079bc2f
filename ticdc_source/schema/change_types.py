"""The values of `_change_type`, and their numbers inside the package."""

from __future__ import annotations

# The values of `_change_type` (Spark's `Changelog` contract, Delta's change feed). A row image has an index into them.
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")


INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE = range(4)


# `outputFormat=event` has these besides row images.
DDL, WATERMARK, BOOTSTRAP = 4, 5, 6
