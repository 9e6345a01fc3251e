"""The shared state of both sides of a turn: conversation, settings, ids, timers, and the commands of this event."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from voicepipe.turn.commands import Command, Notify
from voicepipe.turn.conversation import Conversation, Item, OutputAudio
from voicepipe.turn.conversation_limits import ModelHistory, leaving
from voicepipe.turn.cost import CostTracker
from voicepipe.turn.endpointing.stt_timing import SttTiming
from voicepipe.turn.notifications import ItemDeleted, Notification, Refused
from voicepipe.turn.projection import UsualTimes
from voicepipe.turn.record.attribution import MAX_STALLS, StallInterval, with_stall
from voicepipe.turn.record.values import Cause
from voicepipe.turn.reply import LookUp
from voicepipe.turn.settings import CoreSettings, Deadlines, ReplySettings, TurnSettings
from voicepipe.turn.speculation import SpeculationStats
from voicepipe.turn.states import Gate, Move, State
from voicepipe.turn.turn import Turn

# --- timers: every state that can last has one, so that nothing waits forever -----------------


class Due(IntEnum):
    """The kinds of timers. When several run out at the same time, the first kind here is handled first."""

    VAD_CONFIRMS = 1
    """Without a pause in the VAD by then, the STT was wrong about the end of speech."""

    FILLER = 2
    """The answer is late: a filler is said."""

    FINAL_TEXT = 3
    """The utterance's interim text is used for now."""

    FIRST_OUTPUT = 4
    """The reply has nothing to say yet, and fails."""

    HOLDING = 5
    """The pause ends the turn, although the VAD reports no silence."""

    IDLE = 6
    """Both sides have been silent for long: the agent speaks."""

    IRREVOCABLE = 7
    """The end of the turn can no longer be taken back: further speech is a new turn."""

    OVERLAP = 8
    """Speech over the agent's is dropped: it neither ends nor becomes an interruption."""

    PLAYBACK = 9
    """A reply has been played."""

    PROGRESS = 10
    """The reply has not advanced, and fails."""

    REPLY = 11
    """The reply is not complete, and fails."""

    SHORTEN = 12
    """The first clause is cut at a word."""

    TRANSCRIPT = 13
    """The utterance's transcript is lost."""

    UTTERANCE = 14
    """The user has spoken for the longest time allowed: the turn ends."""

    INTERRUPTION = 15
    """The agent's volume is restored: nothing has shown that the user interrupts."""

    WATCHDOG = 16
    """Work is ended that no other timer would end."""

    TOOL = 17
    """A turn whose tools have not returned is over."""

    CONTINUE = 18
    """The reply that a sound of the user has stopped goes on: no words of it have come."""

    EFFECTS = 19
    """The function calls and the outcome of a turn that ended softly may leave."""

    REVERSIBLE = 20
    """The answer to a turn that ended softly can no longer be taken back."""


class Timer(NamedTuple):
    """One timer: what is due, and of which utterance (the texts) or which turn (the reply)."""

    due: Due
    number: int = 0


NEVER_MS: Final = 1 << 62
"""Later than any session time."""

_BESIDE_WORK: Final = frozenset((Timer(Due.IDLE), Timer(Due.WATCHDOG), Timer(Due.TOOL), Timer(Due.REVERSIBLE)))
"""The timers that end no work under way."""


class Timers:
    """The times of all timers. Pure: the class issues no command itself."""

    def __init__(self, limits: Deadlines) -> None:
        self._limits = limits
        self.due: dict[Timer, int] = {}
        """Timer -> session ms."""

        self.lost_ms: int | None = None
        """The time at which the connection was lost: time stands still for all timers until it is back."""

        self.changed = False
        """A timer was set or cleared since the latest call of `wake_ms`."""

        self.nearest_ms = NEVER_MS
        """When the first of the timers runs out, as of the latest call of `wake_ms`."""

        self._armed_ms: int | None = None

    def set(self, timer: Timer, at_ms: int) -> None:
        """Set a timer, or move it."""
        self.due[timer] = at_ms
        self.changed = True

    def clear(self, *timers: Timer) -> bool:
        """Clear these timers; return whether any of them was set."""
        found = [timer for timer in timers if self.due.pop(timer, None) is not None]
        self.changed = self.changed or bool(found)
        return bool(found)

    def clear_all(self) -> None:
        """Clear every timer: the session is over."""
        self.due.clear()
        self.changed = True

    @property
    def end_work(self) -> bool:
        """Return whether a timer is set that ends work under way."""
        return bool(self.due.keys() - _BESIDE_WORK)

    @property
    def unguarded(self) -> bool:
        """Return whether no timer would end work under way, or only the watchdog's."""
        return Timer(Due.WATCHDOG) in self.due or not self.end_work

    # --- a reply ------------------------------------------------------------------------------

    def await_output(self, turn: int, now_ms: int) -> None:
        """Start the first-output timeout and the timeout of the whole reply."""
        self.set(Timer(Due.FIRST_OUTPUT, turn), now_ms + self._limits.first_output_ms)
        self.set(Timer(Due.REPLY, turn), now_ms + self._limits.reply_ms)

    def output_came(self, turn: int) -> None:
        """Stop the first-output timeout: there is output."""
        self.clear(Timer(Due.FIRST_OUTPUT, turn))

    def await_progress(self, turn: int, now_ms: int) -> None:
        """Restart the progress timeout: the reply has advanced."""
        self.set(Timer(Due.PROGRESS, turn), now_ms + self._limits.progress_ms)

    def await_nothing(self, turn: int) -> None:
        """Stop all timeouts of this reply."""
        self.clear(Timer(Due.FIRST_OUTPUT, turn), Timer(Due.PROGRESS, turn), Timer(Due.REPLY, turn))

    # --- time ---------------------------------------------------------------------------------

    def lose_connection(self, now_ms: int) -> None:
        """Stop time for all timers."""
        if self.lost_ms is None:
            self.lost_ms = now_ms

    def resume(self, now_ms: int) -> None:
        """Resume after a reconnect: move every timer by the time that the connection was down."""
        away_ms = now_ms - (now_ms if self.lost_ms is None else self.lost_ms)
        self.due = {timer: at_ms + away_ms for timer, at_ms in self.due.items()}
        self.lost_ms = self._armed_ms = None
        self.changed = True

    def wake_ms(self) -> int | None:
        """Return when to wake up for the nearest timer; None if a wake-up is set that comes no later."""
        self.changed = False
        self.nearest_ms = min(self.due.values(), default=NEVER_MS)
        if not self.due or self.lost_ms is not None:
            return None
        if self._armed_ms is not None and self.nearest_ms >= self._armed_ms:
            return None
        self._armed_ms = self.nearest_ms
        return self.nearest_ms

    def passed(self, now_ms: int) -> list[Timer]:
        """Handle a wake-up: clear and return the timers that have run out, nearest first. None while the connection is
        down.
        """
        self._armed_ms, self.changed = None, True
        if self.lost_ms is not None:
            return []
        out = sorted((at_ms, timer) for timer, at_ms in self.due.items() if at_ms <= now_ms)
        for _, timer in out:
            del self.due[timer]
        return [timer for _, timer in out]


# --- what else both sides share ---------------------------------------------------------------


@dataclass(slots=True)
class Transitions:
    """The moves of the latest event."""

    event: type = object
    """The kind of the latest event."""

    moves: list[Move] = field(default_factory=list)
    changed: bool = False
    """The latest event has moved a machine, or a reply has begun, become audible, or ended."""

    def move(self, source: State, target: State) -> State:
        """Go from `source` to `target`; return the machine's state."""
        if target is not source:
            self.moves.append(Move(source, self.event, target))
            self.changed = True
        return target


class Learned:
    """The statistics of this session's turns: usual durations, whether early replies pay, and what was spent."""

    def __init__(self, core: CoreSettings) -> None:
        self.usual = UsualTimes(core.budget)
        self.finals = SttTiming()
        self.speculation = SpeculationStats()
        self.cost_tracker = CostTracker(core.prices)
        self.used_tokens = 0
        """Tokens that the LLMs have read and written for all replies but the speculative ones that were dropped."""

    def reply_ended(self, turn: Turn) -> None:
        """Record that a reply is cancelled or over."""
        if turn.reply.speculative:
            self.speculation.dropped(turn)
        else:
            self.used_tokens += turn.tokens.input + turn.tokens.output


@dataclass(slots=True)
class Turns:
    """The turns of this session, as far as the core still acts on them."""

    begun: list[Turn] = field(default_factory=list)
    """Turns that the latest event began, in a session that watches its turns."""

    failed: list[Turn] = field(default_factory=list)
    """Turns that the latest event failed, and whose user gets an apology."""

    awaits_tools: Turn | None = None
    """The latest turn whose reply has called functions, until their results are answered or it is over."""

    soft: dict[int, Turn] = field(default_factory=dict)
    """The turns whose function calls and outcome wait, since they ended softly, by number. Each has a timer."""

    calls: dict[tuple[int, str], Turn] = field(default_factory=dict)
    """The calls that the server runs now: (turn, id of the call) -> the turn. Each has a time limit."""

    look_ups: dict[tuple[int, int, str], LookUp] = field(default_factory=dict)
    """The functions that run early: (turn, revision, id of the call) -> the look-up. Each has a time limit."""

    approvals: dict[str, Turn] = field(default_factory=dict)
    """Calls that wait for the client's approval: the id of the item with the request -> the turn. At most
    `MAX_APPROVALS`."""

    tools_overtaken: bool = False
    """The user, or a request of the client, has begun another turn meanwhile."""

    running: list[Turn] = field(default_factory=list)
    """Turns without an outcome, and perhaps some that have got an outcome meanwhile."""

    # Bounded: the oldest is dropped. Running turns have their own.
    stalls: deque[StallInterval] = field(default_factory=lambda: deque(maxlen=MAX_STALLS))
    """When the event loop was blocked lately."""

    def begin(self, turn: Turn, *, watched: bool) -> None:
        """Add a turn."""
        turn.account.stalls = list(self.stalls)
        self.begun += [turn] if watched else []
        self.running = [each for each in self.running if each.outcome is None] + [turn]

    def add_stall(self, stall: StallInterval) -> None:
        """Record that the event loop was blocked: this may have delayed any running turn, and the next turn."""
        self.stalls.append(stall)
        for turn in self.running:
            if turn.outcome is None:
                turn.account.stalls = with_stall(turn.marks, turn.account.stalls, stall)


MAX_APPROVALS: Final = 64
"""Number of calls that wait for approval; of more the oldest can no longer be approved."""

REMEMBERED_REQUESTS: Final = 16
"""Number of the latest requests whose `event_id` is remembered; a client names at most 4."""

REMEMBERED_TURNS: Final = 8
"""Number of the latest replies that can still be truncated to what the user heard."""


class RunningReplies:
    """The turns of the agent's side: one of the conversation, those before it that still play, and those beside it."""

    def __init__(self) -> None:
        self.turn: Turn | None = None
        """The turn whose reply is being generated or played."""

        self.tails: list[Turn] = []
        """Turns whose reply is complete and still playing while the next one is made."""

        self.restored: list[Turn] = []
        """Turns whose reply another process had begun or was requested to make: it is started here, one at a time."""

        self._ended: list[Turn] = []
        """The latest closed turns: a client may still report how much of them was played."""

        self._out_of_band: dict[int, Turn] = {}
        """Out-of-band replies, by turn."""

    def start(self, turn: Turn) -> None:
        """Add a turn. The reply before it in the conversation may still be playing."""
        if not turn.settings.in_conversation:
            self._out_of_band[turn.number] = turn
            return
        if self.turn is not None:
            self.tails.append(self.turn)
        self.turn = turn

    def end(self, turn: Turn) -> None:
        """Store a closed turn, which no longer runs. The conversation's own turn runs until `drop_current`."""
        self._ended = [*self._ended[1 - REMEMBERED_TURNS :], turn]
        self._out_of_band.pop(turn.number, None)
        if turn in self.tails:
            self.tails.remove(turn)

    def drop_current(self) -> None:
        """Drop the conversation's reply; an earlier reply may still be playing."""
        self.turn = self.tails.pop() if self.tails else None

    @property
    def all(self) -> tuple[Turn, ...]:
        """Return every turn whose reply runs: those that only play first, those outside the conversation last."""
        return (*self.of_conversation, *self._out_of_band.values())

    @property
    def of_conversation(self) -> tuple[Turn, ...]:
        """Return the turns of the conversation whose reply runs, in order."""
        return (*self.tails, *((self.turn,) if self.turn else ()))

    @property
    def busy(self) -> bool:
        """Return whether a reply of the conversation is being generated; one that only plays does not count."""
        return self.turn is not None and (self.turn.reply.response_open or self.turn.reply.gate is not Gate.OPEN)

    @property
    def n_out_of_band(self) -> int:
        """Return how many out-of-band replies run."""
        return len(self._out_of_band)

    @property
    def out_of_band(self) -> list[ReplySettings]:
        """Return the settings of each out-of-band reply."""
        return [turn.settings for turn in self._out_of_band.values()]

    @property
    def playing(self) -> Turn | None:
        """Return the turn of the conversation whose audio plays or may play any moment, or None."""
        released = (t for t in (*self.tails, self.turn) if t and t.reply.gate is Gate.OPEN)
        return next((t for t in released if t.settings.audible and t.audio.arrived_ms), None)

    def words_between(self, from_ms: int, to_ms: int, now_ms: int) -> str:
        """Return what the agent said between two instants of the session, or will have said by the later instant."""
        spoken = []
        for turn in self.of_conversation:
            played_ms = turn.audio.played_ms(now_ms) - now_ms
            speech = OutputAudio("", tuple(turn.reply.clauses))
            spoken.append(speech.played_until(played_ms + to_ms)[len(speech.played_until(played_ms + from_ms)) :])
        return " ".join(spoken)

    def find(self, turn: int, revision: int) -> Turn | None:
        """Return the running turn of that number and revision, or None when the event is stale."""
        current = self.turn
        if current is not None and current.number == turn and current.reply.revision == revision:
            return current  # nearly always
        return next((t for t in self.all if t.number == turn and t.reply.revision == revision), None)

    def filled(self, number: int, waiting: Turn | None) -> Turn | None:
        """Return the turn to which a filler belongs that was said while the tools of reply `number` ran: `waiting`, the
        turn that waits for them, or its answer.
        """
        if waiting is not None and waiting.number == number:
            return waiting
        return next((t for t in self.all if t.before is not None and t.before.number == number), None)

    def remembered(self, item_id: str) -> Turn | None:
        """Return the turn that made this item, if it still runs or ended lately."""
        return next((t for t in (*self._ended, *self.all) if t.reply.item_id == item_id), None)

    def item_added(self, item_id: str, previous: str | None, *, last: bool) -> None:
        """Record that an item was added, perhaps behind what a running or a restored reply has read."""
        for turn in (*self.of_conversation, *self.restored):
            later, is_made = turn.reply.later_items, turn.reply.response_open or turn.reply.gate is not Gate.OPEN
            if is_made and (last or previous in later):
                later.add(item_id)

    def drop_later(self, item_id: str) -> None:
        """Drop an item that has left the conversation: the client may use its id again."""
        for turn in (*self.of_conversation, *self.restored):
            turn.reply.later_items.discard(item_id)

    def item_deleted(self, item_id: str) -> None:
        """Stop writing into an item that the client has deleted."""
        self.drop_later(item_id)
        for turn in (*self._ended, *self.all):
            if item_id in (*turn.reply.started_items, turn.filler.item_id):
                turn.deleted_items.add(item_id)


@dataclass(slots=True)
class TurnContext:
    """The shared context of one session. Pure: it only stores, counts and collects."""

    session: str
    """The prefix in the ids of this session's items, responses and turns."""

    core: CoreSettings
    settings: TurnSettings
    conversation: Conversation = field(default_factory=Conversation)
    commands: list[Command] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """Kind of ID -> the number of the latest one."""

    skipped_ids: int = 0
    """Numbers that the first IDs of other kinds skip."""

    user_language: str | None = None
    """The language that the STT detected last, as BCP-47, if the agent follows the user's; None: none so far."""

    phrases: frozenset[str] = frozenset()
    """Phrases whose audio is cached."""

    transitions: Transitions = field(default_factory=Transitions)
    timers: Timers = field(init=False)
    learned: Learned = field(init=False)
    turns: Turns = field(default_factory=Turns)
    replies: RunningReplies = field(default_factory=RunningReplies)
    history: ModelHistory = field(default_factory=ModelHistory)
    # Full: the oldest is dropped. A client names only requests whose answer it has not received.
    requests: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED_REQUESTS))
    """The `event_id` of each request for a reply that was accepted."""

    def __post_init__(self) -> None:
        self.timers = Timers(self.core.deadlines)
        self.learned = Learned(self.core)

    def issue(self, what: Command) -> None:
        self.commands.append(what)

    def notify(self, what: Notification) -> None:
        self.commands.append(Notify(what))

    def refuse(self, event_id: str | None, code: str, message: str, field_name: str | None = None) -> None:
        self.notify(Refused(event_id, code, message, field_name))

    def record_request(self, event_id: str | None) -> None:
        """Store a client's request for a reply: another process does not make that reply again."""
        if event_id is not None:
            self.requests.append(event_id)

    def join(self, item: Item, *, before: Collection[str] = ()) -> str | None:
        """Put an item of a spoken turn last, which is never refused; return the id before it.

        If the conversation is full, the oldest items leave. An item that a client put under its id is replaced. Items
        of `before` that are the conversation's last stay behind it.
        """
        for item_id in leaving(self.conversation, self.core.conversation, item):
            self.conversation.delete(item_id)
            self.replies.drop_later(item_id)
            self.notify(ItemDeleted(item_id))
        if self.conversation.find(item.id) is not None:
            self.replies.drop_later(item.id)
            self.notify(ItemDeleted(item.id))
        return self.conversation.claim(item, before=before)

    def join_later(self, item: Item) -> str | None:
        """Put an item last as `join` does; a reply that is being made has not read it, and stands before it."""
        previous = self.join(item)
        self.replies.item_added(item.id, previous, last=True)
        return previous

    @property
    def may_interrupt(self) -> bool:
        """Return whether the user's speech may stop the agent."""
        return self.settings.interrupt_response and all(
            turn.interruptible or turn.outcome is not None for turn in self.turns.running
        )

    def new_id(self, kind: str) -> str:
        """Return the next id of that kind: `item_SESSION_0001`."""
        self.counts[kind] = self.counts.get(kind, self.skipped_ids) + 1
        return f"{kind}_{self.session.removeprefix('sess_')}_{self.counts[kind]:04d}"

    def new_turn(self, cause: Cause, after: Turn | None = None) -> Turn:
        """Begin a turn. `after`: the turn whose tools have returned; for the user they are one turn, with its id."""
        turn_id = self.new_id("turn")
        turn = Turn(self.counts["turn"], turn_id, cause, settings=self.settings.reply)
        if after is not None:
            turn.id, turn.cause = after.id, after.cause
        elif cause in ("vad", "commit", "idle"):
            self.turns.tools_overtaken = True
        self.turns.begin(turn, watched=self.settings.watched)
        return turn
