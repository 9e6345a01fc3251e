"""Drive the core in tests: events in, commands out, with time moved by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from voicepipe.turn.commands import KeepRecord, Notify, Order, WakeAt
from voicepipe.turn.core import Core
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies
from voicepipe.turn.events import Fact, TimePassed
from voicepipe.turn.notifications import Notification
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.states import Agent, Move, User

SESSION = "s"


@dataclass(slots=True)
class CoreDriver:
    """Drive one core by hand, and record all of its commands.

    Timers that the core set fire when `at` passes them, as in a session.
    """

    settings: TurnSettings = field(default_factory=TurnSettings)
    core_settings: CoreSettings = field(default_factory=CoreSettings)
    strategies: Strategies = field(default_factory=lambda: BUILT_IN, kw_only=True)
    now_ms: int = 0
    late_ms: int = 0
    """Delay of timers, as on a busy machine."""

    facts: list[tuple[int, Fact]] = field(default_factory=list)
    """All events that the core received, with their times."""

    orders: list[Order] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    """The state changes, in order."""

    core: Core = field(init=False)
    _wake_ms: int | None = None

    def __post_init__(self) -> None:
        self.core = Core(SESSION, self.settings, self.core_settings, self.strategies)

    def at(self, now_ms: int, *facts: Fact) -> list[Order]:
        """Advance time to `now_ms`, then post these events; return the commands of both."""
        got: list[Order] = []
        while self._wake_ms is not None and self._wake_ms + self.late_ms <= now_ms:
            wake_ms, self._wake_ms = self._wake_ms + self.late_ms, None
            self.now_ms = max(self.now_ms, wake_ms)
            got += self._post(TimePassed())
        self.now_ms = now_ms
        for fact in facts:
            got += self._post(fact)
        return got

    def _post(self, fact: Fact) -> list[Order]:
        self.facts.append((self.now_ms, fact))
        orders = self.core.handle(fact, self.now_ms)
        self.moves += self.core.transitions.moves
        for order in orders:
            if isinstance(order, WakeAt):
                self._wake_ms = order.at_ms
        self.orders += orders
        return list(orders)

    def agent_state(self) -> Agent:
        """Return the agent's state: a method, so that type checkers do not narrow it to the last answer."""
        return self.core.agent.state

    def user_state(self) -> User:
        """Return the user's state."""
        return self.core.user.state

    @property
    def announced(self) -> list[Notification]:
        """Return all notifications to the client."""
        return announced(self.orders)

    @property
    def records(self) -> dict[str, TurnRecord]:
        """Return the latest record of each turn."""
        return {o.record.id: o.record for o in self.orders if isinstance(o, KeepRecord)}


def announced(orders: list[Order]) -> list[Notification]:
    """Return the notifications in these commands."""
    return [order.what for order in orders if isinstance(order, Notify)]


def names(orders: list[Order]) -> list[str]:
    """Return the commands by name; a notification by its own name."""
    flat = (order.what if isinstance(order, Notify) else order for order in orders)
    return [type(what).__name__ for what in flat if not isinstance(what, WakeAt)]
