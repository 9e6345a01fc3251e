"""Speech over the agent's: duck the agent, decide whether it is an interruption, and stop the agent or go on.

A listener's "mhm" must not stop the agent, and an interruption must, soon. In the first tenths of a second both are
alike. The agent is therefore ducked at once, and the decision waits for evidence: words, or speech that lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from voicepipe.turn import backchannels, transcripts
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.commands import Duck, FlushTranscript
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.settings import CoreSettings
from voicepipe.turn.states import AgentState, OverlapState, UserState
from voicepipe.turn.turn import Utterance
from voicepipe.turn.user import UserSide

SUSTAINED_MS: Final = 1_000
"""How long near speech must last to be an interruption, whatever its words, in ms.

Backchannels are over within a second: they are one or two short words, and a listener who speaks for longer has
something to say. A shorter limit stops the agent at "yeah, okay"; with a longer limit both talk at once for longer
than either accepts.
"""

MEMORY_MS: Final = 2_000
AHEAD_MS: Final = 500
"""What the agent said this long before the speech began may come back as its echo, in ms.

It covers the network way to the client and back, the client's buffer, and a late transcriber. It also covers audio that
a client plays earlier than the core assumes.
"""

_ECHO_TAIL_MS: Final = 2_000
"""How long after its last audio the agent's echo may last, in ms, for the same reasons."""

_UNDECIDED: Final = (OverlapState.UNDECIDED, OverlapState.UNDECIDED_OVER)
"""The states in which the agent is ducked."""

_OVER: Final = (OverlapState.OVER, OverlapState.UNDECIDED_OVER)
"""The states in which the silence after the speech is as long as after a turn."""


@dataclass(slots=True)
class Overlap:
    """The speech over the agent's, from its onset until it is an interruption or has ended."""

    utterance: Utterance
    began_ms: int
    ducked_ms: int = 0
    state: OverlapState = OverlapState.UNDECIDED
    paused: e.SpeechPaused | None = None
    announced: bool = False
    """The client was notified of its start."""

    earlier_ms: int = 0
    voiced_ms: int = 0
    """How long it was voiced, without its pauses, in ms; `earlier_ms` of that before the latest stretch."""

    excused_ms: int = 0
    """How much of that was backchannels or echo, by the transcript, in ms."""

    echoes: bool = False
    """Its current audio resembles the agent's."""

    nonlexical: bool = True
    """It has been nonlexical so far."""

    meaning: backchannels.Meaning = "nothing"

    def add(self, event: e.SpeechWentOn) -> None:
        """Add the VAD's report of how long it lasts."""
        self.voiced_ms, self.echoes = self.earlier_ms + event.voiced_ms, event.echoes
        self.nonlexical = self.nonlexical and event.nonlexical

    def is_reliable(self, core: CoreSettings) -> bool:
        """Return whether a text of it can be the user's words, and words at all."""
        spoke = self.voiced_ms >= SUSTAINED_MS or not self.nonlexical
        return not self.echoes and (core.short_words or spoke)

    @property
    def dismiss_reason(self) -> a.DismissReason:
        """Return why it is not an interruption so far."""
        if self.echoes or self.meaning == "echo":
            return "echo"
        return "acknowledgement" if self.meaning == "acknowledgement" else "no_words"


class Interruptions:
    """Judge one overlap at a time. If the agent cannot be interrupted, or any speech interrupts it, there is nothing to
    judge.
    """

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide, answers: Answers) -> None:
        self._context, self._user, self._agent, self._answers = context, user, agent, answers
        self.overlap: Overlap | None = None
        """The speech over the agent's that is being judged."""

        self.echoing = False
        """The latest overlap was the agent's own echo: the agent is not ducked for another until that proves to be no
        echo.
        """

    @property
    def undecided(self) -> bool:
        """Return whether the agent is ducked, so that nothing new may begin."""
        return self.overlap is not None and self.overlap.state in _UNDECIDED

    # --- VAD ----------------------------------------------------------------------------------

    def speech_started(self, event: e.SpeechStarted, now_ms: int) -> bool:
        """Handle speech that starts, for the first time or again; return whether it is judged here."""
        overlap = self.overlap
        if overlap is None:
            if not self._to_be_judged():
                return False
            utterance = self._user.utterances.begin(event.audio_start_ms, unreported=True)
            self.overlap = overlap = Overlap(utterance, event.onset_ms)
            self._context.timers.set(Timer(Due.OVERLAP), now_ms + self._context.core.deadlines.utterance_ms)
        elif overlap.paused is None:
            return True
        overlap.paused = None
        overlap.earlier_ms = overlap.voiced_ms
        self._duck(overlap, now_ms)
        return True

    def _to_be_judged(self) -> bool:
        settings = self._context.settings
        enabled = self._context.may_interrupt and settings.interruption == "confirmed" and not self._user.manual
        return enabled and self._user.state is UserState.QUIET and self._context.replies.playing is not None

    def speech_went_on(self, event: e.SpeechWentOn, now_ms: int) -> None:
        """Handle speech that lasts: after the limit it is an interruption, unless it is the agent's own echo."""
        overlap = self.overlap
        if overlap is None or overlap.paused is not None:
            return
        overlap.add(event)
        if not overlap.echoes and overlap.voiced_ms - overlap.excused_ms >= SUSTAINED_MS:
            self._take("sustained", now_ms)

    def speech_paused(self, event: e.SpeechPaused) -> bool:
        """Request the transcript at a pause. Return whether there was an overlap."""
        overlap = self.overlap
        if overlap is None:
            return False
        if overlap.paused is None:
            overlap.paused = event
            overlap.utterance.audio_end_ms = event.audio_end_ms
            overlap.utterance.pauses += 1
            if overlap.utterance.pauses <= self._context.core.max_flushes:
                self._request_transcript(overlap.utterance)
        return True

    def silence_grew(self, event: e.SilenceGrew, now_ms: int) -> None:
        """Handle a longer silence: after the silence of a turn the overlap is over."""
        overlap = self.overlap
        if (
            overlap is not None
            and overlap.paused
            and overlap.state not in _OVER
            and event.silence_ms >= self._user.strategy.wait_ms()
        ):
            undecided = overlap.state is OverlapState.UNDECIDED
            overlap.state = OverlapState.UNDECIDED_OVER if undecided else OverlapState.OVER
            self._context.timers.set(Timer(Due.OVERLAP), now_ms + self._context.core.deadlines.transcript_ms)
            self._request_transcript(overlap.utterance)
            self._dismiss(now_ms)

    def _request_transcript(self, utterance: Utterance) -> None:
        """Request the transcript, unless it was requested since the pause."""
        if utterance.requested_pause < utterance.pauses:
            utterance.requested_pause = utterance.pauses
            self._context.issue(FlushTranscript(utterance.number, utterance.pauses))

    # --- transcriber --------------------------------------------------------------------------

    def transcript_grew(self, event: e.TranscriptGrew, now_ms: int) -> None:
        """Judge the interim text. A backchannel may go on: it decides nothing yet."""
        overlap = self.overlap
        known = overlap is not None and overlap.paused is not None and overlap.utterance.known
        if overlap is not None and overlap.utterance.number == event.utterance and not known:
            self._judge_words(overlap, event.text, None, now_ms)

    def transcript_finished(self, event: e.TranscriptFinished, now_ms: int) -> None:
        """Judge the final text."""
        overlap = self.overlap
        if overlap is None or overlap.utterance.number != event.utterance:
            return
        self._judge_words(overlap, event.text, event.language, now_ms)
        if self.overlap is overlap:
            self._unduck(overlap, now_ms)
            self._dismiss(now_ms)

    def transcript_failed(self, now_ms: int) -> None:
        """Stop waiting for the transcript: there will be none."""
        self._dismiss(now_ms)

    def _judge_words(self, overlap: Overlap, text: str, language: str | None, now_ms: int) -> None:
        spoken = self._context.replies.words_between(overlap.began_ms - MEMORY_MS, now_ms + AHEAD_MS, now_ms)
        known = language or self._context.settings.language or self._context.user_language
        overlap.meaning = backchannels.meaning(text, known, agent=spoken)
        match overlap.meaning:
            case "stop_word":
                self._take("stop_word", now_ms)
            case "words" if overlap.is_reliable(self._context.core):
                self._take("words", now_ms)
            case "acknowledgement" | "echo":
                overlap.excused_ms = overlap.voiced_ms

    # --- time and other events ----------------------------------------------------------------

    def interruption_due(self, now_ms: int) -> None:
        """Restore the agent's volume: there was no evidence of an interruption in time. Later evidence still counts."""
        if self.overlap is not None:
            self._unduck(self.overlap, now_ms)

    def overdue(self, now_ms: int) -> None:
        """Drop the overlap: its transcript never came, or it neither lasts nor ends. The next speech starts anew."""
        self.drop(now_ms)

    def update(self, now_ms: int) -> None:
        """Update after an event: once the agent has finished, an overlap becomes the user's turn.

        This includes a backchannel: so close to the end it is an answer. Only the agent's own echo is left out.
        """
        overlap = self.overlap
        if overlap is None or self._agent.state is not AgentState.IDLE or any(self._answers.n_queued):
            return
        if overlap.dismiss_reason != "echo":
            self._take("sustained", now_ms)
        elif overlap.paused:
            self.drop(now_ms)
        else:
            overlap.state = OverlapState.TOLERATED
            timers = self._context.timers
            timers.clear(Timer(Due.INTERRUPTION))
            timers.set(Timer(Due.OVERLAP), min(timers.due[Timer(Due.OVERLAP)], now_ms + _ECHO_TAIL_MS))

    def committed(self, now_ms: int) -> None:
        """Make the overlap a turn: the client commits it."""
        if self.overlap is not None:
            self._take("client", now_ms)

    def settings_changed(self, now_ms: int) -> None:
        """Drop the overlap if the new settings allow no interruption."""
        settings = self._context.settings
        if settings.detection == "none" or not settings.interrupt_response:
            self.drop(now_ms)

    def drop(self, now_ms: int) -> None:
        """Drop the overlap."""
        overlap = self.overlap
        if overlap is not None:
            self._unduck(overlap, now_ms)
            self.echoing = overlap.dismiss_reason == "echo"
            self._end()
            if overlap.announced:
                transcripts.commit_sound(self._context, overlap.utterance)
            else:
                self._user.utterances.drop(overlap.utterance)

    def adopt(self, overlap: Overlap, now_ms: int) -> None:
        """Judge speech that has ended without words so far, over an answer that goes on."""
        self.overlap = overlap
        overlap.state, overlap.announced = OverlapState.OVER, True
        self._context.timers.set(Timer(Due.OVERLAP), now_ms + self._context.core.deadlines.transcript_ms)

    # --- helpers ------------------------------------------------------------------------------

    def _duck(self, overlap: Overlap, now_ms: int) -> None:
        playing = self._context.replies.playing
        undecided = playing is not None and not self.echoing
        overlap.state = OverlapState.UNDECIDED if undecided else OverlapState.TOLERATED
        overlap.ducked_ms = now_ms
        if playing is None:  # an answer is being generated, and none of it is audible
            return
        self._context.issue(Duck(playing.number))
        if not undecided:
            return
        self._agent.duck()
        self._context.timers.set(Timer(Due.INTERRUPTION), now_ms + self._context.core.deadlines.interruption_ms)
        if self._context.settings.ducks:
            self._context.notify(a.AgentDucked(playing.id, playing.reply.item_id))

    def _unduck(self, overlap: Overlap, now_ms: int) -> None:
        if overlap.state not in _UNDECIDED:
            return
        over = overlap.state is OverlapState.UNDECIDED_OVER
        overlap.state = OverlapState.OVER if over else OverlapState.TOLERATED
        self._context.timers.clear(Timer(Due.INTERRUPTION))
        self._agent.unduck()
        if self._context.settings.ducks and (playing := self._context.replies.playing) is not None:
            after_ms = now_ms - overlap.ducked_ms
            self._context.notify(a.AgentUnducked(playing.id, playing.reply.item_id, overlap.dismiss_reason, after_ms))

    def _take(self, reason: a.InterruptReason, now_ms: int) -> None:
        """Make the overlap an interruption. The client is notified of the speech first, and then of what it ends."""
        overlap, playing = self.overlap, self._context.replies.playing
        assert overlap is not None
        self.echoing = False
        self._end()
        self._user.take_turn(overlap.utterance, overlap.paused, now_ms)
        if playing is not None and self._context.settings.ducks:
            self._context.notify(
                a.AgentInterrupted(playing.id, playing.reply.item_id, reason, now_ms - overlap.ducked_ms)
            )
        self._answers.interrupt(now_ms)

    def _dismiss(self, now_ms: int) -> None:
        """Dismiss the overlap if it is over and its words are known: they were no interruption."""
        if self.overlap is not None and self.overlap.state in _OVER and self.overlap.utterance.known:
            self.drop(now_ms)

    def _end(self) -> None:
        self.overlap = None
        self._context.timers.clear(Timer(Due.INTERRUPTION), Timer(Due.OVERLAP))
