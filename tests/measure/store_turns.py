"""Generate turns for the store's bench: a month of sessions, the same for each seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.turn.record import attribution
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import Outcome, TokenCount, TurnCost, TurnRecord
from voicepipe.turn.settings import BudgetLimits

PROJECT: Final = "bench"
MONTH_MS: Final = 30 * 24 * 3_600_000
PER_SESSION: Final = 8
USERS: Final = 5_000

_LIMITS: Final = BudgetLimits()
_WORDS: Final = """
    the order arrives on tuesday and your card was charged twice please hold while i look that up there are three
    tables free near window at seven would you like one of them or shall we try another evening next week
"""
_LANGUAGES: Final = ("en", "en", "en", "en", "de", "fr")
_OUTCOMES: Final[tuple[Outcome, ...]] = ("completed",) * 48 + ("interrupted", "failed")


@dataclass(frozen=True, slots=True)
class _Agent:
    name: str
    route: str
    stt: str
    llms: tuple[str, ...]
    tts: str
    ttft_ms: float


_AGENTS: Final = (
    _Agent("default", "", "local/moonshine-tiny", ("local/smollm2-135m",), "local/hibari", 320),
    _Agent("sales", "fast", "deepgram/nova-3", ("groq/llama-3.3-70b", "cerebras/llama-3.3-70b"), "cartesia/sonic", 180),
    _Agent("support", "careful", "deepgram/flux", ("openai/gpt-5-mini", "groq/gpt-oss-120b"), "elevenlabs/flash", 420),
)


def made_up(n_turns: int, *, until_ms: int, over_ms: int = MONTH_MS, seed: int = 1) -> Iterator[StoredTurn]:
    """Yield turns of the time `over_ms` before `until_ms`, oldest first, in sessions of eight."""
    draw = random.Random(seed)
    step_ms = over_ms / n_turns
    for number in range(n_turns):
        session = number // PER_SESSION
        agent = _AGENTS[session % len(_AGENTS)]
        record = _record(draw, number, f"sess_{session:020d}", agent)
        yield StoredTurn(
            record,
            PROJECT,
            agent.name,
            until_ms - over_ms + int(number * step_ms),
            user=f"user-{session % USERS}",
            language=_LANGUAGES[session % len(_LANGUAGES)],
            route=agent.route,
            arm=Arm("summer", agent.route) if agent.route and session % 10 == 0 else NO_ARM,
        )


def _record(draw: random.Random, number: int, session: str, agent: _Agent) -> TurnRecord:
    outcome = draw.choice(_OUTCOMES)
    marks = _marks(draw, agent, played=outcome != "failed")
    llm = draw.choice(agent.llms)
    owners = {"silence": "settings", "llm_ttft": llm, "tts_ttfb": agent.tts, "playback": "client"}
    judged = attribution.judge(marks, _LIMITS, owners, audible=True)
    late = judged.total_ms is not None and judged.total_ms > _LIMITS.total_ms
    said, words = _text(draw, 6, 14), _text(draw, 12, 36)
    usd = 0.0 if agent.stt.startswith("local/") else draw.uniform(0.0002, 0.002)
    return TurnRecord(
        id=f"turn_{number:020d}",
        session=session,
        turn=number % PER_SESSION + 1,
        revision=0,
        cause="vad",
        outcome=outcome,
        reason="llm_failed" if outcome == "failed" else "",
        marks=tuple(marks.items()),
        total_ms=judged.total_ms,
        total_limit_ms=_LIMITS.total_ms,
        total_verdict=None if judged.total_ms is None else "over" if late else "within",
        latency_source="none" if judged.total_ms is None else "reported",
        stages=judged.stages,
        parts=judged.parts,
        contributions=judged.contributions,
        unattributed_ms=judged.unattributed_ms,
        breach=judged.breach,
        providers=(("llm", llm), ("stt", agent.stt), ("tts", agent.tts)),
        tokens=TokenCount(
            input=draw.randrange(200, 3_000), output=draw.randrange(8, 60), cached=draw.randrange(0, 200)
        ),
        user_text=said,
        agent_text=words,
        played_text=words,
        spoken_ms=draw.randrange(900, 6_000),
        actions=("short_clause",) if late else (),
        itl_ms=draw.uniform(2, 12),
        cost=TurnCost(usd=usd, answer_usd=usd),
    )


def _marks(draw: random.Random, agent: _Agent, *, played: bool) -> dict[str, int]:
    """Return the marks of a turn; the waits are drawn from a lognormal's long tail."""
    at = draw.randrange(2_000, 60_000)
    steps = [
        (attribution.VOICED_LAST, 0.0),
        (attribution.FLUSHED, 85.0),
        (attribution.TRANSCRIBED, 60.0),
        (attribution.ENDED, 260.0),
    ]
    steps += [(attribution.LLM_REQUESTED, 3.0), (attribution.FIRST_DELTA, agent.ttft_ms)]
    if played:
        steps += [(attribution.FIRST_CLAUSE, 40.0), (attribution.FIRST_SOUND, 110.0), (attribution.GATE_OPENED, 0.0)]
        steps += [(attribution.FIRST_SENT, 2.0), (attribution.FIRST_AUDIBLE, 45.0)]
    marks = {}
    for mark, usual_ms in steps:
        at += round(usual_ms * draw.lognormvariate(0, 0.45))
        marks[mark] = at
    return marks


def _text(draw: random.Random, fewest: int, most: int) -> str:
    return " ".join(draw.choices(_WORDS.split(), k=draw.randrange(fewest, most)))
