"""One turn's speech by several synthesizers: the race for the first audio, and the fallback when the speaking one
breaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import blame
from voicepipe.router.lineup import Lineup
from voicepipe.router.progress import Progress
from voicepipe.router.race import Attempt, Close, GiveUp, Order, Race, Speak, Start
from voicepipe.router.take import MOST_WAITING, Speaker, Take
from voicepipe.stages.helpers import Helpers
from voicepipe.stages.notes import Recited, TookOver, Unheard
from voicepipe.stages.synthesizer import Spoken, Voice

STALL_MS: Final = 1_500
"""A synthesizer that certainly owes audio and sends none for this long has stalled. Between two pieces of a clause a
healthy one takes tens of ms, and the audio sent before is still playing."""


class Performance:
    """Meets `Speech`. It listens to its takes, which are tasks of `owned`."""

    def __init__(self, voice: Voice, speakers: Mapping[str, Speaker], lineup: Lineup, owned: Helpers) -> None:
        self._voice, self._speakers, self._lineup, self._owned = voice, speakers, lineup, owned
        self._race = Race(lineup.plan(voice.session, clock.monotonic_ms()))
        self._progress = Progress(voice.speed)
        self._clauses: list[str] = []  # bounded: one turn's
        self._finished = self._over = self._left = False
        self._takes: list[Take] = []
        self._speaker: Take | None = None
        self._failure: StageError | None = None
        self._out: deque[Spoken] = deque()  # bounded: at `MOST_WAITING` the speaking synthesizer waits
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._race_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    # --- the turn -----------------------------------------------------------------------------

    def say(self, clause: str) -> None:
        self._clauses.append(clause)
        for take in self._living():
            take.say((clause,))
        if len(self._clauses) == 1:
            self._obey(self._race.begin(clock.monotonic_ms()))
        self._watch()

    def finish(self) -> None:
        self._finished = True
        for take in self._living():
            take.finish()
        if not self._clauses:
            self._end()
        self._watch()

    def __aiter__(self) -> Performance:
        return self

    async def __anext__(self) -> Spoken:
        while not self._out:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        spoken = self._out.popleft()
        self._room.set()
        return spoken

    def close(self) -> None:
        """End every take: the listener has left."""
        self._left = True
        if self._clauses and not self._race.over:
            self._obey(self._race.abandon(clock.monotonic_ms()))
        for take in self._takes:
            self._drop(take)
        self._out.clear()
        self._end()

    # --- the race for the first audio ---------------------------------------------------------

    def _obey(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Start(attempt):
                    self._start(attempt)
                case Close(attempt):
                    self._close(self._take_of(attempt))
                case Speak(attempt):
                    self._let_speak(self._take_of(attempt), self._role(attempt))
                case GiveUp():
                    self._fail(next(take.failure for take in reversed(self._takes) if take.failure is not None))
        self._arm()

    def _start(self, attempt: Attempt) -> None:
        take = Take(self._speakers[attempt.candidate.spec], self._voice)
        take.attempt = attempt
        self._lineup.experience.began(attempt)
        self._run(take)

    def _run(self, take: Take, *, say: tuple[str, ...] | None = None) -> None:
        self._takes.append(take)
        take.say(self._clauses if say is None else say)
        if self._finished:
            take.finish()
        take.task = self._owned.start(take.run(self), name=f"tts-{take.spec}")

    def _close(self, take: Take) -> None:
        if take.attempt is not None and take.attempt.timed_out:
            why = f"no sound came for {self._lineup.options.patience_ms} ms"
            self._blame(take, StageTimeout("tts", provider=take.spec, why=why, retryable=True))
        elif not (take.over or self._left):
            self._note(Unheard(take.spec, take.n_chars))
        self._drop(take)

    def _let_speak(self, take: Take, role: Literal["hedge", "replacement", "continuation"] | None) -> None:
        self._speaker = take
        if role is not None:
            failed = [f"{each.spec}: {each.failure.why}" for each in self._takes if each.failure is not None]
            self._note(TookOver(take.spec, role, "; ".join(failed) or "first to sound", take.n_chars))
        while take.waiting:
            self._pass_on(take.waiting.popleft())
        self._learn(take)

    def _note(self, what: TookOver | Unheard | Recited) -> None:
        if self._voice.note is not None:
            self._voice.note(what)

    @staticmethod
    def _role(attempt: Attempt) -> Literal["hedge", "replacement"] | None:
        match attempt.role:
            case "hedge" | "replacement" as role:
                return role
            case _:
                return None

    def _learn(self, speaker: Take) -> None:
        """Record how soon each take sent audio, and which synthesizer the session uses now."""
        now_ms = clock.monotonic_ms()
        self._lineup.served(self._voice.session, speaker.speaker.candidate, now_ms)
        for each in self._race.attempts:
            survival = self._lineup.experience.board.survival(each.candidate)
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

    def heard(self, take: Take, spoken: Spoken) -> None:
        """Handle a take's audio."""
        if take.over:
            return
        if take is self._speaker:
            self._pass_on(spoken)
            return
        take.waiting.append(spoken)
        if take.attempt is None:
            self._let_speak(take, "continuation")
        elif take.attempt.state == "running":
            self._obey(self._race.spoke(take.attempt, clock.monotonic_ms()))

    async def room(self, take: Take) -> None:
        """Wait until more of the take's audio may be queued."""
        while len(self._out) >= MOST_WAITING or len(take.waiting) >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()
            self._watch()

    def complete(self, take: Take) -> None:
        """Handle the end of a take; a take that had nothing to say ends the turn too."""
        if take.over:
            return
        self._drop(take)
        if take is self._speaker or self._speaker is None or self._speaker.over:
            self._end()

    def broke(self, take: Take, failure: StageError) -> None:
        """Handle a take that refused, stalled or broke."""
        if take.over:
            return
        self._blame(take, failure)
        self._drop(take)
        if take is self._speaker or take.attempt is None:
            self._go_on()
        elif not self._race.over:
            self._obey(self._race.failed(take.attempt, clock.monotonic_ms()))

    # --- the rest of a turn -------------------------------------------------------------------

    def _go_on(self) -> None:
        """Let another synthesizer say what is left, from the word that was cut on."""
        rest = self._progress.go_on(self._clauses)
        if rest is None and self._finished:
            self._end()  # it broke behind its last word
            return
        candidate = self._next_after(take.spec for take in self._takes if take.failure is not None)
        if candidate is None:
            self._fail(next(take.failure for take in reversed(self._takes) if take.failure is not None))
            return
        clause = len(self._clauses) if rest is None else rest.clause
        say = () if rest is None else (rest.text, *self._clauses[clause + 1 :])
        take = Take(self._speakers[candidate.spec], self._voice, clause=clause, heard_ms=rest.heard_ms if rest else 0)
        self._run(take, say=say)
        self._watch()

    def _next_after(self, failed: Iterable[str]) -> Candidate | None:
        return self._lineup.next_after(set(failed), self._voice.session, clock.monotonic_ms())

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
        failed = (take.spec for take in self._takes if take.failure is not None)
        if self._next_after((speaker.spec, *failed)) is not None:  # the last one may take its time: no other is sooner
            why = f"no sound came for {STALL_MS} ms in its speech"
            self.broke(speaker, StageTimeout("tts", provider=speaker.spec, why=why, retryable=True))

    # --- ends ---------------------------------------------------------------------------------

    def _living(self) -> list[Take]:
        return [take for take in self._takes if not take.over]

    def _take_of(self, attempt: Attempt) -> Take:
        return next(take for take in self._takes if take.attempt is attempt)

    def _blame(self, take: Take, failure: StageError) -> None:
        take.failure = failure
        breaker = self._lineup.experience.breaker(take.speaker.candidate)
        blame(breaker, take.spec, failure, clock.monotonic_ms())

    def _drop(self, take: Take) -> None:
        if take.over:
            return
        take.over = True
        take.waiting.clear()
        if take.attempt is not None:
            self._lineup.experience.ended(take.attempt)
        if take.task is not None and take.task is not asyncio.current_task():
            take.task.cancel()

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
