"""How fast an LLM writes, once it has begun."""

from __future__ import annotations

from voicepipe.turn import budget
from voicepipe.turn.turns import Turn


def itl_ms(turn: Turn) -> float | None:
    """Return the mean time between two tokens of the running reply, in ms: from first to last, by the provider's own
    count.

    None while the answer is incomplete, and where it cannot be computed: there is no count, everything came at once, or
    another LLM continued it. An answer that a router held back began when its LLM did, not when it was released.
    """
    last_ms, n_gaps = turn.marks.get(budget.LAST_DELTA), turn.reply.tokens.output - 1
    speakers = [each for each in turn.reply.attempts if each.outcome == "spoke"]
    if last_ms is None or n_gaps < 1 or any(each.role == "continuation" for each in speakers):
        return None
    first_ms = turn.marks[budget.FIRST_DELTA]
    for each in speakers:
        first_ms = min(first_ms, turn.marks.get(budget.ASKED, first_ms) + each.began_ms + (each.first_ms or 0))
    return (last_ms - first_ms) / n_gaps if last_ms > first_ms else None
