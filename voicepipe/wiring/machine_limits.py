"""The cores that this process may use, and the limits of its control group: that of a container or a systemd unit.

Each limit is a file of the group (Linux, Control Group v2), and those of the groups around it count too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

GROUPS: Final = Path("/sys/fs/cgroup")
OWN_GROUP: Final = Path("/proc/self/cgroup")


class ControlGroup(Struct, frozen=True):
    """The control group of this process."""

    groups: Path = GROUPS
    """Where the kernel shows all groups."""

    own: Path = OWN_GROUP
    """The file with the path of this process's group in there."""

    def cores(self) -> int:
        """Return how many cores this process may use, at least one."""
        try:
            allowed = len(os.sched_getaffinity(0))
        except AttributeError:  # macOS
            allowed = os.cpu_count() or 1
        for text in self._limits("cpu.max"):
            with suppress(ValueError):  # `max`, without a number
                quota_us, period_us = map(int, text.split())
                allowed = min(allowed, quota_us // period_us)
        return max(1, allowed)

    def memory_mb(self) -> int | None:
        """Return how much memory this process may use, in MB: the machine's, or a limit; None: it is not known."""
        found: list[int] = []
        with suppress(AttributeError, ValueError, OSError):  # not Unix
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1_000_000)
        for text in self._limits("memory.max"):
            with suppress(ValueError):  # `max`
                found.append(int(text) // 1_000_000)
        return min(found, default=None)

    def _limits(self, name: str) -> Iterator[str]:
        """Yield the text of this limit, of the process's group and of the groups around it."""
        try:
            lines = self.own.read_text().splitlines()
        except OSError:  # not Linux
            return
        path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
        group = self.groups / path
        while group.is_relative_to(self.groups):
            with suppress(OSError):
                yield (group / name).read_text()
            group = group.parent
