"""Read the CPU time and the memory of a process and its children from /proc (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The resources of a process and its children so far."""

    cpu_s: float
    rss_bytes: int


def read_usage(pid: int) -> ProcessUsage:
    """Return the usage of a process and all its children. A process that has ended counts 0.

    Source: proc(5), `/proc/PID/stat`, fields 14 and 15 (ticks of CPU) and 24 (pages).
    """
    cpu_ticks = pages = 0
    for each in _family(pid):
        fields = _fields(each)
        if fields:
            cpu_ticks += int(fields[11]) + int(fields[12])
            pages += int(fields[21])
    return ProcessUsage(cpu_ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))


def is_readable() -> bool:
    """Return whether this system has /proc."""
    return bool(_fields(os.getpid()))


def _fields(pid: int) -> list[str]:
    """Return the fields of a process behind its name, which may hold blanks; none when it has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))
