"""The timeouts between the steps of a reply: set, met and missed."""

from __future__ import annotations

from collections.abc import Iterable

from voicepipe.turn import budget
from voicepipe.turn.floor import Floor
from voicepipe.turn.turns import Turn

_OUTPUT, _PROGRESS, _REPLY = "first_output", "progress", "reply"


def await_output(floor: Floor, turn: Turn, now_ms: int) -> None:
    """Start the first-output timeout and the timeout of the whole reply."""
    floor.due[f"{_OUTPUT} {turn.number}"] = now_ms + floor.core.deadlines.first_output_ms
    floor.due[f"{_REPLY} {turn.number}"] = now_ms + floor.core.deadlines.reply_ms


def output_came(floor: Floor, turn: Turn) -> None:
    """Stop the first-output timeout: there is output."""
    floor.due.pop(f"{_OUTPUT} {turn.number}", None)


def await_progress(floor: Floor, turn: Turn, now_ms: int) -> None:
    """Restart the progress timeout: the reply has advanced."""
    floor.due[f"{_PROGRESS} {turn.number}"] = now_ms + floor.core.deadlines.progress_ms


def await_nothing(floor: Floor, turn: Turn) -> None:
    """Stop all timeouts of this reply."""
    for kind in (_OUTPUT, _PROGRESS, _REPLY):
        floor.due.pop(f"{kind} {turn.number}", None)


def missed(floor: Floor, name: str, running: Iterable[Turn]) -> tuple[Turn, str, str] | None:
    """Handle a passed deadline (`first_output 3`): return the turn, the stage that it waits for, and the reason to
    report.
    """
    kind, _, number = name.partition(" ")
    turn = next((t for t in running if t.number == int(number)), None)
    if turn is None:
        return None
    limits = floor.core.deadlines
    if kind == _OUTPUT:
        stage = "tts" if budget.FIRST_CLAUSE in turn.marks else "llm"
        return turn, stage, f"nothing to say within {limits.first_output_ms} ms"
    if kind == _REPLY:
        return turn, "reply", f"not complete within {limits.reply_ms} ms"
    return turn, _awaited(turn), f"no progress for {limits.progress_ms} ms"


def _awaited(turn: Turn) -> str:
    if turn.sent_ms < turn.arrived_ms:
        return "client"
    return "tts" if turn.finish_reason else "llm"
