"""Soft start: an answer that began before the end of the turn was certain, and that the user's voice takes back.

The answer stops at once, without a decision. Then the voice is judged. With words, it continues the turn: the answer is
dropped, and one to all that was said takes its place. Without words (a cough, noise, the agent's echo) the answer goes
on at the word where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from voicepipe.turn import backchannels, effects, transcripts
from voicepipe.turn import events as e
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.commands import Duck
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.interruptions import AHEAD_MS, MEMORY_MS, SUSTAINED_MS, Interruptions, Overlap
from voicepipe.turn.record import attribution
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.states import Gate, OverlapState, UserState
from voicepipe.turn.turn import USERS_MARKS, Turn
from voicepipe.turn.user import UserSide

SOUND_MS: Final = 500
"""How long a sound without words may be voiced, in ms. Coughs and throat clearing are shorter."""

WORDS_DUE_MS: Final = 600
"""How long after a sound's last voiced sample its words are awaited, in ms, before the answer goes on.

The answer must be audible again 700 ms after the sound. Words that come later interrupt it as they would any answer.
After a longer voice, which is hardly a sound, the STT's usual time is allowed if that is longer.
"""


@dataclass(slots=True)
class _Pending:
    """An end that the user's voice has taken back, until it is known whether the voice has words."""

    turn: Turn
    overlap: Overlap
    """What is known of the voice."""

    pause_ms: int
    """The silence before the voice."""

    marks: dict[str, int]
    t0_audio_ms: int | None
    reversible_ms: int
    effects_at_ms: int | None
    """The turn's end, as it was before."""


class SoftStarts:
    """Take back the end of a turn, or restore it."""

    def __init__(
        self, context: TurnContext, user: UserSide, agent: AgentSide, interruptions: Interruptions, answers: Answers
    ) -> None:
        self._context, self._user, self._agent, self._interruptions = context, user, agent, interruptions
        self._answers = answers
        self._pending: _Pending | None = None

    def _current(self) -> _Pending | None:
        pending = self._pending
        if pending is not None and not (self._agent.turn is pending.turn and pending.turn.reply.gate is Gate.SUSPENDED):
            self._clear()  # the reply has failed, or the client has dropped it
        return self._pending

    # --- VAD ----------------------------------------------------------------------------------

    def speech_started(self, event: e.SpeechStarted, now_ms: int) -> bool:
        """Stop an answer that began softly; return whether the speech is judged here."""
        pending = self._current()
        if pending is not None:
            self._go_on_listening(pending, event, now_ms)
            return True
        turn = self._agent.turn
        if turn is None or not self._may_take_back(turn, now_ms):
            return False
        self._take_back(turn, event, now_ms)
        return True

    def _may_take_back(self, turn: Turn, now_ms: int) -> bool:
        settings = self._context.settings
        free = self._user.state is UserState.QUIET and self._interruptions.overlap is None
        allowed = settings.interrupt_response and not self._user.manual and not self._interruptions.echoing
        return free and allowed and self._agent.may_take_back(turn, now_ms)

    def _take_back(self, turn: Turn, event: e.SpeechStarted, now_ms: int) -> None:
        question = turn.question
        t0_ms = turn.marks.get(attribution.VOICED_LAST, event.onset_ms)
        marks = {name: turn.marks[name] for name in USERS_MARKS if name in turn.marks}
        before = (marks, question.t0_audio_ms, question.reversible_ms, question.effects_at_ms)
        # The client is notified of the speech first, and then of what it ends.
        utterance = self._user.take_back(turn, event, now_ms)
        overlap = Overlap(utterance, event.onset_ms, state=OverlapState.TOLERATED)
        self._pending = _Pending(turn, overlap, max(0, event.onset_ms - t0_ms), *before)
        self._agent.suspend(turn, now_ms)
        self._context.issue(Duck(turn.number))

    def _go_on_listening(self, pending: _Pending, event: e.SpeechStarted, now_ms: int) -> None:
        pending.overlap.paused = None
        pending.overlap.earlier_ms = pending.overlap.voiced_ms
        self._context.timers.clear(Timer(Due.CONTINUE))
        self._user.speech_started(event, now_ms)
        self._context.issue(Duck(pending.turn.number))

    def speech_went_on(self, event: e.SpeechWentOn) -> None:
        """Note how long the voice lasts."""
        pending = self._current()
        if pending is None or pending.overlap.paused is not None:
            return
        pending.overlap.add(event)

    def speech_paused(self, event: e.SpeechPaused, now_ms: int) -> None:
        """Wait for the words, or go on at once if the voice was the agent's own."""
        pending = self._current()
        if pending is None or pending.overlap.paused is not None:
            return
        pending.overlap.paused = event
        if pending.overlap.echoes:
            self._restore(pending, now_ms)
            return
        due_ms = WORDS_DUE_MS
        if pending.overlap.voiced_ms > SOUND_MS:
            due_ms = max(due_ms, self._context.learned.finals.timeout_ms)
        self._context.timers.set(Timer(Due.CONTINUE), event.last_voiced_ms + due_ms)

    # --- transcriber --------------------------------------------------------------------------

    def transcript_grew(self, event: e.TranscriptGrew, now_ms: int) -> None:
        """Look for words in an interim text."""
        pending = self._current()
        if pending is not None and pending.overlap.utterance.number == event.utterance:
            self._judge_words(pending, event.text, None, now_ms)

    def transcript_finished(self, event: e.TranscriptFinished, now_ms: int) -> None:
        """Look for words in a final text; without any the answer goes on."""
        pending = self._current()
        if pending is None or pending.overlap.utterance.number != event.utterance:
            return
        has_words = self._judge_words(pending, event.text, event.language, now_ms)
        if not has_words and pending.overlap.paused is not None and pending.overlap.utterance.known:
            self._restore(pending, now_ms)

    def transcript_failed(self, event: e.TranscriberFailed, now_ms: int) -> None:
        """Decide without a text: there will be none."""
        pending = self._current()
        if pending is not None and pending.overlap.utterance.number == event.utterance and pending.overlap.paused:
            self._decide_without_text(pending, now_ms)

    def _decide_without_text(self, pending: _Pending, now_ms: int) -> None:
        """Resume the turn after a voice that lasted for a second, which rarely has no words; else restore it."""
        overlap = pending.overlap
        if not overlap.echoes and overlap.voiced_ms >= SUSTAINED_MS:
            self._resume(pending, now_ms)
        else:
            self._restore(pending, now_ms)

    def _judge_words(self, pending: _Pending, text: str, language: str | None, now_ms: int) -> bool:
        """Resume the turn if this text has words; return whether it has."""
        overlap = pending.overlap
        spoken = self._context.replies.words_between(overlap.began_ms - MEMORY_MS, now_ms + AHEAD_MS, now_ms)
        known = language or self._context.settings.language or self._context.user_language
        overlap.meaning = backchannels.meaning(text, known, agent=spoken)
        lexical = overlap.meaning not in ("nothing", "echo") and not backchannels.is_sound(text)
        if not lexical or not overlap.is_reliable(self._context.core):
            return False
        self._resume(pending, now_ms)
        return True

    # --- what follows -------------------------------------------------------------------------

    def overdue(self, now_ms: int) -> None:
        """Decide without a text: none has come in time."""
        pending = self._current()
        if pending is not None:
            self._decide_without_text(pending, now_ms)

    def drop(self, now_ms: int) -> None:
        """Go on with the answer: the client drops what the user says."""
        pending = self._current()
        if pending is not None:
            self._restore(pending, now_ms, dropped=True)

    def take_for_speech(self, now_ms: int) -> None:
        """Continue the turn, whatever the voice was: a deadline or the client ends the turn."""
        pending = self._current()
        if pending is not None:
            self._resume(pending, now_ms)

    def _resume(self, pending: _Pending, now_ms: int) -> None:
        """Continue the turn: the answer so far is dropped."""
        self._clear()
        self._interruptions.echoing = False
        pending.turn.question.n_resumed += 1
        self._user.resumed(pending.pause_ms)
        self._answers.drop_waiting(now_ms)
        self._agent.revise(pending.turn)

    def _restore(self, pending: _Pending, now_ms: int, *, dropped: bool = False) -> None:
        """Restore the end of the turn, and go on with the answer. Words that come later are an interruption, unless
        the voice is `dropped`.
        """
        self._clear()
        turn, overlap = pending.turn, pending.overlap
        self._interruptions.echoing = overlap.dismiss_reason == "echo"
        self._user.leave_without(overlap.utterance)
        for name in USERS_MARKS:
            turn.marks.pop(name, None)
        turn.marks.update(pending.marks)
        turn.question.t0_audio_ms = pending.t0_audio_ms
        effects.restore(self._context, turn, pending.reversible_ms, pending.effects_at_ms)
        if dropped:
            self._user.utterances.drop(overlap.utterance)
        elif overlap.utterance.known or overlap.echoes:
            if overlap.dismiss_reason == "echo":
                overlap.utterance.text = ""  # the agent's own words
            transcripts.commit_sound(self._context, overlap.utterance)
        else:
            self._interruptions.adopt(overlap, now_ms)
        self._agent.open_gate(turn, now_ms)

    def _clear(self) -> None:
        self._pending = None
        self._context.timers.clear(Timer(Due.CONTINUE))

    # --- function calls and the outcome -------------------------------------------------------

    def effects_due(self, number: int, now_ms: int) -> None:
        """Release the function calls and the outcome of the turn: its end is certain."""
        turn = self._context.turns.soft.pop(number)
        turn.question.effects_at_ms = None
        self._agent.release_effects(turn, now_ms)

    def user_left(self, now_ms: int) -> None:
        """Hold no outcome any more: the session is over. Function calls that have not left are lost."""
        self._clear()
        held, self._context.turns.soft = self._context.turns.soft, {}
        for turn in held.values():
            turn.question.effects_at_ms = None
            if turn.outcome is not None:
                self._agent.release_effects(turn, now_ms)
