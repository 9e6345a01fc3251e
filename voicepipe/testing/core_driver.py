"""Drive the core in tests: events in, commands out, with time moved by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from voicepipe.testing.transitions import illegal_moves
from voicepipe.turn.commands import Command, Notify, StoreRecord, WakeAt
from voicepipe.turn.core import Core
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies
from voicepipe.turn.events import Event, TimePassed
from voicepipe.turn.notifications import Notification
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.states import AgentState, Move, UserState

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

    events: list[tuple[int, Event]] = field(default_factory=list)
    """All events that the core received, with their times."""

    commands: list[Command] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    """The state changes, in order."""

    core: Core = field(init=False)
    _wake_ms: int | None = None

    def __post_init__(self) -> None:
        self.core = Core(SESSION, self.settings, self.core_settings, self.strategies)

    def at(self, now_ms: int, *events: Event) -> list[Command]:
        """Advance time to `now_ms`, then post these events; return the commands of both."""
        got: list[Command] = []
        while (wake_ms := self.wakes_at_ms) is not None and wake_ms <= now_ms:
            self._wake_ms = None
            self.now_ms = max(self.now_ms, wake_ms)
            got += self._post(TimePassed())
        self.now_ms = now_ms
        for event in events:
            got += self._post(event)
        return got

    @property
    def wakes_at_ms(self) -> int | None:
        """Return when the next timer fires; None: none is set."""
        return None if self._wake_ms is None else self._wake_ms + self.late_ms

    def _post(self, event: Event) -> list[Command]:
        self.events.append((self.now_ms, event))
        commands = self.core.handle(event, self.now_ms)
        self.moves += self.core.transitions.moves
        for command in commands:
            if isinstance(command, WakeAt):
                self._wake_ms = command.at_ms
        self.commands += commands
        return list(commands)

    def agent_state(self) -> AgentState:
        """Return the agent's state: a method, so that type checkers do not narrow it to the last answer."""
        return self.core.agent.state

    def user_state(self) -> UserState:
        """Return the user's state."""
        return self.core.user.state

    @property
    def illegal_moves(self) -> list[str]:
        """Return the state changes that the transition table does not name: bugs."""
        return illegal_moves(self.moves)

    @property
    def announced(self) -> list[Notification]:
        """Return all notifications to the client."""
        return announced(self.commands)

    @property
    def records(self) -> dict[str, TurnRecord]:
        """Return the latest record of each turn."""
        return {o.record.id: o.record for o in self.commands if isinstance(o, StoreRecord)}


def announced(commands: list[Command]) -> list[Notification]:
    """Return the notifications in these commands."""
    return [command.what for command in commands if isinstance(command, Notify)]


def names(commands: list[Command]) -> list[str]:
    """Return the commands by name; a notification by its own name."""
    flat = (command.what if isinstance(command, Notify) else command for command in commands)
    return [type(what).__name__ for what in flat if not isinstance(what, WakeAt)]
