"""Hatch's build hook: builds the extension module for a wheel, or leaves the wheel without it.

TICDC_BUILD_NATIVE=0 never builds it; 1 fails if it cannot be built. TICDC_NATIVE_TRIPLE builds it for another platform.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
from extension import CRATE, MODULE, TRIPLE_VARIABLE, BuildError, build, wheel_platform

_VARIABLE = "TICDC_BUILD_NATIVE"


# hatchling is there when types are checked only if `make wheels` has installed it.
class NativeBuildHook(BuildHookInterface[Any]):  # type: ignore[misc, unused-ignore]
    """Adds the extension module to wheels; an editable install has it in the clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the wheel is put together."""
        asked = os.environ.get(_VARIABLE, "")
        if asked not in {"", "0", "1"}:
            msg = f"{_VARIABLE} is {asked!r}: 0 never builds the extension module, 1 fails if it cannot be built"
            raise ValueError(msg)
        if asked == "0":
            return
        editable = version == "editable"
        triple = os.environ.get(TRIPLE_VARIABLE) or None
        built = CRATE.parent / MODULE if editable else CRATE / "target" / MODULE.name
        try:
            built.parent.mkdir(exist_ok=True)
            build(built, triple)
        except (BuildError, OSError) as error:
            if asked == "1":
                raise
            self.app.display_warning(f"Without the native path: {error}")
            return
        if editable:
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{wheel_platform(built, triple)}"
        build_data["force_include"][str(built)] = str(MODULE)
