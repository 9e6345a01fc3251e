"""The loops over samples that take most of a session's CPU, in C: where C could be compiled at installation.

Each has its twin in numpy with the same results, in the module that calls it. The loops in C are for Linux on x86-64
with AVX2: on other machines they are not measured.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["IS_COMPILED", "WHY_NUMPY", "kernels"]


_MAX_VECTOR_BYTES: Final = 64
_MIN_VECTOR_BYTES: Final = 32
"""The vectors of the loops: those of AVX-512, and those of AVX2. Numpy is faster than shorter ones, which a
compiler without the choice of instruction sets has on each processor.
"""


def _find() -> tuple[bool, str]:
    """Return whether to use the loops in C; and if not, why not, where they could be faster than numpy."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return False, ""
    if find_spec("voicepipe.audio._kernels") is None:
        return False, "they are not compiled"
    try:
        from voicepipe.audio import _kernels
    except ImportError as error:  # compiled for another C library, say
        return False, f"compiled ones can't be loaded: {error}"
    try:
        sources = [Path(__file__).with_name(name).read_bytes() for name in ("_kernels.c", "_loops.h")]
    except OSError:  # installed without them
        sources = []
    digest = hashlib.sha256(b"".join(sources)).hexdigest()
    if sources and digest != getattr(_kernels, "SOURCE_SHA256", ""):
        return False, "they were compiled from another version of _kernels.c"
    return _kernels.choose(_MAX_VECTOR_BYTES) >= _MIN_VECTOR_BYTES, ""


_FOUND: Final = _find()

IS_COMPILED: Final = _FOUND[0]

WHY_NUMPY: Final = _FOUND[1]
"""Why the loops run in numpy, for operators. Empty if they run in C, and on machines where numpy is the faster one."""

if IS_COMPILED:
    from voicepipe.audio import _kernels as kernels
else:
    kernels = None  # type: ignore[assignment]
