"""Turn records for tests: one realistic record, changed where a test needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from voicepipe.turn.record.attribution import judge
from voicepipe.turn.record.values import TokenCount, TurnRecord
from voicepipe.turn.settings import BudgetLimits
from voicepipe.values import replace

MARKS: Final = (
    ("voiced_last", 5_000),
    ("flushed", 5_090),
    ("end_due", 5_500),
    ("ended", 5_500),
    ("transcribed", 5_520),
    ("llm_requested", 5_525),
    ("first_delta", 5_760),
    ("first_clause", 5_820),
    ("first_sound", 5_930),
    ("gate_opened", 5_930),
    ("first_sent", 5_933),
    ("first_audible", 5_983),
)
"""Marks of a spoken turn without speculation that waited 0.5 s of silence; the reply was audible after 983 ms."""

OWNERS: Final = {
    "silence": "settings",
    "endpoint": "fake-stt",
    "llm_ttft": "fake-llm",
    "tts_ttfb": "fake-tts",
    "playback": "client",
}


def turn_record(
    marks: tuple[tuple[str, int], ...] = MARKS,
    *,
    limits: BudgetLimits | None = None,
    audible: bool = True,
    owners: Mapping[str, str] = OWNERS,
    **changes: Any,
) -> TurnRecord:
    """Return a completed turn with these marks, judged as the core does it, and with `changes` to its fields."""
    limits = limits or BudgetLimits()
    judged = judge(dict(marks), limits, owners, audible=audible)
    late = judged.total_ms is not None and judged.total_ms > limits.total_ms
    record = TurnRecord(
        id="turn_1",
        session="sess_1",
        turn=1,
        revision=0,
        cause="vad",
        outcome="completed",
        reason="",
        marks=marks,
        total_ms=judged.total_ms,
        total_limit_ms=limits.total_ms,
        total_verdict=None if judged.total_ms is None else "over" if late else "within",
        latency_source="none" if judged.total_ms is None else "reported",
        stages=judged.stages,
        parts=judged.parts,
        contributions=judged.contributions,
        unattributed_ms=judged.unattributed_ms,
        breach=judged.breach,
        providers=(("stt", "fake-stt"), ("llm", "fake-llm"), ("tts", "fake-tts")),
        tokens=TokenCount(input=120, output=24, cached=96),
        user_text="What time is it?",
        agent_text="It is noon. Time for lunch.",
        played_text="It is noon. Time for lunch.",
        spoken_ms=2_400,
        itl_ms=20.0,
        tokens_per_s=50.0,
    )
    return replace(record, **changes)
