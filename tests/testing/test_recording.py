"""The recording that every test runs under finds what is wrong on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from voicepipe.protocol.beta import BETA
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.testing.recording import RecordedConnections
from voicepipe.testing.user import calling

CONFIG = SessionConfig.start(session_id="sess_r", model="default", voice="v", instructions="", expires_at=1)


class NoClient:
    """A connection without a client, with a few scripted messages."""

    hung_up = True
    gone = False
    has_message = False

    def __init__(self, *said: str) -> None:
        self.said = list(said)

    async def receive(self) -> str | bytes | None:
        return self.said.pop(0) if self.said else None

    async def send(self, frame: bytes) -> None: ...
    async def close(self, code: int, reason: str) -> None: ...
    def abort(self) -> None: ...


async def found(frames: Iterable[bytes], *said: str) -> list[str]:
    """The problems of these events, after their client has said that."""
    recording = RecordedConnections()
    line = recording.of(NoClient(*said))
    while await line.receive() is not None:
        pass
    for frame in frames:
        await line.send(frame)
    return recording.problems()


def hello(**changes: Any) -> Frames:
    """The greeting with other members."""
    return [json.dumps({**json.loads(frame), **changes}).encode() for frame in EventRenderer(CONFIG).hello()]


async def test_a_sound_wire_has_no_problems() -> None:
    assert await found(EventRenderer(CONFIG).hello()) == []
    assert await found(EventRenderer(CONFIG, dialect=BETA).hello()) == []


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        (hello(surprise=1), "surprise: extra_forbidden"),
        (hello(event_id=""), "event_id: missing"),
        (hello(type="session.sung"), "unknown event"),
        (hello() + hello(), "is not new"),
        ([b"not JSON"], "unknown event"),
    ],
)
async def test_a_fault_is_found(frames: Frames, fault: str) -> None:
    assert any(fault in problem for problem in await found(frames))


async def test_item_is_first_only_on_request() -> None:
    def added(number: int) -> bytes:
        item = {"id": f"i{number}", "type": "message", "role": "user", "status": "completed", "content": []}
        event = {"type": "conversation.item.added", "event_id": f"e{number}", "previous_item_id": None, "item": item}
        return json.dumps(event).encode()

    frames = [*EventRenderer(CONFIG).hello(), added(1), added(2)]
    create = json.dumps({"type": "conversation.item.create", "previous_item_id": "root"})
    assert await found(frames, create) == []
    assert await found(frames, "{oops") == [
        "3 conversation.item.added: previous_item_id is null, and 'i1' stands before"
    ]


async def test_sessions_of_a_running_server_are_recorded(fake_server: Any, recorded_wire: RecordedConnections) -> None:
    async with fake_server() as server, calling(server.url) as user:
        await user.send("input_audio_buffer.clear")
        await user.until("input_audio_buffer.cleared")
    (line,) = recorded_wire.lines
    types = [json.loads(message)["type"] for by_server, message in line.messages if by_server]
    assert types == ["session.created", "input_audio_buffer.cleared"]
    assert json.loads(line.messages[1][1])["type"] == "input_audio_buffer.clear"
