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
from typing import Final

from msgspec import Struct

from voicepipe.turn.record.marks import CONNECTED as CONNECTED
from voicepipe.turn.record.marks import EARLIER_AUDIO_ENDED as EARLIER_AUDIO_ENDED
from voicepipe.turn.record.marks import END_DUE as END_DUE
from voicepipe.turn.record.marks import ENDED as ENDED
from voicepipe.turn.record.marks import FILLER_AUDIBLE as FILLER_AUDIBLE
from voicepipe.turn.record.marks import FILLER_MARKS as FILLER_MARKS
from voicepipe.turn.record.marks import FILLER_SENT as FILLER_SENT
from voicepipe.turn.record.marks import FIRST_AUDIBLE as FIRST_AUDIBLE
from voicepipe.turn.record.marks import FIRST_CLAUSE as FIRST_CLAUSE
from voicepipe.turn.record.marks import FIRST_DELTA as FIRST_DELTA
from voicepipe.turn.record.marks import FIRST_ROUND, ToolRound, tool_rounds
from voicepipe.turn.record.marks import FIRST_SENT as FIRST_SENT
from voicepipe.turn.record.marks import FIRST_SOUND as FIRST_SOUND
from voicepipe.turn.record.marks import FLUSHED as FLUSHED
from voicepipe.turn.record.marks import GATE_OPENED as GATE_OPENED
from voicepipe.turn.record.marks import LAST_DELTA as LAST_DELTA
from voicepipe.turn.record.marks import LLM_REQUESTED as LLM_REQUESTED
from voicepipe.turn.record.marks import REQUESTED as REQUESTED
from voicepipe.turn.record.marks import SPEECH_REQUESTED as SPEECH_REQUESTED
from voicepipe.turn.record.marks import START_DUE as START_DUE
from voicepipe.turn.record.marks import TRANSCRIBED as TRANSCRIBED
from voicepipe.turn.record.marks import VOICED_LAST as VOICED_LAST
from voicepipe.turn.record.values import Breach, Contribution, StageSpan
from voicepipe.turn.settings import BudgetLimits
from voicepipe.values import replace

UNATTRIBUTED_LIMIT_MS = 5
"""More unattributed time than this, in ms, is a gap in our marks, not in the turn."""

OVERHEAD = "overhead"

_StageMarks = tuple[str, str, str]
"""(stage, the mark that begins it, the mark that ends it)."""

SILENCE: Final = "silence"
ENDPOINT: Final = "endpoint"
EARLIER_AUDIO: Final = "earlier_audio"
PLAYBACK: Final = "playback"
TOOL: Final = "tool"
SPEECH: Final = "speech_to_speech"
"""The stages of a speech-to-speech model, which cannot be seen separately."""

TOTAL: Final = "total"

_SPEECH_PATH = (
    (ENDPOINT, VOICED_LAST, LLM_REQUESTED),
    ("llm_ttft", LLM_REQUESTED, FIRST_DELTA),
    ("first_clause", FIRST_DELTA, FIRST_CLAUSE),
    ("tts_ttfb", FIRST_CLAUSE, FIRST_SOUND),
    ("overhead", FIRST_SOUND, FIRST_SENT),
    (PLAYBACK, FIRST_SENT, FIRST_AUDIBLE),
)
_TEXT_PATH = (
    (ENDPOINT, VOICED_LAST, LLM_REQUESTED),
    ("llm_ttft", LLM_REQUESTED, FIRST_DELTA),
    ("overhead", FIRST_DELTA, FIRST_SENT),
)
_HELD_PATH = (
    (ENDPOINT, VOICED_LAST, GATE_OPENED),
    ("overhead", GATE_OPENED, FIRST_SENT),
    (PLAYBACK, FIRST_SENT, FIRST_AUDIBLE),
)
"""The path when the reply was ready before the turn was over: the user waited for the gate alone."""

_HELD_TEXT_PATH = ((ENDPOINT, VOICED_LAST, GATE_OPENED), ("overhead", GATE_OPENED, FIRST_SENT))

_HELD: Final[Mapping[bool, tuple[_StageMarks, ...]]] = {True: _HELD_PATH, False: _HELD_TEXT_PATH}
_NOT_HELD: Final[Mapping[bool, tuple[_StageMarks, ...]]] = {True: _SPEECH_PATH, False: _TEXT_PATH}
"""The path by whether the reply is audible."""

_UPSTREAM_PATH = (
    (ENDPOINT, VOICED_LAST, SPEECH_REQUESTED),
    (SPEECH, SPEECH_REQUESTED, FIRST_SOUND),
    ("overhead", FIRST_SOUND, FIRST_SENT),
    (PLAYBACK, FIRST_SENT, FIRST_AUDIBLE),
)
"""The path of an answer that a speech-to-speech model began."""

_REPLACED_PATH = (
    (ENDPOINT, VOICED_LAST, SPEECH_REQUESTED),
    (SPEECH, SPEECH_REQUESTED, LLM_REQUESTED),
    *_SPEECH_PATH[1:],
)
"""The path where that model failed before it said anything: LLM and TTS answered in its place."""

_BEHIND_PATH = (
    (EARLIER_AUDIO, FIRST_SENT, EARLIER_AUDIO_ENDED),
    (PLAYBACK, EARLIER_AUDIO_ENDED, FIRST_AUDIBLE),
)
"""The end of the path where the answer's audio had to wait for other audio to be played."""

FIRST_CALLED: Final = FIRST_ROUND.called
"""The mark that only turns with function calls have."""

_FIRST_WRITTEN: Final = FIRST_ROUND.written

_CHOSEN: Final = (SILENCE, EARLIER_AUDIO)
"""Stages whose length was chosen. They count as over only in a turn whose total is over."""

_PARTS = (("stt_final", FLUSHED, TRANSCRIBED), ("gate_wait", VOICED_LAST, ENDED), ("connect", LLM_REQUESTED, CONNECTED))

STALL_BACKLOG_MS: Final = 20
"""How long work piled up during a short stall usually takes, in ms: a later mark was not waiting."""

STALL_BACKLOG_SHARE: Final = 1 / 16
"""The same as a share of a long stall, beside `STALL_BACKLOG_MS`: the user's audio of that time is worked off first. Of
a stall of 1 s this took 26 to 46 ms on two busy cores (`tests.measure.fault_attribution`).
"""

MAX_STALLS: Final = 8
"""Most stalls in a record; of more, the longest stay."""

REMEMBERED: Final = 64
"""Most stalls stored for a turn that is not audible yet, before those that delayed nothing are dropped."""

StallInterval = tuple[int, int]
"""(from, until) in session ms."""

_BEGAN, _ENDED = "stall_began_", "stall_ended_"
_PAIRS: Final = tuple((f"{_BEGAN}{i}", f"{_ENDED}{i}") for i in range(1, MAX_STALLS + 1))

_AT_THE_CLIENT: Final = (EARLIER_AUDIO, PLAYBACK)
"""The stages behind the socket's write: they follow the server's own."""

_WAITING: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_ttft": (CONNECTED, FIRST_DELTA),
    "first_clause": (FIRST_CLAUSE,),
    "tts_ttfb": (FIRST_SOUND,),
    SPEECH: (FIRST_SOUND, LLM_REQUESTED),
}
"""The marks that a stage waits for; those of `endpoint` depend on what came last. `overhead` is ours anyway, and
`earlier_audio` and `playback` are the client's clock.
"""


class Judgement(Struct, frozen=True):
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
    silence_set_by: str = "client_silence",
    earlier_audio_set_by: str = "",
) -> Judgement:
    """Judge a turn.

    Args:
        marks: mark -> session ms, each stamped once.
        limits: what each stage may take.
        owners: stage -> the component that could make it shorter.
        audible: False for a text-only reply, which ends at its first text.
        silence_set_by: what set the silence that ends a turn.
        earlier_audio_set_by: what set the audio that played before the answer; empty: no setting.

    The contributions lie end to end on the critical path. Their sum and `unattributed_ms` make
    `total_ms`; a turn that did not reach its end has no total and no contributions.
    """
    total_ms = _span(marks, VOICED_LAST, FIRST_AUDIBLE if audible else FIRST_SENT)
    held = waited_for_the_gate(marks, audible=audible)
    critical = _contributions(marks, _critical_path(marks, audible=audible, held=held)) if total_ms is not None else ()
    spans = _spans(marks, audible=audible, held=held)
    stages = _stages(marks, spans, critical, limits, owners, total_ms, audible=audible)
    unattributed_ms = 0 if total_ms is None else total_ms - sum(c.duration_ms for c in critical)
    parts = tuple((name, ms) for name, a, b in _PARTS if (ms := _span(marks, a, b)) is not None)
    set_by = {SILENCE: silence_set_by, EARLIER_AUDIO: earlier_audio_set_by}
    breach = _breach(marks, stages, total_ms, limits, set_by, audible=audible)
    return Judgement(total_ms, stages, parts, critical, unattributed_ms, breach)


def _critical_path(marks: Mapping[str, int], *, audible: bool, held: bool) -> tuple[_StageMarks, ...]:
    """Return the stages that the user waited for; the first is the silence that was chosen, where its end is known."""
    path = _HELD[audible] if held else _not_held(marks, audible=audible)
    due = silence_end(marks, held=held)
    (_, t0, end), rest = path[0], path[1:]
    if FIRST_CALLED in marks:
        end, rounds = first_requested(marks), _tool_stages(marks)
        rest = (*rounds, *rest)
    if EARLIER_AUDIO_ENDED in marks:
        rest = (*rest[:-1], *_BEHIND_PATH)
    begin = ((ENDPOINT, t0, end),) if due is None else ((SILENCE, t0, due), (ENDPOINT, due, end))
    return (*begin, *rest)


def _not_held(marks: Mapping[str, int], *, audible: bool) -> tuple[_StageMarks, ...]:
    """Return the path of a reply that was not ready before the turn was over."""
    if SPEECH_REQUESTED not in marks:
        return _NOT_HELD[audible]
    llm_ms = marks.get(LLM_REQUESTED)
    if llm_ms is None:
        return _UPSTREAM_PATH
    sound_ms = marks.get(FIRST_SOUND, llm_ms)
    # Its first sound and its failure may be in the same ms. Then a clause of the LLM that is later went on with it.
    replaced = llm_ms <= sound_ms and marks.get(FIRST_CLAUSE, sound_ms) <= sound_ms
    return _REPLACED_PATH if replaced else _UPSTREAM_PATH


def requested(marks: Mapping[str, int]) -> str:
    """Return the mark of the request for the reply: to a speech-to-speech model, or else to the LLM."""
    return SPEECH_REQUESTED if SPEECH_REQUESTED in marks else LLM_REQUESTED


def first_requested(marks: Mapping[str, int]) -> str:
    """Return the mark that ends `endpoint` in a turn whose answer waited for a tool: its first request; or the function
    calls themselves, where they were ready before the turn was over.
    """
    return _requested_in(marks, FIRST_ROUND) or FIRST_CALLED


def _requested_in(marks: Mapping[str, int], calling: ToolRound) -> str:
    """Return the mark of the request for the reply that called in that round; empty: there is none."""
    return next((mark for mark in (calling.speech_requested, calling.llm_requested) if mark in marks), "")


def _tool_stages(marks: Mapping[str, int]) -> tuple[_StageMarks, ...]:
    """Return what the user waited for up to the LLM request of the answer: each round of function calls."""
    stages: list[_StageMarks] = []
    for each in tool_rounds(marks):
        request = _requested_in(marks, each)
        stage = SPEECH if request == each.speech_requested else "llm_ttft"
        stages += [(stage, request, each.called)] if request else []
        following = _requested_in(marks, each.following) or requested(marks)
        stages += [(TOOL, each.called, each.returned), (OVERHEAD, each.returned, following)]
    return tuple(stages)


def _spans(marks: Mapping[str, int], *, audible: bool, held: bool) -> tuple[_StageMarks, ...]:
    """Return the whole span of each stage, hidden or not. The silence lasts to its end, also beside a reply that was
    begun meanwhile; what waits behind the gate waits for the user's turn, not for our own queues.
    """
    path = _critical_path(marks, audible=audible, held=False)
    if held:
        gate = {OVERHEAD: GATE_OPENED} | ({ENDPOINT: END_DUE} if END_DUE in marks else {})
        ends = {ENDPOINT: GATE_OPENED} if END_DUE in marks else {}
        path = tuple((stage, gate.get(stage, a), ends.get(stage, b)) for stage, a, b in path)
    return tuple((stage, a, END_DUE if stage == SILENCE else b) for stage, a, b in path)


def silence_end(marks: Mapping[str, int], *, held: bool) -> str | None:
    """Return the mark that ends the chosen silence as far as the answer waited for it: a reply that was begun early
    and was not ready in time waited for less of it. None: there was none.
    """
    due = START_DUE if START_DUE in marks and not held else END_DUE
    return due if due in marks else None


def waited_for_the_gate(marks: Mapping[str, int], *, audible: bool) -> bool:
    """Return whether the reply was ready before the turn was over, so that the user waited for the turn's end alone."""
    ready = FIRST_SOUND if audible else FIRST_DELTA
    if FIRST_CALLED in marks:
        return False  # the turn was over long before
    return GATE_OPENED in marks and ready in marks and marks[GATE_OPENED] > marks[ready]


def _span(marks: Mapping[str, int], a: str, b: str) -> int | None:
    return marks[b] - marks[a] if a in marks and b in marks else None


def _contributions(marks: Mapping[str, int], path: tuple[_StageMarks, ...]) -> tuple[Contribution, ...]:
    return tuple(piece for each in path if _span(marks, *each[1:]) is not None for piece in _pieces(marks, *each))


def _pieces(marks: Mapping[str, int], stage: str, start: str, end: str) -> Iterator[Contribution]:
    """Yield the pieces of a stage of the path, cut where the event loop was blocked."""
    for began, ended in cuts(marks, stage, start, end):
        if began != start:
            yield Contribution(stage, start, began, marks[began] - marks[start])
        yield Contribution(OVERHEAD, began, ended, marks[ended] - marks[began])
        start = ended
    if start != end:
        yield Contribution(stage, start, end, marks[end] - marks[start])


def _stages(
    marks: Mapping[str, int],
    spans: tuple[_StageMarks, ...],
    critical: tuple[Contribution, ...],
    limits: BudgetLimits,
    owners: Mapping[str, str],
    total_ms: int | None,
    *,
    audible: bool,
) -> tuple[StageSpan, ...]:
    """Return each stage that has its two marks; `overhead` also includes the time of the blocked event loop."""

    def judged(stage: str, duration_ms: int, waited_ms: int) -> StageSpan:
        span = _stage_span(stage, duration_ms, waited_ms, limits, owners)
        in_time = stage in _CHOSEN and (total_ms is None or total_ms <= limits.total_ms)
        over = not in_time and _excess_ms(marks, span, total_ms, audible=audible) > 0
        return replace(span, verdict="over") if over else span

    found, lost = [], [part for part in critical if part.stage == OVERHEAD]
    known = [each for each in spans if _span(marks, *each[1:]) is not None]
    for stage in dict.fromkeys(each[0] for each in known if each[0] != OVERHEAD):
        own = waited_ms = 0
        for each in (each for each in known if each[0] == stage):
            pieces = tuple(_pieces(marks, *each))
            lost += [piece for piece in pieces if piece.stage == OVERHEAD]
            own += sum(max(0, piece.duration_ms) for piece in pieces if piece.stage == stage)
            waited_ms += sum(_overlap(marks, c, *each[1:]) for c in critical if c.stage == stage)
        found.append(judged(stage, own, waited_ms))
    overhead = tuple(each for each in known if each[0] == OVERHEAD)
    if lost or overhead:
        own_ms = _covered_ms(marks, [*lost, *_contributions(marks, overhead)])
        waited_ms = sum(part.duration_ms for part in critical if part.stage == OVERHEAD)
        at = 1 + max((i for i, span in enumerate(found) if span.stage not in _AT_THE_CLIENT), default=-1)
        found.insert(at, judged(OVERHEAD, own_ms, waited_ms))
    return tuple(found)


def _stage_span(
    stage: str, duration_ms: int, waited_ms: int, limits: BudgetLimits, owners: Mapping[str, str]
) -> StageSpan:
    limit_ms, owner = limit_of(limits, stage), owners.get(stage, "server")
    return StageSpan(stage, duration_ms, limit_ms, "within", waited_ms, duration_ms - waited_ms, owner)


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


# --- breach -----------------------------------------------------------------------------------

DEPENDS_ON: Final[Mapping[str, str]] = {
    SILENCE: "client_silence",
    ENDPOINT: "stt",
    "llm_ttft": "llm",
    "first_clause": "instructions",
    "tts_ttfb": "tts",
    SPEECH: "model",
    PLAYBACK: "tts",
}
"""What the length of a stage depends on. A stage without a row depends on no setting that is known to help."""

_OF_CLIENT: Final[Mapping[str, str]] = {
    SILENCE: "client_commit",
    ENDPOINT: "client_commit",
    PLAYBACK: "client_playback",
}
"""The same where the client is the owner."""

_NOTHING: Final = StageSpan(TOTAL, 0, 0, "within", 0, 0, "server")


def _breach(
    marks: Mapping[str, int],
    stages: tuple[StageSpan, ...],
    total_ms: int | None,
    limits: BudgetLimits,
    set_by: Mapping[str, str],
    *,
    audible: bool,
) -> Breach | None:
    """Return the stage with the largest excess that the user waited for; without one, the total, where that is over.

    A cause is named only if the answer would have been heard sooner without that excess. A turn that was not heard has
    no such answer: there the longest excess of any stage counts, and no cause is named.
    """
    if over := [span for span in stages if span.verdict == "over"]:
        over_ms, worst = max(
            ((_excess_ms(marks, span, total_ms, audible=audible), span) for span in over), key=lambda each: each[0]
        )
        stage = worst.stage
    elif total_ms is not None and total_ms > limits.total_ms:
        worst = max(stages, key=lambda span: span.critical_ms, default=_NOTHING)
        stage, over_ms = TOTAL, total_ms - limits.total_ms
    else:
        return None
    depends_on, saves_ms = _depends_on(worst, set_by), 0
    if total_ms is not None and depends_on:
        saves_ms = saved_ms(marks, worst.stage, min(over_ms, worst.critical_ms), audible=audible)
    return Breach(stage, over_ms, worst.owner, depends_on if saves_ms > 0 else "", saves_ms)


def saved_ms(marks: Mapping[str, int], stage: str, less_ms: int, *, audible: bool) -> int:
    """Return how much sooner the answer would have been heard, in ms, had the stage taken `less_ms` less.

    It is never heard before the turn is over. A shorter silence helps no answer that was not ready by then, or that was
    not requested because the words were unknown.
    """
    held = waited_for_the_gate(marks, audible=audible)
    if stage == SILENCE:
        return max(0, min(less_ms, _spare_silence_ms(marks, audible=audible, held=held)))
    if held or stage in _AT_THE_CLIENT:
        return less_ms
    sent_ms = marks.get(FIRST_SENT, 0)
    return max(0, min(less_ms, sent_ms - marks.get(ENDED, sent_ms - less_ms)))


def _spare_silence_ms(marks: Mapping[str, int], *, audible: bool, held: bool) -> int:
    """Return how much of the chosen silence passed while nothing else was awaited, in ms."""
    due_ms = marks.get(END_DUE, 0)
    if held:
        return due_ms - marks.get(FIRST_SOUND if audible else FIRST_DELTA, due_ms)
    if START_DUE in marks:
        return 0  # the reply was begun long before the end of the silence
    return due_ms - max(marks.get(mark, 0) for mark in (VOICED_LAST, FLUSHED, TRANSCRIBED, _FIRST_WRITTEN))


def _excess_ms(marks: Mapping[str, int], span: StageSpan, total_ms: int | None, *, audible: bool) -> int:
    """Return how much longer than its limit the user waited for the stage. For the silence only as far as nothing else
    was awaited meanwhile: a transcript that was missing anyway is not its fault.
    """
    if total_ms is None:
        return span.duration_ms - span.limit_ms
    excess_ms = span.critical_ms - span.limit_ms
    if span.stage == SILENCE and span.owner != "client" and excess_ms > 0:
        return saved_ms(marks, SILENCE, excess_ms, audible=audible)
    return excess_ms


def _depends_on(span: StageSpan, set_by: Mapping[str, str]) -> str:
    if span.owner == "client":
        return _OF_CLIENT.get(span.stage, "")
    if span.owner == "server":
        return ""
    return set_by[span.stage] if span.stage in set_by else DEPENDS_ON.get(span.stage, "")


def limit_of(limits: BudgetLimits, stage: str) -> int:
    """Return the limit of a stage, in ms."""
    limit: int = getattr(limits, f"{stage}_ms")
    return limit


# --- stalls of the event loop -----------------------------------------------------------------


def with_stall(marks: Mapping[str, int], stalls: list[StallInterval], stall: StallInterval) -> list[StallInterval]:
    """Return the stalls that may have delayed a turn with these marks, plus one more.

    A stall cannot delay an answer that is already audible. Of too many stalls, the latest stay, and those that delayed
    the turn.
    """
    if marks.get(FIRST_AUDIBLE, stall[1]) < stall[0]:
        return stalls
    if len(stalls) < REMEMBERED:
        return [*stalls, stall]
    return [*_longest(marks, stalls[:-MAX_STALLS]), *stalls[-MAX_STALLS:], stall]


def with_stalls(marks: Mapping[str, int], stalls: Iterable[StallInterval]) -> dict[str, int]:
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
    pairs = _pairs(marks)
    worked_off = _worked_off_ms((marks[began], marks[ended]) for began, ended in pairs)
    for began, ended in pairs:
        stall = (marks[began], marks[ended])
        if _delayed(marks, stage, stall[0], worked_off[stall]) and min(stall[1], marks[end]) > max(
            stall[0], marks[start]
        ):
            first = began if stall[0] > marks[start] else start
            found.append((first, ended if stall[1] < marks[end] else end))
    return found


def stalled_ms(marks: Mapping[str, int], from_ms: int, until_ms: int) -> int:
    """Return how much of that time the loop was blocked, in ms, by the stalls that delayed this turn."""
    spans = ((marks[began], marks[ended]) for began, ended in _pairs(marks))
    return sum(max(0, min(b, until_ms) - max(a, from_ms)) for a, b in spans)


def _longest(marks: Mapping[str, int], stalls: Iterable[StallInterval]) -> list[StallInterval]:
    """Return the longest stalls that delayed the turn, in time order."""
    delaying = [
        stall
        for stall, until_ms in _worked_off_ms(stalls).items()
        if any(_delayed(marks, stage, stall[0], until_ms) for stage in (ENDPOINT, *_WAITING))
    ]
    return sorted(sorted(delaying, key=lambda stall: stall[0] - stall[1])[:MAX_STALLS])


def _pairs(marks: Mapping[str, int]) -> list[tuple[str, str]]:
    return [pair for pair in _PAIRS if pair[0] in marks]


def _worked_off_ms(stalls: Iterable[StallInterval]) -> dict[StallInterval, int]:
    """Return until when the work that piled up during each stall is done, in session ms. Where that work blocks the
    loop again, it is a stall of its own: the first one's work is not done before the second one's.
    """
    worked_off, following_ms, following_done_ms = dict[StallInterval, int](), None, 0
    for stall in sorted(stalls, reverse=True):
        done_ms = stall[1] + STALL_BACKLOG_MS + round(STALL_BACKLOG_SHARE * (stall[1] - stall[0]))
        if following_ms is not None and following_ms <= done_ms:
            done_ms = max(done_ms, following_done_ms)
        worked_off[stall] = done_ms
        following_ms, following_done_ms = stall[0], done_ms
    return worked_off


def _delayed(marks: Mapping[str, int], stage: str, from_ms: int, worked_off_ms: int) -> bool:
    """Return whether an event that the stage waited for came during a stall, or was handled right after it."""
    awaited = _WAITING.get(stage) or (_awaited_at_the_end(marks) if stage == "endpoint" else ())
    return any(mark in marks and from_ms < marks[mark] <= worked_off_ms for mark in awaited)


def _awaited_at_the_end(marks: Mapping[str, int]) -> tuple[str, ...]:
    """Return what the LLM request, or the gate, waited for last: the user's transcript or the user's silence."""
    known_ms, ended_ms = marks.get(TRANSCRIBED), marks.get(ENDED)
    words = known_ms is not None and (
        ended_ms is None or known_ms >= ended_ms or marks.get(requested(marks), ended_ms) < ended_ms
    )
    return (*((FLUSHED, TRANSCRIBED) if words else (ENDED,)), requested(marks), GATE_OPENED)
