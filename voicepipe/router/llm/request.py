"""Run one request: its race, then the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.continuation import TextJoiner, continued
from voicepipe.ports.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, Routed, TextDelta
from voicepipe.ports.provider_events import ModelConnected, ModelJoined
from voicepipe.router.candidate import CACHED_SHARE, Candidate
from voicepipe.router.decision import RoutingDecision
from voicepipe.router.hedge_budget import BudgetHold
from voicepipe.router.llm.call import MAX_WAITING, AnswerEvent, LlmCall
from voicepipe.router.llm.continuation import StallPolicy, takes_prefill
from voicepipe.router.llm.first_token import FirstToken
from voicepipe.router.llm.judge import Judging
from voicepipe.router.llm.probe import Probes
from voicepipe.router.llm.usage import Tokens, answer_tokens, attempted, cached_share, hedges_usd, planned_usd
from voicepipe.router.plan_table import HOLD_MARGIN_MS
from voicepipe.router.policies import Complexity, PoolChoice, RoutingQuery
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.race import Attempt
from voicepipe.router.race_runner import RaceRunner, StreamQueue

LOOK_AGAIN_S: Final = 0.4
"""Interval in which a full queue of events is checked for a stall."""


routed = lru_cache(64)(Routed)
"""Nearly all answers of a pool begin with the same event."""


class RoutedAnswer:
    """The events of one routed answer. Iterate it inside the task group that `begin` got. Gets the events of its
    calls."""

    def __init__(
        self,
        request: ModelRequest,
        query: RoutingQuery,
        decision: RoutingDecision,
        *,
        pool: Pool,
        stats: SharedStats,
        models: Callable[[str], Model],
        probes: Probes,
        choice: PoolChoice,
    ) -> None:
        self._probes = probes
        self._probe: Attempt | None = None
        self._request, self._query, self._decision, self._choice = request, query, decision, choice
        self._pool, self._stats, self._models = pool, stats, models
        self._runner: RaceRunner[LlmCall] = RaceRunner(decision.plan, stats, self, silence="no speakable text")
        self._stall_policy = StallPolicy(pool, stats)
        self._speaker: LlmCall | None = None
        self._continuation: LlmCall | None = None
        """The call that is to continue the answer, or does; there is at most 1 in a turn."""

        self._continuation_reason = ""
        self._events: StreamQueue[ModelEvent] = StreamQueue(MAX_WAITING)
        self._learned = self._is_accounted = False
        self._hold: BudgetHold | None = None
        """None: it has not begun."""

        self._text, self._calls_function = "", False
        self._began_ms = self._latest_ms = 0
        self._group: asyncio.TaskGroup | None = None
        self._judging: Judging | None = None
        self._judge_task: asyncio.Task[None] | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def track_playback(self, queued_ms: Callable[[], int]) -> None:
        """Continue a stalled answer only when its audio runs out: meets `FollowsPlayback`."""
        self._stall_policy.queued_ms = queued_ms

    # --- begin and close ----------------------------------------------------------------------

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Call the first models of the plan; every call is a task of `group`."""
        self._group, self._began_ms = group, clock.monotonic_ms()
        self._hold = self._pool.begin(self._decision)
        self._runner.begin(self._began_ms)
        if (probe := self._decision.probe) is not None:
            timeout_ms = self._pool.options.attempt_timeout_ms
            self._probe = self._probes.start(probe, self._models(probe.spec), self._request, timeout_ms=timeout_ms)
        if self._pool.judge is not None:
            self._start_judge(self._pool.judge, group)
        if self._pool.is_stale(self._began_ms):
            # After the calls have left: the next request finds a fresh table, and this one did not wait for it.
            asyncio.get_running_loop().call_soon(self._pool.refresh, self._began_ms)

    def _start_judge(self, candidate: Candidate, group: asyncio.TaskGroup) -> None:
        if self._stats.breaker(candidate).state(self._began_ms) != "closed":
            return
        if self._pool.better(self._query, "hard", self._began_ms) is None:
            return  # the best models answer already
        self._judging = Judging(candidate, self._query.text, self._stats)
        judging = self._judging.run(
            self._models(candidate.spec), self._judged, timeout_ms=self._pool.options.deadline_ms
        )
        self._judge_task = group.create_task(judging, name=f"judge-{candidate.spec}")

    def _judged(self, complexity: Complexity) -> None:
        """Prefer a better model if the question is harder than its words show; too late, it changes nothing."""
        now_ms = clock.monotonic_ms()
        if (better := self._pool.better(self._query, complexity, now_ms)) is not None:
            self._runner.prefer(better, self._pool.options.deadline_ms - HOLD_MARGIN_MS)

    def _end_judge(self) -> None:
        if self._judge_task is not None:
            self._judge_task.cancel()

    def close(self) -> None:
        """End every call: the consumer has left."""
        self._group = None
        self._end_judge()
        self._runner.close()
        self._account()  # of an answer that was abandoned, too
        self._learn(clock.monotonic_ms())
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._events.drop()

    def __aiter__(self) -> RoutedAnswer:
        return self

    def __anext__(self) -> Awaitable[ModelEvent]:
        return self._events.next()

    # --- the race -----------------------------------------------------------------------------

    def start(self, attempt: Attempt) -> None:
        """Call the model of an attempt."""
        self._start(LlmCall(attempt, FirstToken.of(self._request)), self._request)

    def _start(self, call: LlmCall, request: ModelRequest) -> None:
        self._runner.add(call)
        role = call.attempt.role
        if role != "primary" and role != "probe" and role != "judge":
            self._events.put(ModelJoined(call.spec, role))
        assert self._group is not None, "a closed answer starts no call"
        call.task = self._group.create_task(call.run(self._models(call.spec), request, self), name=call.spec)

    def unused(self, call: LlmCall) -> None:
        """Do nothing: its cost is reported with that of all calls."""

    def give_up(self) -> None:
        """Fail with the error of the model that was called first."""
        self._fail(self._runner.failures()[0])

    def let_speak(self, call: LlmCall, now_ms: int) -> None:
        """Pass on the answer of the model that has won."""
        self._speaker, self._latest_ms = call, now_ms
        self._end_judge()
        self._events.put(self._routed(call, self._reason(call), self._runner.waited_for(call, now_ms)))
        for event in call.waiting:
            self._pass_on(call, event, now_ms)
        call.waiting.clear()
        # After the answer's text, which the user waits for.
        asyncio.get_running_loop().call_soon(self._learn_and_watch, now_ms)
        if call.over:
            self._conclude(call)

    def _routed(self, speaker: LlmCall, why: str, waited_for: str = "") -> Routed:
        return routed(speaker.spec, why, self._choice.pool, self._choice.arm, waited_for)

    def _reason(self, speaker: LlmCall) -> str:
        calls = self._runner.calls
        if len(calls) == 1:
            why = "first choice"
        elif reasons := self._runner.reasons():
            why = "; ".join(reasons)
        elif speaker.attempt.is_better:
            why = "the judge found the question harder"
        else:
            is_preferred = self._decision.plan.hold_until_ms is not None and speaker is calls[0]
            why = "first choice" if is_preferred else "first to speak"
        return f"{self._choice.why}; {why}" if self._choice.why else why

    # --- events of calls ----------------------------------------------------------------------

    def on_connected(self, call: LlmCall, event: ModelConnected) -> None:
        """Report that a call has its connection. It counts as no answer, and as no progress."""
        if not call.over:
            self._events.put(event)

    def on_event(self, call: LlmCall, event: AnswerEvent, now_ms: int) -> None:
        """Handle an event of a call."""
        if call.over:
            return
        if call is self._speaker:
            self._pass_on(call, event, now_ms)
        elif call is self._continuation:
            self._switch_to(call, event, now_ms)
        else:
            call.waiting.append(event)
            self._runner.spoke(call, now_ms)

    def is_full(self, call: LlmCall) -> bool:
        """Return whether no more of the call's events may be queued."""
        return self._events.is_full(len(call.waiting))

    async def wait_for_space(self, call: LlmCall) -> None:
        """Wait until more of the call's events may be queued."""
        while self.is_full(call):
            await self._events.taken()

    def on_complete(self, call: LlmCall) -> None:
        """Handle a complete answer. An answer that is held may still be released."""
        self._runner.free(call)
        if call is self._speaker:
            self._conclude(call)

    def _conclude(self, call: LlmCall) -> None:
        assert call.finished is not None, "an answer without it has failed"
        if call.joiner is not None and (rest := call.joiner.finish()):
            self._events.put(TextDelta(rest))
        self._account()
        if call.usage is not None:
            self._events.put(call.usage)
            self._stats.latency.speed(call.spec).record(call.usage.output_tokens, call.span_ms)
        self._events.put(call.finished)
        self._events.end()

    def on_failure(self, call: LlmCall, failure: StageError) -> None:
        """Handle a failed call: the race continues without it, or another model continues its answer."""
        if call.over:
            if (
                call is self._speaker
            ):  # a fault of this code behind the answer's end: its consumer must not wait for ever
                self._events.end(failure)
            return
        self._runner.record_failure(call, failure)
        self._runner.free(call)
        now_ms = clock.monotonic_ms()
        if call is self._speaker or call is self._continuation:
            call.attempt.state, call.attempt.ended_ms = "failed", now_ms
            self._answering_call_broke(call)
        else:
            self._runner.failed(call)
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

    def _pass_on(self, call: LlmCall, event: AnswerEvent, now_ms: int) -> None:
        """Pass on an event of the answering call. Its `Finished` is sent at the end, after the cost of all calls."""
        if self._text and self._latest_ms:
            self._stats.latency.pace(call.attempt.candidate).record(now_ms - self._latest_ms)
        self._latest_ms = now_ms
        if self._continuation is not None and self._continuation is not call:
            self._dismiss(self._continuation)
        match event:
            case TextDelta():
                self._send_text(event if call.joiner is None else TextDelta(call.joiner.push(event.text)))
            case CallDelta():
                self._calls_function = True
                self._events.put(event)
            case Finished():
                pass

    def _send_text(self, event: TextDelta) -> None:
        if event.text:
            self._text += event.text
            self._events.put(event)
            if self._learned and self._stall_timer is None:
                self._watch()

    def _fail(self, failure: StageError) -> None:
        self._account()
        self._events.end(failure)

    def _account(self) -> None:
        """Report the cost of each call, once."""
        if self._is_accounted or self._hold is None:
            return
        self._is_accounted = True
        speaker = self._speaker
        tokens = answer_tokens(self._query.input_tokens, self._text, speaker.usage if speaker else None)
        costs: list[tuple[Attempt, float]] = []
        calls = [(call.attempt, call.usage, call.failure) for call in self._runner.calls]
        if self._probe is not None:
            calls.append((self._probe, None, None))
        shares = self._stats.cached_shares
        for attempt, usage, failure in calls:
            spec = attempt.candidate.spec
            is_warm = spec in self._decision.warm
            # The first answer of a session shows nothing of the cache: there is nothing to find in it.
            if is_warm and usage is not None and (share := cached_share(usage)) is not None:
                shares[spec] = share
            expected = self._cached_share(attempt)
            report = attempted(attempt, tokens, usage, failure, began_ms=self._began_ms, cached_share=expected)
            self._events.put(report)
            usd = report.cost_usd
            costs.append((attempt, planned_usd(attempt, tokens, cached_share=expected) if usd is None else usd))
        if self._judging is not None:
            self._events.put(self._judging.report(self._began_ms))
        self._pool.spent(self._decision, self._hold, self._hedges_usd(costs, tokens), tokens)

    def _hedges_usd(self, costs: list[tuple[Attempt, float]], tokens: Tokens) -> float:
        """Return what hedges have cost in this turn, or are expected to."""
        first = self._pool.candidates[0]
        share = 0.0
        if self._decision.is_known:
            # A first choice without a request has had no chance to show its cache: the cap must hold if it has one.
            unknown = 0.0 if any(attempt.candidate is first for attempt, _ in costs) else CACHED_SHARE
            share = self._stats.cached_shares.get(first.spec, unknown)
        alone_usd = first.cost_usd(*tokens, cached_share=share)
        return hedges_usd(costs, alone_usd, first=first, is_down=self._decision.is_first_down)

    def _cached_share(self, attempt: Attempt) -> float:
        """Return the share of a call's input that is charged as cached: only what its provider has charged before is
        evidence of its cache."""
        spec = attempt.candidate.spec
        return self._stats.cached_shares.get(spec, 0.0) if spec in self._decision.warm else 0.0

    def _learn_and_watch(self, now_ms: int) -> None:
        """End the choice when a model answers: learn from the race, and watch the answering model."""
        self._learn(now_ms)
        self._watch()

    def _learn(self, now_ms: int) -> None:
        if self._runner.race.over and not self._learned and self._hold is not None:
            self._learned = True
            n_tokens = self._query.input_tokens
            self._pool.learn(self._query, self._decision, self._runner.race, now_ms, n_tokens=n_tokens)
            self._pool.decided(self._hold, self._expected_usd())

    def _expected_usd(self) -> float:
        """Return what the hedges of a decided race are expected to cost."""
        attempts, tokens = self._runner.race.attempts, self._pool.expected_tokens(self._query.input_tokens)
        if len(attempts) == 1 and attempts[0].candidate is self._pool.candidates[0]:
            return 0.0
        costs = [(each, planned_usd(each, tokens, cached_share=self._cached_share(each))) for each in attempts]
        return self._hedges_usd(costs, tokens)

    # --- after the first token ----------------------------------------------------------------

    def _watch(self) -> None:
        """Watch the answering model for a stall."""
        speaker = self._speaker
        if self._stall_timer is not None or self._continuation is not None or speaker is None or self._group is None:
            return
        wait_s = self._stall_policy.stall_ms(speaker.attempt.candidate) / 1_000
        self._stall_timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """Check whether the answering model has stalled, and whether it is time to call another."""
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
        wait_s = LOOK_AGAIN_S if self._events.is_full() else wait_ms / 1_000
        if wait_s > 0:
            self._stall_timer = asyncio.get_running_loop().call_later(wait_s, self._look)
        else:
            self._start_continuation(f"stalled for {silent_ms} ms")

    def _start_continuation(self, why: str) -> bool:
        """Call another model to continue the answer; False when that is not possible."""
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
        attempt = Attempt(len(self._runner.calls), backup, "continuation", now_ms)
        # It may be no more than the end of a sentence.
        self._continuation = LlmCall(attempt, FirstToken(is_spoken=False), joiner=joiner)
        self._start(self._continuation, continued(self._request, self._text, prefills=prefills))
        return True

    def _switch_to(self, continuation: LlmCall, event: AnswerEvent, now_ms: int) -> None:
        """Make the continuing call the answering one, at its first words."""
        before = self._speaker
        continuation.attempt.state, continuation.attempt.first_ms = "spoke", now_ms - continuation.attempt.began_ms
        if before is not None and not before.over:
            self._runner.record_failure(
                before, StageTimeout("llm", provider=before.spec, why="stalled in its answer", retryable=True)
            )
            before.attempt.state, before.attempt.ended_ms = "failed", now_ms
            self._runner.end(before)
        self._speaker, self._latest_ms = continuation, now_ms
        self._events.put(self._routed(continuation, self._continuation_reason))
        self._pass_on(continuation, event, now_ms)

    def _dismiss(self, continuation: LlmCall) -> None:
        """Close the continuing call: the answering model continues by itself after all. There is no second
        continuation."""
        if not continuation.over:
            continuation.attempt.state, continuation.attempt.ended_ms = "lost", clock.monotonic_ms()
            self._runner.end(continuation)
