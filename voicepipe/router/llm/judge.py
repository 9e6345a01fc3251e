"""Let a small model judge how hard a question is, beside the request that it judges. No answer waits for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from voicepipe import clock
from voicepipe.errors import StageError, StageTimeout
from voicepipe.ports.model import Attempted, Content, Model, ModelRequest, Text, TextDelta, Usage, text_chars
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import record_failure
from voicepipe.router.llm.usage import answer_tokens, attempted
from voicepipe.router.policies import Complexity
from voicepipe.router.pool import SharedStats
from voicepipe.router.race import Attempt
from voicepipe.router.race_runner import failure_of
from voicepipe.turn.cost import estimated_tokens

PROMPT: Final = (
    "You sort questions that people ask a voice assistant. Answer with one letter and nothing else.\n"
    "A: small talk, a short answer, a request for one action, or a question for one fact.\n"
    "B: one explanation, one recommendation, a comparison of two things, or one step of calculation.\n"
    "C: several steps or conditions, planning, writing, code, proof, or advice with consequences.\n"
    "What time do you open? A\nWhy is the sky blue? B\nPlan a trip to Rome for five people. C"
)

LETTERS: Final[dict[str, Complexity]] = {"A": "easy", "B": "medium", "C": "hard"}

MAX_TOKENS: Final = 4
"""Length of a verdict: some models begin with a blank, or end with a dot."""

MAX_CHARS: Final = 2_000
"""The part of a question that is judged; what is longer is hard anyway."""


def verdict_of(text: str) -> Complexity | None:
    """Return the class that a judge's answer names; None: it names none."""
    found = re.match(r"\W*([ABC])\b", text.strip().upper())
    return LETTERS[found[1]] if found else None


def judge_request(candidate: Candidate, question: str) -> ModelRequest:
    """Return the request for a verdict on a question."""
    return ModelRequest(
        model=candidate.model,
        messages=(Content("system", (Text(PROMPT),)), Content("user", (Text(question[:MAX_CHARS]),))),
        max_output_tokens=MAX_TOKENS,
    )


class Judging:
    """One question to the judge. `run` it as a task of the request's group; cancel the task to close it."""

    def __init__(self, candidate: Candidate, question: str, stats: SharedStats) -> None:
        self.attempt = Attempt(0, candidate, "judge", clock.monotonic_ms())
        self._request, self._stats = judge_request(candidate, question), stats
        self._usage: Usage | None = None
        self._text = ""
        self._failure: StageError | None = None

    async def run(self, model: Model, found: Callable[[Complexity], None], *, timeout_ms: float) -> None:
        """Call the model, and pass its verdict to `found`. A refusal or a break is logged, and counts for its
        circuit breaker. A time-out does not: an answer may take longer than a verdict, and both share the circuit
        breaker."""
        attempt, spec = self.attempt, self.attempt.candidate.spec
        breaker = self._stats.breaker(attempt.candidate)
        with self._stats.in_flight(spec):
            try:
                async with asyncio.timeout(timeout_ms / 1_000):
                    failure = await failure_of("llm", spec, self._answer(model))
            except TimeoutError:
                attempt.timed_out = True
                failure = StageTimeout("llm", provider=spec, why=f"no verdict for {timeout_ms:.0f} ms", retryable=True)
            finally:
                attempt.ended_ms = clock.monotonic_ms()
        if failure is not None:
            attempt.state, self._failure = "failed", failure
            if not isinstance(failure, StageTimeout):
                record_failure(breaker, spec, failure, attempt.ended_ms)
            return
        attempt.state = "lost"  # no part of it is spoken
        breaker.succeeded(began_ms=attempt.began_ms)
        if (verdict := verdict_of(self._text)) is not None:
            found(verdict)

    def report(self, began_ms: float) -> Attempted:
        """Return the record of the call, of a request that began then; also before its end."""
        tokens = answer_tokens(estimated_tokens(text_chars(self._request)), self._text, self._usage)
        return attempted(self.attempt, tokens, self._usage, self._failure, began_ms=began_ms, cached_share=0.0)

    async def _answer(self, model: Model) -> None:
        async with model.open(self._request) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        if self.attempt.first_ms is None:
                            self.attempt.first_ms = clock.monotonic_ms() - self.attempt.began_ms
                        self._text += text
                    case Usage() if event.is_possible:
                        self._usage = event
