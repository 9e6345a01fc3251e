"""Call a model whose circuit breaker is half open, beside a request that does not depend on it.

The probe runs until its first token: an answer from another model does not close it, and it may outlast the request.
So a slower model comes back too: the router probes it once each time that its circuit breaker was open.
"""

from __future__ import annotations

import asyncio

from voicepipe import clock
from voicepipe.errors import StageTimeout
from voicepipe.ports.model import Finished, Model, ModelRequest
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import record_failure
from voicepipe.router.llm.first_token import FirstToken, empty_answer
from voicepipe.router.pool import SharedStats
from voicepipe.router.race import Attempt
from voicepipe.router.race_runner import failure_of
from voicepipe.tasks import BackgroundTasks, background_tasks
from voicepipe.values import replace


class Probes:
    """The running probes of all routed models. They need `run` to be running."""

    def __init__(self, stats: SharedStats) -> None:
        self._stats = stats
        self._tasks: BackgroundTasks | None = None

    async def run(self) -> None:
        """Own the probes, until this is cancelled."""
        try:
            async with background_tasks() as self._tasks:
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def start(self, candidate: Candidate, model: Model, request: ModelRequest, *, timeout_ms: float) -> Attempt | None:
        """Send the request to this model too; return the attempt, whose state follows the probe. None: the server is
        ending."""
        if self._tasks is None:
            return None
        probe = _Probe(candidate, self._stats)
        self._stats.began(probe.attempt)
        self._tasks.start(probe.run(model, request, timeout_ms), name=f"probe-{candidate.spec}")
        return probe.attempt


class _Probe:
    def __init__(self, candidate: Candidate, stats: SharedStats) -> None:
        self.attempt = Attempt(0, candidate, "probe", clock.monotonic_ms())
        self._stats = stats

    async def run(self, model: Model, request: ModelRequest, timeout_ms: float) -> None:
        attempt, spec = self.attempt, self.attempt.candidate.spec
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                failure = await failure_of("llm", spec, self._wait_for_token(model, request))
        except TimeoutError:
            attempt.timed_out = True
            why = f"no speakable text for {timeout_ms:.0f} ms"
            failure = StageTimeout("llm", provider=spec, why=why, retryable=True)
        finally:
            self._stats.ended(attempt)
        attempt.ended_ms = now_ms = clock.monotonic_ms()
        if failure is not None:
            attempt.state = "failed"
            record_failure(self._stats.breaker(attempt.candidate), spec, failure, now_ms)

    async def _wait_for_token(self, model: Model, request: ModelRequest) -> None:
        attempt, spec = self.attempt, self.attempt.candidate.spec
        finished, first = Finished("stop"), FirstToken.of(request)
        async with model.open(replace(request, model=attempt.candidate.model)) as events:
            async for event in events:
                if first.look(event):
                    now_ms = clock.monotonic_ms()
                    attempt.state, attempt.first_ms = "lost", now_ms - attempt.began_ms
                    self._stats.latency.survival(attempt.candidate).spoke(attempt.first_ms, now_ms)
                    self._stats.breaker(attempt.candidate).succeeded(began_ms=attempt.began_ms)
                    return
                if isinstance(event, Finished):
                    finished = event
        raise empty_answer(spec, finished)
