"""voicepipe with a look at its own memory: `python -m soak_memory FILE serve ...` runs `voicepipe serve ...`, and a
thread of it adds a line of figures to FILE every ten seconds.

What is taken by whom: Python's small objects (arenas of its own, `anonymous` from outside), everything larger and all C
code (malloc's arenas: `heap` and more of `anonymous`), of which SQLite's pages, and what malloc keeps for later.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from voicepipe import clock

EVERY_S = 10.0

MALLINFO = tuple("arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split())  # noqa: SIM905
"""The fields of `struct mallinfo2`, all of type `size_t`: mallinfo(3)."""


class _MallInfo(ctypes.Structure):
    """Sums over all arenas."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in MALLINFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One process at one instant; sizes in kB, 0 where the system does not report them."""

    at_s: float
    resident: int
    proportional: int
    """Resident, what is shared with other processes counted in part (smaps: Pss)."""

    heap: int
    anonymous: int
    malloc_used: int
    malloc_free: int
    """Freed, and held by malloc for later allocations."""

    sqlite: int
    blocks: int
    """Python's small objects. Those that the collector follows are not counted: that shows it tuples which another
    thread has not finished, and that thread's work fails (CPython, gc.get_objects)."""

    descriptors: int
    threads: int


def look(since_ms: int) -> Memory:
    """This process now."""
    kinds = smaps()
    malloc = _malloc()
    return Memory(
        at_s=(clock.monotonic_ms() - since_ms) / 1_000,
        resident=sum(kinds[kind] for kind in ("heap", "anonymous", "files")),
        proportional=kinds["proportional"],
        heap=kinds["heap"],
        anonymous=kinds["anonymous"],
        malloc_used=malloc.uordblks >> 10,
        malloc_free=malloc.fordblks >> 10,
        sqlite=sqlite_bytes() >> 10,
        blocks=sys.getallocatedblocks(),
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=len(os.listdir("/proc/self/task")),
    )


def smaps() -> dict[str, int]:
    """Resident kB of this process by what they hold (proc(5), smaps)."""
    kinds = dict.fromkeys(("heap", "anonymous", "files", "proportional"), 0)
    kind = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            kind = "anonymous" if len(rest) < 5 else "heap" if rest[4] == "[heap]" else "files"
        elif first == "Rss:":
            kinds[kind] += int(rest[0])
        elif first == "Pss:":
            kinds["proportional"] += int(rest[0])
    return kinds


def _malloc() -> _MallInfo:
    """What glibc's malloc says of itself; zeros elsewhere."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return _MallInfo()
    function.restype = _MallInfo
    found: _MallInfo = function()
    return found


def sqlite_bytes() -> int:
    """What all connections of this process hold (SQLite, sqlite3_memory_used): the pages of their caches above all."""
    import _sqlite3

    function = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used
    function.restype = ctypes.c_int64
    return int(function())


def _keep_looking(path: Path) -> None:
    since_ms, never = clock.monotonic_ms(), threading.Event()
    with path.open("a", buffering=1) as file:
        while not never.wait(EVERY_S):
            file.write(json.dumps(msgspec.to_builtins(look(since_ms))) + "\n")


def main() -> int:
    """Run voicepipe's command line and look."""
    from voicepipe.cli import main as voicepipe

    path = Path(sys.argv.pop(1))
    threading.Thread(target=_keep_looking, args=(path,), daemon=True, name="memory").start()
    return voicepipe()


if __name__ == "__main__":
    sys.exit(main())
