"""Draw the results of the LLM bench: the share of answers that had begun, and were complete, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from voicepipe.bench import cdf_chart
from voicepipe.bench.cdf_chart import Curve, Panel
from voicepipe.bench.llm import LlmMeasurement
from voicepipe.bench.llm_report import Run


def svg(measured: Sequence[Run]) -> str:
    """Draw distributions of the time to the first token and to the end, a curve for each run; dashed: warm cache."""

    def panel(title: str, figure: Callable[[LlmMeasurement], float | None]) -> Panel:
        return Panel(title, [_curve(run, figure) for run in measured])

    panels = (
        panel("first token", lambda answer: answer.ttft_ms),
        panel("whole answer", lambda answer: answer.total_ms),
    )
    return cdf_chart.svg(panels, [f"{run.spec}, {run.cache} cache" for run in measured])


def _curve(run: Run, figure: Callable[[LlmMeasurement], float | None]) -> Curve:
    known = [found for found in map(figure, run.whole) if found is not None]
    return Curve(known, len(run.answers), dashed=run.cache == "warm")
