"""Tests of the native path, where it is there."""

import pytest

from ticdc_source.native import native, why_general

NEEDS_NATIVE = pytest.mark.skipif(native is None, reason=f"the native path is not there: {why_general('auto')}")
