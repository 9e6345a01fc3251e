"""Figures of many turns that can be added up: counts, sums, and sketches of durations."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from voicepipe.quantile import Sketch, SketchState

KeyT = TypeVar("KeyT")

_LEVEL: Final = 6  # level of zlib: a third of the size is left


def _empty() -> SketchState:
    return Sketch().state


class StageFigures(msgspec.Struct, array_like=True):
    """The figures of one stage, or of the turn latency."""

    over: int = 0
    limit_ms: int = 0
    hidden_ms: int = 0
    durations: SketchState = msgspec.field(default_factory=_empty)

    def add(self, other: StageFigures) -> None:
        """Add all that `other` counted."""
        self.over += other.over
        self.limit_ms = max(self.limit_ms, other.limit_ms)
        self.hidden_ms += other.hidden_ms
        self.durations = _into(self.durations, other.durations)


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
        """Add all that `other` counted."""
        self.calls += other.calls
        self.errors += other.errors
        self.read_tokens += other.read_tokens
        self.cached_tokens += other.cached_tokens
        self.itl_ms += other.itl_ms
        self.n_itl += other.n_itl
        self.usd += other.usd
        self.durations = _into(self.durations, other.durations)


class Gist(msgspec.Struct, array_like=True):
    """The figures shown for a group of turns, or a point of a series. They can be read out of `Figures` alone."""

    turns: int = 0
    over: int = 0
    measured: int = 0
    usd: float = 0.0
    outcomes: dict[str, int] = {}
    waited_ms: dict[str, int] = {}
    """Stage -> the time that users waited for it."""

    total: StageFigures = msgspec.field(default_factory=StageFigures)
    """The turn latencies."""

    def add_gist(self, other: Gist) -> None:
        """Add what `other` counted."""
        self.turns += other.turns
        self.over += other.over
        self.measured += other.measured
        self.usd += other.usd
        _count(self.outcomes, other.outcomes)
        _count(self.waited_ms, other.waited_ms)
        self.total.add(other.total)


class Figures(Gist, array_like=True):
    """The figures of some turns. Two of them are added without loss."""

    actions: dict[str, int] = {}
    usd_for: list[float] = msgspec.field(default_factory=lambda: [0.0] * 5)
    """Answers, losers, speculation, speech and transcription."""

    tokens: list[int] = msgspec.field(default_factory=lambda: [0] * 3)
    """Input, output, cached."""

    speculation: list[int] = msgspec.field(default_factory=lambda: [0] * 6)
    """Starts, used, refused, saved_ms, wasted input and output tokens."""

    stages: dict[str, StageFigures] = {}
    providers: dict[str, ProviderFigures] = {}
    """Calls by `stage provider/model`."""

    late_causes: dict[str, int] = {}
    """Turns over their total limit by the `stage owner` of their breach."""

    def add(self, other: Figures) -> None:
        """Add all that `other` counted."""
        self.add_gist(other)
        _count(self.actions, other.actions)
        self.usd_for = [mine + its for mine, its in zip(self.usd_for, other.usd_for, strict=True)]
        self.tokens = [mine + its for mine, its in zip(self.tokens, other.tokens, strict=True)]
        self.speculation = [mine + its for mine, its in zip(self.speculation, other.speculation, strict=True)]
        for stage, figures in other.stages.items():
            self.stages.setdefault(stage, StageFigures()).add(figures)
        for provider, served in other.providers.items():
            self.providers.setdefault(provider, ProviderFigures()).add(served)
        _count(self.late_causes, other.late_causes)


def total_of(several: Sequence[Figures]) -> Figures:
    """Return the sum; for one element it is that element itself, which must not be added to then."""
    if len(several) == 1:
        return several[0]
    total = Figures()
    for figures in several:
        total.add(figures)
    return total


def packed(figures: Figures | Mapping[str, Figures]) -> bytes:
    """Return figures, or figures by name, as bytes: MessagePack, deflated."""
    return zlib.compress(msgspec.msgpack.encode(figures), _LEVEL)


def unpacked(data: bytes) -> Figures:
    """Return the figures that `packed` wrote.

    Raises:
        ValueError, zlib.error: these are no figures.
    """
    return _FIGURES.decode(zlib.decompress(data))


def unpacked_gist(data: bytes) -> Gist:
    """Return the gist of the figures that `packed` wrote; the rest is skipped.

    Raises:
        ValueError, zlib.error: these are no figures.
    """
    return _GIST.decode(zlib.decompress(data))


def unpacked_by_name(data: bytes, matches: Callable[[str], bool]) -> Iterator[tuple[str, Figures]]:
    """Return (name, figures) of the requested names; the others are not decoded.

    Raises:
        ValueError, zlib.error: these are no figures.
    """
    for name, raw in _BY_NAME.decode(zlib.decompress(data)).items():
        if matches(name):
            yield name, _FIGURES.decode(raw)


_FIGURES: Final = msgspec.msgpack.Decoder(Figures)
_GIST: Final = msgspec.msgpack.Decoder(Gist)
_BY_NAME: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


def _into(mine: SketchState, its: SketchState) -> SketchState:
    """Add a state to one that is not shared."""
    _count(mine[2], its[2])
    return min(mine[0], its[0]), max(mine[1], its[1]), mine[2]


def _count(counts: dict[KeyT, int], more: dict[KeyT, int]) -> None:
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count
