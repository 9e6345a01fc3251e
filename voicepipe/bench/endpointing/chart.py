"""Draw turn latency against overlapped turns: one panel for each set, clean, with the shorter `ready`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from voicepipe.bench.endpointing.report import CONDITIONS, READY_MS, SETS, RuleResult
from voicepipe.turn.endpointing.strategies import SILENCE

_WIDTH: Final = 380
_HEIGHT: Final = 240
_MARGIN: Final = 60
_FIRST_MS, _LAST_MS, _STEP_MS = 200, 1_200, 200
_STEP_PERCENT: Final = 10
_FONT: Final = 11
_LETTER: Final = 6.2
"""The width of a letter of a label, at most on average."""

_LINE: Final = 13
"""From one line of labels to the next."""

_FIXED: Final = "#888"
_COLOURS: Final = ("#1f6feb", "#d1571b", "#1a7f37", "#8250df", "#bf3989", "#0a7ea4")


def svg(results: Sequence[RuleResult]) -> str:
    """Return the chart. A dot is the p50, the line to its right ends at the p90; fixed waits are joined. A label has
    how many turns got no answer in time: the latencies are those of the others.
    """
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
        points = [_Point.of(each, colours.get(each.rule, _FIXED), top) for each in panel]
        for point, at in zip(points, _label_places(points), strict=True):
            parts.extend(point.drawn(at))
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _is_fixed(rule: str) -> bool:
    return rule.partition(":")[0] == SILENCE


def _top(panel: Sequence[RuleResult]) -> int:
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


def _fixed(panel: Sequence[RuleResult], top: int) -> Iterator[str]:
    points = [
        f"{_x(each.summaries[0].latency_ms[0]):.1f},{_y(each.summaries[0].overlapped, top):.1f}"
        for each in panel
        if _is_fixed(each.rule) and each.summaries[0].latency_ms is not None
    ]
    yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{_FIXED}" stroke-dasharray="4 3"/>'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """One rule in a panel, in pixels."""

    x: float
    end: float
    y: float
    label: str
    colour: str

    @classmethod
    def of(cls, each: RuleResult, colour: str, top: int) -> _Point:
        summary = each.summaries[0]
        assert summary.latency_ms is not None
        missed = f", {summary.missed:.0f} % unanswered" if summary.missed else ""
        x, end = map(_x, summary.latency_ms)
        return cls(x=x, end=end, y=_y(summary.overlapped, top), label=each.rule + missed, colour=colour)

    def drawn(self, label_at: tuple[float, float]) -> Iterator[str]:
        x, y = f"{self.x:.1f}", f"{self.y:.1f}"
        left, base = (f"{value:.1f}" for value in label_at)
        yield f'<line x1="{x}" y1="{y}" x2="{self.end:.1f}" y2="{y}" stroke="{self.colour}" stroke-opacity="0.5"/>'
        yield f'<line x1="{x}" y1="{y}" x2="{left}" y2="{base}" stroke="{self.colour}" stroke-opacity="0.3"/>'
        yield f'<circle cx="{x}" cy="{y}" r="4" fill="{self.colour}"/>'
        yield f'<text x="{left}" y="{base}" font-size="{_FONT}" fill="{self.colour}">{escape(self.label)}</text>'


def _label_places(points: Sequence[_Point]) -> list[tuple[float, float]]:
    """Return the left end of each label's base line: beside its dot, or so far above it, else below, that no label
    covers another.
    """
    taken: list[tuple[float, float, float]] = []
    for point in points:
        width = _LETTER * len(point.label)
        left = min(point.x + 6, _WIDTH - width)
        above = [point.y - 5 - n * _LINE for n in range(_HEIGHT // _LINE) if point.y - 5 - n * _LINE >= _LINE]
        below = [point.y + _LINE + n * _LINE for n in range(2 * len(points))]
        free = (y for y in (*above, *below) if not any(_cover(left, left + width, y, *other) for other in taken))
        taken.append((left, left + width, next(free)))
    return [(left, base) for left, _, base in taken]


def _cover(left: float, right: float, base: float, other_left: float, other_right: float, other_base: float) -> bool:
    return left < other_right and other_left < right and abs(base - other_base) < _LINE
