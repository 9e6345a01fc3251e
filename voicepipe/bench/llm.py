"""Measure how fast language models answer: the same prompts to each, timed where the adapter yields the text.

The first token is the first text or call: role chunks, keep-alives and reasoning do not count. Token counts are from
the provider's usage; without it there is no rate, since chunks are not tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from voicepipe.bench.runner import ReportProgress, run_repeated
from voicepipe.clock import loop_s
from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Content, Model, ModelRequest, Routed, Text, TextDelta, Usage

Cache = Literal["warm", "cold"]

CACHES: Final[dict[str, tuple[Cache, ...]]] = {"warm": ("warm",), "cold": ("cold",), "both": ("cold", "warm")}
"""What can be requested."""


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt."""

    user: str
    system: str = ""


PROMPTS: Final = tuple(
    BenchPrompt(text, "You are a friendly voice assistant. Answer in one or two short, plain sentences.")
    for text in (
        "What is the tallest mountain, and how tall is it?",
        "I would like to move my appointment from Tuesday to the end of the week. Is that possible?",
        "My parcel has not arrived yet. What should I do now?",
        "Can you explain to me what a mortgage is?",
        "I am not sure. What would you do?",
        "Spell the word necessary for me, please.",
        "How long do I have to boil an egg so that it is soft?",
        "Thanks. And how do I get there by train?",
    )
)
"""Short prompts, as users speak."""


@dataclass(frozen=True, slots=True)
class LlmCandidate:
    """A model to be measured."""

    spec: str
    model: Model
    model_name: str
    """The model's name at its provider."""

    cost_usd: Callable[[Usage], float | None]
    """Returns the cost of an answer; None if no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmBenchPlan:
    """The prompts and how to send them."""

    prompts: Sequence[BenchPrompt] = PROMPTS
    n_answers: int = 20
    """Number for each model and each state of its cache; the prompts are sent in turn."""

    at_once: int = 1
    caches: tuple[Cache, ...] = ("cold",)
    """`cold`: each request begins with a unique word, so that no provider has it cached. `warm`: the same
    requests again and again, each sent once before measuring."""

    max_output_tokens: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmMeasurement:
    """The measurements of one request."""

    spec: str
    cache: Cache
    prompt: int
    """Index of the prompt in the plan, from 0."""

    ttft_ms: float | None
    """To the first token; None if there was none."""

    last_ms: float | None
    """To the last one."""

    total_ms: float
    """To the end of the answer, or to its error."""

    usage: Usage | None
    cost_usd: float | None
    route: str
    """The answering model, for a router."""

    error: str
    """Empty for a complete answer."""

    @property
    def itl_ms(self) -> float | None:
        """Return the mean time between tokens."""
        n_gaps = (self.usage.output_tokens if self.usage is not None else 0) - 1
        if n_gaps < 1 or self.ttft_ms is None or self.last_ms is None or self.last_ms <= self.ttft_ms:
            return None
        return (self.last_ms - self.ttft_ms) / n_gaps

    @property
    def tokens_per_s(self) -> float | None:
        """Return the tokens per second after the first one."""
        return None if self.itl_ms is None else 1_000 / self.itl_ms


async def measure(
    candidates: Sequence[LlmCandidate], plan: LlmBenchPlan, progress: ReportProgress
) -> list[LlmMeasurement]:
    """Measure all candidates, one after the other, with `at_once` requests at a time.

    A request that fails is an answer with its error; there are no retries.
    """
    answers = []
    for candidate in candidates:
        for cache in plan.caches:
            answers += await _measure(candidate, plan, cache, progress)
    return answers


async def _measure(
    candidate: LlmCandidate, plan: LlmBenchPlan, cache: Cache, progress: ReportProgress
) -> list[LlmMeasurement]:
    requester = _Requester(candidate, plan, cache)
    if cache == "warm":
        for prompt in range(min(len(plan.prompts), plan.n_answers)):
            await requester.measure_answer(prompt)
    what, n_prompts = f"{candidate.spec}, {cache} cache", len(plan.prompts)
    return await run_repeated(
        what, plan.n_answers, plan.at_once, lambda n: requester.measure_answer(n % n_prompts), progress
    )


class _Requester:
    """Sends requests to one model, with its cache warm or cold."""

    def __init__(self, candidate: LlmCandidate, plan: LlmBenchPlan, cache: Cache) -> None:
        self._candidate, self._plan, self._cache = candidate, plan, cache
        self._session = secrets.token_hex(8)

    async def measure_answer(self, prompt: int) -> LlmMeasurement:
        """Send one request and measure it."""
        began_s = loop_s()
        first_s: float | None = None
        last_s: float | None = None
        usage: Usage | None = None
        route, error = self._candidate.spec, ""
        try:
            async with self._candidate.model.open(self._request(prompt)) as events:
                async for event in events:
                    match event:
                        case TextDelta() | CallDelta():
                            last_s = loop_s()
                            first_s = first_s or last_s
                        case Usage():
                            usage = event
                        case Routed(provider):
                            route = provider
        except StageError as failure:
            error = failure.why
        ended_s = loop_s()
        return LlmMeasurement(
            spec=self._candidate.spec,
            cache=self._cache,
            prompt=prompt,
            ttft_ms=_ms(began_s, first_s),
            last_ms=_ms(began_s, last_s),
            total_ms=1_000 * (ended_s - began_s),
            usage=usage,
            cost_usd=self._candidate.cost_usd(usage) if usage is not None else None,
            route=route,
            error=error,
        )

    def _request(self, prompt: int) -> ModelRequest:
        chosen = self._plan.prompts[prompt]
        # At the very beginning: caches compare from there, and a unique session name prevents affinity to a replica.
        nonce = secrets.token_hex(8) if self._cache == "cold" else ""
        return ModelRequest(
            model=self._candidate.model_name,
            messages=tuple(_messages(chosen, f"[{nonce}] " if nonce else "")),
            max_output_tokens=self._plan.max_output_tokens,
            session=nonce or self._session,
        )


def _messages(prompt: BenchPrompt, nonce: str) -> Iterator[Content]:
    if prompt.system:
        yield Content("system", (Text(nonce + prompt.system),))
        nonce = ""
    yield Content("user", (Text(nonce + prompt.user),))


def _ms(began_s: float, at_s: float | None) -> float | None:
    return None if at_s is None else 1_000 * (at_s - began_s)
