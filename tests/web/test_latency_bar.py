"""A record drawn on the page is the record laid out in time, as the terminal's picture has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from voicepipe.telemetry.record_json import record_plain
from voicepipe.telemetry.waterfall import Span, waterfall
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.attribution import with_stalls
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetLimits

pytestmark = pytest.mark.slow

HELD = (
    ("voiced_last", 5_000),
    ("flushed", 5_090),
    ("llm_requested", 5_095),
    ("transcribed", 5_100),
    ("first_delta", 5_310),
    ("first_clause", 5_330),
    ("first_sound", 5_420),
    ("ended", 5_500),
    ("gate_opened", 5_500),
    ("first_sent", 5_502),
    ("first_audible", 5_530),
)
"""Of a turn whose reply was ready before it was over: the user waited for the gate, and the model ran hidden."""

BEHIND = (*MARKS[:-1], ("earlier_audio_ended", 6_300), ("first_audible", 6_320))
"""Of a turn whose answer waited for a filler to be played."""

TEXT = ("voiced_last", "llm_requested", "first_delta", "first_sent")

RECORDS = {
    "spoken": turn_record(),
    "held": turn_record(HELD),
    "behind a filler": turn_record(BEHIND),
    "over": turn_record(limits=BudgetLimits(total_ms=500, llm_ttft_ms=100)),
    "text": turn_record(tuple(mark for mark in MARKS if mark[0] in TEXT), audible=False),
    "cut short": turn_record(MARKS[:6]),
    "loop held": turn_record(tuple(with_stalls(dict(MARKS), [(5_600, 5_755)]).items())),
}

LAID_OUT = """
import("/web/turns.js").then(({ waterfall }) => {
  const { rows, waits, end_ms } = waterfall(%s);
  const pair = ({ start_ms, end_ms }) => [start_ms, end_ms];
  return {
    rows: rows.map(({ stage, span, critical, held, duration_ms, limit_ms, over }) =>
      [stage, pair(span), critical.map(pair), held.map(pair), duration_ms, limit_ms, over]),
    waits: waits.map((wait) => [wait.stage, pair(wait)]),
    end_ms,
  };
})
"""

DRAWN = """
import("/web/latency_bar.js").then(({ latencyCard }) => {
  const card = latencyCard(%s, true);
  document.querySelector("main").append(card);
  const parts = (row, look) => [...row.querySelectorAll(`.segment.${look}`)].map((part) => part.clientWidth);
  const rows = [...card.querySelectorAll("tbody tr")];
  return {
    text: card.textContent,
    over: card.classList.contains("over"),
    rows: Object.fromEntries(rows.map((row) => [row.dataset.stage, [parts(row, "waited"), parts(row, "hidden")]])),
  };
})
"""


def pair(span: Span) -> list[int]:
    """As the page's script has it."""
    return [span.start_ms, span.end_ms]


def laid_out(record: TurnRecord) -> dict[str, Any]:
    """What `telemetry.waterfall` makes of it."""
    turn = waterfall(record)
    rows = [
        [
            row.stage,
            pair(row.span),
            [pair(span) for span in row.critical],
            [pair(span) for span in row.held],
            row.duration_ms,
            row.limit_ms,
            row.verdict == "over",
        ]
        for row in turn.rows
    ]
    return {"rows": rows, "waits": [[wait.stage, pair(wait.span)] for wait in turn.waits], "end_ms": turn.end_ms}


async def test_every_record_is_laid_out_as_elsewhere(talking: Any) -> None:
    """Rows, what was waited for, and where it ends: to the millisecond, for turns of every shape."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        for name, record in RECORDS.items():
            found = await page.evaluate(LAID_OUT % json.dumps(record_plain(record, "default")))
            assert found == laid_out(record), name


async def test_hidden_time_is_hatched_and_what_is_over_is_marked(talking: Any) -> None:
    """A model that ran while the user waited for the gate has no solid part; a broken limit is said in words."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        held = await page.evaluate(DRAWN % json.dumps(record_plain(RECORDS["held"], "default")))
        over = await page.evaluate(DRAWN % json.dumps(record_plain(RECORDS["over"], "default")))
        unplayed = await page.evaluate(DRAWN % json.dumps(record_plain(RECORDS["cut short"], "default")))
    waited, hidden = held["rows"]["llm_ttft"]
    assert waited == []
    assert hidden[0] > 20
    assert "hidden behind another stage" in held["text"]
    assert "waited for the turn to be over" in held["text"]
    assert not held["over"]
    assert over["over"]
    assert "483 ms over the limit of 500 ms" in over["text"]
    assert "Up to 135 ms sooner with agents.default.llm" in over["text"]
    assert unplayed["text"] == "No answer was played."


async def test_every_bar_is_as_long_as_its_stage_took(talking: Any) -> None:
    """Also the server's, where a stall of its event loop cut the stage in pieces: the gap between is not its time."""
    script = """
    import("/web/latency_bar.js").then(({ latencyCard }) =>
      [...latencyCard(%s, true).querySelectorAll("tbody tr")].map((row) => {
        const segments = [...row.querySelectorAll(".segment:not(.held)")];
        return [row.dataset.stage, segments.map(({ style }) => [style.left, style.width].map(parseFloat))];
      }))
    """
    for name, record in RECORDS.items():
        if record.total_ms is None:
            continue
        durations = {span.stage: span.duration_ms for span in record.stages}
        length_ms = 1.05 * max(waterfall(record).end_ms, record.total_limit_ms)
        async with talking(has_microphone=False) as talk, talk.page() as page:
            drawn = await page.evaluate(script % json.dumps(record_plain(record, "default")))
        for stage, segments in drawn:
            edges = [(left, left + width) for left, width in segments]
            covered = sum(right - left for left, right in unions(edges))
            assert abs(covered * length_ms / 100 - durations[stage]) <= 1, (name, stage, segments)


def unions(edges: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge the (left, right) that overlap."""
    merged: list[tuple[float, float]] = []
    for left, right in sorted(edges):
        if merged and left <= merged[-1][1] + 1e-6:
            merged[-1] = merged[-1][0], max(merged[-1][1], right)
        else:
            merged.append((left, right))
    return merged
