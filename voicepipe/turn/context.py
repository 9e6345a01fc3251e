"""The shared state of both sides of a turn: conversation, settings, ids, deadlines, and the commands of this event."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from voicepipe.turn.commands import Command, Notify
from voicepipe.turn.conversation import Conversation, Item
from voicepipe.turn.conversation_limits import ModelHistory, leaving
from voicepipe.turn.cost import CostTracker
from voicepipe.turn.endpointing.stt_timing import SttTiming
from voicepipe.turn.notifications import ItemDeleted, Notification, Refused
from voicepipe.turn.projection import UsualTimes
from voicepipe.turn.record.loop_stalls import MOST, Stall, noted
from voicepipe.turn.record.values import Cause
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.speculation import SpeculationStats
from voicepipe.turn.timers import Timers
from voicepipe.turn.turn import Turn


class Learned:
    """The statistics of this session's turns: usual durations, whether early replies pay, and what was spent."""

    def __init__(self, core: CoreSettings) -> None:
        self.usual = UsualTimes(core.budget)
        self.finals = SttTiming()
        self.speculation = SpeculationStats()
        self.cost_tracker = CostTracker(core.prices)


@dataclass(slots=True)
class Turns:
    """The turns of this session, as far as the core still acts on them."""

    begun: list[Turn] = field(default_factory=list)
    """Turns that the latest event began."""

    failed: list[Turn] = field(default_factory=list)
    """Turns that the latest event failed, and whose user gets an apology."""

    running: list[Turn] = field(default_factory=list)
    """Turns without an outcome, and perhaps some that have got an outcome meanwhile."""

    # Bounded: the oldest is dropped. Running turns have their own.
    stalls: deque[Stall] = field(default_factory=lambda: deque(maxlen=MOST))
    """When the event loop was blocked lately."""

    def begin(self, turn: Turn) -> None:
        """Add a turn."""
        turn.account.stalls = list(self.stalls)
        self.begun.append(turn)
        self.running = [each for each in self.running if each.outcome is None] + [turn]

    def note_stall(self, stall: Stall) -> None:
        """Record that the event loop was blocked: this may have delayed any running turn, and the next turn."""
        self.stalls.append(stall)
        for turn in self.running:
            if turn.outcome is None:
                turn.account.stalls = noted(turn.marks, turn.account.stalls, stall)


@dataclass(slots=True)
class TurnContext:
    """The shared context of one session. Pure: it only remembers, counts and collects."""

    session: str
    """The prefix in the ids of this session's items, responses and turns."""

    core: CoreSettings
    settings: TurnSettings
    conversation: Conversation = field(default_factory=Conversation)
    commands: list[Command] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    phrases: frozenset[str] = frozenset()
    """Phrases whose audio is cached."""

    timers: Timers = field(init=False)
    learned: Learned = field(init=False)
    turns: Turns = field(default_factory=Turns)
    history: ModelHistory = field(init=False)

    def __post_init__(self) -> None:
        self.timers = Timers(self.core.deadlines)
        self.learned = Learned(self.core)
        self.history = ModelHistory(self.core.conversation)

    def issue(self, what: Command) -> None:
        self.commands.append(what)

    def notify(self, what: Notification) -> None:
        self.commands.append(Notify(what))

    def refuse(self, event_id: str | None, code: str, message: str, field_name: str | None = None) -> None:
        self.notify(Refused(event_id, code, message, field_name))

    def join(self, item: Item) -> str | None:
        """Put an item of a spoken turn last, which is never refused; return the id before it.

        If the conversation is full, the oldest items leave. An item that a client put under its id is replaced.
        """
        for item_id in leaving(self.conversation, self.core.conversation, item):
            self.conversation.delete(item_id)
            self.notify(ItemDeleted(item_id))
        if self.conversation.find(item.id) is not None:
            self.notify(ItemDeleted(item.id))
        return self.conversation.claim(item)

    def read_by_model(self) -> tuple[Item, ...]:
        """Return the items of the conversation that the LLM reads."""
        return self.history.of(self.conversation)

    def new_id(self, kind: str) -> str:
        """Return the next id of that kind: `item_SESSION_0001`."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return f"{kind}_{self.session.removeprefix('sess_')}_{self.counts[kind]:04d}"

    def new_turn(self, cause: Cause) -> Turn:
        turn_id = self.new_id("turn")
        turn = Turn(self.counts["turn"], turn_id, cause, settings=self.settings.reply)
        self.turns.begin(turn)
        return turn
