"""A session as the core lived it: what it began with, and each fact with the orders that followed.

The core is pure, so this is all there is to know: the same facts told to `rebuilt` again give the same orders.
"""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.turn.commands import Order
from voicepipe.turn.events import Fact
from voicepipe.turn.machine import Core
from voicepipe.turn.settings import CoreSettings, TurnSettings


@dataclass(frozen=True, slots=True)
class Opening:
    """What a core begins with."""

    session: str
    settings: TurnSettings
    core: CoreSettings

    def rebuilt(self) -> Core:
        """A core like the one that the session had, at its beginning."""
        return Core(self.session, self.settings, self.core)


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact, when it was told, and what the core ordered."""

    now_ms: int
    fact: Fact
    orders: tuple[Order, ...]
