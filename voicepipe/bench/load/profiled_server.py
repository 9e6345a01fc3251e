"""`python -m voicepipe.bench.load.profiled_server FILE serve ...`: run the server, and profile it between two signals.

The first SIGUSR2 begins, the second writes FILE. A timer of CPU time interrupts the event loop's thread (SIGPROF), so
a sample is taken for equal amounts of work: waiting has none, and no other thread competes for the interpreter.
"""

from __future__ import annotations

import runpy
import signal
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import msgspec

INTERVAL_S: Final = 0.002
"""CPU time between two samples. Kernels round it up to their tick, often 4 ms."""


class Profile(msgspec.Struct):
    """Samples of the event loop's thread."""

    n_samples: int = 0
    own: dict[str, int] = msgspec.field(default_factory=dict)
    """Function -> samples in the function itself, with the C code that it calls."""

    whole: dict[str, int] = msgspec.field(default_factory=dict)
    """Function -> samples in the function and in all that it calls."""


class Sampler:
    """Counts the functions that a timer of CPU time finds."""

    def __init__(self) -> None:
        self._n_samples = 0
        self._own: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()
        self.running = False

    def start(self) -> None:
        """Begin anew."""
        self._n_samples = 0
        self._own.clear()
        self._whole.clear()
        self.running = True
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def stop(self) -> Profile:
        """Return what was found."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.running = False
        return Profile(self._n_samples, dict(self._own.most_common()), dict(self._whole.most_common()))

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self._n_samples += 1
        self._own[_name(frame.f_code)] += 1
        seen = set()
        above: FrameType | None = frame
        while above is not None:
            seen.add(_name(above.f_code))
            above = above.f_back
        self._whole.update(seen)


@cache
def _name(code: CodeType) -> str:
    return f"{module_of(code.co_filename)}:{code.co_qualname}"


def module_of(path: str) -> str:
    """Return the module of a source file, as far as it can be read from the path."""
    parts = Path(path).with_suffix("").parts
    for root in ("site-packages", "lib-dynload", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        if root in parts:
            return ".".join(parts[len(parts) - parts[::-1].index(root) :])
    return ".".join(parts[parts.index("voicepipe") :]) if "voicepipe" in parts else Path(path).stem


def main() -> None:
    """Run `voicepipe` with the arguments after FILE."""
    file, sampler = Path(sys.argv[1]), Sampler()

    def switch(_number: int, _frame: FrameType | None) -> None:
        if sampler.running:
            file.write_bytes(msgspec.json.encode(sampler.stop()))
        else:
            sampler.start()

    signal.signal(signal.SIGUSR2, switch)
    sys.argv = ["voicepipe", *sys.argv[2:]]
    runpy.run_module("voicepipe", run_name="__main__")


if __name__ == "__main__":
    main()
