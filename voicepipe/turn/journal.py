"""A session as its events reached the core: its initial values, and each event with the commands that followed.

The core is pure, so the journal is complete: the same events given to the core of `rebuilt` give the same commands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from voicepipe.turn.commands import Command
from voicepipe.turn.core import Core
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies
from voicepipe.turn.events import Event
from voicepipe.turn.settings import CoreSettings, TurnSettings


@dataclass(frozen=True, slots=True)
class Opening:
    """The initial values of a core."""

    session: str
    settings: TurnSettings
    core: CoreSettings
    strategies: Strategies = field(default_factory=lambda: BUILT_IN, compare=False)
    """By the names that the settings use: code, so a journal has only the names."""

    def rebuilt(self) -> Core:
        """Return a core in the state that the session's core had at its beginning."""
        return Core(self.session, self.settings, self.core, self.strategies)


@dataclass(frozen=True, slots=True)
class Entry:
    """One event, when it came, and the commands of the core."""

    now_ms: int
    event: Event
    commands: tuple[Command, ...]
