"""The figures of many turns: the result of `TurnStore.stats`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TOTAL: Final = "total"
"""The row of the turn latency, beside those of the stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSum:
    """USD, as in `TurnCost`. A part without a price counts as 0."""

    usd: float = 0.0
    """The sum of the others."""

    answer_usd: float = 0.0
    hedge_usd: float = 0.0
    speculation_usd: float = 0.0
    tts_usd: float = 0.0
    stt_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSum:
    """Tokens as the providers count them."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSum:
    """Speculative replies, started before their turn was over, as in `Speculation`."""

    starts: int = 0
    used: int = 0
    refused: int = 0
    saved_ms: int = 0
    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStats:
    """A stage of all these turns, or the turn latency (`total`). Quantiles are within 1 %."""

    stage: str
    count: int
    over: int
    """Number that broke their limit."""

    limit_ms: int
    """The longest limit among these turns: turns from before a change of the settings have another."""

    p50_ms: int
    p95_ms: int
    p99_ms: int
    critical_ms: float
    """The mean time on the critical path, over `count`. May be more than its p50: a turn's end is also waited
    for when the question has long been sent."""

    hidden_ms: float
    """The part that ran while another stage was the bottleneck, on average."""


LATENCY_BANDS_MS: Final = (200, 400, 600, 800, 1000, 1250, 1500, 2000, 3000)
"""The upper bounds of the bands of a heat map; the last band has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCause:
    """The late turns whose breach, as in their records, is one stage of one owner."""

    stage: str
    owner: str
    """As in a turn's record: a provider, `settings`, `client` or `server`."""

    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsPoint:
    """The turns that began within one step of a series."""

    from_ms: int
    """Start in ms since 1970 UTC; a multiple of the step."""

    turns: int
    over: int
    failed: int
    p50_ms: int | None
    """Quantiles of the turn latency; None: no turn had audible output."""

    p95_ms: int | None
    p99_ms: int | None
    critical: Mapping[str, float]
    """Stage -> ms that users waited for it, on average over the turns with audible output."""

    bands: tuple[int, ...]
    """Turns with audible output by their turn latency: a count for each of `LATENCY_BANDS_MS`, and one beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsGroup:
    """The turns with one value of the grouping field. One turn may have several models."""

    name: str
    """The value; empty where turns have none."""

    turns: int
    over: int
    failed: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStats:
    """A model of one stage. Quantiles are of the call that answered."""

    stage: str
    """`stt`, `llm` or `tts`."""

    provider: str
    """Name as `provider/model`."""

    calls: int
    """Turns that it served, and calls of it that lost or failed."""

    errors: int
    """Calls that failed."""

    p50_ms: int | None
    """`stt`: speech flushed to final text; `llm`: question to first speakable word; `tts`: first clause to first
    audio. None: nothing was measured."""

    p95_ms: int | None
    p99_ms: int | None
    itl_ms: float | None
    """Between two tokens, on average over turns."""

    tokens_per_s: float | None
    """The reciprocal, in tokens per second."""

    cached_share: float | None
    """The share of the input tokens that its cache had; None: no input."""

    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The figures of many turns."""

    turns: int = 0
    over: int = 0
    """Turns whose total broke its limit."""

    measured: int = 0
    """Turns with audible output: of these a share `over / measured` was late."""

    late_causes: tuple[LateCause, ...] = ()
    """Whose the late turns are, most turns first."""

    outcomes: Mapping[str, int] = field(default_factory=dict)
    actions: Mapping[str, int] = field(default_factory=dict)
    """Action -> turns in which it was taken."""

    cost_usd: CostSum = field(default_factory=CostSum)
    tokens: TokenSum = field(default_factory=TokenSum)
    speculation: SpeculationSum = field(default_factory=SpeculationSum)
    stages: tuple[StageStats, ...] = ()
    """`total` leads; the stages follow in the order of the turn."""

    providers: tuple[ProviderStats, ...] = ()
    series: tuple[StatsPoint, ...] = ()
    """The steps in time order; steps without turns are left out."""

    groups: tuple[StatsGroup, ...] = ()
    """Most turns first."""

    partial: bool = False
    """Whether only the newest of the turns were counted: a filter by user or session matched very many."""
