"""Run one request: carry out the race's orders with tasks, then pass on the answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, Routed, TextDelta
from voicepipe.ports.provider_events import ModelConnected, ModelJoined
from voicepipe.router.health import blame
from voicepipe.router.llm.call import MOST_WAITING, LlmCall, Speakable
from voicepipe.router.llm.continuation import StallPolicy, TextJoiner, continued, takes_prefill
from voicepipe.router.llm.usage import attempted, estimated_tokens, planned_usd
from voicepipe.router.policies import RoutingQuery
from voicepipe.router.pool import Decision, Pool, SharedStats
from voicepipe.router.race import Attempt, Close, GiveUp, Order, Race, Speak, Start

LOOK_AGAIN_S: Final = 0.4
"""Interval in which a full queue of events is checked for a stall."""


class RoutedAnswer:
    """The events of one routed answer. Iterate it inside the task group that `begin` got. Listens to its calls."""

    def __init__(
        self,
        request: ModelRequest,
        query: RoutingQuery,
        decision: Decision,
        *,
        pool: Pool,
        stats: SharedStats,
        models: Callable[[str], Model],
        why: str,
    ) -> None:
        self._request, self._query, self._decision, self._why = request, query, decision, why
        self._pool, self._stats, self._models = pool, stats, models
        self._race = Race(decision.plan)
        self._stall_policy = StallPolicy(pool, stats)
        self._calls: list[LlmCall] = []
        self._speaker: LlmCall | None = None
        self._continuation: LlmCall | None = None
        """The call that is to continue the answer, or does; there is at most 1 in a turn."""

        self._continuation_reason = ""
        self._out: deque[ModelEvent] = deque()  # bounded: at `MOST_WAITING` the answering model waits
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._failure: StageError | None = None
        self._over = self._learned = False
        self._text, self._calls_function = "", False
        self._began_ms = self._latest_ms = 0
        self._group: asyncio.TaskGroup | None = None
        self._race_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def follow_playback(self, queued_ms: Callable[[], int]) -> None:
        """Continue a stalled answer only when its audio runs out: meets `FollowsPlayback`."""
        self._stall_policy.queued_ms = queued_ms

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

    def __aiter__(self) -> RoutedAnswer:
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
                    self._start(LlmCall(attempt), self._request)
                case Close(attempt):
                    self._close(self._call_of(attempt))
                case Speak(attempt):
                    self._let_speak(self._call_of(attempt))
                case GiveUp():
                    self._fail(next(call.failure for call in self._calls if call.failure is not None))
        self._arm()

    def _call_of(self, attempt: Attempt) -> LlmCall:
        return self._calls[attempt.number]  # calls are made in the order of their attempts

    def _start(self, call: LlmCall, request: ModelRequest) -> None:
        self._calls.append(call)
        self._stats.began(call.attempt)
        if call.attempt.role != "primary":
            self._give(ModelJoined(call.spec, call.attempt.role))
        if self._group is not None:
            running = call.run(self._models(call.spec), request, self)
            call.task = self._group.create_task(running, name=f"llm-{call.spec}")

    def _close(self, call: LlmCall) -> None:
        if call.attempt.timed_out:
            why = f"no speakable text for {self._decision.plan.attempt_timeout_ms:.0f} ms"
            self._blame(call, StageTimeout("llm", provider=call.spec, why=why, retryable=True))
        self._end(call)

    def _let_speak(self, call: LlmCall) -> None:
        self._speaker, self._latest_ms = call, clock.monotonic_ms()
        self._give(Routed(call.spec, self._reason(call)))
        while call.waiting:
            self._pass_on(call, call.waiting.popleft())
        # After the answer's text, which the user waits for.
        asyncio.get_running_loop().call_soon(self._settle, self._latest_ms)
        if call.over:
            self._conclude(call)

    def _reason(self, speaker: LlmCall) -> str:
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

    def on_connected(self, call: LlmCall, event: ModelConnected) -> None:
        """Report that a call has its connection. It counts as no answer, and as no progress."""
        if not call.over:
            self._give(event)

    def on_event(self, call: LlmCall, event: Speakable) -> None:
        """Handle an event of a call."""
        if call.over:
            return
        if call is self._speaker:
            self._pass_on(call, event)
        elif call is self._continuation:
            self._switch_to(call, event)
        else:
            call.waiting.append(event)
            if call.attempt.state == "running":
                self._obey(self._race.spoke(call.attempt, clock.monotonic_ms()))

    async def wait_for_room(self, call: LlmCall) -> None:
        """Wait until more of the call's events may be queued."""
        while len(self._out) >= MOST_WAITING or len(call.waiting) >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    def on_complete(self, call: LlmCall) -> None:
        """Handle a complete answer. An answer that is held may still be released."""
        self._free(call)
        if call is self._speaker:
            self._conclude(call)

    def _conclude(self, call: LlmCall) -> None:
        if call.finished is None:
            return
        if call.joiner is not None and (rest := call.joiner.finish()):
            self._give(TextDelta(rest))
        self._account()
        if call.usage is not None:
            self._give(call.usage)
            self._stats.latency.speed(call.spec).note(call.usage.output_tokens, call.span_ms)
        self._over = True
        self._give(call.finished)

    def on_failure(self, call: LlmCall, failure: StageError) -> None:
        """Handle a failed call: the race continues without it, or another model continues its answer."""
        if call.over:
            return
        self._blame(call, failure)
        self._free(call)
        now_ms = clock.monotonic_ms()
        if call is self._speaker or call is self._continuation:
            call.attempt.state, call.attempt.ended_ms = "failed", now_ms
            self._answering_call_broke(call)
        else:
            self._obey(self._race.failed(call.attempt, now_ms))
            self._learn(now_ms)

    def _answering_call_broke(self, call: LlmCall) -> None:
        speaker, continuation = self._speaker, self._continuation
        continuation_is_coming = (
            continuation is not None and continuation is not speaker and continuation.failure is None
        )
        if speaker is None or speaker.failure is None or continuation_is_coming:
            return  # the other one is still there
        if call is not speaker or not self._start_continuation(speaker.failure.why):
            self._fail(speaker.failure)

    # --- the answer ---------------------------------------------------------------------------

    def _pass_on(self, call: LlmCall, event: Speakable) -> None:
        """Pass on an event of the answering call. Its `Finished` is sent at the end, after the cost of all calls."""
        now_ms = clock.monotonic_ms()
        if self._text and self._latest_ms:
            self._stats.latency.pace(call.attempt.candidate).note(now_ms - self._latest_ms)
        self._latest_ms = now_ms
        if self._continuation is not None and self._continuation is not call:
            self._dismiss(self._continuation)
        match event:
            case TextDelta(text):
                self._say(text if call.joiner is None else call.joiner.push(text))
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
            self._pool.learn(self._query, self._decision, self._race, now_ms, n_tokens=n_tokens)

    # --- ends of calls ------------------------------------------------------------------------

    def _end(self, call: LlmCall) -> None:
        self._free(call)
        if call.task is not None:
            call.task.cancel()

    def _free(self, call: LlmCall) -> None:
        if not call.over:
            call.over = True
            self._stats.ended(call.attempt)

    def _blame(self, call: LlmCall, failure: StageError) -> None:
        call.failure = failure
        blame(self._stats.breaker(call.attempt.candidate), call.spec, failure, clock.monotonic_ms())

    # --- after the first token ----------------------------------------------------------------

    def _watch(self) -> None:
        """Watch the answering model for a stall."""
        speaker = self._speaker
        if self._stall_timer is not None or self._continuation is not None or speaker is None or self._group is None:
            return
        wait_s = self._stall_policy.stall_ms(speaker.attempt.candidate) / 1_000
        self._stall_timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """Check whether the answering model has stalled, and whether it is time to ask another."""
        self._stall_timer = None
        speaker, now_ms = self._speaker, clock.monotonic_ms()
        if (
            speaker is None
            or speaker.over
            or self._calls_function
            or self._group is None
            or self._continuation is not None
        ):
            return
        silent_ms = now_ms - self._latest_ms
        wait_ms = self._stall_policy.wait_ms(speaker.attempt.candidate, silent_ms, now_ms)
        wait_s = LOOK_AGAIN_S if len(self._out) >= MOST_WAITING else wait_ms / 1_000
        if wait_s > 0:
            self._stall_timer = asyncio.get_running_loop().call_later(wait_s, self._look)
        else:
            self._start_continuation(f"stalled for {silent_ms} ms")

    def _start_continuation(self, why: str) -> bool:
        """Ask another model to continue the answer; False when that is not possible."""
        speaker, now_ms = self._speaker, clock.monotonic_ms()
        if (
            speaker is None
            or self._group is None
            or self._continuation is not None
            or not self._pool.options.continue_broken
        ):
            return False
        backup = self._stall_policy.backup(speaker.attempt.candidate, now_ms)
        if backup is None or self._calls_function or not self._text:
            return False
        self._continuation_reason = f"continues for {speaker.spec}: {why}"
        prefills = backup.prefills and takes_prefill(self._request)
        joiner = TextJoiner(self._text, prefills=prefills)
        self._continuation = LlmCall(Attempt(len(self._calls), backup, "continuation", now_ms), joiner=joiner)
        self._start(self._continuation, continued(self._request, self._text, prefills=prefills))
        return True

    def _switch_to(self, continuation: LlmCall, event: Speakable) -> None:
        """Make the continuing call the answering one, at its first words."""
        before, now_ms = self._speaker, clock.monotonic_ms()
        continuation.attempt.state, continuation.attempt.first_ms = "spoke", now_ms - continuation.attempt.began_ms
        if before is not None and not before.over:
            self._blame(before, StageTimeout("llm", provider=before.spec, why="stalled in its answer", retryable=True))
            before.attempt.state, before.attempt.ended_ms = "failed", now_ms
            self._end(before)
        self._speaker, self._latest_ms = continuation, now_ms
        self._give(Routed(continuation.spec, self._continuation_reason))
        self._pass_on(continuation, event)

    def _dismiss(self, continuation: LlmCall) -> None:
        """Close the continuing call: the answering model continues by itself after all. There is no second
        continuation."""
        if not continuation.over:
            continuation.attempt.state, continuation.attempt.ended_ms = "lost", clock.monotonic_ms()
            self._end(continuation)
