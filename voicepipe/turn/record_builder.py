"""Build a turn's record, and report stages that took too long."""

from __future__ import annotations

from collections.abc import Mapping

from voicepipe.turn.commands import KeepRecord, NoteOverrun
from voicepipe.turn.context import TurnContext
from voicepipe.turn.cost import turn_cost
from voicepipe.turn.record import attribution
from voicepipe.turn.record.attribution import stalled_ms, with_stalls
from voicepipe.turn.record.values import LatencySource, Outcome, TurnRecord
from voicepipe.turn.route import ACTIONS
from voicepipe.turn.turn import Turn


def keep(context: TurnContext, turn: Turn, now_ms: int) -> None:
    """Have the record stored as it is, and one log entry written for each stage over its limit."""
    context.learned.cost_tracker.note(turn)
    record = record_of(context, turn, now_ms)
    context.issue(KeepRecord(record))
    for span in record.stages:
        if span.verdict == "over" and span.stage not in turn.account.noted:
            turn.account.noted.add(span.stage)
            context.issue(NoteOverrun(turn.id, span.stage, span.owner, span.duration_ms - span.limit_ms))


def close(context: TurnContext, turn: Turn, outcome: Outcome, reason: str, now_ms: int) -> None:
    """End a turn, and have its last record stored."""
    turn.outcome, turn.reason = outcome, reason
    turn.account.active_ms = (
        sum(u.speech_ms for u in turn.question.utterances) + now_ms - turn.marks.get(attribution.VOICED_LAST, now_ms)
    )
    keep(context, turn, now_ms)


def record_of(context: TurnContext, turn: Turn, now_ms: int) -> TurnRecord:
    """Return the record of a turn, judged by the marks that it has so far."""
    limits = context.core.budget
    marks = with_stalls(turn.marks, turn.account.stalls)
    judged = attribution.judge(
        marks,
        limits,
        _owners(turn, marks),
        audible=turn.settings.audible,
        silence_set_by=context.settings.silence_set_by,
    )
    between_ms = itl_ms(turn)
    over = judged.total_ms is not None and judged.total_ms > limits.total_ms
    return TurnRecord(
        id=turn.id,
        session=context.session,
        turn=turn.number,
        revision=turn.reply.revision,
        cause=turn.cause,
        outcome=turn.outcome,
        reason=turn.reason,
        marks=tuple(sorted(marks.items(), key=lambda mark: mark[1])),
        total_ms=judged.total_ms,
        total_limit_ms=limits.total_ms,
        total_verdict=None if judged.total_ms is None else "over" if over else "within",
        latency_source=_latency_source(turn),
        stages=judged.stages,
        parts=judged.parts,
        contributions=judged.contributions,
        unattributed_ms=judged.unattributed_ms,
        breach=judged.breach,
        providers=tuple(sorted(turn.account.providers.items())),
        tokens=turn.reply.tokens,
        user_text=turn.question.text,
        agent_text=turn.reply.text,
        played_text=turn.played_text(now_ms),
        spoken_ms=turn.audio.sent_ms,
        actions=(*turn.reply.actions, *_stt_actions(turn)),
        projected=tuple(turn.reply.projected.items()),
        filler=turn.filler.words,
        language=turn.question.language or context.settings.language or "",
        route=_route(turn),
        pool=turn.reply.pool,
        arm=turn.reply.arm,
        attempts=tuple(turn.reply.attempts),
        itl_ms=between_ms,
        tokens_per_s=None if between_ms is None else 1_000 / between_ms,
        tts_connect_hidden_ms=turn.reply.tts_connect_hidden_ms,
        stt_connect_hidden_ms=next((u.stt_hidden_ms for u in turn.question.utterances), None),
        speculation=turn.account.speculation,
        session_speculation=context.learned.speculation.total,
        cost=turn_cost(turn, context.core.prices),
        session_cost=context.learned.cost_tracker.total(),
    )


def _stt_actions(turn: Turn) -> tuple[str, ...]:
    """Return the fallback actions of the STT."""
    return tuple(ACTIONS[each.role] for utterance in turn.question.utterances for each in utterance.stt_changes)


def _route(turn: Turn) -> str:
    """Return the route: the fallbacks of STT, and why that LLM and TTS."""
    changes = (
        f"{each.provider} transcribes: {each.why}"
        for utterance in turn.question.utterances
        for each in utterance.stt_changes
    )
    return "; ".join([*changes, *turn.reply.route])


def _latency_source(turn: Turn) -> LatencySource:
    if turn.audio.reported:
        return "reported"
    return "estimated" if attribution.FIRST_AUDIBLE in turn.marks else "none"


def _owners(turn: Turn, marks: Mapping[str, int]) -> dict[str, str]:
    llm, tts = turn.account.providers.get("llm", "server"), turn.account.providers.get("tts", "server")
    # The LLM's wording decides when a clause closes. Without playback reports only the TTS's leading silence is known
    # of playback.
    player = "client" if turn.audio.reported else tts
    return {
        "endpoint": _endpoint_owner(turn, marks),
        "llm_ttft": llm,
        "first_clause": llm,
        "tts_ttfb": tts,
        "playback": player,
    }


def _endpoint_owner(turn: Turn, marks: Mapping[str, int]) -> str:
    """Return the owner of the longest wait before the LLM request: the end of the turn, the transcriber, the client, or
    the server.
    """
    waits = _waits(turn, marks)
    return max(waits, key=lambda wait: wait[1] - wait[0] - stalled_ms(marks, wait[0], wait[1]))[2]


def _waits(turn: Turn, marks: Mapping[str, int]) -> tuple[tuple[int, int, str], ...]:
    """Return (from, until, owner) of each wait.

    A transcript that comes last is awaited from its request on, with the end of the turn meanwhile: a shorter silence
    would not have helped. An LLM request sent before the turn was over did not wait for the turn's end, unless the
    answer did.
    """
    t0_ms, stt = marks.get(attribution.VOICED_LAST, 0), turn.account.providers.get("stt", "server")
    end = "settings" if turn.cause == "vad" else "client"
    ended_ms = marks.get(attribution.ENDED, t0_ms)
    llm_requested_ms = marks.get(attribution.LLM_REQUESTED, ended_ms)
    if llm_requested_ms < ended_ms and not attribution.waited_for_the_gate(marks, audible=turn.settings.audible):
        known_ms = min(llm_requested_ms, marks.get(attribution.TRANSCRIBED, llm_requested_ms))
        silent_ms = min(known_ms, marks.get(attribution.FLUSHED, known_ms))
        return (t0_ms, silent_ms, end), (silent_ms, known_ms, stt), (known_ms, llm_requested_ms, end)
    known_ms = max(ended_ms, marks.get(attribution.TRANSCRIBED, ended_ms))
    silent_ms = min(ended_ms, marks.get(attribution.FLUSHED, ended_ms)) if known_ms > ended_ms else ended_ms
    wished_ms = max(known_ms, marks.get(attribution.REQUESTED, known_ms))
    return (
        (t0_ms, silent_ms, end),
        (silent_ms, known_ms, stt),
        (known_ms, wished_ms, "client"),
        (wished_ms, max(wished_ms + 1, llm_requested_ms), "server"),
    )


def itl_ms(turn: Turn) -> float | None:
    """Return the mean time between two tokens of the running reply, in ms: from first to last, by the provider's own
    count.

    None while the answer is incomplete, and where it cannot be computed: there is no count, everything came at once, or
    another LLM continued it. An answer that a router held back began when its LLM did, not when it was released.
    """
    last_ms, n_gaps = turn.marks.get(attribution.LAST_DELTA), turn.reply.tokens.output - 1
    speakers = [each for each in turn.reply.attempts if each.outcome == "spoke"]
    if last_ms is None or n_gaps < 1 or any(each.role == "continuation" for each in speakers):
        return None
    first_ms = turn.marks[attribution.FIRST_DELTA]
    for each in speakers:
        first_ms = min(
            first_ms, turn.marks.get(attribution.LLM_REQUESTED, first_ms) + each.began_ms + (each.first_ms or 0)
        )
    return (last_ms - first_ms) / n_gaps if last_ms > first_ms else None
