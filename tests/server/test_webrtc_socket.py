"""The socket of a call: what differs from a WebSocket for the session, the client and a sideband connection."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pybase64
import pytest

from voicepipe.protocol.binary import agent_frame
from voicepipe.server.webrtc import events
from voicepipe.server.webrtc.rtc_socket import MAX_INBOX, RtcSocket
from voicepipe.server.webrtc.sideband import MAX_UNSENT, Sideband


@dataclass
class FakeChannel:
    """A data channel that is never full, unless the client has stopped reading."""

    sent: list[dict[str, Any]] = field(default_factory=list)
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, event: str) -> None:
        self.sent.append(json.loads(event))

    async def drained(self) -> None:
        """Do nothing: little is buffered."""

    async def flushed(self) -> None:
        await self.reads.wait()

    def types(self) -> list[str]:
        return [each["type"] for each in self.sent]


def frame(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def delta(n_samples: int, kind: str = "response.output_audio.delta") -> bytes:
    ids = {"response_id": "r1", "item_id": "i1", "output_index": 0, "content_index": 0}
    return frame(kind, **ids, delta=pybase64.b64encode(b"\x01\x00" * n_samples).decode())


def connected() -> tuple[RtcSocket, FakeChannel]:
    socket, channel = RtcSocket(), FakeChannel()
    socket.attach(channel)
    return socket, channel


async def test_audio_of_both_dialects_goes_to_rtp_and_not_to_the_channel() -> None:
    socket, channel = connected()
    await socket.send(delta(480))
    await socket.send(delta(480, "response.audio.delta"))
    await socket.send(agent_frame(1, 1, b"xx"))
    assert (socket.playout.queued_ms, channel.sent) == (40, [])
    await socket.send(frame("response.done", response={"id": "r1", "status": "completed"}))
    socket.playout.take(960)
    assert channel.types() == ["response.done", "output_audio_buffer.started", "output_audio_buffer.stopped"]


async def test_a_cancelled_response_is_cut_and_its_item_truncated() -> None:
    socket, channel = connected()
    await socket.send(delta(4_800))
    socket.playout.take(480)
    await socket.send(frame("response.done", response={"id": "r1", "status": "cancelled"}))
    assert channel.types()[1:] == ["response.done", "output_audio_buffer.cleared"]
    truncation = json.loads(await socket.receive() or "")
    assert truncation["type"] == "conversation.item.truncate"
    assert (truncation["item_id"], truncation["audio_end_ms"]) == ("i1", 20)


@pytest.mark.parametrize(
    ("session", "is_cut"),
    [
        ({"audio": {"input": {"turn_detection": {"interrupt_response": True}}}}, True),
        ({"audio": {"input": {"turn_detection": {"interrupt_response": False}}}}, False),
        ({"audio": {"input": {"turn_detection": None}}}, False),
        ({"turn_detection": {"type": "server_vad"}}, True),
    ],
)
async def test_the_users_voice_cuts_only_what_it_may_interrupt(session: dict[str, Any], is_cut: bool) -> None:
    socket, _ = connected()
    await socket.send(frame("session.updated", session=session))
    await socket.send(delta(4_800))
    socket.playout.take(480)
    await socket.send(frame("input_audio_buffer.speech_started"))
    assert (socket.playout.queued_ms == 0) == is_cut


async def test_the_client_clears_the_audio_and_sets_no_format() -> None:
    socket, channel = connected()
    await socket.send(delta(4_800))
    socket.playout.take(480)
    socket.on_event('{"type":"output_audio_buffer.clear"}')
    assert channel.types()[-1] == "output_audio_buffer.cleared"
    assert json.loads(await socket.receive() or "")["type"] == "conversation.item.truncate"
    extensions = {"binary_audio": True, "resume": True, "turn_events": True}
    session = {
        "input_audio_format": "g711_ulaw",
        "voice": "heart",
        "audio": {"input": {"format": {"type": "audio/pcmu"}}, "output": None},
        "providerData": {"voicepipe": extensions, "other": 1},
    }
    socket.on_event(json.dumps({"type": "session.update", "session": session}))
    assert json.loads(await socket.receive() or "")["session"] == {
        "voice": "heart",
        "audio": {"input": {}, "output": None},
        "providerData": {"voicepipe": {"turn_events": True}, "other": 1},
    }


@pytest.mark.parametrize(
    "raw",
    ['{"type":"response.create"}', "session.update {", '["session.update"]', b'{"type":"x","y":"session.update"}'],
)
async def test_every_other_message_passes_as_it_is(raw: str | bytes) -> None:
    socket, _ = connected()
    socket.on_event(raw)
    assert socket.has_message
    assert await socket.receive() == raw


def test_a_session_that_is_no_object_is_left_to_the_session() -> None:
    assert events.without_formats("nonsense") == "nonsense"
    assert events.without_formats({"audio": "x", "providerData": {"voicepipe": None}}) == {
        "audio": "x",
        "providerData": {"voicepipe": None},
    }


async def test_the_users_audio_that_is_not_read_is_dropped_and_an_event_too_many_ends_the_call() -> None:
    socket, _ = connected()
    for _ in range(MAX_INBOX + 3):
        socket.on_audio(np.zeros(480, np.int16))
    assert (socket.n_dropped, socket.gone) == (3, False)
    socket.on_event('{"type":"response.create"}')
    assert (socket.gone, socket.hung_up) == (True, True)
    n_messages = 0
    while await socket.receive() is not None:
        n_messages += 1
    assert n_messages == MAX_INBOX
    assert await socket.receive() is None
    assert not socket.has_message


async def test_a_call_ends_behind_its_last_events_or_at_once() -> None:
    socket, channel = connected()
    closing = asyncio.create_task(socket.close(1000, ""))
    await asyncio.sleep(0)
    assert not socket.gone
    channel.reads.set()
    await closing
    assert socket.gone
    await socket.send(frame("error"))
    await socket.close(1000, "")
    assert channel.sent == []


class FakeSocket:
    """A sideband connection's WebSocket."""

    hung_up = gone = has_message = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.incoming: asyncio.Queue[str | None] = asyncio.Queue()

    async def receive(self) -> str | None:
        return await self.incoming.get()

    async def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    async def close(self, code: int, reason: str) -> None:
        self.sent.append(str(code).encode())
        self.incoming.put_nowait(None)

    def abort(self) -> None:
        self.gone = True
        self.incoming.put_nowait(None)


async def test_a_sideband_connection_gets_the_session_and_all_events_and_ends_with_the_call() -> None:
    socket, channel = connected()
    channel.reads.set()
    await socket.send(frame("session.created", session={"id": "s1", "turn_detection": None}))
    line = FakeSocket()
    sideband = Sideband(line)
    with socket.subscribed(sideband):
        running = asyncio.create_task(sideband.run(socket.on_event))
        line.incoming.put_nowait('{"type":"response.create"}')
        assert await socket.receive() == '{"type":"response.create"}'
        await socket.send(frame("response.created"))
        socket.end()
        await running
    kinds = [json.loads(sent)["type"] for sent in line.sent[:-1]]
    assert (kinds, line.sent[-1]) == (["session.created", "response.created"], b"1000")
    await socket.send(frame("late"))
    assert len(line.sent) == 3


async def test_a_sideband_connection_that_comes_while_the_call_ends_is_closed() -> None:
    """Its handshake has taken longer than the call."""
    socket, line = RtcSocket(), FakeSocket()
    sideband = Sideband(line)
    socket.end()
    with socket.subscribed(sideband):
        await sideband.run(socket.on_event)
    assert line.sent == [b"1000"]


async def test_a_sideband_connection_that_reads_too_slowly_is_dropped_and_the_call_goes_on() -> None:
    socket, line = RtcSocket(), FakeSocket()
    sideband = Sideband(line)
    with socket.subscribed(sideband):
        for _ in range(MAX_UNSENT + 1):
            await socket.send(frame("x"))
    assert (line.gone, socket.gone) == (True, False)
    await sideband.run(socket.on_event)
