"""Keep errors of observers away from sessions: a failing observer is logged as a bug of voicepipe, and the session
continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


class IsolatedJournal:
    """A journal that may fail: it is left out from then on, since a journal with a gap can't be replayed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def note(self, now_ms: int, event: Event, commands: tuple[Command, ...]) -> None:
        """See `Journal`."""
        self._try(lambda journal: journal.note(now_ms, event, commands))

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
