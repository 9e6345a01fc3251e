"""Compile the loops over samples where C can be compiled, and more modules where `UP_COMPILE=1` asks for it.

To compile the loops over samples (`voicepipe/audio/_kernels.c`) takes a few seconds. They are for Linux on x86-64:
elsewhere, and without a C compiler or Python's headers, the same loops run in numpy. With `UP_COMPILE=1` mypyc compiles
the modules on the way of a user's audio too, as they are: there is one source. Then a module that can't be compiled is
an error. With `UP_COMPILE=0` nothing is compiled.
"""

from __future__ import annotations

import hashlib
import os
import platform
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

KERNELS: Final = ("voicepipe/audio/_kernels.c", "voicepipe/audio/_loops.h")
"""The loops over samples, and what they include."""

BUILDS: Final = {"bdist_wheel", "build_ext", "editable_wheel"}


def extensions() -> list[Any]:
    """Return what to compile; nothing with `UP_COMPILE=0`, nor where the package is only described."""
    requested = os.environ.get("UP_COMPILE")
    if requested == "0" or BUILDS.isdisjoint(sys.argv):
        return []
    is_whole = (
        requested == "1" and "editable_wheel" not in sys.argv
    )  # a compiled module would hide the one that is edited
    loops = [kernels(optional=not is_whole)] if (sys.platform, platform.machine()) == ("linux", "x86_64") else []
    return [*modules(), *loops] if is_whole else loops


def kernels(*, optional: bool) -> Extension:
    """Return the loops over samples, which know the digest of their source: compiled.py compares it.

    Args:
        optional: whether to continue without them where they can't be compiled.
    """
    sources = (Path(__file__).with_name("voicepipe") / "audio" / Path(name).name for name in KERNELS)
    digest = hashlib.sha256(b"".join(map(Path.read_bytes, sources))).hexdigest()
    return Extension(
        "voicepipe.audio._kernels",
        [KERNELS[0]],
        depends=[*KERNELS],
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
