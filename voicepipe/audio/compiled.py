"""The loops over samples that take most of a session's CPU, in C: where voicepipe was built with `UP_COMPILE=1`.

Each has its twin in numpy with the same results, in the module that calls it. Loops that are built and can't be loaded
raise ImportError: with numpy in their place a core has time for fewer sessions, for no visible reason.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

__all__ = ["IS_COMPILED", "kernels"]

IS_COMPILED: Final = find_spec("voicepipe.audio._kernels") is not None

if IS_COMPILED:
    from voicepipe.audio import _kernels as kernels
else:
    kernels = None  # type: ignore[assignment]
