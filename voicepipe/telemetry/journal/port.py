"""The port for a session's events and commands, and a journal that stores nothing."""

from __future__ import annotations

from typing import Protocol

from voicepipe.audio.samples import Samples
from voicepipe.turn.commands import Command
from voicepipe.turn.events import Event
from voicepipe.turn.journal import Opening


class Journal(Protocol):
    """Records a session's events and commands. Every method returns at once, and none raises."""

    def record(self, now_ms: int, event: Event, commands: tuple[Command, ...]) -> None:
        """Record an event given to the core, and the commands that followed."""
        ...

    def user_audio(self, samples: Samples, rate_hz: int) -> None:
        """Record the user's audio: int16, (n_samples,)."""
        ...

    def agent_audio(self, samples: Samples, rate_hz: int) -> None:
        """Record the agent's audio that goes to the client: int16, (n_samples,)."""
        ...

    def close(self) -> None:
        """End the journal: the session is over."""
        ...


class NoJournal:
    """A journal that stores nothing."""

    def record(self, now_ms: int, event: Event, commands: tuple[Command, ...]) -> None: ...
    def user_audio(self, samples: Samples, rate_hz: int) -> None: ...
    def agent_audio(self, samples: Samples, rate_hz: int) -> None: ...
    def close(self) -> None: ...


NO_JOURNAL = NoJournal()


def no_journal(opening: Opening) -> Journal:
    """Return a journal that stores nothing."""
    return NO_JOURNAL
