"""Build a turn's record, and report stages that took too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from voicepipe.turn.commands import ReportOverrun, StoreRecord
from voicepipe.turn.context import TurnContext
from voicepipe.turn.cost import TurnUsage, sum_of, turn_cost
from voicepipe.turn.record import attribution
from voicepipe.turn.record.attribution import Judgement, stalled_ms, with_stalls
from voicepipe.turn.record.marks import FIRST_ROUND
from voicepipe.turn.record.values import LatencySource, Outcome, TokenCount, TurnRecord, Verdict
from voicepipe.turn.route import ACTIONS
from voicepipe.turn.turn import Turn
from voicepipe.values import replace

_EARLIER_AUDIO_SET_BY: Final[Mapping[str, str]] = {
    "filler": "filler",
    "greeting": "greeting",
    "announcement": "instructions",
}
"""What set the length of the audio that played before the answer."""


ROUNDS_STORED: Final = 8
"""Rounds of function calls after each of which the record of the turn so far is stored. Later it is stored after 16, 32
and so on: a record has all rounds, so that a round would cost the more the more there were before.
"""


_FIRST_ANNOUNCED: Final = FIRST_ROUND.announced


def keep(context: TurnContext, turn: Turn, now_ms: int) -> None:
    """Have the record stored as it is, and one log entry written for each stage over its limit."""
    context.learned.cost_tracker.record(turn.number, usage_of(turn))
    if turn.answered_after_tools:
        return  # its later reply keeps the record of both
    if turn is context.turns.awaits_tools and _is_left_out(context, turn):
        return  # its end, or a later round, keeps the record
    record = record_of(context, turn, now_ms)
    if turn is context.turns.awaits_tools or turn.question.effects_at_ms is not None:
        record = replace(record, outcome=None)  # the user waits for the answer to come, or may go on
    context.issue(StoreRecord(record))
    for span in record.stages:
        if span.verdict == "over" and span.stage not in turn.account.logged_stages:
            turn.account.logged_stages.add(span.stage)
            context.issue(ReportOverrun(turn.id, span.stage, span.owner, span.duration_ms - span.limit_ms))


def _is_left_out(context: TurnContext, turn: Turn) -> bool:
    """Return whether the record is not stored after this round of calls; in old journals it is after each."""
    n = turn.tool_round
    return context.core.client_tool_rounds > 0 and n > ROUNDS_STORED and n & (n - 1) != 0


def close(context: TurnContext, turn: Turn, outcome: Outcome, reason: str, now_ms: int) -> None:
    """End a turn, and have its last record stored."""
    turn.outcome, turn.reason = outcome, reason
    if not turn.answered_after_tools:  # otherwise the time is that of the answer
        spoken_ms = sum(u.speech_ms for u in turn.question.utterances)
        turn.account.active_ms = spoken_ms + now_ms - turn.marks.get(attribution.VOICED_LAST, now_ms)
    keep(context, turn, now_ms)


def record_of(context: TurnContext, turn: Turn, now_ms: int) -> TurnRecord:
    """Return the record of a turn, judged by the marks that it has so far."""
    marks = with_stalls(turn.marks, turn.account.stalls)
    judged = _judged(context, turn, marks)
    limit_ms, between_ms = context.core.budget.total_ms, itl_ms(turn)
    replies = turn.replies
    elsewhere = replies[0].elsewhere
    return TurnRecord(
        id=turn.id,
        session=context.session,
        turn=replies[0].number,
        revision=replies[0].reply.revision,
        cause=turn.cause if elsewhere is None else elsewhere.cause,
        outcome=turn.outcome,
        reason=turn.reason,
        failed_stage=turn.failed_stage,
        marks=tuple(sorted(marks.items(), key=lambda mark: mark[1])),
        total_ms=judged.total_ms,
        total_limit_ms=limit_ms,
        total_verdict=_verdict(judged.total_ms, limit_ms),
        latency_source=_latency_source(turn),
        carrier_estimated_ms=turn.audio.carrier_estimated_ms,
        stages=judged.stages,
        parts=judged.parts,
        contributions=judged.contributions,
        unattributed_ms=judged.unattributed_ms,
        breach=judged.breach,
        providers=tuple(sorted({k: v for each in replies for k, v in each.account.providers.items()}.items())),
        tokens=_tokens(replies),
        user_text=_joined((turn.question.text, turn.question.typed)),
        agent_text=_spoken(replies, [each.reply.text for each in replies]),
        played_text=_spoken(replies, [each.played_text(now_ms) for each in replies]),
        spoken_ms=sum(each.reply.earlier_ms + each.audio.sent_ms for each in replies),
        resumed=turn.question.n_resumed,
        taken_back_ms=turn.question.taken_back_ms,
        actions=(*(action for each in replies for action in each.reply.actions), *_stt_actions(turn)),
        projected=tuple(turn.reply.projected.items()),
        filler=next((each.filler.words for each in replies if each.filler.words), ""),
        language=turn.question.language or context.settings.language or "",
        route=_route(turn),
        pool=turn.reply.pool,
        arm=turn.reply.arm,
        attempts=tuple(attempt for each in replies for attempt in each.reply.attempts),
        itl_ms=between_ms,
        tokens_per_s=None if between_ms is None else 1_000 / between_ms,
        tts_connect_hidden_ms=turn.reply.tts_connect_hidden_ms,
        stt_connect_hidden_ms=next((u.stt_hidden_ms for u in turn.question.utterances), None),
        tools=tuple(call for each in replies for call in each.tool_calls.values()),
        first_audio_ms=_first_audio_ms(turn, marks),
        answer_audio_ms=judged.total_ms if turn.settings.audible and not turn.tool_calls else None,
        context=turn.account.context,
        knowledge=turn.account.knowledge,
        speculation=replies[0].account.speculation,
        session_speculation=context.learned.speculation.total,
        cost=sum_of([turn_cost(usage_of(each), context.core.prices) for each in replies]),
        session_cost=context.learned.cost_tracker.total(),
    )


def _judged(context: TurnContext, turn: Turn, marks: Mapping[str, int]) -> Judgement:
    """Return the stages and the total of a turn, held against their limits."""
    return attribution.judge(
        marks,
        context.core.budget,
        _owners(turn, marks),
        audible=turn.settings.audible,
        silence_set_by=context.settings.silence_set_by,
        earlier_audio_set_by=_EARLIER_AUDIO_SET_BY.get(turn.audio.behind or "answer", ""),
    )


def _verdict(total_ms: int | None, limit_ms: int) -> Verdict | None:
    if total_ms is None:
        return None
    return "over" if total_ms > limit_ms else "within"


def _spoken(replies: tuple[Turn, ...], texts: Iterable[str]) -> str:
    """Return the agent's words of a turn: `texts` of its replies, each after what was heard before it stopped."""
    elsewhere = replies[0].elsewhere
    earlier = () if elsewhere is None else (elsewhere.played_text,)
    pairs = zip(replies, texts, strict=True)
    return _joined((*earlier, *(words for each, text in pairs for words in (each.reply.earlier_text, text))))


def usage_of(turn: Turn) -> TurnUsage:
    """Return what a turn has used of its providers so far, without the replies before it that called functions."""
    account, reply = turn.account, turn.reply
    llm = account.providers.get("llm", "")
    return TurnUsage(
        llm=llm,
        tokens=turn.tokens if llm and attribution.LLM_REQUESTED in turn.marks else reply.tokens,
        counted=reply.tokens,
        attempts=reply.attempts,
        speculation=account.speculation,
        tts=account.tts_usage,
        stt_ms=account.stt_ms,
        embedding_usd=account.embedding_usd,
        speech_usd=account.speech_usd,
        speech_counted=account.speech_counted,
        active_ms=account.active_ms,
    )


def _tokens(replies: tuple[Turn, ...]) -> TokenCount:
    counts = [each.reply.tokens for each in replies]
    return TokenCount(
        sum(count.input for count in counts),
        sum(count.output for count in counts),
        sum(count.cached for count in counts),
        sum(count.cache_write for count in counts),
    )


def _joined(texts: Iterable[str]) -> str:
    return " ".join(filter(None, texts))


def _first_audio_ms(turn: Turn, marks: Mapping[str, int]) -> int | None:
    """Return when the user heard anything, in ms from t0: the answer, a filler, or words before a function call."""
    first = (attribution.FIRST_AUDIBLE, attribution.FILLER_AUDIBLE, _FIRST_ANNOUNCED)
    audible_ms = [marks[mark] for mark in first if mark in marks and turn.settings.audible]
    return min(audible_ms) - marks[attribution.VOICED_LAST] if audible_ms else None


def _stt_actions(turn: Turn) -> tuple[str, ...]:
    """Return the fallback actions of the STT."""
    changes = (each for utterance in turn.question.utterances for each in utterance.stt_changes)
    return tuple(ACTIONS[each.role] for each in changes if each.role in ACTIONS)


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
    waited_for = turn.account.waited_for
    # The LLM's wording decides when a clause closes. Without playback reports only the TTS's leading silence is known
    # of playback.
    voice = tts if attribution.FIRST_CLAUSE in marks else turn.account.providers.get(attribution.SPEECH, tts)
    player = "client" if turn.audio.reported else voice
    return {
        "silence": "settings" if turn.cause == "vad" else "client",
        "endpoint": _endpoint_owner(turn, marks),
        "llm_ttft": waited_for.get("llm") or llm,
        "first_clause": llm,
        "tts_ttfb": waited_for.get("tts") or tts,
        attribution.SPEECH: turn.account.providers.get(attribution.SPEECH, "server"),
        "earlier_audio": _earlier_audio_owner(turn, llm),
        "playback": player,
        "tool": _tool_owner(turn),
    }


def _earlier_audio_owner(turn: Turn, llm: str) -> str:
    """Return the owner of what played before the answer: another answer was left to play by the client, which did not
    stop it and requested another.
    """
    if turn.audio.behind == "announcement":
        return llm
    return "client" if turn.audio.behind == "answer" else "settings"


def _tool_owner(turn: Turn) -> str:
    """Return the side whose functions the turn waited for; the server if it ran any of them without approval."""
    if any(each.awaits_approval for each in turn.replies):
        return "client"
    by_server = any(call.ran_by == "server" for each in turn.replies for call in each.tool_calls.values())
    return "server" if by_server else "client"


def _endpoint_owner(turn: Turn, marks: Mapping[str, int]) -> str:
    """Return the owner of the longest wait between the chosen silence and the LLM request, or the gate."""
    waits = _waits(turn, marks)
    return max(waits, key=lambda wait: wait[1] - wait[0] - stalled_ms(marks, wait[0], wait[1]))[2]


def _waits(turn: Turn, marks: Mapping[str, int]) -> tuple[tuple[int, int, str], ...]:
    """Return (from, until, owner) of each wait: for the STT's text, for the client's request, for the server.

    A text that comes after the silence is awaited from the silence's end on, or from its request. An LLM request sent
    before the turn was over did not wait for the turn's end, unless the answer did.
    """
    stt, held = (
        turn.account.waited_for.get("stt") or turn.account.providers.get("stt", "server"),
        attribution.waited_for_the_gate(marks, audible=turn.settings.audible),
    )
    due = attribution.silence_end(marks, held=held)
    from_ms = marks.get(due or attribution.VOICED_LAST, 0)
    ended_ms = marks.get(attribution.ENDED, from_ms)
    if due == attribution.START_DUE:
        ended_ms = min(ended_ms, from_ms)
    sent = attribution.GATE_OPENED if held else attribution.requested(marks)
    if turn.before is not None:
        sent = attribution.first_requested(marks)
    sent_ms = max(from_ms, marks.get(sent, from_ms))
    known_ms = min(sent_ms, max(ended_ms, marks.get(attribution.TRANSCRIBED, ended_ms)))
    awaited_ms = min(known_ms, max(from_ms, marks.get(attribution.FLUSHED, from_ms)))
    if known_ms <= ended_ms:
        awaited_ms = known_ms  # the words were known in time
    requested_ms = min(sent_ms, max(known_ms, marks.get(attribution.REQUESTED, known_ms)))
    return (
        (from_ms, awaited_ms, "server"),
        (awaited_ms, known_ms, stt),
        (known_ms, requested_ms, "client"),
        (requested_ms, max(requested_ms + 1, sent_ms), "server"),
    )


def itl_ms(turn: Turn) -> float | None:
    """Return the mean time between two tokens of the running reply, in ms: from first to last, by the provider's own
    count.

    None while the answer is incomplete, and where it cannot be computed: there is no count, or one of audio, everything
    came at once, or another LLM continued it. An answer that a router held back began when its LLM did, not when it was
    released.
    """
    last_ms, n_gaps = turn.marks.get(attribution.LAST_DELTA), turn.reply.tokens.output - 1
    speakers = [each for each in turn.reply.attempts if each.outcome == "spoke"]
    if last_ms is None or n_gaps < 1 or turn.by_speech_model or any(each.role == "continuation" for each in speakers):
        return None
    first_ms = turn.marks[attribution.FIRST_DELTA]
    for each in speakers:
        first_ms = min(
            first_ms, turn.marks.get(attribution.LLM_REQUESTED, first_ms) + each.began_ms + (each.first_ms or 0)
        )
    return (last_ms - first_ms) / n_gaps if last_ms > first_ms else None
