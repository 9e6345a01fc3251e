"""The signals of a server's process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second signal has its default effect."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def restore_handlers() -> None:
        for each in signals:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(each)

    def stop() -> None:
        stopped.set()
        restore_handlers()

    for each in signals:
        with suppress(NotImplementedError):  # not available on Windows, where Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(each, stop)
    try:
        yield stopped
    finally:
        restore_handlers()


@contextmanager
def on_hang_up(call: Callable[[], None]) -> Iterator[None]:
    """Call this at each SIGHUP, for the duration of the block."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, AttributeError):  # Windows has no such signal
        loop.add_signal_handler(signal.SIGHUP, call)
    try:
        yield
    finally:
        with suppress(NotImplementedError, AttributeError):
            loop.remove_signal_handler(signal.SIGHUP)
