"""The figures of many turns: the result of `TurnStore.stats`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

TOTAL: Final = "total"
"""The row of the turn latency, beside the rows of the stages."""


class CostSum(Struct, frozen=True, kw_only=True):
    """USD, as in `TurnCost`. A part without a price counts as 0."""

    usd: float = 0.0
    """The sum of the other fields."""

    answer_usd: float = 0.0
    hedge_usd: float = 0.0
    speculation_usd: float = 0.0
    tts_usd: float = 0.0
    stt_usd: float = 0.0


class TokenSum(Struct, frozen=True, kw_only=True):
    """Tokens as the providers count them."""

    input: int = 0
    output: int = 0
    cached: int = 0


class SpeculationSum(Struct, frozen=True, kw_only=True):
    """Speculative replies, started before their turn was over, as in `Speculation`."""

    starts: int = 0
    used: int = 0
    refused: int = 0
    saved_ms: int = 0
    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0


class StageStats(Struct, frozen=True, kw_only=True):
    """One stage of all turns, or the turn latency (`total`). Quantiles are within 1 %."""

    stage: str
    count: int
    over: int
    """Number of turns over the limit of the stage."""

    limit_ms: int
    """The longest limit of the turns: it differs after a change of the settings."""

    p50_ms: int
    p95_ms: int
    p99_ms: int
    critical_ms: float
    """The mean time on the critical path, over `count`. It may exceed the p50: a request that was sent early also waits
    for the end of the turn."""

    hidden_ms: float
    """The mean time in parallel to a stage on the critical path."""


LATENCY_BANDS_MS: Final = (200, 400, 600, 800, 1000, 1250, 1500, 2000, 3000)
"""The upper bounds of the bands of a heat map; the last band has none."""


class LateCause(Struct, frozen=True, kw_only=True):
    """The late turns whose breach, as in their records, is one stage of one owner."""

    stage: str
    owner: str
    """As in a turn's record: a provider, `settings`, `client` or `server`."""

    turns: int


class StatsPoint(Struct, frozen=True, kw_only=True):
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


class StatsGroup(Struct, frozen=True, kw_only=True):
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


class ProviderStats(Struct, frozen=True, kw_only=True):
    """A model of one stage. Quantiles are of the call that answered."""

    stage: str
    """`stt`, `llm` or `tts`."""

    provider: str
    """Name as `provider/model`."""

    calls: int
    """Turns that the model answered, and calls that lost or failed."""

    errors: int
    """Calls that failed."""

    p50_ms: int | None
    """`stt`: speech flushed to final text; `llm`: question to first speakable word; `tts`: first clause to first
    audio. None: nothing was measured."""

    p95_ms: int | None
    p99_ms: int | None
    itl_ms: float | None
    """Mean time between two tokens, over turns."""

    tokens_per_s: float | None
    """Tokens per second: the reciprocal of `itl_ms`."""

    cached_share: float | None
    """Share of the input tokens from the provider's cache; None: no input."""

    cost_usd: float


class Stats(Struct, frozen=True, kw_only=True):
    """The figures of many turns."""

    turns: int = 0
    over: int = 0
    """Turns whose total broke its limit."""

    measured: int = 0
    """Turns with audible output: of these a share `over / measured` was late."""

    late_causes: tuple[LateCause, ...] = ()
    """Causes of the late turns, most turns first."""

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
    """Whether only the newest turns were counted: a filter by user or session matched more than `MAX_TURNS`."""
