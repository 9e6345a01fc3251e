"""Await code that may not end when it is cancelled: functions and hooks of an agent's author."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from functools import partial
from types import coroutine
from typing import Any, Final, TypeVar

GRACE_S: Final = 1.0
"""The time that such code has to end after its time limit."""

_Result = TypeVar("_Result")


@coroutine
def closed_after(limit_s: float, work: Coroutine[Any, Any, _Result]) -> Generator[Any, Any, _Result]:
    """Return or raise what `work` does; `limit_s` and `GRACE_S` later it is closed where it waits.

    For use in `asyncio.timeout(limit_s)`, which waits for as long as `work` ignores its cancellation. A cancellation
    before the limit is handed to `work` as ever: its own time limits cancel its task, too.

    Raises:
        asyncio.CancelledError: it was closed.
    """
    task = asyncio.current_task()
    assert task is not None, "it is awaited in a task"
    is_closed = False

    def close() -> None:
        nonlocal is_closed
        is_closed = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(limit_s + GRACE_S, close)
    go_on = partial(work.send, None)
    try:
        while True:
            try:
                awaited = go_on()
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                yield awaited
                go_on = partial(work.send, None)
            except BaseException as error:
                if is_closed:
                    task.uncancel()
                    raise
                go_on = partial(work.throw, error)
    finally:
        timer.cancel()
        del go_on  # it may hold an error, whose traceback holds this
        with suppress(BaseException):  # it may ignore this too, or fail at its end
            work.close()


def cancelled_by_itself() -> bool:
    """Return whether a `CancelledError` was raised by the code that was awaited, and nothing has cancelled the task."""
    task = asyncio.current_task()
    return task is not None and not task.cancelling()
