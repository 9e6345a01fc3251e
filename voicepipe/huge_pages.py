"""Keep the memory of a Python process in huge pages (Linux with glibc), which takes less CPU.

A CPU finds a page's address in a small cache, the TLB. Huge pages are of 2 MiB instead of 4 KiB, so the cache covers
more memory. With `madvise` in `ENABLED`, Linux gives them to memory for which a program requests them:

- glibc's malloc requests them if `GLIBC_TUNABLES` is set so when the process starts.
- Python's own allocator of small objects never does, so `PYTHONMALLOC` passes its work to malloc.

Without huge pages, Python's own allocator is the faster one.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

ENABLED: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Linux' setting, with the one in force in brackets: `always [madvise] never`."""

VARIABLES: Final[Mapping[str, str]] = {
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # One arena for all threads: each arena fills its last huge page in part only, and threads rarely allocate at once.
    "MALLOC_ARENA_MAX": "1",
}
"""Environment variables that a process with huge pages is started with."""

CHOSEN_BY_OPERATOR: Final = (*VARIABLES, "LD_PRELOAD")
"""Variables that choose or tune the allocator. Where one is set, it decides."""

MIN_GLIBC: Final = (2, 35)
"""The first version with `glibc.malloc.hugetlb`."""


def variables(environ: Mapping[str, str], libc: tuple[str, str], enabled: str | None) -> Mapping[str, str]:
    """Return the environment variables to add for huge pages; none where they are set or would not help.

    With `always`, Linux gives huge pages without a request, and glibc ignores the variable.

    Args:
        environ: of the process.
        libc: the C library's name and version, as `platform.libc_ver` returns them.
        enabled: the text of `ENABLED`; None: Linux has no huge pages, or this is another system.
    """
    if any(name in environ for name in CHOSEN_BY_OPERATOR):
        return {}
    if enabled is None or "[madvise]" not in enabled:
        return {}
    name, version = libc
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    return VARIABLES if name == "glibc" and numbers >= MIN_GLIBC else {}


def restart_with_huge_pages(enabled: Path = ENABLED) -> None:
    """Start this process again in place, with the same pid and arguments; return if it has huge pages or can't.

    Call it before other threads, sockets and files exist: all are lost.
    """
    try:
        text = enabled.read_text()
    except OSError:
        return
    added = variables(os.environ, platform.libc_ver(), text)
    if not added:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    with suppress(OSError):  # a sandbox may forbid it; the process then runs as it is
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | added)


def environment_without_huge_pages() -> dict[str, str]:
    """Return this process' environment for a program that saves memory; variables of the operator's stay."""
    if not VARIABLES.items() <= os.environ.items():
        return dict(os.environ)
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}
