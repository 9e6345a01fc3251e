"""Convert a turn's record to spans: itself, its stages, and each LLM request. Plain values, independent of any
library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from voicepipe.registry import Spec
from voicepipe.telemetry.advice import setting_for
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.waterfall import WaterfallRow, waterfall
from voicepipe.turn.record import marks as m
from voicepipe.turn.record.values import ModelAttempt, TurnRecord

Value = str | int | float | bool


class PlainSpan(Struct, frozen=True):
    """A span with its begin and end, in session ms."""

    name: str
    start_ms: int
    end_ms: int
    outcome: str
    """`failed` is an error; empty: there is none to report."""

    about: Mapping[str, Value] = field(default_factory=dict)
    is_request: bool = False
    """Whether it is a request to another service."""


def spans_of(turn: StoredTurn) -> Iterator[PlainSpan]:
    """Return the turn's span, then the spans below it. They contain no transcripts."""
    record = turn.record
    marks = dict(record.marks)
    yield _whole(turn, marks)
    laid_out, t0_ms = waterfall(record), marks.get(m.VOICED_LAST, record.marks[0][1] if record.marks else 0)
    for row in laid_out.rows:
        yield _stage(row, t0_ms)
    yield from _llm_requests(record, marks)


def provider_of(spec: str) -> dict[str, str]:
    """Return a spec in the conventions' terms: `groq/llama-3.3-70b` is a model of the provider `groq`."""
    named = Spec.read(spec)
    return {"gen_ai.provider.name": named.provider, "gen_ai.request.model": named.model or named.provider}


def _whole(turn: StoredTurn, marks: Mapping[str, int]) -> PlainSpan:
    record = turn.record
    at_ms = [*marks.values()] or [0]
    played_until_ms = (
        marks[m.FIRST_AUDIBLE] + record.spoken_ms if m.FIRST_AUDIBLE in marks and record.outcome == "completed" else 0
    )
    about: dict[str, Value] = {
        "gen_ai.conversation.id": record.session,
        "gen_ai.agent.name": turn.agent,
        "voicepipe.turn.id": record.id,
        "voicepipe.turn.number": record.turn,
        "voicepipe.turn.revision": record.revision,
        "voicepipe.turn.cause": record.cause,
        "voicepipe.turn.reason": record.reason,
        "voicepipe.latency_source": record.latency_source,
        "voicepipe.limit_ms": record.total_limit_ms,
        "voicepipe.unattributed_ms": record.unattributed_ms,
        "voicepipe.route": record.route,
        "voicepipe.actions": ",".join(record.actions),
        "voicepipe.cost_usd": record.cost.usd,
    }
    if record.total_ms is not None:
        about |= {"voicepipe.turn_latency_ms": record.total_ms, "voicepipe.verdict": record.total_verdict or ""}
    if record.breach is not None:
        breach = record.breach
        about |= {
            "voicepipe.breach": breach.stage,
            "voicepipe.owner": breach.owner,
            "voicepipe.over_ms": breach.over_ms,
        }
        if breach.depends_on:
            setting = setting_for(breach.depends_on, turn.agent)
            about |= {"voicepipe.setting": setting, "voicepipe.saves_ms": breach.saves_ms}
    return PlainSpan("turn", min(at_ms), max(*at_ms, played_until_ms), record.outcome or "", about)


def _stage(row: WaterfallRow, t0_ms: int) -> PlainSpan:
    waited_ms = sum(part.duration_ms for part in (*row.critical, *row.held))
    about: dict[str, Value] = {
        "voicepipe.stage": row.stage,
        "voicepipe.limit_ms": row.limit_ms,
        "voicepipe.verdict": row.verdict,
        "voicepipe.owner": row.owner,
        "voicepipe.critical_ms": waited_ms,
    }
    return PlainSpan(row.stage, t0_ms + row.span.start_ms, t0_ms + row.span.end_ms, "", about)


def _llm_requests(record: TurnRecord, marks: Mapping[str, int]) -> Iterator[PlainSpan]:
    """Return a span for each LLM request; the answered one carries the tokens."""
    requested_ms, spec = marks.get(m.LLM_REQUESTED), dict(record.providers).get("llm", "")
    if requested_ms is None or not spec:
        return
    last_ms = marks.get(m.LAST_DELTA, max(marks.values()))
    spoke_ms = (each.began_ms + each.first_ms for each in record.attempts if each.first_ms is not None)
    answered_ms = min((requested_ms + ms for ms in spoke_ms), default=last_ms)
    if not record.attempts:
        first_ms = marks[m.FIRST_DELTA] - requested_ms if m.FIRST_DELTA in marks else None
        failed = record.outcome == "failed" and first_ms is None
        only = ModelAttempt(
            provider=spec, role="primary", outcome="failed" if failed else "spoke", began_ms=0, first_ms=first_ms
        )
        yield _llm_request(record, only, requested_ms, last_ms)
    for attempt in record.attempts:
        # Losers were closed when another answered; the time at which one failed was not recorded.
        yield _llm_request(record, attempt, requested_ms, last_ms if attempt.outcome == "spoke" else answered_ms)


def _llm_request(record: TurnRecord, attempt: ModelAttempt, requested_ms: int, ended_ms: int) -> PlainSpan:
    began_ms = requested_ms + attempt.began_ms
    about: dict[str, Value] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.type": "text",
        "gen_ai.conversation.id": record.session,
        **provider_of(attempt.provider),
        "voicepipe.role": attempt.role,
    }
    if attempt.first_ms is not None:
        about["gen_ai.response.time_to_first_chunk"] = max(0, attempt.first_ms) / 1_000
    if attempt.cost_usd is not None:
        about["voicepipe.cost_usd"] = attempt.cost_usd
    if attempt.outcome == "spoke" and attempt.provider == dict(record.providers).get("llm"):
        about |= {
            "gen_ai.usage.input_tokens": record.tokens.input,
            "gen_ai.usage.output_tokens": record.tokens.output,
            "gen_ai.usage.cache_read.input_tokens": record.tokens.cached,
        }
    model = about["gen_ai.request.model"]
    return PlainSpan(f"chat {model}", began_ms, max(began_ms, ended_ms), attempt.outcome, about, is_request=True)
