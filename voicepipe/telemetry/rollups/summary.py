"""Compute stats from figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from voicepipe.quantile import Sketch, SketchState
from voicepipe.telemetry.rollups.aggregates import Figures, Gist, ProviderFigures, StageFigures
from voicepipe.telemetry.rollups.stats import (
    LATENCY_BANDS_MS,
    TOTAL,
    CostSum,
    LateCause,
    ProviderStats,
    SpeculationSum,
    StageStats,
    Stats,
    StatsGroup,
    StatsPoint,
    TokenSum,
)

ORDER = (
    *("silence", "endpoint", "speech_to_speech", "llm_ttft", "tool", "first_clause", "tts_ttfb"),
    *("overhead", "earlier_audio", "playback"),
)
"""Stages, as they follow one another in a turn; others come after them."""


def stats_of(
    figures: Figures, *, series: Mapping[int, Gist], groups: Mapping[str, Gist], partial: bool = False
) -> Stats:
    """Return the stats of these figures.

    Args:
        figures: of all turns.
        series: of the turns that began within a step, by its beginning.
        groups: of the turns that have a name, by that.
        partial: whether there are more turns than were counted.
    """
    return Stats(
        turns=figures.turns,
        over=figures.over,
        measured=figures.measured,
        late_causes=tuple(_late_cause(name, turns) for name, turns in _most_first(figures.late_causes).items()),
        outcomes=_most_first(figures.outcomes),
        actions=_most_first(figures.actions),
        cost_usd=CostSum(**dict(zip(CostSum.__slots__, (figures.usd, *figures.usd_for), strict=True))),
        tokens=TokenSum(**dict(zip(TokenSum.__slots__, figures.tokens, strict=True))),
        speculation=SpeculationSum(**dict(zip(SpeculationSum.__slots__, figures.speculation, strict=True))),
        stages=tuple(_stages(figures)),
        providers=tuple(_provider(name, figures.providers[name]) for name in sorted(figures.providers)),
        series=tuple(_point(from_ms, series[from_ms]) for from_ms in sorted(series)),
        groups=tuple(
            _group(name, of) for name, of in sorted(groups.items(), key=lambda each: (-each[1].turns, each[0]))
        ),
        partial=partial,
    )


def _stages(figures: Figures) -> Iterator[StageStats]:
    if figures.measured:
        yield _stage(TOTAL, figures.total, sum(figures.waited_ms.values()))
    in_order = sorted(figures.stages, key=lambda stage: (ORDER.index(stage) if stage in ORDER else len(ORDER), stage))
    for stage in in_order:
        yield _stage(stage, figures.stages[stage], figures.waited_ms.get(stage, 0))


def _stage(stage: str, of: StageFigures, waited_ms: int) -> StageStats:
    sketch = _sketch(of.durations)
    return StageStats(
        stage=stage,
        count=sketch.count,
        over=of.over,
        limit_ms=of.limit_ms,
        p50_ms=_ms(sketch, 0.50) or 0,
        p95_ms=_ms(sketch, 0.95) or 0,
        p99_ms=_ms(sketch, 0.99) or 0,
        critical_ms=waited_ms / sketch.count,
        hidden_ms=of.hidden_ms / sketch.count,
    )


def _late_cause(name: str, turns: int) -> LateCause:
    stage, _, owner = name.partition(" ")
    return LateCause(stage=stage, owner=owner, turns=turns)


def _provider(name: str, of: ProviderFigures) -> ProviderStats:
    stage, _, spec = name.partition(" ")
    sketch = _sketch(of.durations)
    itl_ms = of.itl_ms / of.n_itl if of.n_itl else None
    return ProviderStats(
        stage=stage,
        provider=spec,
        calls=of.calls,
        errors=of.errors,
        p50_ms=_ms(sketch, 0.50),
        p95_ms=_ms(sketch, 0.95),
        p99_ms=_ms(sketch, 0.99),
        itl_ms=itl_ms,
        tokens_per_s=1_000 / itl_ms if itl_ms else None,
        cached_share=of.cached_tokens / of.read_tokens if of.read_tokens else None,
        cost_usd=of.usd,
    )


def _point(from_ms: int, of: Gist) -> StatsPoint:
    total = _sketch(of.total.durations)
    return StatsPoint(
        from_ms=from_ms,
        turns=of.turns,
        over=of.over,
        failed=of.outcomes.get("failed", 0),
        p50_ms=_ms(total, 0.50),
        p95_ms=_ms(total, 0.95),
        p99_ms=_ms(total, 0.99),
        critical={stage: waited_ms / of.measured for stage, waited_ms in of.waited_ms.items() if of.measured},
        bands=total.bands(LATENCY_BANDS_MS),
    )


def _group(name: str, of: Gist) -> StatsGroup:
    total = _sketch(of.total.durations)
    return StatsGroup(
        name=name,
        turns=of.turns,
        over=of.over,
        failed=of.outcomes.get("failed", 0),
        p50_ms=_ms(total, 0.50),
        p95_ms=_ms(total, 0.95),
        p99_ms=_ms(total, 0.99),
        cost_usd=of.usd,
    )


def _sketch(state: SketchState) -> Sketch:
    sketch = Sketch()
    sketch.add_state(state)
    return sketch


def _ms(sketch: Sketch, q: float) -> int | None:
    value_ms = sketch.quantile(q)
    return None if value_ms is None else round(value_ms)


def _most_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
