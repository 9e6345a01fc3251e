"""Compile the loops over samples where C can be compiled, and more modules where `UP_COMPILE=1` asks for it.

To compile the loops over samples (`voicepipe/audio/_kernels.c`) takes a few seconds. Without a C compiler or Python's
headers the package is built all the same, and the same loops run in numpy. With `UP_COMPILE=1` mypyc compiles the
modules on the way of a user's audio too, as they are: there is one source. Then a module that can't be compiled is an
error. With `UP_COMPILE=0` nothing is compiled.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any, Final

from setuptools import Extension, setup

COMPILED: Final = (
    *(f"voicepipe/audio/{name}.py" for name in ("echo_detector", "history", "levels", "near_field", "resample")),
    *(
        f"voicepipe/audio/{name}.py"
        for name in ("samples", "silero", "vad_segmenter", "voiced_frames", "window_stream")
    ),
    "voicepipe/quantile.py",
    "voicepipe/server/sessions/websocket.py",
    "voicepipe/session/audio_input.py",
    "voicepipe/session/connection.py",
    "voicepipe/session/overlap_report.py",
    "voicepipe/session/read_limit.py",
    "voicepipe/telemetry/event_loop.py",
)
"""The modules that each frame of a user's audio passes, of those that mypyc can compile. It has no async generators, no
`except*` and no msgspec structs."""

KERNELS: Final = "voicepipe/audio/_kernels.c"
"""The loops over samples."""

BUILDS: Final = {"bdist_wheel", "build_ext", "editable_wheel"}


def extensions() -> list[Any]:
    """Return what to compile; nothing with `UP_COMPILE=0`, nor where the package is only described."""
    requested = os.environ.get("UP_COMPILE")
    if requested == "0" or BUILDS.isdisjoint(sys.argv):
        return []
    if requested != "1" or "editable_wheel" in sys.argv:  # a compiled module would hide the one that is edited
        return [kernels(optional=True)]
    return [*modules(), kernels(optional=False)]


def kernels(*, optional: bool) -> Extension:
    """Return the loops over samples, which know the digest of their source: compiled.py compares it.

    Args:
        optional: whether to continue without them where they can't be compiled.
    """
    digest = hashlib.sha256((Path(__file__).parent / KERNELS).read_bytes()).hexdigest()
    return Extension(
        "voicepipe.audio._kernels",
        [KERNELS],
        define_macros=[("SOURCE_SHA256", f'"{digest}"')],
        extra_compile_args=["-O3"],
        libraries=["m"],
        optional=optional,
    )


def modules() -> list[Extension]:
    """Return the modules that mypyc compiles."""
    from mypyc.build import mypycify

    os.environ["MYPY_NUM_WORKERS"] = "0"  # with workers mypyc compiles empty modules (mypy 2.4.1)
    options = ["--follow-imports=silent", "--ignore-missing-imports", "--no-warn-unused-ignores", "--no-incremental"]
    return list(mypycify([*options, *COMPILED], opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3")))


if __name__ == "__main__":
    # Each kind has a build folder of its own: what is in it is in the wheel.
    kind = "compiled" if os.environ.get("UP_COMPILE") == "1" else "plain"
    setup(ext_modules=extensions(), options={"build": {"build_base": f"build/{kind}"}})
