"""What a provider says of its failure does not reach the holder of a client secret: it names accounts and limits."""

from __future__ import annotations

import pytest

from voicepipe.testing.records import turn_record
from voicepipe.turn import notifications as a
from voicepipe.turn.record.values import FailedStage, ModelAttempt, Outcome
from voicepipe.turn.redaction import redacted_notification, redacted_record
from voicepipe.values import replace

SECRET = "org-4711 is over its limit of 3"


FAILURES: tuple[tuple[Outcome, FailedStage | None, str, str], ...] = (
    ("failed", "llm", f"llm: {SECRET}", "llm: it failed"),
    ("failed", "stt", SECRET, "stt: it failed"),
    ("failed", "client", "client: no progress for 9 ms", "client: no progress for 9 ms"),
    ("failed", None, f"llm: {SECRET}", "it failed"),  # stored by an older version
    ("interrupted", None, "turn_detected", "turn_detected"),
    ("completed", None, "", ""),
)
"""(outcome, failed stage, reason, redacted reason)."""


@pytest.mark.parametrize(("outcome", "stage", "reason", "redacted"), FAILURES)
def test_a_record_keeps_the_stage_and_loses_the_text(
    outcome: Outcome, stage: FailedStage | None, reason: str, redacted: str
) -> None:
    attempt = ModelAttempt(provider="openai/a", role="primary", outcome="failed", began_ms=0, first_ms=None, why=SECRET)
    record = replace(
        turn_record(), outcome=outcome, failed_stage=stage, reason=reason, route=SECRET, attempts=(attempt,)
    )
    visible = redacted_record(record)
    assert SECRET not in repr(visible)
    assert (visible.reason, [each.provider for each in visible.attempts]) == (redacted, ["openai/a"])


@pytest.mark.parametrize("stage", ["stt", "llm", "tts"])
def test_a_failed_response_names_its_stage(stage: FailedStage) -> None:
    failed = a.ResponseEnded("resp_1", "failed", "an_error_code", SECRET, failed_stage=stage)
    assert redacted_notification(failed) == replace(failed, message=f"{stage}: it failed")


def test_a_failed_transcript_is_one_of_the_stt() -> None:
    failed = a.TranscriptFailed("item_1", SECRET)
    assert redacted_notification(failed) == replace(failed, why="stt: it failed")


@pytest.mark.parametrize("redacted_text", [a.ResponseEnded("resp_1", "cancelled", "turn_detected"), a.AudioCleared()])
def test_what_names_no_provider_passes(redacted_text: a.Notification) -> None:
    assert redacted_notification(redacted_text) is redacted_text
