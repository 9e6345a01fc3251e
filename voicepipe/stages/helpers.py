"""The background tasks of one open stage, all ended when its context is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from voicepipe.freeing import FreeingTaskGroup


class Helpers:
    """A task group that its context's body does not wait for; see `helpers`."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Begin `work`, which must turn every failure that is not a bug into a value."""
        task = self._group.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """End all that still runs, at the next turn of the loop."""
        for task in tuple(self._running):
            task.cancel()


@asynccontextmanager
async def helpers() -> AsyncIterator[Helpers]:
    """Leaving cancels the helpers and waits until they are gone. What the body raises leaves as it is.

    A bare `TaskGroup` would wait for its children and wrap the body's failure in a group.
    """
    failure: Exception | None = None
    async with FreeingTaskGroup() as group:
        owned = Helpers(group)
        try:
            yield owned
        except Exception as error:
            failure = error
        finally:
            owned.cancel()
    if failure is not None:
        raise failure
