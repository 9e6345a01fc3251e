"""What a client may not change, and what it may not see."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.auth.claims import Lock
from voicepipe.errors import ProtocolError
from voicepipe.protocol.field_locks import HIDEABLE, check_locks, check_reply, check_update, visible
from voicepipe.protocol.ga import session_object
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.turn.settings import ServerTool, Tool
from voicepipe.values import replace

SESSION = SessionConfig.start(
    session_id="sess_1", model="default", voice="heart", instructions="Be kind.", expires_at=9
).merged({"tools": [{"type": "function", "name": "book", "parameters": {}}]})

LOCKS = (Lock("instructions"), Lock("audio.output.voice"), Lock("tools"), Lock("max_output_tokens"))


@pytest.mark.parametrize(
    ("update", "field"),
    [
        ({"instructions": "Be rude."}, "session.instructions"),
        ({"instructions": None}, "session.instructions"),
        ({"type": "realtime", "audio": {"output": {"voice": "ash"}}}, "session.audio.output.voice"),
        ({"voice": "ash", "modalities": ["text"]}, "session.audio.output.voice"),
        ({"tools": []}, "session.tools"),
        ({"max_response_output_tokens": 7, "modalities": ["text"]}, "session.max_output_tokens"),
        ({"type": "transcription"}, "session.instructions"),
    ],
)
def test_a_locked_field_is_not_changed_in_any_shape(update: dict[str, Any], field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        check_update(SESSION, SESSION.merged(update), LOCKS)
    assert (refused.value.field, refused.value.code) == (field, "field_locked")
    assert "leave it out" in refused.value.why


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"instructions": "Be kind."},
        {"audio": {"output": {"speed": 1.2}, "input": {"turn_detection": None}}},
        {"tools": [{"type": "function", "name": "book", "parameters": {}}]},
    ],
)
def test_what_is_not_locked_or_says_the_same_passes(update: dict[str, Any]) -> None:
    check_update(SESSION, SESSION.merged(update), LOCKS)


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ({"instructions": "Be rude."}, "session.instructions"),
        ({"voice": "ash"}, "session.audio.output.voice"),
        ({"tools": ()}, "session.tools"),
        ({"max_output_tokens": 9}, "session.max_output_tokens"),
    ],
)
def test_a_lock_is_not_passed_by_with_a_single_reply(override: dict[str, Any], field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        check_reply(SESSION, replace(SESSION.reply_settings(), **override), LOCKS)
    assert refused.value.field == field


@pytest.mark.parametrize("choice", ["auto", {"type": "mcp", "server_label": "crm"}])
def test_a_locked_choice_of_tools_is_not_another_servers(choice: Any) -> None:
    """Both say `required`, but of other tools."""
    session = SESSION.merged({"tool_choice": "required"})
    other = SESSION.merged({"tool_choice": choice})
    with pytest.raises(ProtocolError) as refused:
        check_reply(session, other.reply_settings(), (Lock("tool_choice"),))
    assert refused.value.field == "session.tool_choice"


def test_a_reply_with_what_is_not_locked_passes() -> None:
    override = replace(SESSION.reply_settings(), audible=False, speed=1.2, metadata=(("a", "b"),), voice=None)
    check_reply(SESSION, override, LOCKS)
    check_reply(SESSION, replace(override, instructions="Be rude."), ())


def test_hidden_field_is_sent_empty_and_stored() -> None:
    locks = tuple(Lock(name, hidden=True) for name in HIDEABLE)
    session = SESSION.merged({"audio": {"input": {"transcription": {"model": "whisper-1", "prompt": "secret"}}}})
    wire = session_object(visible(session, locks))
    assert (wire["instructions"], wire["tools"], wire["audio"]["input"]["transcription"]) == ("", [], None)
    assert session_object(session)["instructions"] == "Be kind."
    assert visible(session, (Lock("instructions"),)) is session


@pytest.mark.parametrize(
    ("lock", "field"),
    [
        (Lock("instuctions"), "voicepipe.locks[1].field"),
        (Lock("audio.output.vice"), "voicepipe.locks[1].field"),
        (Lock("instructions.deeper"), "voicepipe.locks[1].field"),
        (Lock("audio.output.voice", hidden=True), "voicepipe.locks[1].hidden"),
    ],
)
def test_a_lock_that_would_lock_nothing_is_refused(lock: Lock, field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        check_locks(SESSION, (Lock("instructions"), lock))
    assert refused.value.field == field


def test_a_lock_into_what_may_come_later_is_taken() -> None:
    check_locks(SESSION, (Lock("audio.input.transcription.model"), Lock("audio"), Lock("tools", hidden=True)))


def test_a_reply_may_not_leave_out_a_locked_server() -> None:
    """A `response.create` that names some of the session's MCP servers leaves out the others."""
    server = {"type": "mcp", "server_label": "clinic", "server_url": "https://mcp.example", "require_approval": "never"}
    tool = ServerTool(tool=Tool("reset", "", "{}"), label="clinic")
    session = replace(SESSION.merged({"tools": [server]}), server_tools=(tool,))
    own = session.reply_settings()
    check_reply(session, own, LOCKS)
    check_reply(session, replace(own, server_tools=()), ())
    with pytest.raises(ProtocolError) as refused:
        check_reply(session, replace(own, server_tools=()), LOCKS)
    assert (refused.value.field, refused.value.code) == ("session.tools", "field_locked")
