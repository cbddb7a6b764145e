"""The edge: finds faces in pictures and videos, fuses a source face onto them, and writes them back.

The names below are the Python API; they are loaded when first used, so that ``lethe --help`` stays quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge.report import JobReport
    from edge.swap import Pair, SwapOptions, Swapper, swap_files, swap_image, swap_video
    from edge.video import Trim

__all__ = ["JobReport", "Pair", "SwapOptions", "Swapper", "Trim", "swap_files", "swap_image", "swap_video"]

_HOMES = {"JobReport": "edge.report", "Trim": "edge.video"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'edge' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "edge.swap")), name)
