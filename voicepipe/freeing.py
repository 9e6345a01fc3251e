"""Free memory at the end of its work, before the garbage collector's oldest generation runs.

Two things would keep it: parts that hold the whole that holds them, and exceptions that are held by what their
traceback holds. `asyncio.TaskGroup` leaves such exceptions each time it is cancelled or fails.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, ParamSpec

P = ParamSpec("P")


def held_weakly(method: Callable[P, None]) -> Callable[P, None]:
    """Make a function that calls this bound method and does not keep its object; it does nothing once that is gone."""
    owner = weakref.ref(method.__self__)  # type: ignore[attr-defined]
    function = method.__func__  # type: ignore[attr-defined]

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        instance = owner()
        if instance is not None:
            function(instance, *args, **kwargs)

    return call


class FreeingTaskGroup(asyncio.TaskGroup):
    """A task group that, once left, holds neither its task nor what its children raised.

    Its task keeps the exception that ended it, whose traceback keeps the frames that it came through, of which one
    keeps the group: without this none of them would go before the collector comes.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the children, as `asyncio.TaskGroup` does."""
        leaving = super().__aexit__(kind, error, trace)
        del error, trace
        try:
            await leaving
        except BaseException as left:
            _empty_frames(left)
            raise
        finally:
            del leaving
            self._parent_task = None


_LEAVING: Final = asyncio.TaskGroup.__aexit__.__code__


def _empty_frames(error: BaseException) -> None:
    """Empty the frames of task groups that were left by this; no others, which may be of a task that continues."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is _LEAVING:
            with suppress(RuntimeError):  # it still runs
                trace.tb_frame.clear()
        trace = trace.tb_next
