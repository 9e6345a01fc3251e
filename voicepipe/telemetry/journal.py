"""What a session writes its facts and orders to: any of these, or nothing."""

from __future__ import annotations

from typing import Protocol

from voicepipe.audio.samples import Samples
from voicepipe.turn.commands import Order
from voicepipe.turn.events import Fact
from voicepipe.turn.journal import Opening


class Journal(Protocol):
    """Takes what a session does. Every call returns at once, and none raises."""

    def note(self, now_ms: int, fact: Fact, orders: tuple[Order, ...]) -> None:
        """The core was told this fact, and ordered that."""
        ...

    def heard(self, samples: Samples, rate_hz: int) -> None:
        """The caller's sound came: int16, (n_samples,)."""
        ...

    def said(self, samples: Samples, rate_hz: int) -> None:
        """This sound of the agent's goes to the client: int16, (n_samples,)."""
        ...

    def close(self) -> None:
        """The session is over."""
        ...


class NoJournal:
    """Keeps nothing."""

    def note(self, now_ms: int, fact: Fact, orders: tuple[Order, ...]) -> None: ...
    def heard(self, samples: Samples, rate_hz: int) -> None: ...
    def said(self, samples: Samples, rate_hz: int) -> None: ...
    def close(self) -> None: ...


NO_JOURNAL = NoJournal()


def no_journal(opening: Opening) -> Journal:
    """Write nothing down."""
    return NO_JOURNAL
