"""Go on with the answers that another process had begun or queued: each comes once, and in order.

The snapshot of the session has most of them. The client reports what it has received or sent beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from voicepipe.protocol.extensions import Resume
from voicepipe.session.snapshot import OpenReply, OpenTurn, SessionSnapshot
from voicepipe.session.snapshot_restore import (
    Continuation,
    ReceivedOutput,
    continuation,
    grown,
    is_newer,
    is_running,
    received_message,
    restored,
    with_result,
)
from voicepipe.turn import events as e
from voicepipe.turn.conversation import ROOT, FunctionCall, FunctionOutput, InputText, Item, Message
from voicepipe.turn.record.values import TurnElsewhere
from voicepipe.turn.settings import ReplySettings
from voicepipe.values import replace

GO_ON: Final = (
    "Your answer was cut off after these words, which the user has heard: {played!r}. Go on with the next word. Repeat "
    "nothing, and do not mention it."
)

Sent = tuple[e.ItemCreateRequested | e.ReplyRequested, ...]
"""What a client has sent lately, in order: items, and requests whose answer it has not received as a whole."""


@dataclass(slots=True)
class _PendingReply:
    """An answer that is not over."""

    turn: OpenTurn | None
    reply: OpenReply | None = None
    """None: it has not begun."""

    later_items: tuple[str, ...] = ()
    """Ids of the items behind what it answers."""

    request: e.ReplyRequested | None = None
    """The request for it that the other process did not have."""

    received_ms: int | None = None


@dataclass(slots=True)
class PendingReplies:
    """The conversation that goes on, and its answers that are not over."""

    reply: ReplySettings
    """The settings of a reply of this session."""

    state: SessionSnapshot
    items: list[Item]
    answers: list[_PendingReply]
    missing: dict[str, e.ItemCreateRequested] = field(default_factory=dict)
    """Items that the other process did not have, by id."""

    read_earlier: set[str] = field(default_factory=set)
    """Ids of the items that are read for an earlier request."""

    @classmethod
    def of(cls, state: SessionSnapshot, reply: ReplySettings) -> PendingReplies:
        """Return what a process has written.

        Raises:
            ValueError: as `read_items`.
        """
        begun = [_PendingReply(each.turn, each.reply) for each in state.earlier]
        begun += [] if state.reply is None else [_PendingReply(state.turn, state.reply)]
        queued = [_PendingReply(each.turn, later_items=each.later_items) for each in state.queued]
        return cls(reply, state, list(restored(state).items), [*begun, *queued])

    # --- what the client names ----------------------------------------------------------------

    def add_sent(self, sent: Sent) -> None:
        """Add what a client has sent and the other process did not have."""
        ids = {item.id for item in self.items}
        for event in sent:
            if isinstance(event, e.ReplyRequested):
                if event.event_id not in self.state.requests:
                    self.answers.append(_PendingReply(None, request=event))
                continue
            if event.item.id in ids:
                self._put_behind(event.item.id, [each for each in self.answers if each.request is not None])
            elif self._is_answerable(event.item):
                ids.add(event.item.id)
                self.missing[event.item.id] = event
                self._insert(event)
                self._put_behind(event.item.id, [each for each in self.answers if each.reply is None])

    def _put_behind(self, item_id: str, answers: list[_PendingReply]) -> None:
        """Record that these answers don't read an item, since it was sent behind the requests for them."""
        for answer in answers:
            answer.later_items = (*answer.later_items, item_id)

    def _is_answerable(self, item: Item) -> bool:
        """Return whether an LLM can read this item: a result needs its call."""
        calls = {each.call_id for each in self.items if isinstance(each, FunctionCall)}
        return not isinstance(item, FunctionOutput) or item.call_id in calls

    def _insert(self, event: e.ItemCreateRequested) -> None:
        places = {item.id: place + 1 for place, item in enumerate(self.items)} | {ROOT: 0}
        self.items.insert(places.get(event.after or "", len(self.items)), event.item)

    def add_received(self, received: ReceivedOutput) -> None:
        """Add what a client has received beyond what the store has: these words are in the history, and are not
        spoken again. All answers before them came as a whole."""
        place = next((place for place, item in enumerate(self.items) if item.id == received.item_id), None)
        answer = next((each for each in self.answers if each.reply and each.reply.item_id == received.item_id), None)
        if answer is not None and place is not None:
            self._received(answer, received)
            if received.text is not None:
                self.items[place] = changed = grown(self.items[place], received)
                is_over = received.is_done and changed.status == "completed"
                self.answers = [each for each in self.answers if each is not answer or not is_over]
        elif place is None and received.text is not None:
            self._add_newer(received)

    def _received(self, answer: _PendingReply, received: ReceivedOutput) -> None:
        """Record how far an answer has come: those before it are over, and of those behind it nothing has come."""
        self.answers = self.answers[self.answers.index(answer) :]
        answer.received_ms = received.ms
        for later in self.answers[1:]:
            later.received_ms = 0

    def _add_newer(self, received: ReceivedOutput) -> None:
        """Add an answer that the store does not have. It is the first one that had not begun."""
        due = next((each for each in self.answers if each.reply is None), None)
        if due is None and not is_newer(received.item_id, self.state):
            return
        answer = due or _PendingReply(self.state.turn)
        self.answers = [answer, *(each for each in self.answers if each.reply is None and each is not answer)]
        before = [place for place, item in enumerate(self.items) if item.id in answer.later_items]
        self.items.insert(before[0] if before else len(self.items), received_message(received))
        answer.reply = OpenReply(item_id=received.item_id, response_id="", is_generated=False, is_synthesized=False)
        answer.received_ms = received.ms
        if received.is_done:
            self.answers.remove(answer)

    # --- the events ---------------------------------------------------------------------------

    def events(self) -> tuple[e.Event, ...]:
        """Return the events that make a new core go on."""
        awaits_results = any(map(is_running, self.items))
        self.items = [with_result(item, self.reply) for item in self.items]
        changes: list[e.Event] = []
        replies: list[e.Event] = []
        begun = [each for each in self.answers if each.reply is not None]
        for answer in self.answers:
            if answer.reply is None:
                replies.append(self._queued(answer))
            elif (rest := continuation(answer.reply, self.items, answer.received_ms)) is not None:
                if awaits_results and answer is begun[-1]:  # something comes behind the words that are known
                    rest = replace(rest, is_whole=False)
                changes.append(_change(rest))
                replies.append(self._rest(answer, rest))
        if awaits_results and not replies:
            replies.append(e.ReplyRestored(self.reply, goes_on=_elsewhere(self.state.turn, "")))
        return (self._restored(), *self._additions(), *changes, *replies)

    def _restored(self) -> e.ConversationRestored:
        items = tuple(item for item in self.items if item.id not in self.missing)
        return replace(restored(self.state), items=items)

    def _additions(self) -> list[e.Event]:
        previous_ids = [ROOT, *(item.id for item in self.items)]
        pairs = zip(previous_ids, self.items, strict=False)
        return [replace(self.missing[item.id], after=before) for before, item in pairs if item.id in self.missing]

    def _queued(self, answer: _PendingReply) -> e.ReplyRestored:
        request, later = answer.request, answer.later_items
        if request is None:
            return e.ReplyRestored(self.reply, goes_on=_elsewhere(answer.turn, ""), later_items=later)
        typed = self._typed_before(later)
        self.read_earlier = {item.id for item in self.items if item.id not in later}
        return e.ReplyRestored(request.reply, user_text=typed, later_items=later, event_id=request.event_id)

    def _typed_before(self, later: tuple[str, ...]) -> str:
        """Return what the user has typed behind all answers and earlier questions, without these items."""
        typed: list[str] = []
        for item in reversed([each for each in self.items if each.id not in (*later, *self.read_earlier)]):
            if not (isinstance(item, Message) and item.role == "user"):
                break
            typed += [part.text for part in reversed(item.parts) if isinstance(part, InputText) and part.text]
        return " ".join(reversed(typed))

    def _rest(self, answer: _PendingReply, rest: Continuation) -> e.ReplyRestored:
        turn, later = _elsewhere(answer.turn, rest.played), self._behind(rest.item_id)
        if rest.is_whole:
            return e.ReplyRestored(self.reply, rest.rest, goes_on=turn, later_items=later)
        reply = self.reply
        if rest.played:
            instructions = f"{reply.instructions}\n\n{GO_ON.format(played=rest.played)}".strip()
            reply = replace(reply, instructions=instructions, may_be_empty=True)
        return e.ReplyRestored(reply, goes_on=turn, later_items=later)

    def _behind(self, item_id: str) -> tuple[str, ...]:
        """Return the ids of the items behind an answer: from the next one on that is the user's."""
        ids = [item.id for item in self.items]
        behind = self.items[ids.index(item_id) + 1 :]
        first = next(
            (n for n, item in enumerate(behind) if isinstance(item, Message) and item.role != "assistant"), None
        )
        return () if first is None else tuple(item.id for item in behind[first:])


def _change(rest: Continuation) -> e.Event:
    """Return the event that leaves of an item what the user has heard."""
    if not rest.played:
        return e.ItemDeleteRequested(None, rest.item_id)
    return e.ItemTruncateRequested(None, rest.item_id, 0, rest.received_ms)


def _elsewhere(turn: OpenTurn | None, played: str) -> TurnElsewhere | None:
    if turn is None:
        return None
    words = " ".join(filter(None, (turn.played_text, played)))
    return TurnElsewhere(id=turn.id, cause=turn.cause, user_text=turn.user_text, played_text=words)


def takeover_events(
    state: SessionSnapshot, request: Resume | None, reply: ReplySettings, sent: Sent = ()
) -> tuple[e.Event, ...]:
    """Return the events that make a new core go on from a state, for the client that sent `request`.

    `reply`: the settings of a reply of this session. `sent`: what the client names there, as events.

    Raises:
        ValueError: as `read_items`.
    """
    answers = PendingReplies.of(state, reply)
    answers.add_sent(sent)
    for received in () if request is None else ReceivedOutput.all_of(request):
        answers.add_received(received)
    return answers.events()
