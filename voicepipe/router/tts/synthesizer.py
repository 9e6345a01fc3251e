"""A synthesizer made of several: the first with audio speaks, and when it breaks another continues with the next
word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Final

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.provider_events import ProviderChanged, UnusedSpeech
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Voice
from voicepipe.router.candidate import Candidate
from voicepipe.router.race import Attempt
from voicepipe.router.race_runner import RaceRunner, StreamQueue
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.tts.call import MAX_WAITING, SynthesizerCall, SynthesizerCandidate
from voicepipe.router.tts.progress import SpeechProgress
from voicepipe.tasks import BackgroundTasks, background_tasks
from voicepipe.values import replace

STALL_MS: Final = 1_500
"""A synthesizer with text to say that sends no audio for this long has stalled. Between two pieces of a clause a
healthy one takes tens of ms, and the audio sent before is still playing."""


_WHY: Final = {"primary": "first choice of this turn"}


class RoutedSynthesizer:
    """Meets the port `Synthesizer`."""

    def __init__(self, speakers: tuple[SynthesizerCandidate, ...], speech_order: SpeechOrder) -> None:
        """`speakers`: the synthesizers in order of preference, best first."""
        self.name = speakers[0].candidate.spec
        self.voices = speakers[0].synthesizer.voices
        self._speakers = {each.candidate.spec: each for each in speakers}
        self._speech_order = speech_order

    @contextmanager
    def keep_warm(self, voice: Voice) -> Iterator[None]:
        """Keep the synthesizer ready that would speak first, and its fallback."""
        with ExitStack() as stack:
            for candidate in self._speech_order.order(voice.session, clock.monotonic_ms())[:2]:
                speaker = self._speakers[candidate.spec]
                stack.enter_context(speaker.synthesizer.keep_warm(speaker.voice(voice)))
            yield

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Begin one turn's speech. A failure before the first audio is not raised while another synthesizer may
        speak.

        Raises:
            StageError: from the iterator: no synthesizer spoke to the end; it is the error of the last that was
                tried.
        """
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        async with background_tasks() as owned:
            speech = RoutedSpeech(voice, self._speakers, self._speech_order, owned)
            try:
                yield speech
            finally:
                speech.close()


class RoutedSpeech:
    """Meets `Speech`. It receives the events of its calls, which are tasks of `owned`."""

    def __init__(
        self,
        voice: Voice,
        speakers: Mapping[str, SynthesizerCandidate],
        speech_order: SpeechOrder,
        owned: BackgroundTasks,
    ) -> None:
        self._voice, self._speakers, self._speech_order, self._owned = voice, speakers, speech_order, owned
        self._name = next(iter(speakers))
        """The synthesizer that is taken for the speaker until an event names another."""

        plan = speech_order.plan(voice.session, clock.monotonic_ms())
        self._runner: RaceRunner[SynthesizerCall] = RaceRunner(plan, speech_order.stats, self, silence="no audio")
        self._progress = SpeechProgress(voice.speed)
        self._clauses: list[str] = []  # bounded: one turn's
        self._finished = self._over = False
        self._speaker: SynthesizerCall | None = None
        self._events: StreamQueue[SpeechEvent] = StreamQueue(MAX_WAITING)
        self._stall_timer: asyncio.TimerHandle | None = None

    # --- the turn -----------------------------------------------------------------------------

    def push(self, clause: str) -> None:
        self._clauses.append(clause)
        for call in self._running_calls():
            call.push((clause,))
        if len(self._clauses) == 1:
            self._runner.begin(clock.monotonic_ms())
        self._watch()

    def finish(self) -> None:
        self._finished = True
        for call in self._running_calls():
            call.finish()
        if not self._clauses:
            self._end()
        self._watch()

    def __aiter__(self) -> RoutedSpeech:
        return self

    async def __anext__(self) -> SpeechEvent:
        return self._current(await self._events.next())

    def _current(self, event: SpeechEvent) -> SpeechEvent:
        """Return the event with the text that was handed over while it waited: its consumer did not have it."""
        speaker = self._speaker
        if speaker is None or not isinstance(event, ProviderChanged) or event.provider != speaker.spec:
            return event
        return replace(event, n_chars=speaker.n_chars)

    def close(self) -> None:
        """End every call: the listener has left."""
        self._runner.close()
        self._end()
        self._events.drop()

    # --- the race for the first audio ---------------------------------------------------------

    def start(self, attempt: Attempt) -> None:
        """Let the synthesizer of an attempt speak all clauses so far, and those that follow."""
        self._run(SynthesizerCall(attempt, self._speakers[attempt.candidate.spec], self._voice), self._clauses)

    def _run(self, call: SynthesizerCall, clauses: Sequence[str]) -> None:
        self._runner.add(call)
        call.push(clauses)
        if self._finished:
            call.finish()
        call.task = self._owned.start(call.run(self), name=f"tts-{call.spec}")

    def unused(self, call: SynthesizerCall) -> None:
        """Report the text of a synthesizer that has lost: its provider charges for it."""
        self._events.put_ahead(UnusedSpeech(call.spec, call.n_chars))

    def let_speak(self, call: SynthesizerCall, now_ms: int) -> None:
        """Pass on the audio of the synthesizer that has won, or continues."""
        self._speaker = call
        given = call.attempt.role
        role = "primary" if given == "probe" or given == "judge" else given
        if call.spec != self._name or role != "primary":
            why = "; ".join(self._runner.reasons()) or _WHY.get(role, "first audible")
            waited_for = "" if role == "continuation" else self._runner.waited_for(call, now_ms)
            self._events.put_ahead(ProviderChanged(call.spec, role, why, call.n_chars, waited_for))
        is_cached = bool(call.waiting) and call.waiting[0].cached
        while call.waiting:
            self._pass_on(call.waiting.popleft())
        self._learn(call, now_ms, is_cached=is_cached)

    def give_up(self) -> None:
        """Fail with the error of the synthesizer that was started last."""
        self._end(self._runner.failures()[-1])

    def _learn(self, speaker: SynthesizerCall, now_ms: int, *, is_cached: bool) -> None:
        """Record how soon each call sent audio, and which synthesizer the session uses now. Cached audio is no sign of
        its provider's speed, nor is what it was compared with.
        """
        self._speech_order.served(self._voice.session, speaker.speaker.candidate, now_ms)
        if is_cached:
            return
        for each in self._runner.race.attempts:
            survival = self._speech_order.stats.latency.survival(each.candidate)
            if each.first_ms is not None:
                survival.spoke(each.first_ms, now_ms)
            elif each.state == "lost" or each.timed_out:
                survival.was_silent((each.ended_ms or now_ms) - each.began_ms, now_ms)

    # --- events of calls ----------------------------------------------------------------------

    def on_audio(self, call: SynthesizerCall, spoken: Spoken) -> None:
        """Handle a call's audio."""
        if call.over:
            return
        if call is self._speaker:
            self._pass_on(spoken)
            return
        call.waiting.append(spoken)
        now_ms = clock.monotonic_ms()
        if call.attempt.role == "continuation":
            self.let_speak(call, now_ms)
        else:
            self._runner.spoke(call, now_ms)

    def on_event(self, call: SynthesizerCall, event: SpeechEvent) -> None:
        """Pass on what a call reports beside its audio. It wins no race, and ends no stall."""
        if not call.over:
            self._events.put_ahead(event)

    async def wait_for_space(self, call: SynthesizerCall) -> None:
        """Wait until more of the call's audio may be queued."""
        while self._events.is_full(len(call.waiting)):
            await self._events.taken()
            self._watch()

    def on_complete(self, call: SynthesizerCall) -> None:
        """Handle the end of a call; a call that had nothing to say ends the turn too."""
        if call.over:
            return
        self._runner.end(call)
        self._end()  # no other call speaks: the winner of a race is alone, and another continues only for a failed one

    def on_failure(self, call: SynthesizerCall, failure: StageError) -> None:
        """Handle a call that refused, stalled or broke."""
        if call.over:
            return
        self._runner.record_failure(call, failure)
        self._runner.end(call)
        if call is self._speaker or call.attempt.role == "continuation":
            self._go_on()
        else:
            self._runner.failed(call)

    # --- the rest of a turn -------------------------------------------------------------------

    def _go_on(self) -> None:
        """Let another synthesizer speak what is left, from the word that was cut on."""
        rest = self._progress.go_on(self._clauses)
        if rest is None and self._finished:
            self._end()  # it broke behind its last word
            return
        candidate = self._next_after(self._failed())
        if candidate is None:
            self.give_up()
            return
        clause = len(self._clauses) if rest is None else rest.clause
        push = () if rest is None else (rest.text, *self._clauses[clause + 1 :])
        attempt = Attempt(len(self._runner.calls), candidate, "continuation", clock.monotonic_ms())
        played_ms = rest.played_ms if rest else 0
        speaker = self._speakers[candidate.spec]
        self._run(SynthesizerCall(attempt, speaker, self._voice, clause=clause, played_ms=played_ms), push)
        self._watch()

    def _failed(self) -> set[str]:
        return {call.spec for call in self._runner.calls if call.failure is not None}

    def _next_after(self, failed: set[str]) -> Candidate | None:
        return self._speech_order.next_after(failed, self._voice.session, clock.monotonic_ms())

    def _pass_on(self, spoken: Spoken) -> None:
        if not spoken.cached and self._speaker is not None:
            attempt = self._speaker.attempt
            self._speech_order.succeeded(attempt.candidate, began_ms=attempt.began_ms)
        self._progress.record(spoken, self._clauses)
        self._events.put(spoken)
        self._watch()

    def _watch(self) -> None:
        """Expect the next audio, where more is certain: there are words that no call has begun to say."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        has_text = self._finished or self._progress.clause < len(self._clauses) - 1
        if self._speaker is None or self._over or not has_text or self._events.is_full():
            return
        self._stall_timer = asyncio.get_running_loop().call_later(STALL_MS / 1_000, self._stalled)

    def _stalled(self) -> None:
        speaker = self._running_calls()[0]  # while the timer runs, one speaks or is to continue
        # The last one may take its time: no other is sooner.
        if self._next_after({speaker.spec} | self._failed()) is not None:
            why = f"no audio for {STALL_MS} ms in its speech"
            self.on_failure(speaker, StageTimeout("tts", provider=speaker.spec, why=why, retryable=True))

    # --- ends ---------------------------------------------------------------------------------

    def _running_calls(self) -> list[SynthesizerCall]:
        return [call for call in self._runner.calls if not call.over]

    def _end(self, failure: StageError | None = None) -> None:
        self._over = True
        self._runner.stop()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._events.end(failure)
