"""Compile the modules on the way of a user's audio where `UP_COMPILE=1` asks for it.

mypyc compiles the modules as they are, so there is one source. The loops over samples are there in C as well
(`voicepipe/audio/_kernels.c`), beside the same in numpy. Without the variable the package is Python alone.
"""

from __future__ import annotations

import os
import sys
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


def extensions() -> list[Any]:
    """Return the compiled modules; none without `UP_COMPILE=1`, nor where the package is only described."""
    if os.environ.get("UP_COMPILE") != "1" or {"bdist_wheel", "build_ext"}.isdisjoint(sys.argv):
        return []
    from mypyc.build import mypycify

    os.environ["MYPY_NUM_WORKERS"] = "0"  # with workers mypyc compiles empty modules (mypy 2.4.1)
    options = ["--follow-imports=silent", "--ignore-missing-imports", "--no-warn-unused-ignores", "--no-incremental"]
    compiled = mypycify([*options, *COMPILED], opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"))
    kernels = Extension(
        "voicepipe.audio._kernels", ["voicepipe/audio/_kernels.c"], extra_compile_args=["-O3"], libraries=["m"]
    )
    return [*compiled, kernels]


if __name__ == "__main__":
    setup(ext_modules=extensions())
