"""Run a bench's program on the fastest installed event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_fast(program: Coroutine[Any, Any, T]) -> T:
    """Run to the end, on uvloop if installed: a slow load generator would measure itself."""
    with asyncio.Runner(loop_factory=_fastest()) as runner:
        return runner.run(program)


def _fastest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
