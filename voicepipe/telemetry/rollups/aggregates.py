"""Figures of turns that can be added: counts, sums, and sketches of durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from voicepipe.quantile import Sketch, SketchState

KeyT = TypeVar("KeyT")


class StageProvider(NamedTuple):
    """A model of one stage."""

    stage: str
    """`stt`, `llm`, `tts` or `speech_to_speech`."""

    spec: str
    """`provider/model`."""


class LateStage(NamedTuple):
    """A stage that made turns late, and its owner."""

    stage: str
    owner: str
    """As in a turn's record: a provider, `settings`, `client` or `server`."""


def _empty() -> SketchState:
    return Sketch().state


class StageFigures(msgspec.Struct, array_like=True):
    """The figures of one stage, or of the turn latency."""

    over: int = 0
    limit_ms: int = 0
    hidden_ms: int = 0
    durations: SketchState = msgspec.field(default_factory=_empty)

    def add(self, other: StageFigures) -> None:
        """Add the figures of `other`."""
        self.over += other.over
        self.limit_ms = max(self.limit_ms, other.limit_ms)
        self.hidden_ms += other.hidden_ms
        self.durations = _add_state(self.durations, other.durations)


class ProviderFigures(msgspec.Struct, array_like=True):
    """The figures of one model of one stage."""

    calls: int = 0
    errors: int = 0
    read_tokens: int = 0
    cached_tokens: int = 0
    itl_ms: float = 0.0
    n_itl: int = 0
    usd: float = 0.0
    durations: SketchState = msgspec.field(default_factory=_empty)

    def add(self, other: ProviderFigures) -> None:
        """Add the figures of `other`."""
        self.calls += other.calls
        self.errors += other.errors
        self.read_tokens += other.read_tokens
        self.cached_tokens += other.cached_tokens
        self.itl_ms += other.itl_ms
        self.n_itl += other.n_itl
        self.usd += other.usd
        self.durations = _add_state(self.durations, other.durations)


class BasicFigures(msgspec.Struct, array_like=True):
    """The figures of a group of turns, or of a point of a series: the first fields of `Figures`."""

    turns: int = 0
    over: int = 0
    measured: int = 0
    usd: float = 0.0
    outcomes: dict[str, int] = {}
    waited_ms: dict[str, int] = {}
    """Stage -> ms that users waited for the stage."""

    total: StageFigures = msgspec.field(default_factory=StageFigures)
    """The turn latencies."""

    def add_basic(self, other: BasicFigures) -> None:
        """Add the figures of `other`."""
        self.turns += other.turns
        self.over += other.over
        self.measured += other.measured
        self.usd += other.usd
        _count(self.outcomes, other.outcomes)
        _count(self.waited_ms, other.waited_ms)
        self.total.add(other.total)


class TurnFigures(BasicFigures, array_like=True):
    """The figures of some turns, without those of their providers and of what made them late."""

    actions: dict[str, int] = {}
    usd_for: list[float] = msgspec.field(default_factory=lambda: [0.0] * 5)
    """USD of answers, hedges, speculation, TTS and STT."""

    tokens: list[int] = msgspec.field(default_factory=lambda: [0] * 3)
    """Input, output, cached."""

    speculation: list[int] = msgspec.field(default_factory=lambda: [0] * 6)
    """Starts, used, refused, saved_ms, wasted input and output tokens."""

    stages: dict[str, StageFigures] = {}


class Figures(TurnFigures, array_like=True):
    """All figures of some turns. Adding loses nothing."""

    providers: dict[StageProvider, ProviderFigures] = {}
    """Their calls."""

    late_causes: dict[LateStage, int] = {}
    """Turns over their total limit by their breach."""

    def add(self, other: Figures) -> None:
        """Add the figures of `other`."""
        self.add_basic(other)
        _count(self.actions, other.actions)
        self.usd_for = [one + more for one, more in zip(self.usd_for, other.usd_for, strict=True)]
        self.tokens = [one + more for one, more in zip(self.tokens, other.tokens, strict=True)]
        self.speculation = [one + more for one, more in zip(self.speculation, other.speculation, strict=True)]
        for stage, figures in other.stages.items():
            self.stages.setdefault(stage, StageFigures()).add(figures)
        for provider, provider_figures in other.providers.items():
            self.providers.setdefault(provider, ProviderFigures()).add(provider_figures)
        _count(self.late_causes, other.late_causes)


def sum_of(parts: Sequence[Figures]) -> Figures:
    """Return the sum. For one element it is that element itself: do not add to it."""
    if len(parts) == 1:
        return parts[0]
    total = Figures()
    for figures in parts:
        total.add(figures)
    return total


def _add_state(state: SketchState, other: SketchState) -> SketchState:
    """Return `state` with `other` added. Changes the counts of `state`, which must not be shared."""
    _count(state[2], other[2])
    return min(state[0], other[0]), max(state[1], other[1]), state[2]


def _count(counts: dict[KeyT, int], more: Mapping[KeyT, int]) -> None:
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count
