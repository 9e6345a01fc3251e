"""Background tasks of one open stage, all ended when its context is left; and events that take less memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from voicepipe.freeing import FreeingTaskGroup


class AsyncEvent(asyncio.Event):
    """An `asyncio.Event` with a list of waiters: the empty deque of the original takes 760 bytes, and a session has 28
    events.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiters = []  # type: ignore[assignment]


class BackgroundTasks:
    """A task group whose context does not wait for it; see `background_tasks`."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Start `work`, which must convert every failure that is not a bug to a value."""
        task = self._group.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancel all running tasks, at the next iteration of the event loop."""
        for task in tuple(self._running):
            task.cancel()


@asynccontextmanager
async def background_tasks() -> AsyncIterator[BackgroundTasks]:
    """Yield the tasks; leaving cancels them and waits for their end. Exceptions of the body pass unchanged.

    A bare `TaskGroup` would wait for its children and wrap the body's exception in a group.
    """
    failure: Exception | None = None
    async with FreeingTaskGroup() as group:
        owned = BackgroundTasks(group)
        try:
            yield owned
        except Exception as error:
            failure = error
        finally:
            owned.cancel()
    if failure is not None:
        raise failure
