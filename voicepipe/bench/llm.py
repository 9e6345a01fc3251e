"""How fast language models answer: the same questions to each, measured where an adapter hands the words on.

The first token is the first text or call: role chunks, keep-alives and reasoning are none. Tokens are those that the
provider's usage tells; where it tells none there is no rate, since chunks are not tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from voicepipe.bench.runner import Progress, run_repeated
from voicepipe.clock import loop_s
from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Model, ModelRequest, Routed, Said, Text, TextDelta, Usage

Cache = Literal["warm", "cold"]

CACHES: Final[dict[str, tuple[Cache, ...]]] = {"warm": ("warm",), "cold": ("cold",), "both": ("cold", "warm")}
"""What can be asked for."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question."""

    user: str
    system: str = ""


PROMPTS: Final = tuple(
    Prompt(text, "You are a friendly voice assistant. Answer in one or two short, plain sentences.")
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
"""Short, as users ask."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to be measured."""

    spec: str
    model: Model
    model_name: str
    """Its name at its provider."""

    cost_usd: Callable[[Usage], float | None]
    """What an answer cost; None: no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to ask, and how."""

    prompts: Sequence[Prompt] = PROMPTS
    n_answers: int = 20
    """Of each model and each state of its cache; the prompts are asked in turn."""

    at_once: int = 1
    caches: tuple[Cache, ...] = ("cold",)
    """`cold`: each question begins with a word that no other has, so no provider has read it before. `warm`: the same
    questions again and again, each asked once before it counts."""

    max_output_tokens: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was measured of one question."""

    spec: str
    cache: Cache
    prompt: int
    """Which of the plan's, from 0."""

    ttft_ms: float | None
    """To the first token; None: there was none."""

    last_ms: float | None
    """To the last one."""

    total_ms: float
    """To the end of the answer, or to its failure."""

    usage: Usage | None
    cost_usd: float | None
    route: str
    """Who answered, where a router chose."""

    error: str
    """Empty for a whole answer."""

    @property
    def itl_ms(self) -> float | None:
        """The mean time from one token to the next."""
        n_gaps = (self.usage.output_tokens if self.usage is not None else 0) - 1
        if n_gaps < 1 or self.ttft_ms is None or self.last_ms is None or self.last_ms <= self.ttft_ms:
            return None
        return (self.last_ms - self.ttft_ms) / n_gaps

    @property
    def tokens_per_s(self) -> float | None:
        """How many tokens a second came once the first one was there."""
        return None if self.itl_ms is None else 1_000 / self.itl_ms


async def measure(candidates: Sequence[Candidate], plan: Plan, progress: Progress) -> list[Answer]:
    """Ask all of them, one model after the other, `at_once` questions at a time.

    A question that fails is an answer with its error; nothing is tried again.
    """
    answers = []
    for candidate in candidates:
        for cache in plan.caches:
            answers += await _measure(candidate, plan, cache, progress)
    return answers


async def _measure(candidate: Candidate, plan: Plan, cache: Cache, progress: Progress) -> list[Answer]:
    asker = _Asker(candidate, plan, cache)
    if cache == "warm":
        for prompt in range(min(len(plan.prompts), plan.n_answers)):
            await asker.measure_answer(prompt)
    what, n_prompts = f"{candidate.spec}, {cache} cache", len(plan.prompts)
    return await run_repeated(
        what, plan.n_answers, plan.at_once, lambda n: asker.measure_answer(n % n_prompts), progress
    )


class _Asker:
    """Asks one model, with its cache warm or cold."""

    def __init__(self, candidate: Candidate, plan: Plan, cache: Cache) -> None:
        self._candidate, self._plan, self._cache = candidate, plan, cache
        self._session = secrets.token_hex(8)

    async def measure_answer(self, prompt: int) -> Answer:
        """Ask once."""
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
        return Answer(
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
        # At the very beginning: caches compare from there, and a name of its own lets no replica be found again.
        mark = secrets.token_hex(8) if self._cache == "cold" else ""
        return ModelRequest(
            model=self._candidate.model_name,
            messages=tuple(_messages(chosen, f"[{mark}] " if mark else "")),
            max_output_tokens=self._plan.max_output_tokens,
            session=mark or self._session,
        )


def _messages(prompt: Prompt, mark: str) -> Iterator[Said]:
    if prompt.system:
        yield Said("system", (Text(mark + prompt.system),))
        mark = ""
    yield Said("user", (Text(mark + prompt.user),))


def _ms(began_s: float, at_s: float | None) -> float | None:
    return None if at_s is None else 1_000 * (at_s - began_s)
