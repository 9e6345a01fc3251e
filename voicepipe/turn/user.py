"""The user's side of a turn: from the first voiced sample to the transcript."""

from __future__ import annotations

from typing import Final

from voicepipe.turn import effects, languages, transcripts
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import BeginUtterance, DropUtterance, EndUtterance, FlushTranscript, TranscribeRecording
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import InputAudio, Message
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategies import TRANSCRIBER_SILENCE_MS, EndpointSteps, SupervisedStrategy
from voicepipe.turn.endpointing.strategy import Decision, Strategies
from voicepipe.turn.record import attribution
from voicepipe.turn.states import SpeechEnd, TranscriptState, UserState
from voicepipe.turn.turn import Turn, Utterance

VAD_CONFIRMS_MS = 300
"""How long the STT's end-of-speech event is trusted while the VAD still detects speech, in ms.

The VAD detects a pause 80 ms after the last voiced sample, or up to 230 ms when speech fades slowly.
"""

HOLD_GRACE_MS = 2_000
"""How much later than the required silence a pause ends by the clock alone, should the VAD send nothing either."""


REMEMBERED_UTTERANCES: Final = 8
"""Number of the latest utterances that still take a late text; an utterance whose text is awaited is always among them.
"""


class Utterances:
    """Numbers the utterances, and finds one by its number."""

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self._recent: list[Utterance] = []
        self.recorded = False
        """A recording was transcribed, for which no turn has paid yet."""

        self._stt_took_ms: int | None = None
        """How long connecting to the STT took, in ms; None: the STT has no permanent connection, or none yet."""

    def begin(self, audio_start_ms: int, *, unreported: bool = False) -> Utterance:
        """Begin a new utterance; the user's audio counts as it from here on. `unreported`: the client is not
        notified of it yet.
        """
        item_id = self._context.new_id("item")
        number = self._context.counts["utterance"] = self._context.counts.get("utterance", 0) + 1
        utterance = Utterance(number, item_id, audio_start_ms, unreported=unreported, stt_hidden_ms=self._stt_took_ms)
        self._remember(utterance)
        self._context.issue(BeginUtterance(number))
        return utterance

    def record(self, item_id: str, recording_ms: int, now_ms: int) -> None:
        """Have the recordings of an item transcribed; replies wait for the text as for that of a commit."""
        number = self._context.counts["utterance"] = self._context.counts.get("utterance", 0) + 1
        utterance = Utterance(number, item_id, 0, recording_ms, pauses=1, requested_pause=1, committed=True)
        self._remember(utterance)
        self.recorded = True
        due_ms = now_ms + self._context.core.deadlines.transcript_ms + recording_ms
        self._context.timers.set(Timer(Due.TRANSCRIPT, number), due_ms)
        self._context.issue(TranscribeRecording(number))

    def _remember(self, utterance: Utterance) -> None:
        awaited = [u for u in self._recent[: 1 - REMEMBERED_UTTERANCES] if u.committed and u.open]
        self._recent = [*awaited, *self._recent[1 - REMEMBERED_UTTERANCES :], utterance]

    def drop(self, utterance: Utterance) -> None:
        """Drop an utterance; a late text of it is ignored too."""
        self._recent = [u for u in self._recent if u is not utterance]
        self._context.issue(DropUtterance(utterance.number))

    def find(self, number: int) -> Utterance | None:
        """Return the utterance of that number, if it is remembered."""
        return next((u for u in self._recent if u.number == number), None)

    def item_deleted(self, item_id: str) -> None:
        """Stop writing into an item that the client has deleted."""
        for utterance in self._recent:
            if utterance.item_id == item_id:
                utterance.deleted = utterance.committed

    def stt_connected(self, event: e.TranscriberConnected, now_ms: int) -> None:
        """Record that the STT is connected: later utterances wait for none of it."""
        self._stt_took_ms = event.took_ms
        if self._recent and self._recent[-1].in_progress:
            self._recent[-1].stt_hidden_ms = event.hidden_ms

    def stt_changed(self, event: e.TranscriberChanged, now_ms: int) -> None:
        """Record that another STT transcribes an utterance; a change between two utterances needs no record."""
        utterance = self.find(event.utterance)
        if utterance is not None and utterance.in_progress:
            utterance.stt_changes.append(event)
            utterance.stt_changed_ms = now_ms

    @property
    def pending(self) -> bool:
        """Return whether the transcript of a committed utterance is still to come."""
        return any(u.committed and not u.known for u in self._recent)


class UserSide:
    """Opens and closes utterances, requests their transcripts, and holds the user's state."""

    def __init__(self, context: TurnContext, strategies: Strategies = BUILT_IN) -> None:
        self.state = UserState.QUIET
        self.turn: Turn | None = None
        """The turn that the user is in, until its reply is audible or dropped."""

        self._context = context
        self.utterance: Utterance | None = None
        self.speech_end = SpeechEnd.DETECTED
        """The sub-state of HOLDING."""

        self.utterances = Utterances(context)
        self._end = EndpointSteps(context, strategies)

    @property
    def strategy(self) -> SupervisedStrategy:
        """Return the session's strategy."""
        return self._end.strategy

    @property
    def manual(self) -> bool:
        """Return whether the client decides when a turn is over."""
        return self._context.settings.detection == "none"

    @property
    def ignores_speech(self) -> bool:
        """Return whether speech that starts has no effect: the client decides the turns, or the user speaks already."""
        return self.manual or self.state is UserState.SPEAKING

    @property
    def only_stt_reports(self) -> bool:
        """Return whether only the STT reports the end of speech."""
        return self.speech_end is SpeechEnd.REPORTED

    # --- VAD ----------------------------------------------------------------------------------

    def speech_started(self, event: e.SpeechStarted, now_ms: int) -> None:
        """Open a turn when the user speaks, or go on with the turn that seemed to be over."""
        if self.turn is None:
            self.turn = self._context.new_turn("vad")
        elif not self.only_stt_reports and attribution.VOICED_LAST in self.turn.marks:
            self._end.pauses.resumed(max(0, event.onset_ms - self.turn.marks[attribution.VOICED_LAST]))
        if self.state is UserState.ENDED:
            effects.reopen(self._context, self.turn)
        if self.state is not UserState.HOLDING:
            self._open(self.turn, event.audio_start_ms, now_ms)
        self._move(UserState.SPEAKING)
        self._reset_speech_end()
        self._context.timers.clear(Timer(Due.HOLDING), Timer(Due.IRREVOCABLE))

    def speech_paused(self, event: e.SpeechPaused, now_ms: int) -> None:
        """Request the transcript when the user is silent, and wait."""
        speaking = self.state is UserState.SPEAKING or self.only_stt_reports
        if not speaking or self.turn is None or self.utterance is None:
            return
        for stale in (attribution.FLUSHED, attribution.TRANSCRIBED):
            self.turn.marks.pop(stale, None)
        self.utterance.pauses += 1
        self._hold(self.turn, self.utterance, event, now_ms)
        if self.utterance.pauses <= self._context.core.max_flushes:
            self._request_transcript(self.turn, self.utterance, now_ms)

    def _hold(self, turn: Turn, utterance: Utterance, event: e.SpeechPaused, now_ms: int) -> None:
        self._reset_speech_end()
        self._end.silence_ms = now_ms - event.last_voiced_ms
        speech_ms = event.audio_end_ms - utterance.audio_start_ms
        self._end.pauses.began(speech_ms=speech_ms, noticed_ms=event.noticed_ms)
        utterance.audio_end_ms = event.audio_end_ms
        turn.marks[attribution.VOICED_LAST] = event.last_voiced_ms
        turn.marks.pop(attribution.END_DUE, None)
        turn.question.t0_audio_ms = event.audio_end_ms
        self._move(UserState.HOLDING)
        self._context.timers.set(Timer(Due.HOLDING), now_ms + self.strategy.max_wait_ms + HOLD_GRACE_MS)

    def silence_grew(self, event: e.SilenceGrew, now_ms: int, *, undecided: bool = False) -> None:
        """Decide whether the user has finished. `undecided`: it is not known yet whether this was speech at all."""
        holding = self.state is UserState.HOLDING and not self.only_stt_reports
        self._end.silence_ms = event.silence_ms
        if not holding or undecided:
            return
        decision = self._decision(event.silence_ms, self._context.learned.speculation.answer_ms)
        if event.silence_ms >= decision.audible_ms:
            self.end(now_ms)
            if decision.final_ms is not None:
                self._context.timers.set(Timer(Due.IRREVOCABLE), now_ms + max(0, decision.final_ms - event.silence_ms))

    def endpoint_scored(self, event: e.EndpointScored, now_ms: int) -> None:
        """Store a model's score of the current pause as evidence, and once more after the answer has begun softly:
        function calls leave as late as if the score had come in time.
        """
        turn = self.turn
        if self.state is UserState.HOLDING and not self.only_stt_reports:
            if turn is not None and turn.marks.get(attribution.VOICED_LAST) == event.last_voiced_ms:
                self._end.pauses.scored(event.name, event.score)
            return
        for ended in self._context.turns.soft.values():
            is_latest = turn is None or turn is ended  # else the user speaks in a later turn
            if is_latest and ended.marks.get(attribution.VOICED_LAST) == event.last_voiced_ms:
                self._end.pauses.scored(event.name, event.score)
                self._reschedule_effects(ended, now_ms)

    def _decision(self, silence_ms: int, answer_ms: int | None) -> Decision:
        interim_text = self.utterance.interim if self.utterance is not None else ""
        return self._end.decide(interim_text, silence_ms, answer_ms)

    def may_begin(self, answer_ms: int | None) -> bool:
        """Return whether the pause has lasted long enough to start work on an answer that takes `answer_ms`."""
        silence_ms = TRANSCRIBER_SILENCE_MS if self.only_stt_reports else self._end.silence_ms
        return silence_ms >= self._decision(silence_ms, answer_ms).start_ms

    def mark_start_due(self, turn: Turn, answer_ms: int | None, now_ms: int) -> None:
        """Stamp when the pause had lasted long enough for a reply to begin: as of the decision that let it begin."""
        silence_ms = TRANSCRIBER_SILENCE_MS if self.only_stt_reports else self._end.silence_ms
        due_ms = turn.marks.get(attribution.VOICED_LAST, now_ms) + self._decision(silence_ms, answer_ms).start_ms
        turn.mark(attribution.START_DUE, min(now_ms, due_ms))

    def end(self, now_ms: int, *, overlong: bool = False) -> None:
        """End the turn: what was said becomes an item.

        Args:
            overlong: the user spoke for the longest time allowed; speech that goes on is the next turn.
        """
        turn, utterance = self.turn, self.utterance
        if self.state not in (UserState.SPEAKING, UserState.HOLDING) or turn is None or utterance is None:
            return
        if self.state is UserState.SPEAKING or self.only_stt_reports:  # by deadline: no end of speech was detected
            self._reset_speech_end()
            utterance.pauses += 1
            utterance.audio_end_ms = utterance.audio_start_ms + self._context.core.deadlines.utterance_ms
            turn.marks[attribution.VOICED_LAST], turn.question.t0_audio_ms = now_ms, None
            due_ms, effects_ms = now_ms, None
        else:
            decision = self._decision(self._end.silence_ms, self._context.learned.speculation.answer_ms)
            due_ms = turn.marks[attribution.VOICED_LAST] + decision.audible_ms
            turn.question.reversible_ms, effects_ms = decision.reversible_ms, decision.effects_ms
        turn.marks[attribution.END_DUE] = min(now_ms, due_ms)
        self._move(UserState.ENDED)
        turn.question.end(overlong=overlong)
        turn.marks[attribution.ENDED] = now_ms
        effects.hold(self._context, turn, effects_ms, now_ms)
        self._context.notify(a.InputSpeechStopped(utterance.item_id, utterance.audio_end_ms))
        self.commit(turn, utterance, now_ms)

    # --- soft start ---------------------------------------------------------------------------

    def take_back(self, turn: Turn, event: e.SpeechStarted, now_ms: int) -> Utterance:
        """Go on with a turn whose answer is audible: the user's voice may continue it. Return its new utterance."""
        self.turn = turn
        effects.reopen(self._context, turn)
        utterance = self._open(turn, event.audio_start_ms, now_ms)
        self._move(UserState.SPEAKING)
        self._reset_speech_end()
        return utterance

    def resumed(self, pause_ms: int) -> None:
        """Record that the user went on after `pause_ms`, while the answer was audible."""
        self._end.pauses.overlapped(pause_ms)

    def leave_without(self, utterance: Utterance) -> None:
        """Leave the turn without the utterance that seemed to continue it: it has no words so far."""
        self._context.notify(a.InputSpeechStopped(utterance.item_id, utterance.audio_end_ms))
        assert utterance.turn is not None, "it was opened in the turn that it seemed to continue"
        utterance.turn.question.utterances.remove(utterance)
        utterance.turn, utterance.unreported = None, True
        self._context.timers.clear(Timer(Due.FINAL_TEXT, utterance.number))
        self.drop_turn()

    # --- speech over the agent's --------------------------------------------------------------

    def take_turn(self, utterance: Utterance, paused: e.SpeechPaused | None, now_ms: int) -> None:
        """Turn the utterance into an interruption: it opens a turn, which may be over soon if the user has paused."""
        utterance.unreported = False
        turn = self.turn = self._context.new_turn("vad")
        self._enter(turn, utterance, now_ms)
        self._move(UserState.SPEAKING)
        if paused is None:
            return
        self._hold(turn, utterance, paused, now_ms)
        if utterance.known and utterance.text:
            turn.mark(attribution.TRANSCRIBED, now_ms)
            self._end.pauses.add_words(utterance.text, self._context.settings.language or self._context.user_language)

    # --- transcriber --------------------------------------------------------------------------

    def transcript_grew(self, event: e.TranscriptGrew) -> None:
        """Show the words that two interim texts agree on: text that was shown is never rewritten."""
        utterance = self.utterances.find(event.utterance)
        if utterance is None or utterance.done:
            return
        before, utterance.interim = utterance.interim, event.text
        if not utterance.unreported:
            transcripts.show(self._context, utterance, transcripts.common_words(before, event.text))

    def transcript_finished(self, event: e.TranscriptFinished, now_ms: int) -> None:
        """Store the transcript of an utterance, as of one of its pauses (or of the latest, if the provider ended it
        itself).
        """
        self._context.learned.cost_tracker.add_audio(event.provider, event.audio_ms)
        utterance = self.utterances.find(event.utterance)
        if utterance is None:
            return
        if not event.flush and not self.manual and self._grows(utterance):
            self._hold_on_stt_end(utterance, event, now_ms)
            return
        if not event.flush and utterance.committed and not utterance.open:
            return  # its transcript is known: this is background noise, or the agent's own echo
        pause = event.flush or (0 if self._grows(utterance) else utterance.pauses)
        if not max(1, utterance.answered_pause) <= pause <= utterance.pauses:
            return
        utterance.answered_pause, utterance.text, utterance.failed = pause, event.text.strip(), ""
        if self._context.settings.languages:
            languages.detected(self._context, utterance.text, event.language)
        if utterance.known:
            transcripts.text_came(self._context, utterance, event.provider, now_ms)
        if utterance.turn is not None and self.state is UserState.HOLDING:
            # The VAD has counted up to its latest frame; the clock is further.
            paused_ms = now_ms - utterance.turn.marks.get(attribution.VOICED_LAST, now_ms)
            self._end.silence_ms = max(self._end.silence_ms, paused_ms)
        if utterance.turn is not None and utterance.known:
            utterance.turn.mark(attribution.TRANSCRIBED, now_ms)
            utterance.turn.account.providers["stt"] = event.provider
            utterance.turn.account.waited_for["stt"] = transcripts.waited_for(utterance, now_ms)
            self._context.learned.cost_tracker.charge(utterance.turn.account.stt_ms)
        if pause == utterance.pauses and not utterance.committed and not utterance.unreported:
            self._add_words(utterance, event.language)
        if utterance.turn is not None and event.language:
            utterance.turn.question.language = event.language
        if utterance.committed:
            self._context.timers.clear(Timer(Due.TRANSCRIPT, utterance.number))
            transcripts.write_down(self._context, utterance)
            if utterance.turn is not None and utterance.turn.question.effects_at_ms is not None:
                self._add_late_words(utterance.turn, utterance, event.language, now_ms)

    def _add_words(self, utterance: Utterance, language: str | None = None) -> None:
        """Store what the words show of whether the user has finished. Words that a client has cleared are not used."""
        spoken = language or self._context.settings.language or self._context.user_language
        conversation = self._context.conversation
        if utterance is self.utterance:
            self._end.pauses.add_words(utterance.text, spoken, after_question=conversation.ends_with_question)

    def _add_late_words(self, turn: Turn, utterance: Utterance, language: str | None, now_ms: int) -> None:
        """Decide again when function calls may leave: the words came after the answer had begun softly."""
        spoken = language or self._context.settings.language or self._context.user_language
        self._end.pauses.add_words(utterance.text, spoken, after_question=self._end.pauses.evidence.after_question)
        self._reschedule_effects(turn, now_ms)

    def _reschedule_effects(self, turn: Turn, now_ms: int) -> None:
        effects.hold(self._context, turn, self._decision(self._end.silence_ms, None).effects_ms, now_ms)

    def text_overdue(self, number: int, now_ms: int) -> None:
        """Use the interim text for now: the final text has taken longer than it usually takes."""
        utterance = self.utterances.find(number)
        if utterance is None or utterance.turn is None or self._grows(utterance):
            return
        if not transcripts.use_interim(utterance):
            return
        utterance.turn.mark(attribution.TRANSCRIBED, now_ms)
        if utterance.committed:
            transcripts.write_down(self._context, utterance)
        else:
            self._add_words(utterance)

    def _hold_on_stt_end(self, utterance: Utterance, event: e.TranscriptFinished, now_ms: int) -> None:
        """Enter HOLDING: the STT reports an end of speech before the VAD can. This permits work, not output."""
        if not self._context.core.speculate or not event.text.strip() or utterance.turn is None:
            return
        utterance.text = event.text.strip()
        utterance.turn.account.providers["stt"] = event.provider
        if self.state is UserState.SPEAKING:
            self.speech_end = SpeechEnd.REPORTED
            self._move(UserState.HOLDING)
            self._context.timers.set(Timer(Due.VAD_CONFIRMS), now_ms + VAD_CONFIRMS_MS)

    def go_on(self) -> Turn | None:
        """Leave HOLDING: the VAD never detected an end of speech. Return the user's turn."""
        self._reset_speech_end()
        self._move(UserState.SPEAKING)
        return self.turn

    def _reset_speech_end(self) -> None:
        """Wait no longer for the VAD: it has reported, or the STT's event no longer matters."""
        self.speech_end = SpeechEnd.DETECTED
        self._context.timers.clear(Timer(Due.VAD_CONFIRMS))

    def transcript_failed(self, event: e.TranscriberFailed) -> None:
        """Mark an utterance's transcript as lost, unless all that was said in it is known already."""
        utterance = self.utterances.find(event.utterance)
        if utterance is None or utterance.done or not (utterance.open or self._grows(utterance)):
            return
        if utterance.turn is not None:
            utterance.turn.account.providers["stt"] = event.provider
        transcripts.lose(self._context, utterance, f"{event.provider}: {event.why}")

    def transcript_overdue(self, number: int) -> None:
        """Handle the timeout of this utterance's transcript."""
        utterance = self.utterances.find(number)
        if utterance is not None and utterance.open:
            transcripts.lose(
                self._context, utterance, f"no transcript within {self._context.core.deadlines.transcript_ms} ms"
            )

    # --- end ----------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the turn: the agent speaks, or neither side does, and the turn cannot be revised any more."""
        self._move(UserState.QUIET)
        self.turn = None
        self._context.timers.clear(Timer(Due.IRREVOCABLE))
        if not self.manual:
            self.utterance = None

    def release_turn(self) -> Turn | None:
        """Leave the turn to the client's commit or the session's end, and return it."""
        turn, self.turn = self.turn, None
        self._move(UserState.QUIET)
        return turn

    # --- helpers ------------------------------------------------------------------------------

    def drop_turn(self) -> None:
        """Leave a turn that is not over, with its utterance."""
        self._reset_speech_end()
        self._move(UserState.QUIET)
        self.turn = None
        self.utterance = None
        self._context.timers.clear(Timer(Due.UTTERANCE), Timer(Due.HOLDING))

    def begin_manual(self) -> None:
        """Begin the next utterance if the client decides when it is over."""
        if self.manual:
            self.utterance = self.utterances.begin(0)

    def _open(self, turn: Turn, audio_start_ms: int, now_ms: int) -> Utterance:
        utterance = self.utterances.begin(audio_start_ms)
        self._enter(turn, utterance, now_ms)
        return utterance

    def _enter(self, turn: Turn, utterance: Utterance, now_ms: int) -> None:
        self.utterance = utterance
        turn.add(utterance)
        self._context.timers.set(Timer(Due.UTTERANCE), now_ms + self._context.core.deadlines.utterance_ms)
        self._context.notify(a.InputSpeechStarted(utterance.item_id, utterance.audio_start_ms))

    def _request_transcript(self, turn: Turn, utterance: Utterance, now_ms: int) -> None:
        utterance.requested_pause = utterance.pauses
        self._context.issue(FlushTranscript(utterance.number, utterance.pauses))
        turn.mark(attribution.FLUSHED, now_ms)
        transcripts.await_text(self._context, utterance, turn.marks.get(attribution.VOICED_LAST, now_ms), now_ms)

    def commit(self, turn: Turn, utterance: Utterance, now_ms: int) -> None:
        """Make an utterance that is over an item of the conversation."""
        self._reset_speech_end()
        if utterance.requested_pause < utterance.pauses:
            self._request_transcript(turn, utterance, now_ms)
        self._context.timers.clear(Timer(Due.UTTERANCE), Timer(Due.HOLDING))
        if utterance.open:
            due_ms = now_ms + self._context.core.deadlines.transcript_ms
            self._context.timers.set(Timer(Due.TRANSCRIPT, utterance.number), due_ms)
        utterance.committed = True
        self._context.issue(EndUtterance(utterance.number))
        item = Message(utterance.item_id, "user", (InputAudio(None),))
        previous = self._context.join(item)
        self._context.notify(a.AudioCommitted(utterance.item_id, previous))
        self._context.notify(a.ItemAdded(item, previous))
        if not self.manual:
            self.utterance = None
        if utterance.transcript is TranscriptState.LOST:
            transcripts.lose(self._context, utterance, utterance.failed)
        elif utterance.known:
            transcripts.write_down(self._context, utterance)

    def _grows(self, utterance: Utterance) -> bool:
        """Return whether the user is taken to speak in this utterance right now."""
        return utterance is self.utterance and (
            self.manual or self.only_stt_reports or self.state is UserState.SPEAKING
        )

    def _move(self, to: UserState) -> None:
        self.state = self._context.transitions.move(self.state, to)
