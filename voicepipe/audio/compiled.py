"""The loops over samples that take most of a session's CPU, in C: where voicepipe was built with `UP_COMPILE=1`.

Each has its twin in numpy with the same results, in the module that calls it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["IS_COMPILED", "kernels"]

try:
    from voicepipe.audio import _kernels as kernels
except ImportError:
    kernels = None  # type: ignore[assignment]

IS_COMPILED: Final = kernels is not None
