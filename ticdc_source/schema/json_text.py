"""External JSON, parsed by Python's parser: any problem is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any

TOO_DEEP = "JSON is nested too deep"


def loads(text: str | bytes, **hooks: Any) -> Any:
    """Parse JSON as `json.loads`, with its hooks.

    Raises:
        ValueError: it is not JSON, or nested too deep for the parser.
    """
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
