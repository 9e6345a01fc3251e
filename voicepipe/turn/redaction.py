"""Remove a provider's own error text from what the holder of a client secret gets: only the fact of the failure stays.

A provider that refuses names our accounts, limits and parts of our keys, and a client secret is in any visitor's
browser. Over REST `server.errors.redacted_error` does the same; API keys see everything.
"""

from __future__ import annotations

from typing import Final

from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import FunctionCall
from voicepipe.turn.record.values import FailedStage, TurnRecord
from voicepipe.values import replace

STAGES: Final[tuple[FailedStage, ...]] = ("stt", "llm", "tts")
"""The stages that providers serve: why these fail is the provider's text."""

FAILED: Final = "it failed"


def redacted_record(record: TurnRecord) -> TurnRecord:
    """Return the record without providers' error texts, in its reason, its route and its attempts; and without the
    names of the operator's documents.
    """
    attempts = tuple(replace(each, why="") for each in record.attempts)
    knowledge = replace(record.knowledge, passages=())
    return replace(record, reason=_redacted_reason(record), route="", attempts=attempts, knowledge=knowledge)


def redacted_notification(what: a.Notification) -> a.Notification:
    """Return the notification without providers' error texts, of a response or a transcription that failed, and without
    the results of the server's functions: they may be more than their user may see.
    """
    match what:
        case a.ResponseEnded(failed_stage=stage) if stage in STAGES:
            return replace(what, message=f"{stage}: {FAILED}")
        case a.TranscriptFailed():
            return replace(what, why=f"stt: {FAILED}")
        case a.ToolEnded(call=call):
            return replace(what, call=replace(call, output=""))
        case a.ItemAdded(item=FunctionCall() as call) | a.ItemRetrieved(item=FunctionCall() as call) if call.output:
            return replace(what, item=replace(call, output=""))
    return what


def _redacted_reason(record: TurnRecord) -> str:
    if record.failed_stage in STAGES:
        return f"{record.failed_stage}: {FAILED}"
    # An older version stored no stage: the reason may be a provider's text.
    return FAILED if record.failed_stage is None and record.outcome == "failed" else record.reason
