"""The loops over samples that take most of a session's CPU, in C: where C could be compiled at installation.

Each has its twin in numpy with the same results, in the module that calls it. In numpy a core carries fewer sessions:
`WHY_NUMPY` has the reason.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["IS_COMPILED", "WHY_NUMPY", "kernels"]


def _why_numpy() -> str:
    """Return why the loops in C can't be used; empty if they can."""
    if find_spec("voicepipe.audio._kernels") is None:
        return "they are not compiled"
    try:
        from voicepipe.audio import _kernels
    except ImportError as error:  # compiled for another C library, say
        return f"compiled ones can't be loaded: {error}"
    try:
        source = Path(__file__).with_name("_kernels.c").read_bytes()
    except OSError:  # installed without it
        return ""
    is_of_source = hashlib.sha256(source).hexdigest() == getattr(_kernels, "SOURCE_SHA256", "")
    return "" if is_of_source else "they were compiled from another version of _kernels.c"


WHY_NUMPY: Final = _why_numpy()
"""Why the loops run in numpy, for operators; empty if they run in C."""

IS_COMPILED: Final = not WHY_NUMPY

if IS_COMPILED:
    from voicepipe.audio import _kernels as kernels
else:
    kernels = None  # type: ignore[assignment]
