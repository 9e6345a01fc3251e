"""Decide which turns are answered, and when: the user's, those that the client requests, and those that must wait."""

from __future__ import annotations

from voicepipe.turn import events as e
from voicepipe.turn import languages, model_input, record_builder, responses
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import FunctionOutput, InputAudio, Item, Message
from voicepipe.turn.record import attribution
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.states import Gate, QueuePlace, Revisable, UserState
from voicepipe.turn.truncation import CONTEXT_FULL
from voicepipe.turn.turn import Turn
from voicepipe.turn.user import UserSide
from voicepipe.values import replace

MAX_OUT_OF_BAND = 8
"""Number of out-of-band replies that may run at once: each is a request to the LLM that is not limited by playback."""


class Answers:
    """A queue that gives turns to the agent, one of the conversation at a time, each at most once."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide) -> None:
        self._context, self._user, self._agent = context, user, agent
        self._queue: list[Turn] = []
        """Every turn that has a place in the queue."""

        self.words_known = False
        """The words of all that the user has said in the running turn were known at the latest look."""

    @property
    def n_queued(self) -> tuple[int, int]:
        """Return how many replies are queued: those requested or restored, and those to user turns. The numbers change
        whenever a reply starts."""
        return len(self._at(QueuePlace.REQUESTED)) + len(self._context.replies.restored), len(
            self._at(QueuePlace.WAITING)
        )

    @property
    def queued(self) -> tuple[Turn, ...]:
        """Return the turns of the conversation whose reply is due and has not been started, in order. A turn whose
        words are no items yet is left out: another process could not answer it."""
        requested = [turn for turn in self._at(QueuePlace.REQUESTED) if turn.settings.in_conversation]
        waiting = [turn for turn in self._at(QueuePlace.WAITING) if turn.question.text and _is_written(turn)]
        return (*self._context.replies.restored, *requested, *waiting)

    def start_due_replies(self, now_ms: int) -> None:
        """Start the replies that may start."""
        self._answer_user(now_ms)
        self._start_restored(now_ms)
        self._start_requested(now_ms)
        self._start_waiting(now_ms)

    # --- places -------------------------------------------------------------------------------

    def _at(self, place: QueuePlace) -> list[Turn]:
        """Return the turns at this place, in the order in which they came to it."""
        return [turn for turn in self._queue if turn.place is place]

    def _put(self, turn: Turn, place: QueuePlace) -> None:
        """Give the turn this place, behind those that stand there, and no other."""
        self._remove(turn)
        turn.place = place
        self._queue.append(turn)

    def _remove(self, *turns: Turn) -> None:
        for turn in turns:
            turn.place = None
        self._queue = [turn for turn in self._queue if turn.place is not None]

    # --- user turns ---------------------------------------------------------------------------

    def postpone(self, turn: Turn, now_ms: int) -> None:
        """Queue the user's turn to be answered as it is, as soon as possible: the user goes on in a new turn."""
        turn.question.revisable, turn.question.reversible_ms = Revisable.FIXED, 0
        if self._agent.turn is not turn or not turn.current:
            if self._agent.turn is turn:
                self._agent.revise(turn)
            self._put(turn, QueuePlace.WAITING)
        self._user.leave()

    def leave_open(self, turn: Turn, now_ms: int) -> None:
        """Mark the turn as over, to be answered only if the client requests it."""
        self._drop_unanswered(now_ms)
        self._put(turn, QueuePlace.UNANSWERED)
        if turn.question.n_resumed:  # the answer that was taken back may have a record
            record_builder.keep(self._context, turn, now_ms)

    def drop(self, turn: Turn, why: str, now_ms: int, *, client_reason: str = "client_cancelled") -> None:
        """End a turn without an answer."""
        if self._agent.turn is turn or turn.reply.response_open:
            self._agent.give_up(turn, "abandoned", why, now_ms, client_reason=client_reason)
        elif turn.outcome is None:
            record_builder.close(self._context, turn, "abandoned", why, now_ms)
        if self._user.turn is turn:
            self._user.leave()

    def _answer_user(self, now_ms: int) -> None:
        turn = self._user.turn
        self.words_known = turn is not None and turn.question.transcribed
        if turn is None or not self.words_known or turn.reply.gate is Gate.SUSPENDED:
            return
        if self._user.state is UserState.ENDED and turn.outcome is None:
            self._answer(turn, now_ms)
        elif self._user.state is UserState.HOLDING:
            self._speculate(turn, now_ms)

    def _speculate(self, turn: Turn, now_ms: int) -> None:
        """Start a speculative reply at a short silence, before the turn is over; or drop one that is of no use."""
        enabled = self._context.core.speculate and self._context.settings.create_response
        if not (enabled and turn.question.text and not turn.question.lost and not turn.speculation_failed):
            self._drop_speculative()
        elif not (self._agent.turn is turn and turn.current):
            self._drop_speculative()
            free = not (any(self.n_queued) or self._context.replies.busy)
            if free and self._user.may_begin(self._context.learned.speculation.answer_ms):
                self._start_speculative(turn, now_ms)

    def _start_speculative(self, turn: Turn, now_ms: int) -> None:
        """Start the reply although the user may go on, if that is expected to pay."""
        learned, limits = self._context.learned, self._context.core.speculation
        stats = learned.speculation
        if turn.account.speculation.starts >= limits.max_starts or (
            turn.question.refused_start and turn.question.refused_start[0] == turn.pause
        ):
            return  # do not speculate on a user who stops and goes on repeatedly
        items = self._items_with(turn)
        if model_input.overflow(self._context, turn.settings, items):
            return  # the turn fails once it is over
        if not stats.pays(model_input.input_tokens_of(turn.settings, items), limits, learned.used_tokens):
            stats.refuse(turn, now_ms)
            return
        self._user.mark_start_due(turn, stats.answer_ms, now_ms)
        self._agent.start(turn, items, now_ms)
        turn.reply.speculative = True
        stats.started(turn)

    def _drop_speculative(self) -> Turn | None:
        """Drop the speculative reply; return its turn, if there was one."""
        turn = self._user.turn
        if turn is None or self._agent.turn is not turn or self._user.state is not UserState.HOLDING:
            return None
        self._agent.revise(turn)
        return turn

    def _answer(self, turn: Turn, now_ms: int) -> None:
        """Answer a turn that is over and whose transcript is known, unless there is nothing to reply to."""
        if turn.reply.response_open and turn.current:
            return  # already running
        self._context.learned.speculation.ended(turn, now_ms)
        if not turn.question.text and not turn.question.lost:
            self.drop(turn, "nothing was said", now_ms, client_reason="turn_detected")
        elif not self._context.settings.create_response:
            if self._agent.turn is turn:
                self._agent.revise(turn)  # it was speculative, and no reply was requested
            self.leave_open(turn, now_ms)
            if self._user.turn is turn:
                self._user.leave()
        elif self._taken_by_another(turn):
            self.postpone(turn, now_ms)
        elif not turn.question.text:
            self._agent.fail(turn, "stt", turn.question.lost, now_ms)
        else:
            self._drop_unanswered(now_ms)
            self._prepare(turn, now_ms)
            responses.start_response(self._context, turn)

    def _prepare(self, turn: Turn, now_ms: int) -> None:
        """Start the reply to what the user said, or restart it if the transcript has changed."""
        if self._agent.turn is turn:
            if turn.current:
                return
            self._agent.revise(turn)
        self._start(turn, now_ms)

    def _start(self, turn: Turn, now_ms: int) -> None:
        """Start the reply, or fail the turn if its conversation does not fit and the client allows no truncation."""
        items = self._items_with(turn)
        read = items if turn.settings.context is None else turn.settings.context
        if not turn.words and (why := model_input.overflow(self._context, turn.settings, read)):
            self._agent.fail(turn, "client", why, now_ms, code=CONTEXT_FULL)
        else:
            self._agent.start(turn, items, now_ms)

    def _items_with(self, turn: Turn) -> tuple[Item, ...]:
        """Return what the LLM reads of the conversation, and of what the user says in this turn, even before that is an
        item.
        """
        self._agent.write_down()
        utterances = (u for u in turn.question.utterances if not u.committed)
        uncommitted = tuple(Message(u.item_id, "user", (InputAudio(u.text),)) for u in utterances)
        items = model_input.read_by_model(self._context, turn.settings, uncommitted)
        if later := turn.reply.later_items:
            items = tuple(item for item in items if item.id not in later)
        if turn.settings.context is None:
            turn.account.context = model_input.context_use(self._context, turn.settings, items, uncommitted)
        return items

    # --- waiting turns ------------------------------------------------------------------------

    def _taken_by_another(self, turn: Turn | None = None) -> bool:
        """Return whether another reply of the conversation is coming: no two are generated at a time."""
        busy = self._context.replies.busy and self._agent.turn is not turn
        return busy or bool(self._context.replies.restored) or self._is_requested

    @property
    def _is_requested(self) -> bool:
        return any(requested.settings.in_conversation for requested in self._at(QueuePlace.REQUESTED))

    def _start_waiting(self, now_ms: int) -> None:
        """Answer the waiting turns. Of several turns the latest is answered: its LLM request includes the others."""
        known = [turn for turn in self._at(QueuePlace.WAITING) if turn.question.transcribed]
        if not known or self._taken_by_another():
            return
        self._remove(*known)
        latest = ([turn for turn in known if turn.question.text] or known)[-1]
        for turn in known:
            if turn is not latest:
                self.drop(turn, "answered with the next turn" if turn.question.text else "nothing was said", now_ms)
        self._answer(latest, now_ms)

    def drop_waiting(self, now_ms: int) -> None:
        """End the turns that wait for their transcript: the user goes on, and the LLM reads them with what comes."""
        waiting = self._at(QueuePlace.WAITING)
        self._remove(*waiting)
        for turn in waiting:
            self.drop(turn, "answered with the next turn", now_ms)

    def _drop_unanswered(self, now_ms: int) -> None:
        for turn in self._at(QueuePlace.UNANSWERED):
            self._remove(turn)
            self.drop(turn, "no reply was requested", now_ms)

    # --- client requests ----------------------------------------------------------------------

    def request(self, event: e.ReplyRequested, now_ms: int) -> None:
        """Request a reply for the client: it starts when everything that the user has said is transcribed."""
        in_band = event.reply.in_conversation
        if in_band:
            self._drop_inaudible(now_ms)
        else:
            reply = replace(event.reply, server_tools=())  # their results join the conversation
            event = replace(event, reply=reply)
        refusal = self._refusal() if in_band else self._one_too_many(event.reply)
        if refusal:
            self._context.refuse(event.event_id, *refusal)
            return
        turn = self._turn_for(event, now_ms)
        if in_band and turn.before is None:
            turn.question.typed = self._context.conversation.typed_last
        self._context.record_request(event.event_id)
        self.reply_to(turn, self._within_rounds(turn, event), now_ms)

    def _within_rounds(self, turn: Turn, event: e.ReplyRequested) -> ReplySettings:
        """Return the settings of the requested reply: after too many rounds of function calls without functions."""
        most = self._context.core.client_tool_rounds
        if not most or turn.tool_round <= most:
            return event.reply
        why = f"the agent's client_tool_rounds ({most}) are over in this turn: its LLM answers without functions"
        self._context.refuse(event.event_id, "too_many_tool_rounds", f"tool_choice: {why}", "response.tool_choice")
        return replace(event.reply, tool_choice="none", tool_server="")

    def reply_to(self, turn: Turn, reply: ReplySettings, now_ms: int) -> None:
        """Answer a turn that cannot be revised, from now on and with these settings."""
        responses.start_response(self._context, self._due(turn, reply, now_ms))

    def speak_apology(self, turn: Turn, reply: ReplySettings, now_ms: int) -> None:
        """Speak a turn's own words. The client is notified once there is audio of them."""
        self._due(turn, reply, now_ms)

    def greet(self, event: e.GreetingDue, now_ms: int) -> None:
        """Speak first, unless the user or the client was sooner, or the client brings an earlier conversation.

        What is due at any time is only left out while the user or the agent speaks, or is about to.
        """
        waits = self._user.state is not UserState.QUIET or self._at(QueuePlace.WAITING)
        taken = waits or self._agent.turn or self._taken_by_another()
        has_begun = self._context.counts.get("turn") or len(self._context.conversation)
        if taken or (has_begun and not event.at_any_time):
            return
        turn = self._context.new_turn("greeting")
        turn.words, turn.interruptible = event.text, event.interruptible
        self.reply_to(turn, self._context.settings.reply, now_ms)

    # --- replies of another process -----------------------------------------------------------

    def restore(self, event: e.ReplyRestored) -> None:
        """Queue a reply that another process had begun, or was requested to make."""
        turn = self._context.new_turn("create")
        turn.words, turn.settings, turn.question.typed = event.words, event.reply, event.user_text
        turn.go_on_from(event.goes_on)
        turn.reply.later_items.update(event.later_items)
        self._context.record_request(event.event_id)
        self._context.replies.restored.append(turn)

    def _start_restored(self, now_ms: int) -> None:
        """Start the first restored reply, once no other reply of the conversation is generated."""
        restored = self._context.replies.restored
        if restored and not (self._context.replies.busy or self._is_requested):
            turn = restored.pop(0)
            self.reply_to(turn, turn.settings, now_ms)

    def _drop_restored(self) -> list[Turn]:
        """Drop the restored replies; return their turns."""
        restored, self._context.replies.restored = self._context.replies.restored, []
        return restored

    def _due(self, turn: Turn, reply: ReplySettings, now_ms: int) -> Turn:
        follows = bool(self._context.settings.languages)
        turn.settings = languages.in_language(self._context, reply) if follows else reply
        turn.question.revisable = Revisable.FIXED
        if turn.before is None:  # otherwise t0 is the user's last word
            for mark in (attribution.VOICED_LAST, attribution.ENDED, attribution.REQUESTED):
                turn.mark(mark, now_ms)
        if reply.in_conversation:
            self._agent.make_irrevocable()
        self._put(turn, QueuePlace.REQUESTED)
        return turn

    def _drop_inaudible(self, now_ms: int) -> None:
        """Drop a speculative reply, and an apology or a greeting not yet audible: a reply that the client requests goes
        first.
        """
        if (dropped := self._drop_speculative()) is not None:
            dropped.speculation_failed = True
        inaudible = [
            turn
            for turn in (*self._at(QueuePlace.REQUESTED), self._agent.turn)
            if turn and turn.cause in ("apology", "greeting") and turn.reply.gate is not Gate.OPEN
        ]
        self._remove(*inaudible)
        for turn in inaudible:
            self.drop(turn, "overtaken", now_ms)

    @property
    def may_reply(self) -> bool:
        """Return whether the conversation may have another reply."""
        return self._refusal() is None

    def _refusal(self) -> tuple[str, str] | None:
        expected = self._user.state is UserState.ENDED and self._context.settings.create_response
        if not (expected or self._at(QueuePlace.WAITING) or self._taken_by_another()):
            return None
        return (
            "conversation_already_has_active_response",
            "expected no response in progress; wait for its response.done or cancel it first",
        )

    def _one_too_many(self, reply: ReplySettings) -> tuple[str, str] | None:
        requested = [turn.settings for turn in self._at(QueuePlace.REQUESTED) if not turn.settings.in_conversation]
        running = [*self._context.replies.out_of_band, *requested]
        if len(running) >= MAX_OUT_OF_BAND:
            return "too_many_active_responses", f"expected at most {MAX_OUT_OF_BAND} out-of-band responses at a time"
        n_chars, most = sum(map(self._n_chars_read, (*running, reply))), self._context.core.conversation.max_chars
        if not running or n_chars <= most:
            return None
        why = f"expected at most {most} characters that all out-of-band responses read at a time, got {n_chars}"
        return "too_many_active_responses", why

    def _n_chars_read(self, reply: ReplySettings) -> int:
        if reply.context is None:
            return self._context.conversation.n_chars
        return sum(item.n_chars for item in reply.context)

    def _turn_for(self, event: e.ReplyRequested, now_ms: int) -> Turn:
        """Return the turn that the client's request belongs to: the one that is not answered yet, the one whose tools
        have returned, or a new one.
        """
        unanswered, newest = self._at(QueuePlace.UNANSWERED), self._context.conversation.newest
        if unanswered and event.reply.in_conversation:
            return unanswered[0]
        if not event.reply.in_conversation:
            return self._context.new_turn("create")
        turns, returned = self._context.turns, isinstance(newest, FunctionOutput)
        after, turns.awaits_tools = turns.awaits_tools, None
        most = self._context.core.client_tool_rounds
        # An LLM that calls a function although it must not begins another turn with it.
        is_over = after is not None and most and after.tool_round > most
        if after is None or is_over or not isinstance(newest, FunctionOutput) or newest.call_id not in after.tool_calls:
            turns.awaits_tools, turns.tools_overtaken = after, after is not None
            return self._context.new_turn("tool" if returned else "create")
        turn = self._context.new_turn("tool", after)
        turn.continue_after_tools(after, now_ms)
        self._context.timers.clear(Timer(Due.TOOL))
        return turn

    def _start_requested(self, now_ms: int) -> None:
        requested = self._at(QueuePlace.REQUESTED)
        if not requested or self._user.utterances.pending:
            return
        self._remove(*requested)
        if self._user.utterances.recorded:
            self._user.utterances.recorded = False
            self._context.learned.cost_tracker.charge(requested[0].account.stt_ms)
        for turn in requested:
            if turn.question.lost and not turn.question.text:
                self._agent.fail(turn, "stt", turn.question.lost, now_ms)
            else:
                self._start(turn, now_ms)

    # --- end ----------------------------------------------------------------------------------

    def cancel(self, event: e.CancelRequested, now_ms: int) -> None:
        """Cancel a response for the client: one that runs, or one that waits for the transcript."""
        if self._agent.cancel(event.response_id, now_ms):
            return
        queued, named_id = self._at(QueuePlace.REQUESTED), event.response_id
        requested = next((turn for turn in queued if named_id in (None, turn.reply.response_id)), None)
        if requested is not None:
            self._remove(requested)
            self.drop(requested, "client_cancelled", now_ms)
            return
        named = "" if event.response_id is None else f" with id {event.response_id!r}"
        self._context.refuse(
            event.event_id, "response_cancel_not_active", f"Cancellation failed: no active response{named}"
        )

    def interrupt(self, now_ms: int) -> None:
        """Stop the conversation's replies and start none: the user speaks."""
        self._agent.interrupt(now_ms)
        requested = [turn for turn in self._at(QueuePlace.REQUESTED) if turn.settings.in_conversation]
        overtaken = [*self._drop_restored(), *requested, *self._at(QueuePlace.WAITING)]
        self._remove(*overtaken)
        for turn in overtaken:
            self.drop(turn, "turn_detected", now_ms, client_reason="turn_detected")

    def hang_up(self, why: str, now_ms: int) -> None:
        """End every turn: the session is over."""
        self._agent.hang_up(why, now_ms)
        places = (QueuePlace.REQUESTED, QueuePlace.WAITING, QueuePlace.UNANSWERED)
        queued = self._drop_restored() + [turn for place in places for turn in self._at(place)]
        self._remove(*queued)
        for turn in (*queued, self._user.release_turn()):
            if turn is not None and turn.outcome is None:
                self.drop(turn, why, now_ms)


def _is_written(turn: Turn) -> bool:
    """Return whether all that the user said in this turn is in the conversation."""
    return all(utterance.committed for utterance in turn.question.utterances)
