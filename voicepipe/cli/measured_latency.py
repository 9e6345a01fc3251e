"""Measure how fast LLMs were in the turns that this server kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from voicepipe.config.settings import Settings
from voicepipe.quantile import Sketch
from voicepipe.telemetry.store.port import MAX_LIMIT, TurnQuery, TurnStore
from voicepipe.turn.record.values import TurnRecord
from voicepipe.values import replace
from voicepipe.wiring.store import open_turns, turns_file

LATEST: Final = 2_000
"""Number of turns evaluated: older ones show little of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """The latency and the speed of one model."""

    turns: int
    ttft_p50_ms: int
    """Time to its first speakable output."""

    ttft_p95_ms: int
    itl_p50_ms: float | None
    """Time between tokens, for the median answer; None: the provider counted no tokens."""

    tokens_per_s: float | None
    """1000 / `itl_p50_ms`."""


async def measured(settings: Settings, project: str) -> dict[str, MeasuredModel]:
    """Return each model's measurements, by spec, in a project's latest turns; empty when there are none.

    Raises:
        ConfigError: the store can't be opened.
        StoreError: the store can't be read.
    """
    if not settings.records.url and not turns_file(settings).exists():
        return {}
    firsts: dict[str, Sketch] = defaultdict(Sketch)
    gaps: dict[str, Sketch] = defaultdict(Sketch)
    async with open_turns(settings) as store:
        async for record in _latest(store, project):
            spec = dict(record.providers).get("llm")
            span = next((stage for stage in record.stages if stage.stage == "llm_ttft"), None)
            if spec and span is not None:
                firsts[spec].add(span.duration_ms)
            if spec and record.itl_ms is not None:
                gaps[spec].add(record.itl_ms)
    return {spec: _summary(sketch, gaps[spec].p50_ms) for spec, sketch in firsts.items()}


async def _latest(store: TurnStore, project: str) -> AsyncIterator[TurnRecord]:
    query = TurnQuery(limit=MAX_LIMIT)
    for _ in range(LATEST // MAX_LIMIT):
        page = await store.list(project, query)
        for stored in page.turns:
            yield stored.record
        if page.next is None:
            return
        query = replace(query, before=page.next)


def _summary(firsts: Sketch, itl_p50_ms: float | None) -> MeasuredModel:
    return MeasuredModel(
        turns=firsts.count,
        ttft_p50_ms=round(firsts.p50_ms or 0),
        ttft_p95_ms=round(firsts.p95_ms or 0),
        itl_p50_ms=None if itl_p50_ms is None else round(itl_p50_ms, 2),
        tokens_per_s=round(1_000 / itl_p50_ms, 1) if itl_p50_ms else None,
    )
