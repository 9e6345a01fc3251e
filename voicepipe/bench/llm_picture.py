"""A picture of the bench of language models: how many answers had begun, and were whole, after how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from voicepipe.bench.llm import Answer
from voicepipe.bench.llm_report import Run

_WIDTH: Final = 420
_HEIGHT: Final = 240
_MARGIN: Final = 56
_LEGEND_PX: Final = 18
_COLOURS: Final = ("#1f6feb", "#d1571b", "#1a7f37", "#8250df", "#bf3989", "#6e7781", "#9a6700", "#0a7ea4")
_STEPS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)

Figure = Callable[[Answer], float | None]


def svg(measured: Sequence[Run]) -> str:
    """Distributions of the time to the first token and to the end, a curve for each run; dashed with a warm cache."""
    width, height = 2 * (_WIDTH + 2 * _MARGIN), _HEIGHT + 2 * _MARGIN + _LEGEND_PX * len(measured)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    panels: tuple[tuple[str, Figure], ...] = (
        ("first token", lambda answer: answer.ttft_ms),
        ("whole answer", lambda answer: answer.total_ms),
    )
    for n, (title, figure) in enumerate(panels):
        parts.append(f'<g transform="translate({_MARGIN + n * (_WIDTH + 2 * _MARGIN)} {_MARGIN})">')
        parts.extend(_panel(title, [sorted(_known(run, figure)) for run in measured], measured))
        parts.append("</g>")
    parts.extend(_legend(measured))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _known(run: Run, figure: Figure) -> Iterator[float]:
    return (found for found in map(figure, run.whole) if found is not None)


def _panel(title: str, curves: Sequence[Sequence[float]], measured: Sequence[Run]) -> Iterator[str]:
    longest_ms = max((curve[-1] for curve in curves if curve), default=1.0)
    yield f'<text x="0" y="-12" font-size="14">{escape(title)}</text>'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>'
    step_ms = next((step for step in _STEPS_MS if longest_ms / step <= 8), _STEPS_MS[-1])
    for n in range(int(longest_ms // step_ms) + 1):
        x = n * step_ms * _WIDTH / longest_ms
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y2="{_HEIGHT}" stroke="#eee"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT + 16}" font-size="11" text-anchor="middle">{n * step_ms}</text>'
    for share in (0, 50, 95, 100):
        y = _HEIGHT * (1 - share / 100)
        yield f'<line y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" stroke="#eee"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" font-size="11" text-anchor="end">{share} %</text>'
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 34}" font-size="11" text-anchor="middle">ms after asking</text>'
    for n, (run, curve) in enumerate(zip(measured, curves, strict=True)):
        yield _curve(run, curve, longest_ms, _COLOURS[n % len(_COLOURS)])


def _curve(run: Run, curve: Sequence[float], longest_ms: float, colour: str) -> str:
    """Failed answers never arrive: the curve of a model that fails ends below 100 %."""
    points = [f"0,{_HEIGHT}"]
    for n, at_ms in enumerate(curve):
        x = at_ms * _WIDTH / longest_ms
        points += [f"{x:.1f},{_HEIGHT * (1 - share / len(run.answers)):.1f}" for share in (n, n + 1)]
    dashes = ' stroke-dasharray="5 3"' if run.cache == "warm" else ""
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'


def _legend(measured: Sequence[Run]) -> Iterator[str]:
    for n, run in enumerate(measured):
        y = _HEIGHT + 2 * _MARGIN + n * _LEGEND_PX
        text = f"{run.spec}, {run.cache} cache"
        colour = _COLOURS[n % len(_COLOURS)]
        yield f'<text x="{_MARGIN}" y="{y}" font-size="12" fill="{colour}">{escape(text)}</text>'
