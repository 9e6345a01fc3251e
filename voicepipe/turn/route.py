"""Record the route of a turn: its passages, its LLM, its TTS, its STT, and the failed or superseded attempts."""

from __future__ import annotations

from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn.record import attribution
from voicepipe.turn.turn import Turn

ACTIONS: Final = {"hedge": "hedge", "replacement": "fallback", "continuation": "continuation"}
"""Role of a request -> the action to save the budget that it stands for."""


def knowledge_searched(turn: Turn, event: e.KnowledgeSearched, now_ms: int) -> None:
    """Record the passages that the LLM receives."""
    account, usd = turn.account, event.found.embedding_usd
    account.knowledge = event.found
    account.embedding_usd = None if usd is None or account.embedding_usd is None else account.embedding_usd + usd


def model_chosen(turn: Turn, event: e.ModelChosen, now_ms: int) -> None:
    """Record the router's choice of LLM: the stage belongs to it from here on."""
    turn.account.providers["llm"] = event.provider
    if attribution.FIRST_DELTA not in turn.marks:
        turn.account.waited_for["llm"] = event.waited_for or event.provider
    turn.reply.pool, turn.reply.arm = event.pool, event.arm
    if event.why or turn.reply.route:
        turn.reply.route.append(event.why)


def synthesizer_changed(turn: Turn, event: e.SynthesizerChanged, now_ms: int) -> None:
    """Record that another TTS speaks from here on; a `primary` is the first choice of its turn, and no fallback."""
    turn.account.tts_usage.move(
        event.n_chars, since=turn.account.providers.get("tts", event.provider), to=event.provider
    )
    turn.account.providers["tts"] = event.provider
    if attribution.FIRST_SOUND not in turn.marks:
        turn.account.waited_for["tts"] = event.waited_for or event.provider
    turn.reply.route.append(f"{event.provider} speaks: {event.why}")
    if event.role in ACTIONS:
        turn.reply.actions.append(ACTIONS[event.role])


def speech_unused(turn: Turn, event: e.SynthesisUnused, now_ms: int) -> None:
    """Record a TTS whose audio was not used."""
    turn.account.tts_usage.add_unused(event.provider, event.n_chars)


def cached_speech_used(turn: Turn, event: e.CachedSpeechUsed, now_ms: int) -> None:
    """Record audio that needed no request to the TTS."""
    turn.account.tts_usage.add_cached(event.provider, event.n_chars)


def synthesizer_connected(turn: Turn, event: e.SynthesizerConnected, now_ms: int) -> None:
    """Record that a TTS is connected. Of several TTS, the first connection is recorded."""
    if turn.reply.tts_connect_hidden_ms is None:
        turn.reply.tts_connect_hidden_ms = event.hidden_ms


def model_joined(turn: Turn, event: e.ModelJoined, now_ms: int) -> None:
    """Record that the request was also sent to another LLM."""
    turn.reply.actions.append(ACTIONS[event.role])


def model_attempted(turn: Turn, event: e.ModelAttempted, now_ms: int) -> None:
    """Record that one of the requests for the answer is over."""
    turn.reply.attempts.append(event.attempt)
    action = ACTIONS.get(event.attempt.role, "")
    if action and turn.reply.actions.count(action) < sum(
        each.role == event.attempt.role for each in turn.reply.attempts
    ):
        turn.reply.actions.append(action)
