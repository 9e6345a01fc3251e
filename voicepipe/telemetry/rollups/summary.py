"""Compute `Stats` from `Figures`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from voicepipe.quantile import Sketch, SketchState
from voicepipe.telemetry.rollups.aggregates import (
    BasicFigures,
    Figures,
    KeyT,
    ProviderFigures,
    StageFigures,
    StageProvider,
)
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

STAGE_ORDER = (
    *("silence", "endpoint", "speech_to_speech", "llm_ttft", "tool", "first_clause", "tts_ttfb"),
    *("overhead", "earlier_audio", "playback"),
)
"""Stages in the order of a turn; other stages are last."""


def stats_of(
    figures: Figures, *, series: Mapping[int, BasicFigures], groups: Mapping[str, BasicFigures], partial: bool = False
) -> Stats:
    """Return the stats of these figures.

    Args:
        figures: the figures of all turns.
        series: start of a step -> figures of the turns that began in it.
        groups: name -> figures of the turns with that name.
        partial: whether there are more turns than were counted.
    """
    return Stats(
        turns=figures.turns,
        over=figures.over,
        measured=figures.measured,
        late_causes=tuple(
            LateCause(stage=late.stage, owner=late.owner, turns=turns)
            for late, turns in _by_count(figures.late_causes).items()
        ),
        outcomes=_by_count(figures.outcomes),
        actions=_by_count(figures.actions),
        cost_usd=CostSum(**dict(zip(CostSum.__struct_fields__, (figures.usd, *figures.usd_for), strict=True))),
        tokens=TokenSum(**dict(zip(TokenSum.__struct_fields__, figures.tokens, strict=True))),
        speculation=SpeculationSum(**dict(zip(SpeculationSum.__struct_fields__, figures.speculation, strict=True))),
        stages=tuple(_stages(figures)),
        providers=tuple(_provider(named, figures.providers[named]) for named in sorted(figures.providers)),
        series=tuple(_point(from_ms, series[from_ms]) for from_ms in sorted(series)),
        groups=tuple(
            _group(name, group) for name, group in sorted(groups.items(), key=lambda each: (-each[1].turns, each[0]))
        ),
        partial=partial,
    )


def _stages(figures: Figures) -> Iterator[StageStats]:
    if figures.measured:
        yield _stage(TOTAL, figures.total, sum(figures.waited_ms.values()))
    in_order = sorted(
        figures.stages,
        key=lambda stage: (STAGE_ORDER.index(stage) if stage in STAGE_ORDER else len(STAGE_ORDER), stage),
    )
    for stage in in_order:
        yield _stage(stage, figures.stages[stage], figures.waited_ms.get(stage, 0))


def _stage(stage: str, figures: StageFigures, waited_ms: int) -> StageStats:
    sketch = _sketch(figures.durations)
    return StageStats(
        stage=stage,
        count=sketch.count,
        over=figures.over,
        limit_ms=figures.limit_ms,
        p50_ms=_ms(sketch, 0.50) or 0,
        p95_ms=_ms(sketch, 0.95) or 0,
        p99_ms=_ms(sketch, 0.99) or 0,
        critical_ms=waited_ms / sketch.count,
        hidden_ms=figures.hidden_ms / sketch.count,
    )


def _provider(named: StageProvider, figures: ProviderFigures) -> ProviderStats:
    sketch = _sketch(figures.durations)
    itl_ms = figures.itl_ms / figures.n_itl if figures.n_itl else None
    return ProviderStats(
        stage=named.stage,
        provider=named.spec,
        calls=figures.calls,
        errors=figures.errors,
        p50_ms=_ms(sketch, 0.50),
        p95_ms=_ms(sketch, 0.95),
        p99_ms=_ms(sketch, 0.99),
        itl_ms=itl_ms,
        tokens_per_s=1_000 / itl_ms if itl_ms else None,
        cached_share=figures.cached_tokens / figures.read_tokens if figures.read_tokens else None,
        cost_usd=figures.usd,
    )


def _point(from_ms: int, figures: BasicFigures) -> StatsPoint:
    total = _sketch(figures.total.durations)
    return StatsPoint(
        from_ms=from_ms,
        turns=figures.turns,
        over=figures.over,
        failed=figures.outcomes.get("failed", 0),
        p50_ms=_ms(total, 0.50),
        p95_ms=_ms(total, 0.95),
        p99_ms=_ms(total, 0.99),
        critical={
            stage: waited_ms / figures.measured for stage, waited_ms in figures.waited_ms.items() if figures.measured
        },
        bands=total.bands(LATENCY_BANDS_MS),
    )


def _group(name: str, figures: BasicFigures) -> StatsGroup:
    total = _sketch(figures.total.durations)
    return StatsGroup(
        name=name,
        turns=figures.turns,
        over=figures.over,
        failed=figures.outcomes.get("failed", 0),
        p50_ms=_ms(total, 0.50),
        p95_ms=_ms(total, 0.95),
        p99_ms=_ms(total, 0.99),
        cost_usd=figures.usd,
    )


def _sketch(state: SketchState) -> Sketch:
    sketch = Sketch()
    sketch.add_state(state)
    return sketch


def _ms(sketch: Sketch, q: float) -> int | None:
    value_ms = sketch.quantile(q)
    return None if value_ms is None else round(value_ms)


def _by_count(counts: Mapping[KeyT, int]) -> dict[KeyT, int]:
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
