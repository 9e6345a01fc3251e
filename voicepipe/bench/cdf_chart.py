"""Draw distributions as SVG: the share of answers over time, a curve for each candidate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 420
_HEIGHT: Final = 240
_MARGIN: Final = 56
_LEGEND_PX: Final = 18
_COLOURS: Final = ("#1f6feb", "#d1571b", "#1a7f37", "#8250df", "#bf3989", "#6e7781", "#9a6700", "#0a7ea4")
_STEPS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)


@dataclass(frozen=True, slots=True)
class Curve:
    """One candidate's times for one figure."""

    times_ms: Sequence[float]
    n_requests: int
    """Failures never arrive: the curve then ends below 100 %."""

    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure, with a curve for each candidate."""

    title: str
    curves: Sequence[Curve]


def svg(panels: Sequence[Panel], names: Sequence[str]) -> str:
    """Draw the panels side by side, and below them the legend: `names` in the order of the curves."""
    width = len(panels) * (_WIDTH + 2 * _MARGIN)
    height = _HEIGHT + 2 * _MARGIN + _LEGEND_PX * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for n, panel in enumerate(panels):
        parts.append(f'<g transform="translate({_MARGIN + n * (_WIDTH + 2 * _MARGIN)} {_MARGIN})">')
        parts.extend(_panel(panel))
        parts.append("</g>")
    parts.extend(_legend(names))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _panel(panel: Panel) -> Iterator[str]:
    longest_ms = max((max(curve.times_ms) for curve in panel.curves if curve.times_ms), default=1.0)
    yield f'<text x="0" y="-12" font-size="14">{escape(panel.title)}</text>'
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
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 34}" font-size="11" text-anchor="middle">ms after the request</text>'
    for n, curve in enumerate(panel.curves):
        yield _curve(curve, longest_ms, _COLOURS[n % len(_COLOURS)])


def _curve(curve: Curve, longest_ms: float, colour: str) -> str:
    points = [f"0,{_HEIGHT}"]
    for n, at_ms in enumerate(sorted(curve.times_ms)):
        x = at_ms * _WIDTH / longest_ms
        points += [f"{x:.1f},{_HEIGHT * (1 - share / curve.n_requests):.1f}" for share in (n, n + 1)]
    dashes = ' stroke-dasharray="5 3"' if curve.dashed else ""
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'


def _legend(names: Sequence[str]) -> Iterator[str]:
    for n, name in enumerate(names):
        y = _HEIGHT + 2 * _MARGIN + n * _LEGEND_PX
        colour = _COLOURS[n % len(_COLOURS)]
        yield f'<text x="{_MARGIN}" y="{y}" font-size="12" fill="{colour}">{escape(name)}</text>'
