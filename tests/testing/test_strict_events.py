"""The strict check takes published events, and nothing that is a little off."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.strict_events import EVENTS, problems, require_strict

STARTED: dict[str, Any] = {
    "type": "input_audio_buffer.speech_started",
    "event_id": "event_1",
    "item_id": "item_1",
    "audio_start_ms": 120,
}


def test_published_event_passes() -> None:
    """An event of the published shape has no problems, in either dialect."""
    assert problems(STARTED) == []
    assert problems(STARTED, dialect="beta") == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"audio_start_ms": "120"}, "audio_start_ms"),
        ({"audio_start_ms": 120.5}, "audio_start_ms"),
        ({"extra": 1}, "extra"),
        ({"item_id": None}, "item_id"),
        ({"event_id": ""}, "event_id"),
        ({"type": "input_audio_buffer.speech_begun"}, "type"),
    ],
)
def test_what_is_off_is_named(change: dict[str, Any], path: str) -> None:
    """A wrong type, a conversion, an unknown member, a missing id: each is named by its path."""
    (problem,) = problems(STARTED | change)
    assert problem.startswith(path)


def test_session_may_bear_what_servers_add() -> None:
    """A session's id, object and expiry are no problem; another member is."""
    session = {"type": "realtime", "id": "sess_1", "object": "realtime.session", "expires_at": 1}
    event = {"type": "session.created", "event_id": "event_1", "session": session}
    assert problems(event) == []
    assert problems(event | {"session": session | {"voicepipe": 1}}) != []


def test_dialects_differ() -> None:
    """An event that only one dialect has is unknown in the other."""
    only_ga = set(EVENTS["ga"]) - set(EVENTS["beta"])
    assert "response.output_audio.delta" in only_ga
    assert problems({"type": "response.output_audio.delta"}, dialect="beta")[0].startswith("type: unknown")


def test_all_problems_are_reported_at_once() -> None:
    """A failed run names every event that is off."""
    with pytest.raises(AssertionError, match=r"(?s)extra.*nonsense"):
        require_strict([STARTED | {"extra": 1}, {"type": "nonsense"}])
