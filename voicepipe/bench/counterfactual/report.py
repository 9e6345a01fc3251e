"""Report the latency of each turn under other settings, and the limits of the estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from voicepipe.bench.counterfactual.changes import Changes
from voicepipe.bench.counterfactual.recorded_session import RecordedSession
from voicepipe.bench.counterfactual.simulation import Simulated, simulate
from voicepipe.turn import events as e
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import TurnRecord

MIN_REPORTED_MS: Final = 10

ESTIMATED: Final = "the recording lacks the end of its answer: estimated from the median"


@dataclass(frozen=True, slots=True)
class TurnComparison:
    """One turn, as recorded and as simulated; None where there is no such turn."""

    was: TurnRecord | None
    would_be: TurnRecord | None
    why: str

    @property
    def difference_ms(self) -> int | None:
        """Return the simulated latency less the recorded one."""
        was_ms, would_be_ms = _latency_ms(self.was), _latency_ms(self.would_be)
        return None if was_ms is None or would_be_ms is None else would_be_ms - was_ms


@dataclass(frozen=True, slots=True)
class Comparison:
    """The turns of a session as recorded, and with other settings."""

    rows: tuple[TurnComparison, ...]
    off_by_ms: int
    """The largest deviation of a turn from the recording without changes: the error of the method."""

    caveats: tuple[str, ...]


def what_if(recorded: RecordedSession, changes: Changes) -> Comparison:
    """Simulate the session with other settings, and return the latencies."""
    control, simulated = simulate(recorded), simulate(recorded, changes)
    offs = [abs(row.difference_ms) for row in _rows(recorded, control) if row.difference_ms is not None]
    rows = tuple(_rows(recorded, simulated))
    return Comparison(rows, max(offs, default=0), tuple(_caveats(recorded, changes, rows)))


def _rows(recorded: RecordedSession, simulated: Simulated) -> Iterator[TurnComparison]:
    """Yield matched turns: those that answer the same last word of the user, or the same request."""
    was = {_t0_ms(record): record for record in recorded.records.values()}
    would_be = {_t0_ms(record): record for record in simulated.records.values()}
    shifted = _matched_in_order(was, would_be)
    for t0_ms in sorted({*was, *(t for t in would_be if t not in shifted.values())}):
        old, new = was.get(t0_ms), would_be.get(shifted.get(t0_ms, t0_ms))
        estimated = new is not None and (new.turn, new.revision) in simulated.estimated
        yield TurnComparison(old, new, _why(recorded, old, new, estimated=estimated))


def _matched_in_order(was: Mapping[int, TurnRecord], would_be: Mapping[int, TurnRecord]) -> dict[int, int]:
    """Match turns without speech by their cause and order, since their times may differ."""
    found: dict[int, int] = {}
    for cause in ("tool", "apology", "greeting", "idle"):
        old = sorted(t for t, record in was.items() if record.cause == cause)
        new = sorted(t for t, record in would_be.items() if record.cause == cause)
        found |= dict(zip(old, new, strict=False))
    return found


def _t0_ms(record: TurnRecord) -> int:
    marks = dict(record.marks)
    return marks.get(attribution.VOICED_LAST, next(iter(marks.values()), 0))


def _latency_ms(record: TurnRecord | None) -> int | None:
    return None if record is None else record.total_ms


def _why(recorded: RecordedSession, was: TurnRecord | None, would_be: TurnRecord | None, *, estimated: bool) -> str:
    reasons: list[str] = []
    if would_be is None:
        return "no turn of its own: the user goes on before this one is over"
    went_on_ms = _went_on_after_ms(recorded, would_be)
    if was is None:
        reasons.append(
            "the recording has no end of turn here"
            if went_on_ms is None
            else f"taken for the end of turn: the user goes on after {went_on_ms} ms"
        )
    else:
        reasons += _moved(was, would_be)
        if was.outcome != would_be.outcome:
            reasons.append(f"{would_be.outcome} instead of {was.outcome}")
    if estimated:
        reasons.append(ESTIMATED)
    return "; ".join(reasons) or "-"


def _moved(was: TurnRecord, would_be: TurnRecord) -> Iterator[str]:
    """Yield the stages that differ, the largest difference first."""
    before, after = _parts(was), _parts(would_be)
    moves = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    for name, ms in sorted(moves.items(), key=lambda move: (-abs(move[1]), move[0])):
        if abs(ms) >= MIN_REPORTED_MS:
            yield f"{name} {ms:+d}"


def _parts(record: TurnRecord) -> dict[str, int]:
    return {part.stage: part.duration_ms for part in record.contributions}


def _went_on_after_ms(recorded: RecordedSession, record: TurnRecord) -> int | None:
    """Return how long after that last word the user spoke again in the same recorded turn."""
    t0_ms = _t0_ms(record)
    inner = [
        entry.event.onset_ms - t0_ms
        for entry in recorded.entries
        if isinstance(entry.event, e.SpeechStarted) and entry.event.onset_ms > t0_ms
    ]
    return min(inner, default=None)


def _caveats(recorded: RecordedSession, changes: Changes, rows: Sequence[TurnComparison]) -> Iterator[str]:
    if recorded.lacks:
        yield f"The journal is incomplete ({recorded.lacks}): its last turn may be cut off."
    yield "What the user says and when is as recorded: a user who is answered sooner may speak otherwise."
    if any(_is_cut(row) for row in rows):
        yield "Where an answer is cut off, the user spoke or hung up at the time of the recording."
    if recorded.played_after_ms is None:
        yield "The client did not report playback; both columns have the earliest time at which it could play."
    if any(ESTIMATED in row.why for row in rows):
        yield "Where an answer was not recorded to its end, its rest takes as long as the session's median answer."
    if any(row.was is None for row in rows):
        yield "A pause taken for the end of turn would have been answered, or cut off, before the user went on."
    if "silence_ms" in changes.values and any(
        line.settings.silence_set_by != "agent_silence" for line in _settings(recorded)
    ):
        yield "The client set the silence itself; the setting of the agent would not have changed that."
    if "filler" in changes.values:
        yield "Fillers are assumed to be ready, and to last 60 ms a character."


def _is_cut(row: TurnComparison) -> bool:
    """Whether a reply that was complete in the recording would be cut off."""
    return (
        row.was is not None
        and row.would_be is not None
        and row.was.outcome == "completed"
        and row.would_be.outcome in ("interrupted", "abandoned")
    )


def _settings(recorded: RecordedSession) -> Iterator[e.SettingsChanged]:
    yield from (entry.event for entry in recorded.entries if isinstance(entry.event, e.SettingsChanged))


def table(comparison: Comparison) -> Iterator[str]:
    """Yield the comparison as lines of text."""
    yield f"{'turn':<6}{'was':>11}{'what if':>12}{'change':>8}  why"
    for row in comparison.rows:
        number = str(row.was.turn) if row.was is not None else "+"
        change = "" if row.difference_ms is None else f"{row.difference_ms:+d}"
        yield f"{number:<6}{_cell(row.was):>11}{_cell(row.would_be):>12}{change:>8}  {row.why}"
    yield ""
    off_by_ms = comparison.off_by_ms
    yield f"Turn latency in ms. Without a change, each turn comes out within {off_by_ms} ms of the recording."
    yield from comparison.caveats


def _cell(record: TurnRecord | None) -> str:
    if record is None:
        return "-"
    return str(record.total_ms) if record.total_ms is not None else record.outcome or "open"


def plain(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data."""
    rows = [
        {
            "turn": row.was.turn if row.was is not None else None,
            "was_ms": _latency_ms(row.was),
            "what_if_ms": _latency_ms(row.would_be),
            "change_ms": row.difference_ms,
            "why": row.why,
        }
        for row in comparison.rows
    ]
    return {"turns": rows, "off_by_ms": comparison.off_by_ms, "caveats": list(comparison.caveats)}
