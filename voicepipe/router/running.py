"""One request as it runs: the race's orders carried out by tasks, and the answer after that."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.router.accounts import attempted, estimated_tokens, planned_usd
from voicepipe.router.call import MOST_WAITING, Call, Speakable
from voicepipe.router.health import blame
from voicepipe.router.policies import Ask
from voicepipe.router.pool import Decision, Experience, Pool
from voicepipe.router.race import Attempt, Close, GiveUp, Order, Race, Speak, Start
from voicepipe.router.seam import Seam, continued, takes_prefill
from voicepipe.router.succession import Succession
from voicepipe.stages.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, Routed, TextDelta

LOOK_AGAIN_S: Final = 0.4
"""How long to wait until a full queue of events is checked again for a stall."""


class Running:
    """The events of one routed answer. Iterate it inside the task group that `begin` got. Listens to its calls."""

    def __init__(
        self,
        request: ModelRequest,
        ask: Ask,
        decision: Decision,
        *,
        pool: Pool,
        experience: Experience,
        models: Callable[[str], Model],
        why: str,
    ) -> None:
        self._request, self._ask, self._decision, self._why = request, ask, decision, why
        self._pool, self._experience, self._models = pool, experience, models
        self._race = Race(decision.plan)
        self._succession = Succession(pool, experience, request.queued_ms)
        self._calls: list[Call] = []
        self._speaker: Call | None = None
        self._heir: Call | None = None
        """The call that is to continue the answer, or does; there is at most 1 in a turn."""

        self._heir_why = ""
        self._out: deque[ModelEvent] = deque()  # bounded: at `MOST_WAITING` the answering model waits
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._failure: StageError | None = None
        self._over = self._learned = False
        self._text, self._calls_function = "", False
        self._began_ms = self._latest_ms = 0
        self._group: asyncio.TaskGroup | None = None
        self._race_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    # --- begin and close ----------------------------------------------------------------------

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Ask the first models of the plan; every call is a task of `group`."""
        self._group, self._began_ms = group, clock.monotonic_ms()
        self._obey(self._race.begin(self._began_ms))
        # After the calls have left: the next request finds a fresh table, and this one did not wait for it.
        asyncio.get_running_loop().call_soon(self._pool.refresh, self._began_ms)

    def close(self) -> None:
        """End every call: the consumer has left."""
        self._group = None
        now_ms = clock.monotonic_ms()
        if not self._race.over:
            self._obey(self._race.abandon(now_ms))
        self._learn(now_ms)
        for timer in (self._race_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        for call in self._calls:
            self._end(call)
        self._over = True
        self._out.clear()
        self._news.set()

    def __aiter__(self) -> Running:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._out:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        event = self._out.popleft()
        self._room.set()
        return event

    # --- the race -----------------------------------------------------------------------------

    def _obey(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Start(attempt):
                    self._start(Call(attempt), self._request)
                case Close(attempt):
                    self._close(self._call_of(attempt))
                case Speak(attempt):
                    self._let_speak(self._call_of(attempt))
                case GiveUp():
                    self._fail(next(call.failure for call in self._calls if call.failure is not None))
        self._arm()

    def _call_of(self, attempt: Attempt) -> Call:
        return self._calls[attempt.number]  # calls are made in the order of their attempts

    def _start(self, call: Call, request: ModelRequest) -> None:
        self._calls.append(call)
        self._experience.began(call.attempt)
        if self._request.joined is not None and call.attempt.role != "primary":
            self._request.joined(call.spec, call.attempt.role)
        if self._group is not None:
            running = call.run(self._models(call.spec), request, self)
            call.task = self._group.create_task(running, name=f"llm-{call.spec}")

    def _close(self, call: Call) -> None:
        if call.attempt.timed_out:
            why = f"nothing speakable came for {self._decision.plan.patience_ms:.0f} ms"
            self._blame(call, StageTimeout("llm", provider=call.spec, why=why, retryable=True))
        self._end(call)

    def _let_speak(self, call: Call) -> None:
        self._speaker, self._latest_ms = call, clock.monotonic_ms()
        self._give(Routed(call.spec, self._reason(call)))
        while call.waiting:
            self._pass_on(call, call.waiting.popleft())
        # After the answer's text, which the user waits for.
        asyncio.get_running_loop().call_soon(self._settle, self._latest_ms)
        if call.over:
            self._conclude(call)

    def _reason(self, speaker: Call) -> str:
        failed = [f"{call.spec}: {call.failure.why}" for call in self._calls if call.failure is not None]
        first = "first choice" if len(self._calls) == 1 else "first to speak"
        if self._decision.plan.hold_until_ms is not None and speaker is self._calls[0]:
            first = "first choice"
        return "; ".join(part for part in (self._why, *(failed or [first])) if part)

    def _arm(self) -> None:
        if self._race_timer is not None:
            self._race_timer.cancel()
            self._race_timer = None
        wake_ms = self._race.wake_ms()
        if wake_ms is not None and self._group is not None:
            delay_s = max(0.0, wake_ms - clock.monotonic_ms()) / 1_000
            self._race_timer = asyncio.get_running_loop().call_later(delay_s, self._time_passed)

    def _time_passed(self) -> None:
        self._obey(self._race.time_passed(clock.monotonic_ms()))

    # --- events of calls ----------------------------------------------------------------------

    def heard(self, call: Call, event: Speakable) -> None:
        """Handle an event of a call."""
        if call.over:
            return
        if call is self._speaker:
            self._pass_on(call, event)
        elif call is self._heir:
            self._inherit(call, event)
        else:
            call.waiting.append(event)
            if call.attempt.state == "running":
                self._obey(self._race.spoke(call.attempt, clock.monotonic_ms()))

    async def room(self, call: Call) -> None:
        """Wait until more of the call's events may be queued."""
        while len(self._out) >= MOST_WAITING or len(call.waiting) >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    def complete(self, call: Call) -> None:
        """Handle a complete answer. An answer that is held may still be released."""
        self._free(call)
        if call is self._speaker:
            self._conclude(call)

    def _conclude(self, call: Call) -> None:
        if call.finished is None:
            return
        if call.seam is not None and (rest := call.seam.finish()):
            self._give(TextDelta(rest))
        self._account()
        if call.usage is not None:
            self._give(call.usage)
            self._experience.board.speed(call.spec).note(call.usage.output_tokens, call.span_ms)
        self._over = True
        self._give(call.finished)

    def broke(self, call: Call, failure: StageError) -> None:
        """Handle a failed call: the race continues without it, or another model continues its answer."""
        if call.over:
            return
        self._blame(call, failure)
        self._free(call)
        now_ms = clock.monotonic_ms()
        if call is self._speaker or call is self._heir:
            call.attempt.state, call.attempt.ended_ms = "failed", now_ms
            self._speaker_or_heir_broke(call)
        else:
            self._obey(self._race.failed(call.attempt, now_ms))
            self._learn(now_ms)

    def _speaker_or_heir_broke(self, call: Call) -> None:
        speaker, heir = self._speaker, self._heir
        heir_is_coming = heir is not None and heir is not speaker and heir.failure is None
        if speaker is None or speaker.failure is None or heir_is_coming:
            return  # the other one is still there
        if call is not speaker or not self._carry_on(speaker.failure.why):
            self._fail(speaker.failure)

    # --- the answer ---------------------------------------------------------------------------

    def _pass_on(self, call: Call, event: Speakable) -> None:
        """Pass on an event of the answering call. Its `Finished` is sent at the end, after the cost of all calls."""
        now_ms = clock.monotonic_ms()
        if self._text and self._latest_ms:
            self._experience.board.pace(call.attempt.candidate).note(now_ms - self._latest_ms)
        self._latest_ms = now_ms
        if self._heir is not None and self._heir is not call:
            self._dismiss(self._heir)
        match event:
            case TextDelta(text):
                self._say(text if call.seam is None else call.seam.push(text))
            case CallDelta():
                self._calls_function = True
                self._give(event)
            case Finished():
                pass

    def _say(self, text: str) -> None:
        if text:
            self._text += text
            self._give(TextDelta(text))
            if self._learned:
                self._watch()

    def _give(self, event: ModelEvent) -> None:
        self._out.append(event)
        self._news.set()

    def _fail(self, failure: StageError) -> None:
        self._account()
        self._failure = failure
        self._news.set()

    def _account(self) -> None:
        """Report the cost of each call."""
        speaker = self._speaker
        tokens = estimated_tokens(self._request, self._text, speaker.usage if speaker else None)
        usd = 0.0
        for call in self._calls:
            warm = call.spec in self._decision.warm
            self._give(attempted(call.attempt, tokens, call.usage, call.failure, began_ms=self._began_ms, warm=warm))
            usd += planned_usd(call.attempt, tokens, warm=warm)
        self._pool.spent(self._decision, usd, tokens)

    def _settle(self, now_ms: int) -> None:
        """Settle the race when a model answers: learn from it, and watch the answering model."""
        self._learn(now_ms)
        self._watch()

    def _learn(self, now_ms: int) -> None:
        if self._race.over and not self._learned:
            self._learned = True
            n_tokens, _ = estimated_tokens(self._request, "", None)
            self._pool.learn(self._ask, self._decision, self._race, now_ms, n_tokens=n_tokens)

    # --- ends of calls ------------------------------------------------------------------------

    def _end(self, call: Call) -> None:
        self._free(call)
        if call.task is not None:
            call.task.cancel()

    def _free(self, call: Call) -> None:
        if not call.over:
            call.over = True
            self._experience.ended(call.attempt)

    def _blame(self, call: Call, failure: StageError) -> None:
        call.failure = failure
        blame(self._experience.breaker(call.attempt.candidate), call.spec, failure, clock.monotonic_ms())

    # --- after the first token ----------------------------------------------------------------

    def _watch(self) -> None:
        """Watch the answering model for a stall."""
        speaker = self._speaker
        if self._stall_timer is not None or self._heir is not None or speaker is None or self._group is None:
            return
        wait_s = self._succession.stall_ms(speaker.attempt.candidate) / 1_000
        self._stall_timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """Check whether the answering model has stalled, and whether it is time to ask another."""
        self._stall_timer = None
        speaker, now_ms = self._speaker, clock.monotonic_ms()
        if speaker is None or speaker.over or self._calls_function or self._group is None or self._heir is not None:
            return
        silent_ms = now_ms - self._latest_ms
        wait_ms = self._succession.wait_ms(speaker.attempt.candidate, silent_ms, now_ms)
        wait_s = LOOK_AGAIN_S if len(self._out) >= MOST_WAITING else wait_ms / 1_000
        if wait_s > 0:
            self._stall_timer = asyncio.get_running_loop().call_later(wait_s, self._look)
        else:
            self._carry_on(f"stalled for {silent_ms} ms")

    def _carry_on(self, why: str) -> bool:
        """Ask another model to continue the answer; False when that is not possible."""
        speaker, now_ms = self._speaker, clock.monotonic_ms()
        if speaker is None or self._group is None or self._heir is not None or not self._pool.options.resume:
            return False
        backup = self._succession.backup(speaker.attempt.candidate, now_ms)
        if backup is None or self._calls_function or not self._text:
            return False
        self._heir_why = f"goes on for {speaker.spec}: {why}"
        prefills = backup.prefills and takes_prefill(self._request)
        seam = Seam(self._text, prefills=prefills)
        self._heir = Call(Attempt(len(self._calls), backup, "continuation", now_ms), seam=seam)
        self._start(self._heir, continued(self._request, self._text, prefills=prefills))
        return True

    def _inherit(self, heir: Call, event: Speakable) -> None:
        """Make the continuing call the answering one, at its first words."""
        before, now_ms = self._speaker, clock.monotonic_ms()
        heir.attempt.state, heir.attempt.first_ms = "spoke", now_ms - heir.attempt.began_ms
        if before is not None and not before.over:
            self._blame(before, StageTimeout("llm", provider=before.spec, why="stalled in its answer", retryable=True))
            before.attempt.state, before.attempt.ended_ms = "failed", now_ms
            self._end(before)
        self._speaker, self._latest_ms = heir, now_ms
        self._give(Routed(heir.spec, self._heir_why))
        self._pass_on(heir, event)

    def _dismiss(self, heir: Call) -> None:
        """Close the continuing call: the answering model continues by itself after all. There is no second
        continuation."""
        if not heir.over:
            heir.attempt.state, heir.attempt.ended_ms = "lost", clock.monotonic_ms()
            self._end(heir)
