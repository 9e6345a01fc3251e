"""The agent's side of a turn: from the question to the model until the reply has been played."""

from __future__ import annotations

from dataclasses import replace

from voicepipe.turn import announcements as a
from voicepipe.turn import budget, ledger
from voicepipe.turn import events as e
from voicepipe.turn.commands import OpenGate, StartReply, StopReply, call_item_id
from voicepipe.turn.conversation import ClauseSound, FunctionCall, Item, ItemStatus
from voicepipe.turn.floor import Floor
from voicepipe.turn.playback import Playback
from voicepipe.turn.record import Outcome, TokenCount
from voicepipe.turn.states import AGENT_LAW, Agent
from voicepipe.turn.turns import Turn

REMEMBERED_TURNS = 8
"""So many of the latest replies can still be cut to what was heard."""

_OUTPUT_DUE, _PROGRESS_DUE, _REPLY_DUE = "first_output", "progress", "reply"


class AgentSide:
    """Runs one reply at a time (and any number beside it that join no history), and closes its turn."""

    def __init__(self, floor: Floor, unlawful: list[str]) -> None:
        self.state = Agent.IDLE
        self.turn: Turn | None = None
        """The turn whose reply is being made or played."""

        self._floor = floor
        self._unlawful = unlawful
        self._fact: type = type(None)
        self._playback = Playback()
        self._tails: list[Turn] = []
        """Turns whose reply is complete and still playing while the next one is made."""

        self._ended: list[Turn] = []
        """The latest closed turns: a client may still say how much of them was heard."""

        self._asides: dict[int, Turn] = {}
        """Out-of-band replies, by turn."""

    def facing(self, fact: e.Fact) -> None:
        """The fact that all moves until the next call are due to."""
        self._fact = type(fact)

    @property
    def busy(self) -> bool:
        """Whether a reply of the conversation is being made (one that only plays on is not)."""
        return self.turn is not None and (self.turn.response_open or not self.turn.released)

    def find(self, turn: int, revision: int) -> Turn | None:
        """The running turn of that number and revision; None when it is stale."""
        running = (self.turn, *self._tails, *self._asides.values())
        found = next((t for t in running if t is not None and t.number == turn), None)
        return found if found is not None and found.revision == revision and found.outcome is None else None

    # --- beginning ----------------------------------------------------------------------------

    def start(self, turn: Turn, items: tuple[Item, ...], now_ms: int) -> None:
        """Ask the model; the reply is held until the gate opens."""
        if turn.reply.in_conversation:
            if self.turn is not None:
                self._tails.append(self.turn)
            self.turn = turn
            self._move(Agent.PREPARING)
        else:
            self._asides[turn.number] = turn
        turn.item_id = self._floor.new_id("item")
        turn.heard_question = turn.question
        context = items if turn.reply.context is None else turn.reply.context
        self._floor.order(StartReply(turn.number, turn.revision, turn.item_id, turn.reply, context))
        self._due(turn, _OUTPUT_DUE, now_ms + self._floor.core.deadlines.first_output_ms)
        self._due(turn, _REPLY_DUE, now_ms + self._floor.core.deadlines.reply_ms)

    def announce(self, turn: Turn) -> None:
        """Tell the client that a response is being made, once."""
        if not turn.response_id:
            turn.response_open, turn.response_id = True, self._floor.new_id("resp")
            self._floor.say(a.ResponseStarted(turn.response_id, turn.reply, turn.id))

    def open_gate(self, turn: Turn, now_ms: int) -> None:
        """Let the held output go."""
        self.announce(turn)
        turn.released = True
        turn.mark(budget.GATE_OPENED, now_ms)
        self._floor.due.pop(f"{_OUTPUT_DUE} {turn.number}", None)
        if turn is self.turn:
            self._move(Agent.SPEAKING)
        self._start_items(turn)
        self._floor.order(OpenGate(turn.number, turn.revision, turn.response_id))
        self._progress(turn, now_ms)
        self._complete(turn, now_ms)

    # --- what the reply does ------------------------------------------------------------------

    def model_asked(self, turn: Turn, fact: e.ModelAsked, now_ms: int) -> None:
        turn.mark(budget.ASKED, now_ms)
        turn.providers["llm"] = fact.provider

    def model_spoke(self, turn: Turn, fact: e.ModelSpoke, now_ms: int) -> None:
        turn.mark(budget.FIRST_DELTA, now_ms)
        turn.text += fact.text
        self._step(turn, now_ms, ready=not turn.reply.audible)

    def call_grew(self, turn: Turn, fact: e.CallGrew, now_ms: int) -> None:
        turn.mark(budget.FIRST_DELTA, now_ms)
        old = turn.calls.get(fact.index)
        arguments = fact.arguments if old is None else old.arguments + fact.arguments
        item_id = call_item_id(turn.item_id, fact.index)
        turn.calls[fact.index] = FunctionCall(item_id, fact.call_id, fact.name, arguments, "in_progress")
        self._step(turn, now_ms, ready=not turn.text)

    def tokens_counted(self, turn: Turn, fact: e.TokensCounted, now_ms: int) -> None:
        turn.tokens = TokenCount(fact.input_tokens, fact.output_tokens, fact.cached_tokens)

    def model_finished(self, turn: Turn, fact: e.ModelFinished, now_ms: int) -> None:
        turn.finish_reason = fact.reason
        self._step(turn, now_ms, ready=bool(turn.calls))

    def clause_handed_over(self, turn: Turn, fact: e.ClauseHandedOver, now_ms: int) -> None:
        turn.mark(budget.FIRST_CLAUSE, now_ms)
        turn.providers["tts"] = fact.provider
        turn.clauses.append(ClauseSound(fact.text))
        self._progress(turn, now_ms)

    def sound_arrived(self, turn: Turn, fact: e.SoundArrived, now_ms: int) -> None:
        if fact.audible_after_ms is not None and turn.audible_at_ms is None:
            turn.audible_at_ms = turn.arrived_ms + fact.audible_after_ms
            turn.mark(budget.FIRST_SOUND, now_ms)
        turn.add_sound(fact.clause, fact.duration_ms)
        self._step(turn, now_ms, ready=True)

    def output_sent(self, turn: Turn, fact: e.OutputSent, now_ms: int) -> None:
        """Output left for the client. Without reports, sound plays at once, behind what plays already."""
        if not turn.reply.audible:
            turn.mark(budget.FIRST_SENT, now_ms)
        if fact.duration_ms:
            starts_ms = self._playback.send(fact.duration_ms, now_ms)
            if turn.plays_from_ms is None:
                turn.plays_from_ms = starts_ms
            turn.sent_ms += fact.duration_ms
            turn.plays_until_ms = self._playback.ends_ms
            self._mark_heard(turn, starts_ms, fact.duration_ms, now_ms)
        self._progress(turn, now_ms)
        self._await_playback(turn, now_ms)

    def voice_finished(self, turn: Turn, fact: e.VoiceFinished, now_ms: int) -> None:
        turn.voice_done = True
        self._step(turn, now_ms, ready=True)

    # --- ending -------------------------------------------------------------------------------

    def fail(self, turn: Turn, stage: str, why: str, now_ms: int) -> None:
        """End a turn that can't be answered, and tell the client; the conversation goes on."""
        self.announce(turn)
        self._stop(turn)
        self._end_response(turn, "failed", f"{stage}_failed", why)
        self._close(turn, "failed", f"{stage}: {why}", now_ms)

    def overdue(self, name: str) -> tuple[Turn, str, str] | None:
        """A deadline passed (`first_output 3`): the turn, the stage that it waits for, and what to say of it."""
        kind, _, number = name.partition(" ")
        running = (self.turn, *self._tails, *self._asides.values())
        turn = next((t for t in running if t is not None and t.number == int(number)), None)
        if turn is None:
            return None
        limits = self._floor.core.deadlines
        if kind == _OUTPUT_DUE:
            stage = "tts" if budget.FIRST_CLAUSE in turn.marks else "llm"
            return turn, stage, f"nothing to say within {limits.first_output_ms} ms"
        if kind == _REPLY_DUE:
            return turn, "reply", f"not complete within {limits.reply_ms} ms"
        return turn, _waiting_for(turn), f"no progress for {limits.progress_ms} ms"

    def give_up(self, turn: Turn, outcome: Outcome, reason: str, now_ms: int) -> None:
        """End a turn early: the client asked for it, or the session is over."""
        self._cut(turn, now_ms)
        self._stop(turn)
        self._end_response(turn, "cancelled", "client_cancelled")
        self._close(turn, outcome, reason, now_ms)

    def cancel_requested(self, fact: e.CancelRequested, now_ms: int) -> None:
        """The client cancels the running response."""
        running = [t for t in (self.turn, *self._asides.values()) if t is not None and t.response_open]
        target = next((t for t in running if fact.response_id in (None, t.response_id)), None)
        if target is None:
            named = "" if fact.response_id is None else f" with id {fact.response_id!r}"
            self._floor.refuse(
                fact.event_id, "response_cancel_not_active", f"Cancellation failed: no active response{named}"
            )
            return
        self.give_up(target, "interrupted" if target.released else "abandoned", "client_cancelled", now_ms)

    def revise(self, turn: Turn, now_ms: int) -> None:
        """The caller goes on before anything was audible: the same turn, its next revision."""
        if self.turn is turn:
            self._stop(turn)
            self._end_response(turn, "cancelled", "turn_detected")
            self._move(Agent.IDLE)
            self._resume_tail()
        turn.revise()

    def yield_floor(self, now_ms: int) -> None:
        """The caller speaks over the reply: stop it where they heard it."""
        if self.state is Agent.SPEAKING:
            self._move(Agent.YIELDED)
        for turn in (*self._tails, *((self.turn,) if self.turn else ())):
            self._cut(turn, now_ms)
            self._stop(turn)
            self._end_response(turn, "cancelled", "turn_detected")
            self._close(turn, "interrupted" if turn.released else "abandoned", "turn_detected", now_ms)
        self._playback.flush(now_ms)

    def played(self, now_ms: int) -> None:
        """Close the turns whose sound has been played."""
        for turn in (*self._tails, *((self.turn,) if self.turn else ())):
            if _all_sent(turn) and turn.plays_until_ms <= now_ms:
                self._close(turn, "completed", _why_incomplete(turn), now_ms)
            else:
                self._await_playback(turn, now_ms)

    def hang_up(self, now_ms: int) -> None:
        """The session is over: every turn that runs ends with it."""
        for turn in (*self._tails, *((self.turn,) if self.turn else ()), *self._asides.values()):
            self.give_up(turn, "abandoned", "the caller left", now_ms)

    def write_down(self) -> None:
        """Bring the conversation up to what the running reply has said."""
        for turn in (*self._tails, *((self.turn,) if self.turn else ())):
            self._write_down(turn)

    def remembered(self, item_id: str) -> Turn | None:
        """The turn that made this item, if it still runs or ended lately."""
        known = (*self._ended, *self._tails, self.turn)
        return next((t for t in known if t is not None and t.item_id == item_id), None)

    # --- by hand ------------------------------------------------------------------------------

    def _step(self, turn: Turn, now_ms: int, *, ready: bool) -> None:
        """The reply got further."""
        if turn.released:
            self._start_items(turn)
            self._progress(turn, now_ms)
            self._complete(turn, now_ms)
        elif turn is not self.turn:
            if ready:
                self.open_gate(turn, now_ms)
        elif ready and self.state is Agent.PREPARING:
            self._move(Agent.READY)
            self._floor.due.pop(f"{_OUTPUT_DUE} {turn.number}", None)

    def _start_items(self, turn: Turn) -> None:
        """Tell the client of each output item once there is something of it."""
        said = turn.text if not turn.reply.audible else turn.clauses
        if said and turn.item_id not in turn.started_items:
            self._start_item(turn, replace(turn.message(), parts=(), status="in_progress"))
        for call in turn.calls.values():
            if call.id not in turn.started_items:
                self._start_item(turn, replace(call, arguments=""))

    def _start_item(self, turn: Turn, item: a.OutputItem) -> None:
        turn.started_items.append(item.id)
        previous = self._floor.conversation.add(item) if turn.reply.in_conversation else None
        self._floor.say(a.OutputStarted(turn.response_id, item, previous))

    def _complete(self, turn: Turn, now_ms: int) -> None:
        """All has come: the response is over on the wire; the turn lasts until it has been played."""
        if not (turn.response_open and turn.finish_reason and turn.voice_done):
            return
        if turn.finish_reason in ("length", "content_filter"):
            cut = "max_output_tokens" if turn.finish_reason == "length" else "content_filter"
            self._end_response(turn, "incomplete", cut)
        else:
            self._end_response(turn, "completed")
        self._clear_due(turn)
        ledger.keep(self._floor, turn, now_ms)
        self._await_playback(turn, now_ms)

    def _await_playback(self, turn: Turn, now_ms: int) -> None:
        if turn.response_open or not turn.released or turn.outcome is not None:
            return
        if turn in self._asides.values() or (_all_sent(turn) and turn.plays_until_ms <= now_ms):
            self._close(turn, "completed", _why_incomplete(turn), now_ms)
        elif _all_sent(turn):
            self._floor.due.pop(f"{_PROGRESS_DUE} {turn.number}", None)
            self._floor.due["playback"] = min(turn.plays_until_ms, self._floor.due.get("playback", turn.plays_until_ms))
        else:
            self._progress(turn, now_ms)

    def _end_response(self, turn: Turn, status: a.ResponseStatus, reason: str = "", message: str = "") -> None:
        if not turn.response_open:
            return
        turn.response_open = False
        done: ItemStatus = "completed" if status == "completed" else "incomplete"
        turn.calls = {i: replace(call, status=done) for i, call in turn.calls.items()}
        if status == "failed":
            turn.outcome = "failed"
        self._write_down(turn)
        t = turn.tokens
        self._floor.say(a.ResponseEnded(turn.response_id, status, reason, message, t.input, t.output, t.cached))

    def _write_down(self, turn: Turn) -> None:
        if turn.reply.in_conversation:
            self._floor.conversation.put(turn.message())
            for call in turn.calls.values():
                self._floor.conversation.put(call)

    def _cut(self, turn: Turn, now_ms: int) -> None:
        if turn.reply.audible and turn.released and turn.cut_ms is None:
            turn.cut_ms = turn.heard_ms(now_ms)
            self._write_down(turn)

    def _stop(self, turn: Turn) -> None:
        self._clear_due(turn)
        self._floor.order(StopReply(turn.number, turn.revision))

    def _close(self, turn: Turn, outcome: Outcome, reason: str, now_ms: int) -> None:
        turn.outcome, turn.reason = outcome, reason
        self._clear_due(turn)
        ledger.keep(self._floor, turn, now_ms)
        self._ended = [*self._ended[1 - REMEMBERED_TURNS :], turn]
        self._asides.pop(turn.number, None)
        if turn in self._tails:
            self._tails.remove(turn)
        elif turn is self.turn:
            self._move(Agent.IDLE)
            self._resume_tail()

    def _resume_tail(self) -> None:
        """The running reply is gone; an earlier one may still be playing."""
        self.turn = self._tails.pop() if self._tails else None
        if self.turn is not None:
            self.state = Agent.SPEAKING

    def _mark_heard(self, turn: Turn, starts_ms: int, duration_ms: int, now_ms: int) -> None:
        """Stamp when the first audible sample left, and when it plays if the client plays at once."""
        audible_ms = turn.audible_at_ms
        if audible_ms is None or budget.HEARD in turn.marks or turn.sent_ms <= audible_ms:
            return
        turn.mark(budget.FIRST_SENT, now_ms)
        turn.mark(budget.HEARD, starts_ms + max(0, audible_ms - (turn.sent_ms - duration_ms)))

    def _progress(self, turn: Turn, now_ms: int) -> None:
        if turn.outcome is None and turn.released:
            self._due(turn, _PROGRESS_DUE, now_ms + self._floor.core.deadlines.progress_ms)

    def _due(self, turn: Turn, kind: str, at_ms: int) -> None:
        self._floor.due[f"{kind} {turn.number}"] = at_ms

    def _clear_due(self, turn: Turn) -> None:
        for kind in (_OUTPUT_DUE, _PROGRESS_DUE, _REPLY_DUE):
            self._floor.due.pop(f"{kind} {turn.number}", None)

    def _move(self, to: Agent) -> None:
        if to is not self.state and to not in AGENT_LAW.get((self.state, self._fact), frozenset()):
            self._unlawful.append(f"agent {self.state.value} -> {to.value} by {self._fact.__name__}")
        self.state = to


def _all_sent(turn: Turn) -> bool:
    return turn.released and not turn.response_open and turn.sent_ms >= turn.arrived_ms


def _why_incomplete(turn: Turn) -> str:
    return "" if turn.finish_reason in ("stop", "tool_calls") else turn.finish_reason


def _waiting_for(turn: Turn) -> str:
    if turn.sent_ms < turn.arrived_ms:
        return "client"
    return "tts" if turn.finish_reason else "llm"
