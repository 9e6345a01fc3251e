"""What a provider says of its failure does not reach the holder of a client secret: it names accounts and limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from voicepipe.testing.records import turn_record
from voicepipe.turn import notifications as a
from voicepipe.turn.record.values import ModelAttempt
from voicepipe.turn.redaction import redacted_notification, redacted_record

SECRET = "org-4711 is over its limit of 3"


@pytest.mark.parametrize(
    ("reason", "redacted"), [(f"llm: {SECRET}", "llm: it failed"), ("turn_detected", "turn_detected"), ("", "")]
)
def test_a_record_keeps_the_stage_and_loses_the_text(reason: str, redacted: str) -> None:
    attempt = ModelAttempt(provider="openai/a", role="primary", outcome="failed", began_ms=0, first_ms=None, why=SECRET)
    record = replace(turn_record(), reason=reason, route=SECRET, attempts=(attempt,))
    veiled = redacted_record(record)
    assert SECRET not in repr(veiled)
    assert (veiled.reason, [each.provider for each in veiled.attempts]) == (redacted, ["openai/a"])


@pytest.mark.parametrize("stage", ["stt", "llm", "tts"])
def test_a_failed_response_names_its_stage(stage: str) -> None:
    failed = a.ResponseEnded("resp_1", "failed", f"{stage}_failed", SECRET)
    assert redacted_notification(failed) == replace(failed, message=f"{stage}: it failed")


def test_a_failed_transcript_is_one_of_the_stt() -> None:
    failed = a.TranscriptFailed("item_1", SECRET)
    assert redacted_notification(failed) == replace(failed, why="stt: it failed")


@pytest.mark.parametrize("redacted_text", [a.ResponseEnded("resp_1", "cancelled", "turn_detected"), a.AudioCleared()])
def test_what_names_no_provider_passes(redacted_text: a.Notification) -> None:
    assert redacted_notification(redacted_text) is redacted_text
