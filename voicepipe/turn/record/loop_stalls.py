"""Times in which the event loop was blocked: what was waited for then may have come long before.

A provider's answer that comes while the loop is blocked stays in the socket, and its mark is stamped when the loop is
free again. How much of the wait was the provider's is unknown, so the part within the hold counts as ours. A hold
without a mark right after it has delayed nothing and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from voicepipe.turn.record.marks import (
    CONNECTED,
    ENDED,
    FIRST_AUDIBLE,
    FIRST_CLAUSE,
    FIRST_DELTA,
    FIRST_SOUND,
    FLUSHED,
    GATE_OPENED,
    LLM_REQUESTED,
    TRANSCRIBED,
)

AFTERMATH_MS: Final = 20
"""How long work piled up during a hold usually takes, in ms: a later mark was not waiting."""

MOST: Final = 8
"""Most holds in a record; of more, the longest stay."""

REMEMBERED: Final = 64
"""Maximum number of holds stored for a turn that is not audible yet, before holds that delayed nothing are dropped."""

Stall = tuple[int, int]
"""(from, until) in session ms."""

_HELD, _RELEASED = "held_", "released_"

_WAITING: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_ttft": (CONNECTED, FIRST_DELTA),
    "first_clause": (FIRST_CLAUSE,),
    "tts_ttfb": (FIRST_SOUND,),
}
"""The marks that a stage waits for; those of `endpoint` depend on what came last. `overhead` is ours anyway, and
`playback` is the client's clock.
"""


def noted(marks: Mapping[str, int], stalls: list[Stall], stall: Stall) -> list[Stall]:
    """Return the holds that may have delayed a turn with these marks, plus one more.

    A hold cannot delay an answer that is already audible. Of too many holds, the latest stay, and those that delayed
    the turn.
    """
    if marks.get(FIRST_AUDIBLE, stall[1]) < stall[0]:
        return stalls
    if len(stalls) < REMEMBERED:
        return [*stalls, stall]
    return [*_longest(marks, stalls[:-MOST]), *stalls[-MOST:], stall]


def with_stalls(marks: Mapping[str, int], stalls: Iterable[Stall]) -> dict[str, int]:
    """Return the marks of a turn, plus those of the holds that delayed it: `held_1` and `released_1`, in time order."""
    named = dict[str, int]()
    for i, (from_ms, until_ms) in enumerate(_longest(marks, stalls), 1):
        named |= {f"{_HELD}{i}": from_ms, f"{_RELEASED}{i}": until_ms}
    return {**marks, **named}


def cuts(marks: Mapping[str, int], stage: str, start: str, end: str) -> list[tuple[str, str]]:
    """Return the parts of a stage's span in which the blocked loop delayed it: pairs of marks, in time order.

    Where a hold extends beyond an end of the span, the span's own mark is used.
    """
    found = []
    for held, released in _pairs(marks):
        stall = (marks[held], marks[released])
        if _delayed(marks, stage, stall) and min(stall[1], marks[end]) > max(stall[0], marks[start]):
            first = held if stall[0] > marks[start] else start
            found.append((first, released if stall[1] < marks[end] else end))
    return found


def stalled_ms(marks: Mapping[str, int], from_ms: int, until_ms: int) -> int:
    """Return how much of that time the loop was blocked, in ms, by the holds that delayed this turn."""
    spans = ((marks[held], marks[released]) for held, released in _pairs(marks))
    return sum(max(0, min(b, until_ms) - max(a, from_ms)) for a, b in spans)


def _longest(marks: Mapping[str, int], stalls: Iterable[Stall]) -> list[Stall]:
    """Return the longest holds that delayed the turn, in time order."""
    delaying = [stall for stall in stalls if any(_delayed(marks, stage, stall) for stage in ("endpoint", *_WAITING))]
    return sorted(sorted(delaying, key=lambda stall: stall[0] - stall[1])[:MOST])


def _pairs(marks: Mapping[str, int]) -> list[tuple[str, str]]:
    names = (f"{i}" for i in range(1, MOST + 1))
    return [(_HELD + i, _RELEASED + i) for i in names if _HELD + i in marks]


def _delayed(marks: Mapping[str, int], stage: str, stall: Stall) -> bool:
    """Return whether an event that the stage waited for came during the hold, or was handled right after it."""
    awaited = _WAITING.get(stage) or (_awaited_at_the_end(marks) if stage == "endpoint" else ())
    return any(mark in marks and stall[0] < marks[mark] <= stall[1] + AFTERMATH_MS for mark in awaited)


def _awaited_at_the_end(marks: Mapping[str, int]) -> tuple[str, ...]:
    """Return what the LLM request, or the gate, waited for last: the user's transcript or the user's silence."""
    known_ms, ended_ms = marks.get(TRANSCRIBED), marks.get(ENDED)
    words = known_ms is not None and (
        ended_ms is None or known_ms >= ended_ms or marks.get(LLM_REQUESTED, ended_ms) < ended_ms
    )
    return (*((FLUSHED, TRANSCRIBED) if words else (ENDED,)), LLM_REQUESTED, GATE_OPENED)
