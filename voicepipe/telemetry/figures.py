"""Figures of many turns that can be added up: counts, sums, and sketches of durations."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from voicepipe.quantile import Sketch, SketchState
from voicepipe.telemetry.stats import TOTAL

KeyT = TypeVar("KeyT")

HEARD: Final = {"stt": "stt_final", "llm": "llm_ttft", "tts": "tts_ttfb"}
"""Stage of a provider -> the part of a turn, or the stage of it, that tells how soon the provider was."""

_LEVEL: Final = 6  # of zlib: 20 microseconds for a record, a third of its size left


class StageFigures(msgspec.Struct, array_like=True):
    """One stage, or the heard latency."""

    over: int = 0
    limit_ms: int = 0
    critical_ms: int = 0
    hidden_ms: int = 0
    durations: SketchState = msgspec.field(default_factory=lambda: Sketch().state)

    @property
    def sketch(self) -> Sketch:
        """The durations, to be asked for quantiles."""
        sketch = Sketch()
        sketch.add_state(self.durations)
        return sketch

    def add(self, other: StageFigures) -> None:
        """Count all that `other` counted."""
        self.over += other.over
        self.limit_ms = max(self.limit_ms, other.limit_ms)
        self.critical_ms += other.critical_ms
        self.hidden_ms += other.hidden_ms
        self.durations = _into(self.durations, other.durations)


class ProviderFigures(msgspec.Struct, array_like=True):
    """One model of one stage."""

    calls: int = 0
    errors: int = 0
    read_tokens: int = 0
    cached_tokens: int = 0
    itl_ms: float = 0.0
    n_itl: int = 0
    usd: float = 0.0
    durations: SketchState = msgspec.field(default_factory=lambda: Sketch().state)

    def add(self, other: ProviderFigures) -> None:
        """Count all that `other` counted."""
        self.calls += other.calls
        self.errors += other.errors
        self.read_tokens += other.read_tokens
        self.cached_tokens += other.cached_tokens
        self.itl_ms += other.itl_ms
        self.n_itl += other.n_itl
        self.usd += other.usd
        self.durations = _into(self.durations, other.durations)


class Figures(msgspec.Struct, array_like=True):
    """Some turns, summed up. Two of them are added without loss."""

    turns: int = 0
    over: int = 0
    heard: int = 0
    outcomes: dict[str, int] = {}
    actions: dict[str, int] = {}
    usd: list[float] = msgspec.field(default_factory=lambda: [0.0] * 6)
    """In all, for answers, losers, speculation, speech and hearing."""

    tokens: list[int] = msgspec.field(default_factory=lambda: [0] * 3)  # input, output, cached
    speculation: list[int] = msgspec.field(default_factory=lambda: [0] * 6)
    """Starts, kept, refused, saved_ms, wasted input and output tokens."""

    stages: dict[str, StageFigures] = {}
    providers: dict[str, ProviderFigures] = {}
    """By `stage provider/model`."""

    def add(self, other: Figures) -> None:
        """Count all that `other` counted."""
        self.turns += other.turns
        self.over += other.over
        self.heard += other.heard
        _count(self.outcomes, other.outcomes)
        _count(self.actions, other.actions)
        self.usd = [mine + its for mine, its in zip(self.usd, other.usd, strict=True)]
        self.tokens = [mine + its for mine, its in zip(self.tokens, other.tokens, strict=True)]
        self.speculation = [mine + its for mine, its in zip(self.speculation, other.speculation, strict=True)]
        for stage, figures in other.stages.items():
            self.stages.setdefault(stage, StageFigures()).add(figures)
        for provider, served in other.providers.items():
            self.providers.setdefault(provider, ProviderFigures()).add(served)

    @property
    def total(self) -> Sketch:
        """The heard latencies."""
        return self.stages[TOTAL].sketch if TOTAL in self.stages else Sketch()


def added(several: Iterable[Figures]) -> Figures:
    """The sum of them all."""
    total = Figures()
    for figures in several:
        total.add(figures)
    return total


def packed(figures: Figures) -> bytes:
    """Figures as bytes: MessagePack, deflated."""
    return zlib.compress(msgspec.msgpack.encode(figures), _LEVEL)


def unpacked(data: bytes) -> Figures:
    """The figures that `packed` wrote.

    Raises:
        ValueError: these are none.
    """
    try:
        return msgspec.msgpack.decode(zlib.decompress(data), type=Figures)
    except zlib.error as why:
        raise ValueError(f"expected figures, got {len(data)} bytes that can't be read: {why}") from None


class _Span(msgspec.Struct):
    stage: str
    duration_ms: int
    limit_ms: int
    verdict: str
    critical_ms: int
    hidden_ms: int


class _Tokens(msgspec.Struct):
    input: int = 0
    output: int = 0
    cached: int = 0


class _Attempt(msgspec.Struct):
    provider: str
    outcome: str
    cost_usd: float | None = None


class _Cost(msgspec.Struct):
    usd: float = 0.0
    answer_usd: float = 0.0
    losers_usd: float = 0.0
    speculation_usd: float = 0.0
    speech_usd: float = 0.0
    hearing_usd: float = 0.0


class _Speculation(msgspec.Struct):
    starts: int = 0
    kept: int = 0
    refused: int = 0
    saved_ms: int = 0
    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0


class Counted(msgspec.Struct):
    """Of a record as JSON, what is counted. The rest is skipped: half the time is saved."""

    outcome: str | None
    total_ms: int | None
    total_limit_ms: int
    total_verdict: str | None
    stages: list[_Span]
    parts: dict[str, int]
    providers: dict[str, str]
    tokens: _Tokens
    actions: list[str] = []
    attempts: list[_Attempt] = []
    itl_ms: float | None = None
    speculation: _Speculation = msgspec.field(default_factory=_Speculation)
    cost: _Cost = msgspec.field(default_factory=_Cost)

    @classmethod
    def read(cls, record: bytes) -> Counted:
        """Read a record as `record_json` wrote it.

        Raises:
            ValueError: it is none.
        """
        return _COUNTED.decode(record)

    def figures(self) -> Figures:
        """The figures of this turn alone."""
        late = self.total_verdict == "over"
        stages = {span.stage: _stage(span) for span in self.stages}
        if self.total_ms is not None:
            stages[TOTAL] = StageFigures(late, self.total_limit_ms, self.total_ms, 0, _some(self.total_ms))
        cost, early = self.cost, self.speculation
        return Figures(
            turns=1,
            over=int(late),
            heard=int(self.total_ms is not None),
            outcomes={self.outcome or "": 1},
            actions=dict.fromkeys(self.actions, 1),
            usd=[
                *(cost.usd, cost.answer_usd, cost.losers_usd, cost.speculation_usd),
                *(cost.speech_usd, cost.hearing_usd),
            ],
            tokens=[self.tokens.input, self.tokens.output, self.tokens.cached],
            speculation=[
                *(early.starts, early.kept, early.refused, early.saved_ms),
                *(early.wasted_input_tokens, early.wasted_output_tokens),
            ],
            stages=stages,
            providers=self._providers(),
        )

    def _providers(self) -> dict[str, ProviderFigures]:
        """Those that served the turn, and those that were asked for its answer in vain."""
        sooner = self.parts | {span.stage: span.duration_ms for span in self.stages}
        served = {}
        for stage, spec in self.providers.items():
            took_ms = sooner.get(HEARD.get(stage, ""))
            served[f"{stage} {spec}"] = ProviderFigures(calls=1, durations=_some(took_ms))
        spoke = served.get(f"llm {self.providers.get('llm')}")
        if spoke is not None:
            spoke.read_tokens, spoke.cached_tokens = self.tokens.input, self.tokens.cached
            spoke.usd += self.cost.answer_usd
            if self.itl_ms is not None:
                spoke.itl_ms, spoke.n_itl = self.itl_ms, 1
        for stage, usd in (("tts", self.cost.speech_usd), ("stt", self.cost.hearing_usd)):
            if stage in self.providers:
                served[f"{stage} {self.providers[stage]}"].usd += usd
        for attempt in self.attempts:
            if attempt.outcome != "spoke":
                asked = served.setdefault(f"llm {attempt.provider}", ProviderFigures())
                asked.calls += 1
                asked.errors += attempt.outcome == "failed"
                asked.usd += attempt.cost_usd or 0.0
        return served


_COUNTED: Final = msgspec.json.Decoder(Counted)


def _stage(span: _Span) -> StageFigures:
    over = span.verdict == "over"
    return StageFigures(over, span.limit_ms, span.critical_ms, span.hidden_ms, _some(span.duration_ms))


def _some(duration_ms: int | None) -> SketchState:
    """Less than 0 counts as 0: work may be done before t0, and then costs the caller nothing."""
    return Sketch([] if duration_ms is None else [max(0, duration_ms)]).state


def _into(mine: SketchState, its: SketchState) -> SketchState:
    """Add a state to one that nobody else holds."""
    _count(mine[2], its[2])
    return min(mine[0], its[0]), max(mine[1], its[1]), mine[2]


def _count(counts: dict[KeyT, int], more: dict[KeyT, int]) -> None:
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count
