"""Recognize the first token of an answer, and an answer without one."""

from __future__ import annotations

from voicepipe.errors import StageBroken, StageError, StageRefused
from voicepipe.ports.model import CallDelta, Finished, ModelEvent, TextDelta


def has_token(event: ModelEvent) -> bool:
    """Return whether the event has text that is not blank, or a tool call."""
    match event:
        case TextDelta(text):
            return bool(text.strip())
        case CallDelta():
            return True
        case _:
            return False


def empty_answer(provider: str, finished: Finished) -> StageError:
    """Return the failure of a complete answer that has neither text nor a tool call.

    A filter judges the request, not the provider's health: its error is one that no circuit breaker counts.
    """
    if finished.reason == "content_filter":
        why = "the provider's content filter blocked the answer"
        return StageRefused("llm", provider=provider, why=why, retryable=False)
    why = f"the answer is empty (finish reason {finished.reason})"
    return StageBroken("llm", provider=provider, why=why, retryable=True)
