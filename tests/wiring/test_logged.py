"""What goes wrong in a call is in the log with the call's id."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.client import connect
from voicepipe.testing.fakes.cues import LlmCue, Status
from voicepipe.testing.waiting import eventually


@pytest.mark.slow
async def test_a_failing_provider_is_logged_with_its_session(
    fake_server: Any, question: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the turn is, which ends with a warning."""

    def event_fields(event: str) -> dict[str, Any] | None:
        found = [vars(record)["fields"] for record in caplog.records if record.getMessage() == event]
        return found[0] if found else None

    async def closed() -> dict[str, Any] | None:
        return event_fields("turn_closed")

    caplog.set_level(logging.INFO, "voicepipe")
    async with fake_server({"agents.default.apology": ""}) as server, connect(server.url) as call:
        server.vendor.llm.usual = LlmCue(fault=Status(500, "out of order"))
        await call.turn(read_sound(question, 24_000))
        turn = await eventually(closed)
    opened, failed = event_fields("session_opened"), event_fields("provider_failed")
    assert opened is not None
    assert failed is not None
    assert failed["session"] == turn["session"] == opened["session"]
    assert (failed["provider"], failed["stage"], failed["kind"]) == ("fake/llm", "llm", "refused")
    assert turn["outcome"] == "failed"
