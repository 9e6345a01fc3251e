"""The latency budget: stages judged, and contributions that sum to the turn latency.

Every number here is the difference of two marks, and the core stamped every mark when its event came. If a mark is
missing, its spans are missing too, and their time is reported as unattributed.

Time in which our own blocked event loop delayed a stage is reported as `overhead`. A provider's answer that comes while
the loop is blocked stays in the socket, and its mark is stamped when the loop is free again. How much of the wait was
the provider's is unknown, so the part within the stall counts as ours. A stall without a mark right after it has
delayed nothing and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from voicepipe.turn.record.marks import CONNECTED as CONNECTED
from voicepipe.turn.record.marks import ENDED as ENDED
from voicepipe.turn.record.marks import FILLER_AUDIBLE as FILLER_AUDIBLE
from voicepipe.turn.record.marks import FILLER_MARKS as FILLER_MARKS
from voicepipe.turn.record.marks import FILLER_SENT as FILLER_SENT
from voicepipe.turn.record.marks import FIRST_AUDIBLE as FIRST_AUDIBLE
from voicepipe.turn.record.marks import FIRST_CLAUSE as FIRST_CLAUSE
from voicepipe.turn.record.marks import FIRST_DELTA as FIRST_DELTA
from voicepipe.turn.record.marks import FIRST_SENT as FIRST_SENT
from voicepipe.turn.record.marks import FIRST_SOUND as FIRST_SOUND
from voicepipe.turn.record.marks import FLUSHED as FLUSHED
from voicepipe.turn.record.marks import GATE_OPENED as GATE_OPENED
from voicepipe.turn.record.marks import LAST_DELTA as LAST_DELTA
from voicepipe.turn.record.marks import LLM_REQUESTED as LLM_REQUESTED
from voicepipe.turn.record.marks import REQUESTED as REQUESTED
from voicepipe.turn.record.marks import TRANSCRIBED as TRANSCRIBED
from voicepipe.turn.record.marks import VOICED_LAST as VOICED_LAST
from voicepipe.turn.record.values import Breach, Contribution, StageSpan
from voicepipe.turn.settings import BudgetLimits

UNATTRIBUTED_LIMIT_MS = 5
"""More unattributed time than this, in ms, is a gap in our marks, not in the turn."""

OVERHEAD = "overhead"

_Leg = tuple[str, str, str]
"""(stage, the mark that begins it, the mark that ends it)."""

_SPEECH_PATH = (
    ("endpoint", VOICED_LAST, LLM_REQUESTED),
    ("llm_ttft", LLM_REQUESTED, FIRST_DELTA),
    ("first_clause", FIRST_DELTA, FIRST_CLAUSE),
    ("tts_ttfb", FIRST_CLAUSE, FIRST_SOUND),
    ("overhead", FIRST_SOUND, FIRST_SENT),
    ("playback", FIRST_SENT, FIRST_AUDIBLE),
)
_TEXT_PATH = (
    ("endpoint", VOICED_LAST, LLM_REQUESTED),
    ("llm_ttft", LLM_REQUESTED, FIRST_DELTA),
    ("overhead", FIRST_DELTA, FIRST_SENT),
)
_HELD_PATH = (
    ("endpoint", VOICED_LAST, GATE_OPENED),
    ("overhead", GATE_OPENED, FIRST_SENT),
    ("playback", FIRST_SENT, FIRST_AUDIBLE),
)
"""The path when the reply was ready before the turn was over: the user waited for the gate alone."""

_HELD_TEXT_PATH = (("endpoint", VOICED_LAST, GATE_OPENED), ("overhead", GATE_OPENED, FIRST_SENT))

_PARTS = (("stt_final", FLUSHED, TRANSCRIBED), ("gate_wait", VOICED_LAST, ENDED), ("connect", LLM_REQUESTED, CONNECTED))

DEPENDS_ON = {
    "endpoint": "client_silence",
    "llm_ttft": "llm",
    "first_clause": "instructions",
    "tts_ttfb": "tts",
    "overhead": "capacity",
    "playback": "tts",
    "total": "llm",
}
"""What the length of a stage depends on."""

_ENDPOINT_DEPENDS_ON = {"client": "client_commit", "server": "capacity"}
"""What the length of the endpoint depends on, by the owner of its delay.

The required silence can be set in several ways; all other owners are transcribers.
"""


AFTERMATH_MS: Final = 20
"""How long work piled up during a stall usually takes, in ms: a later mark was not waiting."""

MOST: Final = 8
"""Most stalls in a record; of more, the longest stay."""

REMEMBERED: Final = 64
"""Most stalls stored for a turn that is not audible yet, before those that delayed nothing are dropped."""

Stall = tuple[int, int]
"""(from, until) in session ms."""

_BEGAN, _ENDED = "stall_began_", "stall_ended_"

_WAITING: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_ttft": (CONNECTED, FIRST_DELTA),
    "first_clause": (FIRST_CLAUSE,),
    "tts_ttfb": (FIRST_SOUND,),
}
"""The marks that a stage waits for; those of `endpoint` depend on what came last. `overhead` is ours anyway, and
`playback` is the client's clock.
"""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A turn's marks, judged against its limits."""

    total_ms: int | None
    stages: tuple[StageSpan, ...]
    parts: tuple[tuple[str, int], ...]
    contributions: tuple[Contribution, ...]
    unattributed_ms: int
    breach: Breach | None

    @property
    def whole(self) -> bool:
        """Return whether the marks account for the whole turn, from t0 to the audible answer."""
        return self.total_ms is not None and self.unattributed_ms <= UNATTRIBUTED_LIMIT_MS


def judge(
    marks: Mapping[str, int],
    limits: BudgetLimits,
    owners: Mapping[str, str],
    *,
    audible: bool,
    silence_set_by: str = DEPENDS_ON["endpoint"],
) -> Judgement:
    """Judge a turn.

    Args:
        marks: mark -> session ms, each stamped once.
        limits: what each stage may take.
        owners: stage -> the component that could make it shorter.
        audible: False for a text-only reply, which ends at its first text.
        silence_set_by: what set the silence that ends a turn.

    The contributions lie end to end on the critical path. Their sum and `unattributed_ms` make
    `total_ms`; a turn that did not reach its end has no total and no contributions.
    """
    path, held_path = (_SPEECH_PATH, _HELD_PATH) if audible else (_TEXT_PATH, _HELD_TEXT_PATH)
    total_ms = _span(marks, VOICED_LAST, FIRST_AUDIBLE if audible else FIRST_SENT)
    held = waited_for_the_gate(marks, audible=audible)
    critical = _contributions(marks, held_path if held else path) if total_ms is not None else ()
    # What waits behind the gate waits for the user's turn, not for our own queues.
    spans = ((stage, GATE_OPENED if held and stage == "overhead" else a, b) for stage, a, b in path)
    stages = _stages(marks, tuple(spans), critical, limits, owners)
    unattributed_ms = 0 if total_ms is None else total_ms - sum(c.duration_ms for c in critical)
    parts = tuple((name, ms) for name, a, b in _PARTS if (ms := _span(marks, a, b)) is not None)
    return Judgement(
        total_ms,
        stages,
        parts,
        critical,
        unattributed_ms,
        _breach(stages, total_ms, limits, silence_set_by),
    )


def waited_for_the_gate(marks: Mapping[str, int], *, audible: bool) -> bool:
    """Return whether the reply was ready before the turn was over, so that the user waited for the turn's end alone."""
    ready = FIRST_SOUND if audible else FIRST_DELTA
    return GATE_OPENED in marks and ready in marks and marks[GATE_OPENED] > marks[ready]


def _span(marks: Mapping[str, int], a: str, b: str) -> int | None:
    return marks[b] - marks[a] if a in marks and b in marks else None


def _contributions(marks: Mapping[str, int], path: tuple[_Leg, ...]) -> tuple[Contribution, ...]:
    return tuple(piece for leg in path if _span(marks, *leg[1:]) is not None for piece in _pieces(marks, *leg))


def _pieces(marks: Mapping[str, int], stage: str, start: str, end: str) -> Iterator[Contribution]:
    """Yield the pieces of a leg of the path, cut where the event loop was blocked."""
    for began, ended in cuts(marks, stage, start, end):
        if began != start:
            yield Contribution(stage, start, began, marks[began] - marks[start])
        yield Contribution(OVERHEAD, began, ended, marks[ended] - marks[began])
        start = ended
    if start != end:
        yield Contribution(stage, start, end, marks[end] - marks[start])


def _stages(
    marks: Mapping[str, int],
    spans: tuple[_Leg, ...],
    critical: tuple[Contribution, ...],
    limits: BudgetLimits,
    owners: Mapping[str, str],
) -> tuple[StageSpan, ...]:
    """Return each stage that has its two marks; `overhead` also includes the time of the blocked event loop."""
    found, lost = [], [part for part in critical if part.stage == OVERHEAD]
    for leg in spans:
        stage, start, end = leg
        if stage == OVERHEAD or _span(marks, start, end) is None:
            continue
        pieces = tuple(_pieces(marks, *leg))
        lost += [piece for piece in pieces if piece.stage == OVERHEAD]
        own = sum(max(0, piece.duration_ms) for piece in pieces if piece.stage == stage)
        waited_ms = sum(_overlap(marks, c, start, end) for c in critical if c.stage == stage)
        found.append(_judged(stage, own, waited_ms, limits, owners))
    (overhead,) = (leg for leg in spans if leg[0] == OVERHEAD)
    if lost or _span(marks, *overhead[1:]) is not None:
        own_ms = _covered_ms(marks, [*lost, *_contributions(marks, (overhead,))])
        waited_ms = sum(part.duration_ms for part in critical if part.stage == OVERHEAD)
        at = 1 + max((i for i, span in enumerate(found) if span.stage != "playback"), default=-1)
        found.insert(at, _judged(OVERHEAD, own_ms, waited_ms, limits, owners))
    return tuple(found)


def _judged(stage: str, duration_ms: int, waited_ms: int, limits: BudgetLimits, owners: Mapping[str, str]) -> StageSpan:
    limit_ms = limit_of(limits, stage)
    return StageSpan(
        stage=stage,
        duration_ms=duration_ms,
        limit_ms=limit_ms,
        verdict="over" if duration_ms > limit_ms else "within",
        critical_ms=waited_ms,
        hidden_ms=duration_ms - waited_ms,
        owner=owners.get(stage, "server"),
    )


def _covered_ms(marks: Mapping[str, int], parts: list[Contribution]) -> int:
    """Return how much time the parts cover, in ms; time within several of them counts once."""
    covered_ms, reached_ms = 0, None
    for a_ms, b_ms in sorted((marks[part.from_mark], marks[part.to_mark]) for part in parts):
        from_ms = a_ms if reached_ms is None else max(a_ms, reached_ms)
        covered_ms += max(0, b_ms - from_ms)
        reached_ms = max(b_ms, from_ms)
    return covered_ms


def _overlap(marks: Mapping[str, int], part: Contribution, start: str, end: str) -> int:
    return max(0, min(marks[part.to_mark], marks[end]) - max(marks[part.from_mark], marks[start]))


def _breach(
    stages: tuple[StageSpan, ...], total_ms: int | None, limits: BudgetLimits, silence_set_by: str
) -> Breach | None:
    """Return the first stage over its limit; or the total, with what its longest part depends on."""
    for span in stages:
        if span.verdict == "over":
            depends_on = _depends_on(span.stage, span.owner, silence_set_by)
            return Breach(span.stage, span.duration_ms - span.limit_ms, span.owner, depends_on)
    if total_ms is None or total_ms <= limits.total_ms:
        return None
    waited = [(span.critical_ms, span.stage, span.owner) for span in stages]
    _, stage, owner = max(waited, key=lambda each: each[0], default=(0, "total", "server"))
    return Breach("total", total_ms - limits.total_ms, owner, _depends_on(stage, owner, silence_set_by))


def _depends_on(stage: str, owner: str, silence_set_by: str) -> str:
    if (stage, owner) == ("playback", "client"):
        return "client_playback"
    if stage != "endpoint":
        return DEPENDS_ON[stage]
    if owner == "settings":
        return silence_set_by
    return _ENDPOINT_DEPENDS_ON.get(owner, "stt")


def limit_of(limits: BudgetLimits, stage: str) -> int:
    """Return the limit of a stage, in ms."""
    limit: int = getattr(limits, f"{stage}_ms")
    return limit


# --- stalls of the event loop -----------------------------------------------------------------


def noted(marks: Mapping[str, int], stalls: list[Stall], stall: Stall) -> list[Stall]:
    """Return the stalls that may have delayed a turn with these marks, plus one more.

    A stall cannot delay an answer that is already audible. Of too many stalls, the latest stay, and those that delayed
    the turn.
    """
    if marks.get(FIRST_AUDIBLE, stall[1]) < stall[0]:
        return stalls
    if len(stalls) < REMEMBERED:
        return [*stalls, stall]
    return [*_longest(marks, stalls[:-MOST]), *stalls[-MOST:], stall]


def with_stalls(marks: Mapping[str, int], stalls: Iterable[Stall]) -> dict[str, int]:
    """Return the marks of a turn, plus those of the stalls that delayed it, in time order: `stall_began_1` and
    `stall_ended_1` of the first.
    """
    named = dict[str, int]()
    for i, (from_ms, until_ms) in enumerate(_longest(marks, stalls), 1):
        named |= {f"{_BEGAN}{i}": from_ms, f"{_ENDED}{i}": until_ms}
    return {**marks, **named}


def cuts(marks: Mapping[str, int], stage: str, start: str, end: str) -> list[tuple[str, str]]:
    """Return the parts of a stage's span in which the blocked loop delayed it: pairs of marks, in time order.

    Where a stall extends beyond an end of the span, the span's own mark is used.
    """
    found = []
    for began, ended in _pairs(marks):
        stall = (marks[began], marks[ended])
        if _delayed(marks, stage, stall) and min(stall[1], marks[end]) > max(stall[0], marks[start]):
            first = began if stall[0] > marks[start] else start
            found.append((first, ended if stall[1] < marks[end] else end))
    return found


def stalled_ms(marks: Mapping[str, int], from_ms: int, until_ms: int) -> int:
    """Return how much of that time the loop was blocked, in ms, by the stalls that delayed this turn."""
    spans = ((marks[began], marks[ended]) for began, ended in _pairs(marks))
    return sum(max(0, min(b, until_ms) - max(a, from_ms)) for a, b in spans)


def _longest(marks: Mapping[str, int], stalls: Iterable[Stall]) -> list[Stall]:
    """Return the longest stalls that delayed the turn, in time order."""
    delaying = [stall for stall in stalls if any(_delayed(marks, stage, stall) for stage in ("endpoint", *_WAITING))]
    return sorted(sorted(delaying, key=lambda stall: stall[0] - stall[1])[:MOST])


def _pairs(marks: Mapping[str, int]) -> list[tuple[str, str]]:
    names = (f"{i}" for i in range(1, MOST + 1))
    return [(_BEGAN + i, _ENDED + i) for i in names if _BEGAN + i in marks]


def _delayed(marks: Mapping[str, int], stage: str, stall: Stall) -> bool:
    """Return whether an event that the stage waited for came during the stall, or was handled right after it."""
    awaited = _WAITING.get(stage) or (_awaited_at_the_end(marks) if stage == "endpoint" else ())
    return any(mark in marks and stall[0] < marks[mark] <= stall[1] + AFTERMATH_MS for mark in awaited)


def _awaited_at_the_end(marks: Mapping[str, int]) -> tuple[str, ...]:
    """Return what the LLM request, or the gate, waited for last: the user's transcript or the user's silence."""
    known_ms, ended_ms = marks.get(TRANSCRIBED), marks.get(ENDED)
    words = known_ms is not None and (
        ended_ms is None or known_ms >= ended_ms or marks.get(LLM_REQUESTED, ended_ms) < ended_ms
    )
    return (*((FLUSHED, TRANSCRIBED) if words else (ENDED,)), LLM_REQUESTED, GATE_OPENED)
