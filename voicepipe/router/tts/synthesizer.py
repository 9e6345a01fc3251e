"""A synthesizer made of several: the first with audio speaks, and when it breaks another continues with the next
word."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Final, Literal

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.provider_events import ProviderChanged, UnusedSpeech
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Voice
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import blame
from voicepipe.router.race import Attempt, Close, GiveUp, Order, Race, Speak, Start
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.tts.call import MOST_WAITING, SynthesizerCall, SynthesizerCandidate
from voicepipe.router.tts.progress import Progress
from voicepipe.tasks import BackgroundTasks, background_tasks

STALL_MS: Final = 1_500
"""A synthesizer that certainly owes audio and sends none for this long has stalled. Between two pieces of a clause a
healthy one takes tens of ms, and the audio sent before is still playing."""


class RoutedSynthesizer:
    """Meets the port `Synthesizer`."""

    def __init__(self, speakers: tuple[SynthesizerCandidate, ...], speech_order: SpeechOrder) -> None:
        """`speakers`: the synthesizers of the lineup, best first."""
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
    """Meets `Speech`. It listens to its takes, which are tasks of `owned`."""

    def __init__(
        self,
        voice: Voice,
        speakers: Mapping[str, SynthesizerCandidate],
        speech_order: SpeechOrder,
        owned: BackgroundTasks,
    ) -> None:
        self._voice, self._speakers, self._speech_order, self._owned = voice, speakers, speech_order, owned
        self._race = Race(speech_order.plan(voice.session, clock.monotonic_ms()))
        self._progress = Progress(voice.speed)
        self._clauses: list[str] = []  # bounded: one turn's
        self._finished = self._over = self._left = False
        self._calls: list[SynthesizerCall] = []
        self._speaker: SynthesizerCall | None = None
        self._failure: StageError | None = None
        self._out: deque[Spoken] = deque()  # bounded: at `MOST_WAITING` the speaking synthesizer waits
        self._events: deque[SpeechEvent] = deque()  # bounded: some for each synthesizer and cached clause
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._race_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    # --- the turn -----------------------------------------------------------------------------

    def say(self, clause: str) -> None:
        self._clauses.append(clause)
        for call in self._living():
            call.say((clause,))
        if len(self._clauses) == 1:
            self._obey(self._race.begin(clock.monotonic_ms()))
        self._watch()

    def finish(self) -> None:
        self._finished = True
        for call in self._living():
            call.finish()
        if not self._clauses:
            self._end()
        self._watch()

    def __aiter__(self) -> RoutedSpeech:
        return self

    async def __anext__(self) -> SpeechEvent:
        while not (self._out or self._events):
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        if self._events:
            return self._current(self._events.popleft())
        spoken = self._out.popleft()
        self._room.set()
        return spoken

    def _current(self, event: SpeechEvent) -> SpeechEvent:
        """Return the event with the text that was handed over while it waited: its consumer did not know of it."""
        speaker = self._speaker
        if speaker is None or not isinstance(event, ProviderChanged) or event.provider != speaker.spec:
            return event
        return replace(event, n_chars=speaker.n_chars)

    def close(self) -> None:
        """End every take: the listener has left."""
        self._left = True
        if self._clauses and not self._race.over:
            self._obey(self._race.abandon(clock.monotonic_ms()))
        for call in self._calls:
            self._drop(call)
        self._out.clear()
        self._events.clear()
        self._end()

    # --- the race for the first audio ---------------------------------------------------------

    def _obey(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Start(attempt):
                    self._start(attempt)
                case Close(attempt):
                    self._close(self._call_of(attempt))
                case Speak(attempt):
                    self._let_speak(self._call_of(attempt), self._role(attempt))
                case GiveUp():
                    self._fail(next(call.failure for call in reversed(self._calls) if call.failure is not None))
        self._arm()

    def _start(self, attempt: Attempt) -> None:
        call = SynthesizerCall(self._speakers[attempt.candidate.spec], self._voice)
        call.attempt = attempt
        self._speech_order.stats.began(attempt)
        self._run(call)

    def _run(self, call: SynthesizerCall, *, say: tuple[str, ...] | None = None) -> None:
        self._calls.append(call)
        call.say(self._clauses if say is None else say)
        if self._finished:
            call.finish()
        call.task = self._owned.start(call.run(self), name=f"tts-{call.spec}")

    def _close(self, call: SynthesizerCall) -> None:
        if call.attempt is not None and call.attempt.timed_out:
            why = f"no audio for {self._speech_order.options.attempt_timeout_ms} ms"
            self._blame(call, StageTimeout("tts", provider=call.spec, why=why, retryable=True))
        elif not (call.over or self._left):
            self._report(UnusedSpeech(call.spec, call.n_chars))
        self._drop(call)

    def _let_speak(self, call: SynthesizerCall, role: Literal["hedge", "replacement", "continuation"] | None) -> None:
        self._speaker = call
        if role is not None:
            failed = [f"{each.spec}: {each.failure.why}" for each in self._calls if each.failure is not None]
            self._report(ProviderChanged(call.spec, role, "; ".join(failed) or "first audible", call.n_chars))
        while call.waiting:
            self._pass_on(call.waiting.popleft())
        self._learn(call)

    def _report(self, event: SpeechEvent) -> None:
        """Give an event to the consumer, ahead of the audio that waits."""
        self._events.append(event)
        self._news.set()

    @staticmethod
    def _role(attempt: Attempt) -> Literal["hedge", "replacement"] | None:
        match attempt.role:
            case "hedge" | "replacement" as role:
                return role
            case _:
                return None

    def _learn(self, speaker: SynthesizerCall) -> None:
        """Record how soon each take sent audio, and which synthesizer the session uses now."""
        now_ms = clock.monotonic_ms()
        self._speech_order.served(self._voice.session, speaker.speaker.candidate, now_ms)
        for each in self._race.attempts:
            survival = self._speech_order.stats.latency.survival(each.candidate)
            if each.first_ms is not None:
                survival.spoke(each.first_ms, now_ms)
            elif each.state == "lost" or each.timed_out:
                survival.was_silent((each.ended_ms or now_ms) - each.began_ms, now_ms)

    def _arm(self) -> None:
        if self._race_timer is not None:
            self._race_timer.cancel()
            self._race_timer = None
        wake_ms = self._race.wake_ms()
        if wake_ms is not None and not self._over:
            delay_s = max(0.0, wake_ms - clock.monotonic_ms()) / 1_000
            self._race_timer = asyncio.get_running_loop().call_later(delay_s, self._time_passed)

    def _time_passed(self) -> None:
        self._obey(self._race.time_passed(clock.monotonic_ms()))

    # --- events of takes ----------------------------------------------------------------------

    def on_audio(self, call: SynthesizerCall, spoken: Spoken) -> None:
        """Handle a take's audio."""
        if call.over:
            return
        if call is self._speaker:
            self._pass_on(spoken)
            return
        call.waiting.append(spoken)
        if call.attempt is None:
            self._let_speak(call, "continuation")
        elif call.attempt.state == "running":
            self._obey(self._race.spoke(call.attempt, clock.monotonic_ms()))

    def on_event(self, call: SynthesizerCall, event: SpeechEvent) -> None:
        """Pass on what a take reports beside its audio. It wins no race, and ends no stall."""
        if not call.over:
            self._report(event)

    async def wait_for_room(self, call: SynthesizerCall) -> None:
        """Wait until more of the take's audio may be queued."""
        while len(self._out) >= MOST_WAITING or len(call.waiting) >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()
            self._watch()

    def on_complete(self, call: SynthesizerCall) -> None:
        """Handle the end of a take; a take that had nothing to say ends the turn too."""
        if call.over:
            return
        self._drop(call)
        if call is self._speaker or self._speaker is None or self._speaker.over:
            self._end()

    def on_failure(self, call: SynthesizerCall, failure: StageError) -> None:
        """Handle a take that refused, stalled or broke."""
        if call.over:
            return
        self._blame(call, failure)
        self._drop(call)
        if call is self._speaker or call.attempt is None:
            self._go_on()
        elif not self._race.over:
            self._obey(self._race.failed(call.attempt, clock.monotonic_ms()))

    # --- the rest of a turn -------------------------------------------------------------------

    def _go_on(self) -> None:
        """Let another synthesizer say what is left, from the word that was cut on."""
        rest = self._progress.go_on(self._clauses)
        if rest is None and self._finished:
            self._end()  # it broke behind its last word
            return
        candidate = self._next_after(call.spec for call in self._calls if call.failure is not None)
        if candidate is None:
            self._fail(next(call.failure for call in reversed(self._calls) if call.failure is not None))
            return
        clause = len(self._clauses) if rest is None else rest.clause
        say = () if rest is None else (rest.text, *self._clauses[clause + 1 :])
        call = SynthesizerCall(
            self._speakers[candidate.spec], self._voice, clause=clause, played_ms=rest.played_ms if rest else 0
        )
        self._run(call, say=say)
        self._watch()

    def _next_after(self, failed: Iterable[str]) -> Candidate | None:
        return self._speech_order.next_after(set(failed), self._voice.session, clock.monotonic_ms())

    def _pass_on(self, spoken: Spoken) -> None:
        self._progress.note(spoken, self._clauses)
        self._out.append(spoken)
        self._news.set()
        self._watch()

    def _watch(self) -> None:
        """Expect the next audio, where more is certain: there are words that no take has begun to say."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        owed = self._finished or self._progress.clause < len(self._clauses) - 1
        if self._speaker is None or self._over or not owed or len(self._out) >= MOST_WAITING:
            return
        self._stall_timer = asyncio.get_running_loop().call_later(STALL_MS / 1_000, self._stalled)

    def _stalled(self) -> None:
        speaker = next(iter(self._living()), None)
        if speaker is None:
            return
        failed = (call.spec for call in self._calls if call.failure is not None)
        if self._next_after((speaker.spec, *failed)) is not None:  # the last one may take its time: no other is sooner
            why = f"no audio for {STALL_MS} ms in its speech"
            self.on_failure(speaker, StageTimeout("tts", provider=speaker.spec, why=why, retryable=True))

    # --- ends ---------------------------------------------------------------------------------

    def _living(self) -> list[SynthesizerCall]:
        return [call for call in self._calls if not call.over]

    def _call_of(self, attempt: Attempt) -> SynthesizerCall:
        return next(call for call in self._calls if call.attempt is attempt)

    def _blame(self, call: SynthesizerCall, failure: StageError) -> None:
        call.failure = failure
        breaker = self._speech_order.stats.breaker(call.speaker.candidate)
        blame(breaker, call.spec, failure, clock.monotonic_ms())

    def _drop(self, call: SynthesizerCall) -> None:
        if call.over:
            return
        call.over = True
        call.waiting.clear()
        if call.attempt is not None:
            self._speech_order.stats.ended(call.attempt)
        if call.task is not None and call.task is not asyncio.current_task():
            call.task.cancel()

    def _fail(self, failure: StageError) -> None:
        self._failure = failure
        self._end()

    def _end(self) -> None:
        self._over = True
        for timer in (self._race_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._news.set()
        self._room.set()
