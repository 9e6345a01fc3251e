"""Draw the results of the endpointing bench: the share of answered turns over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from tests.measure.endpointing_report import NATURAL, NOISY, STRESS, Result, Run
from voicepipe.bench.endpointing.speech_set import CLEAN

_WIDTH: Final = 360
_HEIGHT: Final = 220
_MARGIN: Final = 50
_LONGEST_MS: Final = 1_400
_COLOURS: Final = ("#1f6feb", "#d1571b", "#1a7f37", "#8250df")
_PANELS: Final = (
    ("natural", NATURAL, CLEAN),
    ("natural", NATURAL, NOISY),
    ("stress", STRESS, CLEAN),
    ("stress", STRESS, NOISY),
)


def svg(runs: Sequence[Run]) -> str:
    """Draw distributions of the effective delay (solid) and of the end of turn (dashed), a panel for each set."""
    width = 2 * (_WIDTH + 2 * _MARGIN)
    height = 2 * (_HEIGHT + 2 * _MARGIN)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for n, (name, kinds, condition) in enumerate(_PANELS):
        x = _MARGIN + (n % 2) * (_WIDTH + 2 * _MARGIN)
        y = _MARGIN + (n // 2) * (_HEIGHT + 2 * _MARGIN)
        noise = "clean" if condition == CLEAN else f"{condition} dB, no babble"
        parts.append(f'<g transform="translate({x} {y})">')
        parts.extend(_axes(f"{name}, {noise}"))
        for run, colour in zip(runs, _COLOURS, strict=False):
            parts.extend(_curves(run, kinds, condition, colour))
        parts.append("</g>")
    parts.extend(_legend(runs))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _axes(title: str) -> Iterator[str]:
    yield f'<text x="0" y="-12" font-size="14">{escape(title)}</text>'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>'
    for at_ms in range(0, _LONGEST_MS + 1, 200):
        x = at_ms * _WIDTH / _LONGEST_MS
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y2="{_HEIGHT}" stroke="#eee"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT + 16}" font-size="11" text-anchor="middle">{at_ms}</text>'
    for share in (0, 50, 90, 100):
        y = _HEIGHT * (1 - share / 100)
        yield f'<line y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" stroke="#eee"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" font-size="11" text-anchor="end">{share} %</text>'
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 34}" font-size="11" text-anchor="middle">ms after the last word</text>'


def _curves(run: Run, kinds: Sequence[str], condition: str, colour: str) -> Iterator[str]:
    chosen = [
        result
        for result in run.results
        if result.clip.kind in kinds and result.condition == condition and not (result.mix and result.mix.babble)
    ]
    for dashes, delays in (("", _effective(chosen)), ("4 3", _committed(chosen))):
        points = [f"0,{_HEIGHT}"]
        for n, delay_ms in enumerate(delays):
            x = min(max(delay_ms, 0), _LONGEST_MS) * _WIDTH / _LONGEST_MS
            points += [f"{x:.1f},{_HEIGHT * (1 - share / len(chosen)):.1f}" for share in (n, n + 1)]
        yield (
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.6" '
            f'stroke-dasharray="{dashes}"/>'
        )


def _effective(results: Sequence[Result]) -> list[int]:
    return sorted(r.verdict.effective_ms for r in results if r.verdict.effective_ms is not None)


def _committed(results: Sequence[Result]) -> list[int]:
    return sorted(r.verdict.delay_ms for r in results if r.verdict.delay_ms is not None)


def _legend(runs: Sequence[Run]) -> Iterator[str]:
    for n, (run, colour) in enumerate(zip(runs, _COLOURS, strict=False)):
        text = f"{run.name}: effective delay (solid), end of turn (dashed)"
        yield f'<text x="{_MARGIN + n * 420}" y="18" font-size="12" fill="{colour}">{escape(text)}</text>'
