"""Hints between processes: which circuit breakers are open, and how fast the models answer. Nothing requires them.

A hint counts where a process has nothing newer itself: it opens a closed circuit breaker for a model that has not
answered here since. For models that have not answered here at all it has times of answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from voicepipe.router.pool import SharedStats

Stage = Literal["stt", "llm", "tts"]

MAX_MODELS: Final = 200
"""Models whose times are shared: of each about 2 kB."""

MAX_BYTES: Final = 2_000_000
"""A larger hint is not ours."""

Learned = dict[Stage, dict[str, dict[str, list[float]]]]
"""Stage -> model -> counts, as `Survival.learned` returns them."""


class OpenBreaker(msgspec.Struct, frozen=True):
    """The open circuit breaker of a model, at the time of the hint."""

    stage: Stage
    spec: str
    opened_ago_ms: float
    open_for_ms: float


class NodeHints:
    """The hints that one process gives and takes. Pure: instants are passed in."""

    def __init__(self, stats: Mapping[Stage, SharedStats]) -> None:
        self._stats = stats
        self._answers: dict[tuple[Stage, str], tuple[int, float]] = {}
        """Model -> its number of answers, and when the latest of them was noticed; bounded by the models."""

    def open_breakers(self, now_ms: float) -> list[OpenBreaker]:
        """Return the circuit breakers that have opened by failures here."""
        found = []
        for stage, stats in self._stats.items():
            for spec, breaker in stats.breakers.items():
                opening = breaker.opening(now_ms)
                if opening is not None:
                    found.append(OpenBreaker(stage, spec, *opening))
        return found

    def record_answers(self, now_ms: float) -> None:
        """Record which models have answered here. Call it before `take`."""
        for stage, stats in self._stats.items():
            for spec, breaker in stats.breakers.items():
                n_before, _ = self._answers.get((stage, spec), (0, 0.0))
                if breaker.n_answers != n_before:
                    self._answers[stage, spec] = breaker.n_answers, now_ms

    def take(self, hint: OpenBreaker, age_ms: float, now_ms: float) -> bool:
        """Open the circuit breaker of a model that this process uses, too; return whether the hint was new. `age_ms`:
        how old the hint is."""
        open_for_ms, opened_ms = hint.open_for_ms - age_ms, now_ms - hint.opened_ago_ms - age_ms
        stats = self._stats.get(hint.stage)
        breaker = None if stats is None else stats.breakers.get(hint.spec)
        n_answers, answered_ms = self._answers.get((hint.stage, hint.spec), (0, 0.0))
        if breaker is None or hint.opened_ago_ms < 0 or open_for_ms <= 0 or (n_answers and answered_ms >= opened_ms):
            return False
        return breaker.hinted(open_for_ms, now_ms)

    def learned(self) -> Learned:
        """Return the times of the models that answer here."""
        return {
            stage: {spec: survival.learned() for spec, survival in [*stats.latency.survivals().items()][:MAX_MODELS]}
            for stage, stats in self._stats.items()
        }

    def take_learned(self, learned: Learned) -> None:
        """Begin with the times of another node, for models that have not answered here.

        Raises:
            ValueError: they are damaged.
        """
        for stage in learned.keys() & self._stats.keys():
            self._stats[stage].latency.hinted(learned[stage])
