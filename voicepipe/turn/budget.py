"""Where the second went: stages judged, and contributions that sum to what the caller felt.

Every number here is the difference of two marks, and every mark was stamped by the core when its
fact came. A mark that is missing takes its spans with it, and shows as time that is not attributed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voicepipe.turn.record import Breach, Contribution, StageSpan
from voicepipe.turn.settings import BudgetLimits

UNATTRIBUTED_LIMIT_MS = 5
"""More time than this without a name is a hole in our marks, not in the turn."""

# The marks of a turn, in the order in which a turn without speculation stamps them.
VOICED_LAST = "voiced_last"
"""t0: the caller's last voiced sample, or the client event that asked for the reply."""

FLUSHED = "flushed"
TRANSCRIBED = "transcribed"
ENDED = "ended"
ASKED = "asked"
CONNECTED = "connected"
"""The question has a connection to the model's provider."""

FIRST_DELTA = "first_delta"
LAST_DELTA = "last_delta"
"""The last words or arguments of the answer, when it is whole. Beside the way to what is heard, like the filler's."""

FIRST_CLAUSE = "first_clause"
FIRST_SOUND = "first_sound"
REQUESTED = "requested"
"""The client asked for the reply."""

GATE_OPENED = "gate_opened"
FIRST_SENT = "first_sent"
HEARD = "heard"

FILLER_SENT = "filler_sent"
FILLER_HEARD = "filler_heard"
"""Beside the way to the answer, which they do not end."""

FILLER_MARKS = (FILLER_SENT, FILLER_HEARD)

_SPEECH_PATH = (
    ("endpoint", VOICED_LAST, ASKED),
    ("llm_ttft", ASKED, FIRST_DELTA),
    ("first_clause", FIRST_DELTA, FIRST_CLAUSE),
    ("tts_ttfb", FIRST_CLAUSE, FIRST_SOUND),
    ("overhead", FIRST_SOUND, FIRST_SENT),
    ("playback", FIRST_SENT, HEARD),
)
_TEXT_PATH = (
    ("endpoint", VOICED_LAST, ASKED),
    ("llm_ttft", ASKED, FIRST_DELTA),
    ("overhead", FIRST_DELTA, FIRST_SENT),
)
_HELD_PATH = (
    ("endpoint", VOICED_LAST, GATE_OPENED),
    ("overhead", GATE_OPENED, FIRST_SENT),
    ("playback", FIRST_SENT, HEARD),
)
"""When the reply was ready before the turn was over: the caller waited for the gate alone."""

_HELD_TEXT_PATH = (("endpoint", VOICED_LAST, GATE_OPENED), ("overhead", GATE_OPENED, FIRST_SENT))

_PARTS = (("stt_final", FLUSHED, TRANSCRIBED), ("gate_wait", VOICED_LAST, ENDED), ("connect", ASKED, CONNECTED))

SETTING = {
    "endpoint": "turn_detection.silence_duration_ms",
    "llm_ttft": "agents.NAME.llm",
    "first_clause": "agents.NAME.instructions",
    "tts_ttfb": "agents.NAME.tts",
    "overhead": "server.max_sessions",
    "playback": "agents.NAME.tts",
    "total": "agents.NAME.llm",
}
"""Which setting moves a stage."""

_ENDPOINT_SETTING = {"client": "turn_detection.type", "server": "server.max_sessions"}
"""Which setting moves the endpoint, by who is to blame for it: the awaited silence has been set in one of several
places, and the rest of its owners are transcribers."""


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
        """Whether the marks account for the whole turn, from t0 to what was heard."""
        return self.total_ms is not None and self.unattributed_ms <= UNATTRIBUTED_LIMIT_MS


def judge(
    marks: Mapping[str, int],
    limits: BudgetLimits,
    owners: Mapping[str, str],
    *,
    audible: bool,
    silence_setting: str = SETTING["endpoint"],
) -> Judgement:
    """Judge a turn.

    Args:
        marks: mark -> session ms, each stamped once.
        limits: what each stage may take.
        owners: stage -> who could make it shorter.
        audible: False for a text-only reply, which ends at its first text.
        silence_setting: where it was set how long the caller must be silent.

    The contributions lie end to end on the critical path. Their sum and `unattributed_ms` make
    `total_ms`; a turn that never came to its end has no total and no contributions.
    """
    path, held_path = (_SPEECH_PATH, _HELD_PATH) if audible else (_TEXT_PATH, _HELD_TEXT_PATH)
    last, ready = (HEARD, FIRST_SOUND) if audible else (FIRST_SENT, FIRST_DELTA)
    total_ms = _span(marks, VOICED_LAST, last)
    held = GATE_OPENED in marks and ready in marks and marks[GATE_OPENED] > marks[ready]
    critical = _contributions(marks, held_path if held else path) if total_ms is not None else ()
    # What waits behind the gate is the caller's turn, not our own queues.
    spans = ((stage, GATE_OPENED if held and stage == "overhead" else a, b) for stage, a, b in path)
    stages = tuple(
        _judged(marks, span, critical, limits, owners) for span in spans if _span(marks, *span[1:]) is not None
    )
    unattributed_ms = 0 if total_ms is None else total_ms - sum(c.duration_ms for c in critical)
    parts = tuple((name, ms) for name, a, b in _PARTS if (ms := _span(marks, a, b)) is not None)
    return Judgement(
        total_ms,
        stages,
        parts,
        critical,
        unattributed_ms,
        _breach(stages, total_ms, critical, limits, owners, silence_setting),
    )


def _span(marks: Mapping[str, int], a: str, b: str) -> int | None:
    return marks[b] - marks[a] if a in marks and b in marks else None


def _contributions(marks: Mapping[str, int], path: tuple[tuple[str, str, str], ...]) -> tuple[Contribution, ...]:
    found = ((stage, a, b, _span(marks, a, b)) for stage, a, b in path)
    return tuple(Contribution(stage, a, b, ms) for stage, a, b, ms in found if ms is not None)


def _judged(
    marks: Mapping[str, int],
    span: tuple[str, str, str],
    critical: tuple[Contribution, ...],
    limits: BudgetLimits,
    owners: Mapping[str, str],
) -> StageSpan:
    stage, start, end = span
    duration_ms = max(0, marks[end] - marks[start])  # a guess may be asked before the caller's last sound
    limit_ms = limit_of(limits, stage)
    waited_ms = sum(_overlap(marks, c, start, end) for c in critical if c.stage == stage)
    return StageSpan(
        stage=stage,
        duration_ms=duration_ms,
        limit_ms=limit_ms,
        verdict="over" if duration_ms > limit_ms else "within",
        critical_ms=waited_ms,
        hidden_ms=duration_ms - waited_ms,
        owner=owners.get(stage, "server"),
    )


def _overlap(marks: Mapping[str, int], part: Contribution, start: str, end: str) -> int:
    return max(0, min(marks[part.to_mark], marks[end]) - max(marks[part.from_mark], marks[start]))


def _breach(
    stages: tuple[StageSpan, ...],
    total_ms: int | None,
    critical: tuple[Contribution, ...],
    limits: BudgetLimits,
    owners: Mapping[str, str],
    silence_setting: str,
) -> Breach | None:
    """The first stage over its limit; or the total, which the longest part of the critical path would move most."""
    for span in stages:
        if span.verdict == "over":
            setting = _setting(span.stage, span.owner, silence_setting)
            return Breach(span.stage, span.duration_ms - span.limit_ms, span.owner, setting)
    if total_ms is None or total_ms <= limits.total_ms:
        return None
    longest = max(critical, key=lambda part: part.duration_ms, default=None)
    if longest is None:
        return Breach("total", total_ms - limits.total_ms, "server", SETTING["total"])
    owner = owners.get(longest.stage, "server")
    return Breach("total", total_ms - limits.total_ms, owner, _setting(longest.stage, owner, silence_setting))


def _setting(stage: str, owner: str, silence_setting: str) -> str:
    if (stage, owner) == ("playback", "client"):
        return "the client's own buffer"
    if stage != "endpoint":
        return SETTING[stage]
    if owner == "settings":
        return silence_setting
    return _ENDPOINT_SETTING.get(owner, "agents.NAME.stt")


def limit_of(limits: BudgetLimits, stage: str) -> int:
    """The limit of a stage, in ms."""
    limit: int = getattr(limits, f"{stage}_ms")
    return limit
