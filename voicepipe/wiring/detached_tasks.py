"""Tasks that outlast their session: calls with side effects, and hooks after it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

STOP_S: Final = 10.0
"""Seconds that they have when the server stops."""


class DetachedTasks:
    """Starts detached tasks in the server's group. Each has a time limit of its own."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start `work`, which must convert every failure to a value."""
        task = self._group.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def stop(self) -> None:
        """Cancel in `STOP_S` what still runs then. The group waits for it until then."""
        for task in self._running:
            asyncio.get_running_loop().call_later(STOP_S, task.cancel)
