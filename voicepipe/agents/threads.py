"""Run an operator's functions that are not async: in threads that nothing else needs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

from voicepipe.clock import outside_work
from voicepipe.ports.server_tool import ToolError

MAX_THREADS: Final = 64
"""Functions that run at once in this process; more are refused. A function that never returns keeps its thread."""

_running = threading.BoundedSemaphore(MAX_THREADS)


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Return or raise what `function` does. If it is cancelled, the function runs on, and its result is dropped.

    The thread is not one of the event loop's few, which look up the addresses of providers too: functions that hang
    would stop every session. It is a daemon: a function that hangs does not keep the process from ending.

    Raises:
        ToolError: `MAX_THREADS` functions run.
    """
    if not _running.acquire(blocking=False):
        raise ToolError(f"Too many functions run at once (limit {MAX_THREADS}).")
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def finish(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def run() -> None:
        result, failure = None, None
        try:
            result = context.run(function)
        except BaseException as error:  # as if the function ran in the task that waits for it
            failure = error
        finally:
            _running.release()
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(finish, result, failure)

    try:
        threading.Thread(target=run, name="tool", daemon=True).start()
    except RuntimeError:  # the system has no threads left
        _running.release()
        raise
    with outside_work():
        result, error = await done
    if error is not None:
        raise error
    return result
