"""The agent's side of a turn: from the request to the LLM until the reply has been played."""

from __future__ import annotations

from voicepipe.turn import apology, languages, look_ups, record_builder, responses, soft_reply
from voicepipe.turn import events as e
from voicepipe.turn.commands import (
    OpenGate,
    ReleaseCalls,
    StartReply,
    StopReply,
    call_item_id,
)
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import ClauseSound, FunctionCall, Item
from voicepipe.turn.model_input import input_tokens_of
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import FailedStage, Outcome, TokenCount
from voicepipe.turn.responses import PlaybackModel
from voicepipe.turn.states import AgentState, Gate
from voicepipe.turn.turn import Turn
from voicepipe.values import replace


class AgentSide:
    """Run one reply at a time, and close its turn. Out-of-band replies, which join no history, run beside it."""

    def __init__(self, context: TurnContext) -> None:
        self.state = AgentState.IDLE
        self._context = context
        self.has_spoken = False
        """A reply has begun since the agent was last prompted by the idle timeout."""

        self.replies = context.replies
        self._playback = PlaybackModel()

    @property
    def turn(self) -> Turn | None:
        """Return the turn whose reply is being generated or played."""
        return self.replies.turn

    def overdue(self, timer: Timer) -> tuple[Turn, FailedStage, str] | None:
        """Handle a reply's timeout: return the turn, the stage that it waits for, and the reason to report."""
        turn = next((t for t in self.replies.all if t.number == timer.number), None)
        if turn is None:
            return None
        limits = self._context.core.deadlines
        if timer.due is Due.FIRST_OUTPUT:
            stage: FailedStage = "tts" if attribution.FIRST_CLAUSE in turn.marks else "llm"
            return turn, stage, f"no output within {limits.first_output_ms} ms"
        if timer.due is Due.REPLY:
            return turn, "reply", f"not complete within {limits.reply_ms} ms"
        return turn, _awaited(turn), f"no progress for {limits.progress_ms} ms"

    # --- start --------------------------------------------------------------------------------

    def start(self, turn: Turn, items: tuple[Item, ...], now_ms: int) -> None:
        """Send the request to the LLM. The reply's output is held until the gate opens."""
        self._context.transitions.changed = True
        self.replies.start(turn)
        if turn.settings.in_conversation:
            self.has_spoken = True
            self._move(AgentState.PREPARING)
        if self._context.settings.languages:
            turn.settings = languages.in_language(self._context, turn.settings)
        turn.reply.item_id = self._context.new_id("item")
        turn.reply.reply_question = turn.question.text
        context = items if turn.settings.context is None else turn.settings.context
        turn.reply.began_ms = now_ms
        turn.account.input_tokens = input_tokens_of(turn.settings, context)
        left_ms = self._context.learned.usual.left_ms(turn.marks, now_ms) if turn.settings.audible else None
        key = (turn.number, turn.reply.revision, turn.reply.item_id)
        self._context.issue(StartReply(*key, turn.settings, context, left_ms, turn.words))
        self._context.timers.await_output(turn.number, now_ms)

    def open_gate(self, turn: Turn, now_ms: int) -> None:
        """Release the held output."""
        if turn.reply.gate is Gate.SUSPENDED:
            self._move(AgentState.SPEAKING)
            soft_reply.go_on(self._context, turn, now_ms, current=turn is self.turn)
            self._go_on(turn, now_ms)
            return
        responses.start_response(self._context, turn)
        turn.reply.gate, self._context.transitions.changed = Gate.OPEN, True
        turn.mark(attribution.GATE_OPENED, now_ms)
        self._context.learned.speculation.output_released(turn, now_ms)
        self._context.timers.output_came(turn.number)
        if turn is self.turn:
            self._move(AgentState.SPEAKING)
        responses.start_items(self._context, turn)
        held = soft_reply.opening(self._context, turn, now_ms, current=turn is self.turn)
        self._context.issue(OpenGate(turn.number, turn.reply.revision, turn.reply.response_id, *held))
        self._go_on(turn, now_ms)

    # --- soft start ---------------------------------------------------------------------------

    def may_take_back(self, turn: Turn, now_ms: int) -> bool:
        """Return whether the user's voice may take back the end of this turn, whose reply is audible or about to be."""
        return self.turn is turn and self.state is AgentState.SPEAKING and soft_reply.may_take_back(turn, now_ms)

    def suspend(self, turn: Turn, now_ms: int) -> None:
        """Stop a reply at the point that the user heard. It may go on from there, unlike a reply before it."""
        for tail in tuple(self.replies.tails):
            self.give_up(tail, "interrupted", "turn_detected", now_ms, client_reason="turn_detected")
        soft_reply.suspend(self._context, turn, now_ms)
        self._move(AgentState.READY)
        self.fall_silent(now_ms)

    def finalize(self, now_ms: int) -> None:
        """Make the reply irrevocable, once the user has heard enough of it."""
        if self.turn is not None:
            soft_reply.finalize(self._context, self.turn, now_ms)

    def make_irrevocable(self) -> None:
        """Make the reply irrevocable: another one was requested, and only one response of the conversation is open."""
        if self.turn is not None and self.turn.reply.gate is Gate.OPEN and self.turn.question.reversible_ms:
            responses.make_irrevocable(self._context, self.turn)

    def release_effects(self, turn: Turn, now_ms: int) -> None:
        """Release the function calls and the outcome of a turn that ended softly: it is over for good."""
        if turn.outcome is not None:
            record_builder.keep(self._context, turn, now_ms)
        elif turn.reply.gate is Gate.OPEN:
            self._context.transitions.changed = True
            responses.start_items(self._context, turn)
            self._context.issue(ReleaseCalls(turn.number, turn.reply.revision))
            self._go_on(turn, now_ms)

    # --- reply events -------------------------------------------------------------------------

    def model_requested(self, turn: Turn, event: e.ModelRequested, now_ms: int) -> None:
        """Record that the request was sent."""
        turn.mark(attribution.LLM_REQUESTED, now_ms)
        if not turn.words:
            turn.account.providers["llm"] = event.provider
            turn.account.waited_for.update(llm="", tts="")
            if turn.settings.in_conversation:
                self._context.learned.speculation.llm_requested(event.provider)

    def speech_requested(self, turn: Turn, event: e.SpeechRequested, now_ms: int) -> None:
        """Record that a speech-to-speech model makes the reply."""
        turn.mark(attribution.SPEECH_REQUESTED, now_ms)
        turn.account.providers[attribution.SPEECH] = event.provider
        turn.account.speech_counted = False
        if turn.settings.in_conversation:
            self._context.learned.speculation.llm_requested(event.provider)

    def model_spoke(self, turn: Turn, event: e.ModelTextReceived, now_ms: int) -> None:
        """Add text. An audio reply waits for its audio."""
        turn.record_delta(now_ms)
        turn.reply.text += event.text
        # A reply of function calls alone waits for a certain end, and one of words not.
        if self.state is AgentState.READY:
            self._context.transitions.changed = True
        self._step(turn, now_ms, ready=not turn.settings.audible)

    def call_grew(self, turn: Turn, event: e.CallGrew, now_ms: int) -> None:
        """Add a piece of a function call. Only the first piece is sure to name the function."""
        turn.record_delta(now_ms)
        old = turn.reply.calls.get(event.index)
        if old is None:
            item_id, tool = call_item_id(turn.reply.item_id, event.index), turn.settings.server_tool(event.name)
            turn.reply.calls[event.index] = FunctionCall(
                item_id,
                event.call_id,
                event.name,
                event.arguments,
                "in_progress",
                server_label="" if tool is None else tool.label,
                approval="awaited" if tool is not None and tool.needs_approval else "",
            )
        else:
            turn.reply.calls[event.index] = replace(old, arguments=old.arguments + event.arguments)
        self._step(turn, now_ms, ready=not turn.reply.text)

    def tokens_counted(self, turn: Turn, event: e.TokensCounted, now_ms: int) -> None:
        """Record the provider's token count."""
        turn.reply.tokens = TokenCount(
            event.input_tokens, event.output_tokens, event.cached_tokens, event.cache_write_tokens
        )
        if turn.by_speech_model and event.usd is not None:
            turn.account.speech_usd += event.usd
            turn.account.speech_counted = True

    def model_finished(self, turn: Turn, event: e.ModelFinished, now_ms: int) -> None:
        """Record that all text and function calls have come."""
        turn.record_finish(event.reason)
        if turn.reply.calls:
            look_ups.start(self._context, turn, now_ms)
        self._step(turn, now_ms, ready=bool(turn.reply.calls))

    def clause_handed_over(self, turn: Turn, event: e.ClauseHandedOver, now_ms: int) -> None:
        """Record that a clause was given to the TTS, or said by a speech-to-speech model."""
        turn.reply.clauses.append(ClauseSound(event.text))
        if turn.by_speech_model:
            return
        turn.mark(attribution.FIRST_CLAUSE, now_ms)
        turn.account.providers["tts"] = event.provider
        turn.account.waited_for["tts"] = turn.account.waited_for.get("tts") or event.provider
        turn.account.tts_usage.add_played(event.provider, len(event.text) if event.n_chars is None else event.n_chars)
        turn.reply.actions += ["short_clause"] if event.shortened else []
        self._step(turn, now_ms, ready=False)

    def sound_arrived(self, turn: Turn, event: e.SoundArrived, now_ms: int) -> None:
        """Record audio from the TTS: the reply has something to play."""
        if event.audible_after_ms is not None and turn.audio.audible_at_ms is None:
            turn.audio.audible_at_ms = turn.audio.arrived_ms + event.audible_after_ms
            turn.mark(attribution.FIRST_SOUND, now_ms)
        turn.add_sound(event.clause, event.duration_ms, event.word_starts_ms)
        self._step(turn, now_ms, ready=True)

    def synthesis_finished(self, turn: Turn, event: e.SynthesisFinished, now_ms: int) -> None:
        """Record that all audio has come."""
        turn.reply.voice_done = True
        self._step(turn, now_ms, ready=True)

    def output_sent(self, turn: Turn, event: e.OutputSent, now_ms: int) -> None:
        """Record output sent to the client. Without playback reports, audio is assumed to play at once, after what
        plays already.
        """
        if not turn.settings.audible:
            turn.mark(attribution.FIRST_SENT, now_ms)
        if event.duration_ms:
            if turn.audio.starts_ms is None:
                turn.audio.behind = responses.earlier_audio(turn, self.replies.all, self._playback.ends_ms, now_ms)
            starts_ms = self._playback.send(event.duration_ms, now_ms)
            if turn.audio.starts_ms is None:
                turn.audio.starts_ms = starts_ms
            turn.audio.sent_ms += event.duration_ms
            turn.audio.plays_until_ms = self._playback.ends_ms
            turn.audio.latest_ms = self._playback.prompt_ends_ms + self._context.core.deadlines.progress_ms
            responses.mark_audible(turn, starts_ms, event.duration_ms, now_ms)
        self._go_on(turn, now_ms)

    def filler_sent(self, turn: Turn, event: e.FillerSent, now_ms: int) -> None:
        """Record filler audio sent to the client. The answer's own audio plays after it."""
        turn.mark(attribution.FILLER_SENT, now_ms)
        turn.mark(attribution.FILLER_AUDIBLE, self._playback.send(event.duration_ms, now_ms))
        turn.filler.sent_ms += event.duration_ms
        responses.put(self._context, turn, responses.filler(turn))

    # --- end ----------------------------------------------------------------------------------

    def fail(self, turn: Turn, stage: FailedStage, why: str, now_ms: int, *, code: str = "") -> None:
        """End a turn that cannot be answered, and notify the client; the conversation goes on. `code`: the error code
        for the client, if it is not that of the stage.

        What was sent already is played to its end, so the reply is cut there and not where it plays now.
        """
        if not turn.words:  # the client is not notified of an apology that cannot be made
            responses.start_response(self._context, turn)
        responses.cut(self._context, turn, turn.audio.sent_ms)
        self._stop(turn)
        turn.failed_stage = stage
        responses.end_response(self._context, turn, "failed", code or f"{stage}_failed", why)
        if apology.follows_failure(self._context, turn, stage):
            self._context.turns.failed.append(turn)
        self._close(turn, "failed", f"{stage}: {why}", now_ms)

    def give_up(self, turn: Turn, outcome: Outcome, reason: str, now_ms: int, *, client_reason: str) -> None:
        """End a turn early. `client_reason` is the reason sent to the client: `turn_detected` or `client_cancelled`."""
        responses.cut(self._context, turn, turn.audio.played_ms(now_ms))
        self._stop(turn)
        responses.end_response(self._context, turn, "cancelled", client_reason)
        self._close(turn, outcome, reason, now_ms)
        if turn.reply.gate is Gate.OPEN or turn.filler.words:
            self.fall_silent(now_ms)

    def cancel(self, response_id: str | None, now_ms: int) -> bool:
        """Cancel the running response for the client; return False when none runs, or none of that id."""
        found = [t for t in self.replies.all if t.reply.response_open and response_id in (None, t.reply.response_id)]
        target = next(iter(sorted(found, key=lambda t: t is not self.turn)), None)  # the conversation's own reply first
        if target is None:
            return False
        outcome: Outcome = "interrupted" if target.reply.gate is Gate.OPEN else "abandoned"
        self.give_up(target, outcome, "client_cancelled", now_ms, client_reason="client_cancelled")
        return True

    def revise(self, turn: Turn) -> None:
        """Start the turn's next revision: the user goes on before any audio was played."""
        if self.turn is turn:
            self._context.transitions.changed = True
            self._stop(turn)
            responses.end_response(self._context, turn, "cancelled", "turn_detected")
            self._context.learned.reply_ended(turn)
            if turn.reply.gate is Gate.SUSPENDED:
                soft_reply.take_back(self._context, turn)
            self._drop_current()
        turn.revise()

    def duck(self) -> None:
        """Mark the reply as ducked: a user speaks over it, and whether this is an interruption is undecided."""
        if self.state is AgentState.SPEAKING:
            self._move(AgentState.DUCKED)

    def unduck(self) -> None:
        """Unmark it: there was no interruption."""
        if self.state is AgentState.DUCKED:
            self._move(AgentState.SPEAKING)

    def interrupt(self, now_ms: int) -> None:
        """Stop the reply at the point that the user heard: the user interrupts."""
        if self.state in (AgentState.SPEAKING, AgentState.DUCKED):
            self._move(AgentState.INTERRUPTED)
        for turn in self.replies.of_conversation:
            outcome: Outcome = "interrupted" if turn.reply.gate is Gate.OPEN else "abandoned"
            self.give_up(turn, outcome, "turn_detected", now_ms, client_reason="turn_detected")

    def truncated(self, turn: Turn, cut_ms: int, now_ms: int) -> None:
        """Cut a reply at the position that the client reports. A reply that was only playing is silent now."""
        whole = responses.move_cut(self._context, turn, cut_ms)
        turn.audio.cut_reported = True
        if turn.outcome is not None:
            turn.outcome, turn.reason = (
                _how_it_went(turn) if turn.outcome == "completed" else (turn.outcome, turn.reason)
            )
            record_builder.keep(self._context, turn, now_ms)
        elif not whole and turn.reply.gate is Gate.OPEN and not turn.reply.response_open:
            self._stop(turn)
            self._close(turn, *_how_it_went(turn), now_ms)
            self.fall_silent(now_ms)
        elif not whole and turn.reply.gate is Gate.OPEN and self._context.core.truncation_ends_reply:
            self.give_up(turn, "interrupted", "client_truncated", now_ms, client_reason="client_cancelled")

    def playback_reported(self, event: e.PlaybackReported, now_ms: int) -> None:
        """Apply the client's playback report: it moves the end of a running reply, or the cut of a truncated reply."""
        turn = self.replies.remembered(event.item_id)
        if turn is None or not turn.audio.sent_ms:
            return
        played_ms = responses.clamped_ms(turn, event.played_ms)
        is_estimated = responses.record_carrier_delay(turn, event.carrier_estimated_ms)
        is_changed = responses.record_audible(turn, played_ms, event.input_ms, now_ms) or is_estimated
        if turn.reply.gate is Gate.SUSPENDED:
            if not turn.audio.cut_reported:
                responses.move_cut(self._context, turn, played_ms)
            return
        if turn.outcome is None:
            responses.move_end(turn, played_ms, self.replies.all, now_ms)
            self._playback.ends_ms = max(each.audio.plays_until_ms for each in self.replies.all)
            self._await_playback(turn, now_ms)
            return
        before_ms = turn.audio.cut_ms
        if turn.outcome != "completed" and not turn.audio.cut_reported:
            responses.move_cut(self._context, turn, played_ms)
        if is_changed or turn.audio.cut_ms != before_ms:
            record_builder.keep(self._context, turn, now_ms)

    def played(self, now_ms: int) -> None:
        """Close the turns whose audio has been played."""
        for turn in self.replies.all:
            if turn.all_sent:
                self._await_playback(turn, now_ms)

    def connection_resumed(self, missed: dict[int, int], now_ms: int) -> None:
        """Resume playback after a reconnect: what had not arrived (turn -> ms) plays from now on."""
        self._context.timers.clear(Timer(Due.PLAYBACK))
        self._playback.resume(self.replies.all, missed, now_ms, self._context.core.deadlines.progress_ms)
        self.played(now_ms)

    def hang_up(self, why: str, now_ms: int) -> None:
        """End every running turn: the session is over."""
        for turn in self.replies.all:
            # A response that was sent to its end is abandoned by no one, though it may not have been played yet.
            complete = turn.reply.gate is Gate.OPEN and not turn.reply.response_open
            outcome: Outcome = "completed" if complete else "abandoned"
            self.give_up(turn, outcome, why, now_ms, client_reason="client_cancelled")

    def write_down(self) -> None:
        """Write what the running replies have said into the conversation."""
        for turn in self.replies.all:
            responses.write_down(self._context, turn)

    # --- helpers ------------------------------------------------------------------------------

    def _step(self, turn: Turn, now_ms: int, *, ready: bool) -> None:
        """Advance the reply by one step."""
        if turn.reply.gate is Gate.OPEN:
            if len(turn.reply.started_items) <= len(turn.reply.calls):  # the message, or a call, has not begun
                responses.start_items(self._context, turn)
            self._go_on(turn, now_ms)
        elif turn is not self.turn:
            if ready:
                self.open_gate(turn, now_ms)
        elif ready and self.state is AgentState.PREPARING:
            self._move(AgentState.READY)
            self._context.timers.output_came(turn.number)

    def _go_on(self, turn: Turn, now_ms: int) -> None:
        """Advance a reply whose gate is open.

        Once all output has come the response is over; the turn is over when the output has been played.
        """
        held = bool(turn.reply.calls) and turn.question.effects_at_ms is not None
        if turn.reply.response_open and turn.reply.finish_reason and turn.reply.voice_done and not held:
            self._context.transitions.changed = True
            responses.finish_response(self._context, turn)
            self._context.timers.await_nothing(turn.number)
            if turn.reply.calls and turn.settings.in_conversation:
                self._await_tools(turn, now_ms)
            record_builder.keep(self._context, turn, now_ms)
        if turn.reply.response_open:
            self._context.timers.await_progress(turn.number, now_ms)
        else:
            self._await_playback(turn, now_ms)

    def _await_tools(self, turn: Turn, now_ms: int) -> None:
        """Wait for the results of the turn's function calls: until they are answered, the turn is not over. One that
        called before it is.
        """
        self.give_up_tools(now_ms)
        turn.record_calls(now_ms)
        self._context.turns.awaits_tools, self._context.turns.tools_overtaken = turn, False
        self._context.timers.set(Timer(Due.TOOL), now_ms + self._context.core.deadlines.tool_ms)

    def give_up_tools(self, now_ms: int) -> None:
        """End the turn that awaits the results of its function calls, as it is: a later result is answered in a turn of
        its own.
        """
        turn, self._context.turns.awaits_tools = self._context.turns.awaits_tools, None
        self._context.timers.clear(Timer(Due.TOOL))
        if turn is None:
            return
        if turn.reply.look_ups:
            look_ups.drop(self._context, turn)
        turn.tool_calls = {
            call_id: replace(call, outcome="unanswered") if call.ran_by == "client" else call
            for call_id, call in turn.tool_calls.items()
        }
        if turn.outcome is not None:
            record_builder.keep(self._context, turn, now_ms)

    def _await_playback(self, turn: Turn, now_ms: int) -> None:
        if turn.reply.response_open or turn.reply.gate is not Gate.OPEN:
            return
        if not turn.all_sent:
            self._context.timers.await_progress(turn.number, now_ms)
        elif turn.audio.plays_until_ms <= now_ms and turn.question.effects_at_ms is not None:
            self._context.timers.await_nothing(turn.number)  # `release_effects` ends it
        elif turn.audio.plays_until_ms <= now_ms and self._context.timers.lost_ms is None:
            self._close(turn, *_how_it_went(turn), now_ms)
        else:
            self._context.timers.await_nothing(turn.number)
            timers, timer = self._context.timers, Timer(Due.PLAYBACK)
            timers.set(timer, min(turn.audio.plays_until_ms, timers.due.get(timer, turn.audio.plays_until_ms)))

    def _stop(self, turn: Turn) -> None:
        if turn.reply.item_id:  # otherwise the reply was never started
            self._context.issue(StopReply(turn.number, turn.reply.revision))
        if turn.reply.look_ups:
            look_ups.drop(self._context, turn)
        self._context.timers.await_nothing(turn.number)

    def _close(self, turn: Turn, outcome: Outcome, reason: str, now_ms: int) -> None:
        self._context.timers.await_nothing(turn.number)
        if turn is self.turn and turn.question.reversible_ms:
            responses.make_irrevocable(self._context, turn)
        self._context.learned.reply_ended(turn)
        record_builder.close(self._context, turn, outcome, reason, now_ms)
        self._context.transitions.changed = True
        self.replies.end(turn)
        if turn is self.turn:
            self._drop_current()

    def _drop_current(self) -> None:
        """Drop the running reply; an earlier reply may still be playing."""
        self.replies.drop_current()
        playing = AgentState.DUCKED if self.state is AgentState.DUCKED else AgentState.SPEAKING
        self._move(AgentState.IDLE if self.turn is None else playing)

    def fall_silent(self, now_ms: int) -> None:
        """Flush playback after a cut: the client's buffer holds only what the other replies have sent."""
        self._playback.flush(max([now_ms, *(turn.audio.plays_until_ms for turn in self.replies.all)]))

    def _move(self, to: AgentState) -> None:
        self.state = self._context.transitions.move(self.state, to)


def _awaited(turn: Turn) -> FailedStage:
    """Return the stage whose next output a running reply waits for."""
    if turn.audio.sent_ms < turn.audio.arrived_ms:
        return "client"
    return "tts" if turn.reply.finish_reason else "llm"


def _how_it_went(turn: Turn) -> tuple[Outcome, str]:
    """Return the outcome of a reply that was generated to its end, and the reason unless it simply completed."""
    if turn.audio.cut_ms is not None and turn.audio.cut_ms < turn.audio.arrived_ms:
        return "interrupted", "client_truncated"
    return "completed", "" if turn.reply.finish_reason in ("stop", "tool_calls") else turn.reply.finish_reason
