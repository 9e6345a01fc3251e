"""Keep errors of observers away from sessions, and those of background tasks away from the server: each is logged as a
bug of voicepipe, and all else continues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from voicepipe.audio.samples import Samples
from voicepipe.telemetry.journal.port import NO_JOURNAL, Journal
from voicepipe.telemetry.log import log_crash
from voicepipe.turn.commands import Command
from voicepipe.turn.events import Event


@contextmanager
def isolated(what: str) -> Iterator[None]:
    """Log an exception of the block, and continue after the block. `what` names the observer for the log."""
    try:
        yield
    except Exception as bug:
        log_crash(what, bug)


RESTART_S: Final = 5.0
"""Pause before a background task that has failed begins again."""


async def keep_running(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a background task until it returns, or until this is cancelled. Its unexpected errors are logged, and it
    begins again."""
    while True:
        with isolated(name):
            await run()
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # it failed while it was cleaning up
            return
        await asyncio.sleep(RESTART_S)


class IsolatedJournal:
    """A journal that may fail: after its first error it gets no more events, since a journal with a gap can't be
    replayed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def record(self, now_ms: int, event: Event, commands: tuple[Command, ...]) -> None:
        """See `Journal`."""
        self._try(lambda journal: journal.record(now_ms, event, commands))

    def user_audio(self, samples: Samples, rate_hz: int) -> None:
        """See `Journal`."""
        self._try(lambda journal: journal.user_audio(samples, rate_hz))

    def agent_audio(self, samples: Samples, rate_hz: int) -> None:
        """See `Journal`."""
        self._try(lambda journal: journal.agent_audio(samples, rate_hz))

    def close(self) -> None:
        """See `Journal`."""
        self._try(lambda journal: journal.close())

    def _try(self, call: Callable[[Journal], None]) -> None:
        try:
            call(self._journal)
        except Exception as bug:
            self._journal = NO_JOURNAL
            log_crash("journal", bug)
