"""Format a replay: the session's turns, and where the core decides otherwise than recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from voicepipe.telemetry.journal.format import JournalFile, Plain
from voicepipe.telemetry.journal.plain import plain
from voicepipe.telemetry.journal.replay import Difference, Replayed

EVENTS_BEFORE = 3
"""Number of events shown before the one that differs."""


def replay_lines(journal: JournalFile, replayed: Replayed) -> Iterator[str]:
    """Yield the replay as lines of text."""
    texts = "with transcripts" if journal.texts == "plain" else "without transcripts"
    events = f"{replayed.n_events} events in {replayed.last_ms / 1_000:.1f} s"
    yield f"{journal.opening.session}, agent {journal.agent}, {events}, {texts}, by voicepipe {journal.version}"
    if journal.lacks:
        yield f"incomplete: {journal.lacks}"
    yield f"{'turn':<6}{'cause':<9}{'outcome':<13}{'latency':>7}  {'breach':<41} user"
    for record in sorted(replayed.records.values(), key=lambda record: record.turn):
        latency = "-" if record.total_ms is None else str(record.total_ms)
        breach = (
            "" if record.breach is None else f"{record.breach.stage} +{record.breach.over_ms} ({record.breach.owner})"
        )
        text = record.user_text if journal.texts == "plain" else ""
        outcome = record.outcome or "open"
        yield f"{record.turn:<6}{record.cause:<9}{outcome:<13}{latency:>7}  {breach:<41} {text}".rstrip()
    if replayed.difference is None:
        yield "no difference"
    else:
        yield from _difference(journal, replayed.difference)


def _difference(journal: JournalFile, found: Difference) -> Iterator[str]:
    yield f"first difference at event {found.event_number}, {found.now_ms} ms:"
    for line in journal.lines[max(0, found.event_number - 1 - EVENTS_BEFORE) : found.event_number]:
        yield f"  {line.number:>6} {line.now_ms:>8} ms  {_short(plain(line.event))}"
    yield f"  command {found.place + 1} of this event"
    yield f"    expected {_short(found.expected)}"
    yield f"    got      {_short(found.got)}"
    if found.expected is not None and found.got is not None:
        for path, expected, got in list(found.fields())[:8]:
            yield f"    {path}: expected {_value(expected)}, got {_value(got)}"


def _short(command: Plain | None) -> str:
    if command is None:
        return "nothing more"
    inner = command.get("what")
    if isinstance(inner, dict):
        return f"{command['is']}: {_short(inner)}"
    values = ", ".join(f"{name}={_value(value)}" for name, value in command.items() if name != "is")
    return f"{command['is']}({values})"[:160]


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:80]


def plain_replay(journal: JournalFile, replayed: Replayed) -> dict[str, Any]:
    """Return the replay as plain data."""
    found = replayed.difference
    return {
        "session": journal.opening.session,
        "agent": journal.agent,
        "events": replayed.n_events,
        "incomplete": journal.lacks,
        "difference": None
        if found is None
        else {"event": found.event_number, "at_ms": found.now_ms, "expected": found.expected, "got": found.got},
        "turns": [
            {"turn": r.turn, "id": r.id, "cause": r.cause, "outcome": r.outcome, "total_ms": r.total_ms}
            for r in sorted(replayed.records.values(), key=lambda r: r.turn)
        ],
    }
