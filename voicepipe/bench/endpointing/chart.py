"""Draw turn latency against overlapped turns: one panel for each set, clean, with the shorter `ready`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from voicepipe.bench.endpointing.report import CONDITIONS, READY_MS, SETS, Line
from voicepipe.turn.endpointing.strategies import SILENCE

_WIDTH: Final = 380
_HEIGHT: Final = 240
_MARGIN: Final = 60
_FIRST_MS, _LAST_MS, _STEP_MS = 200, 1_200, 200
_STEP_PERCENT: Final = 10
_FIXED: Final = "#888"
_COLOURS: Final = ("#1f6feb", "#d1571b", "#1a7f37", "#8250df", "#bf3989", "#0a7ea4")


def svg(results: Sequence[Line]) -> str:
    """Return the chart. A dot is the p50, the line to its right ends at the p90; fixed waits are joined."""
    drawn = [each for each in results if each.condition == CONDITIONS[0] and each.summaries[0].latency_ms is not None]
    names = dict.fromkeys(each.rule for each in drawn if not _is_fixed(each.rule))
    colours = {name: _COLOURS[n % len(_COLOURS)] for n, name in enumerate(names)}
    width, height = 2 * (_WIDTH + 2 * _MARGIN), 2 * (_HEIGHT + 2 * _MARGIN)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for n, name in enumerate(SETS):
        x, y = _MARGIN + (n % 2) * (_WIDTH + 2 * _MARGIN), _MARGIN + (n // 2) * (_HEIGHT + 2 * _MARGIN)
        panel = [each for each in drawn if each.set == name]
        top = _top(panel)
        parts.append(f'<g transform="translate({x} {y})">')
        parts.extend(_axes(f"{name}, clean, answer ready after {READY_MS[0]} ms", top))
        parts.extend(_fixed(panel, top))
        for each in panel:
            parts.extend(_point(each, colours.get(each.rule, _FIXED), top))
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _is_fixed(rule: str) -> bool:
    return rule.partition(":")[0] == SILENCE


def _top(panel: Sequence[Line]) -> int:
    """Return the upper end of a panel, in percent: a multiple of the step."""
    most = max((each.summaries[0].overlapped for each in panel), default=0.0)
    return _STEP_PERCENT * (int(most) // _STEP_PERCENT + 1)


def _x(ms: float) -> float:
    return (min(max(ms, _FIRST_MS), _LAST_MS) - _FIRST_MS) * _WIDTH / (_LAST_MS - _FIRST_MS)


def _y(percent: float, top: int) -> float:
    return _HEIGHT * (1 - percent / top)


def _axes(title: str, top: int) -> Iterator[str]:
    yield f'<text x="0" y="-12" font-size="14">{escape(title)}</text>'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>'
    for ms in range(_FIRST_MS, _LAST_MS + 1, _STEP_MS):
        yield f'<text x="{_x(ms):.1f}" y="{_HEIGHT + 16}" font-size="11" text-anchor="middle">{ms}</text>'
    for percent in range(0, top + 1, _STEP_PERCENT):
        y = _y(percent, top)
        yield f'<line y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" stroke="#eee"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" font-size="11" text-anchor="end">{percent} %</text>'
    label = "turn latency in ms, p50 to p90; upwards: turns overlapped"
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 34}" font-size="11" text-anchor="middle">{label}</text>'


def _fixed(panel: Sequence[Line], top: int) -> Iterator[str]:
    points = [
        f"{_x(each.summaries[0].latency_ms[0]):.1f},{_y(each.summaries[0].overlapped, top):.1f}"
        for each in panel
        if _is_fixed(each.rule) and each.summaries[0].latency_ms is not None
    ]
    yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{_FIXED}" stroke-dasharray="4 3"/>'


def _point(each: Line, colour: str, top: int) -> Iterator[str]:
    its = each.summaries[0]
    assert its.latency_ms is not None
    x, end, y = _x(its.latency_ms[0]), _x(its.latency_ms[1]), _y(its.overlapped, top)
    yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-opacity="0.5"/>'
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    yield f'<text x="{x + 6:.1f}" y="{y - 5:.1f}" font-size="11" fill="{colour}">{escape(each.rule)}</text>'
