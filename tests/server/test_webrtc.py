"""Calls over WebRTC, with aiortc as the client on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiortc
import numpy as np
import pybase64
import pytest
from av.audio.frame import AudioFrame

from tests.server.conftest import Serve, Server
from tests.server.rtc_user import CALLS, WAIT_S, RtcUser, Tone, rtc_call
from voicepipe.audio.samples import to_pcm
from voicepipe.session.socket import ClientSocket


@asynccontextmanager
async def calling(server: Server, **how: Any) -> AsyncIterator[RtcUser]:
    async with rtc_call(server.http, server.base, **how) as user:
        yield user
    assert await server.context.live_sessions.left(5_000)


def event(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, "event_id": "event_1", **fields}, separators=(",", ":")).encode()


def hello(**session: object) -> bytes:
    return event("session.created", session={"id": "sess_1", "audio": {"input": {"turn_detection": {}}}, **session})


def delta(pcm: bytes, response_id: str = "resp_1") -> bytes:
    ids = {"response_id": response_id, "item_id": f"item_{response_id}", "output_index": 0, "content_index": 0}
    return event("response.output_audio.delta", **ids, delta=pybase64.b64encode(pcm).decode())


def done(status: str, response_id: str = "resp_1") -> bytes:
    return event("response.done", response={"id": response_id, "status": status})


def tone(duration_s: float) -> bytes:
    samples = 8_000 * np.sin(2 * np.pi * 300 / 24_000 * np.arange(int(24_000 * duration_s)))
    return to_pcm(samples.astype(np.int16))


async def until_end(socket: ClientSocket) -> None:
    while await socket.receive() is not None:
        pass


@pytest.mark.slow
async def test_events_go_over_the_data_channel_and_the_users_audio_comes_over_rtp(serve: Serve) -> None:
    received = bytearray()

    async def talk(socket: ClientSocket) -> None:
        await socket.send(hello())
        while (message := await socket.receive()) is not None:
            got = json.loads(message)
            if got["type"] == "input_audio_buffer.append":
                received.extend(pybase64.b64decode(got["audio"]))
                if len(received) > 48_000:
                    await socket.send(event("enough"))
            else:
                await socket.send(event("echo", of=got))

    async with serve() as server:
        server.talks.append(talk)
        async with calling(server) as user:
            assert (await user.event("session.created"))["session"]["id"] == "sess_1"
            user.send({"type": "response.create"})
            assert (await user.event("echo"))["of"] == {"type": "response.create"}
            await user.event("enough")
        samples = np.frombuffer(bytes(received[-24_000:]), "<i2").astype(float)
        spectrum = np.abs(np.fft.rfft(samples))
        assert abs(np.argmax(spectrum) * 24_000 / len(samples) - 440) < 5
        assert np.abs(samples).max() > 4_000


@pytest.mark.slow
async def test_the_agents_audio_goes_over_rtp_and_its_events_say_when_it_plays(serve: Serve) -> None:
    async def talk(socket: ClientSocket) -> None:
        await socket.send(hello())
        await socket.send(delta(tone(0.2)))
        await socket.send(delta(tone(0.2)))
        await socket.send(done("completed"))
        await until_end(socket)

    async with serve() as server:
        server.talks.append(talk)
        async with calling(server) as user:
            assert len(await user.sound())
            kinds = ["session.created", "response.done", "output_audio_buffer.started", "output_audio_buffer.stopped"]
            events = [await asyncio.wait_for(user.events.get(), WAIT_S) for _ in kinds]
            assert [each["type"] for each in events] == kinds
            assert [each["response_id"] for each in events[2:]] == ["resp_1", "resp_1"]


@pytest.mark.slow
async def test_the_users_voice_stops_the_audio_and_the_server_truncates_what_was_not_played(serve: Serve) -> None:
    truncations: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    go = asyncio.Event()

    async def talk(socket: ClientSocket) -> None:
        await socket.send(hello())
        await socket.send(delta(tone(60)))
        await go.wait()
        await socket.send(event("input_audio_buffer.speech_started"))
        while (message := await socket.receive()) is not None:
            if (got := json.loads(message))["type"] != "input_audio_buffer.append":
                truncations.put_nowait(got)

    async with serve() as server:
        server.talks.append(talk)
        async with calling(server) as user:
            await user.event("output_audio_buffer.started")
            await user.sound()
            go.set()
            assert (await user.event("output_audio_buffer.cleared"))["response_id"] == "resp_1"
            cut = await asyncio.wait_for(truncations.get(), WAIT_S)
            assert (cut["type"], cut["item_id"], cut["content_index"]) == (
                "conversation.item.truncate",
                "item_resp_1",
                0,
            )
            assert 0 < cut["audio_end_ms"] < 60_000


@pytest.mark.slow
async def test_a_backend_follows_a_call_by_its_id_and_hangs_up(serve: Serve) -> None:
    taken: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def talk(socket: ClientSocket) -> None:
        await socket.send(hello())
        while (message := await socket.receive()) is not None:
            if (got := json.loads(message))["type"] != "input_audio_buffer.append":
                taken.put_nowait(got)
                await socket.send(event("echo", of=got["type"]))

    async with serve() as server:
        server.talks.append(talk)
        async with calling(server) as user:
            await user.event("session.created")
            async with server.connect(f"/v1/realtime?call_id={user.call_id}") as line:
                first = await line.receive_json(timeout=WAIT_S)
                assert (first["type"], first["session"]["id"]) == ("session.created", "sess_1")
                await line.send_json({"type": "response.create"})
                assert (await asyncio.wait_for(taken.get(), WAIT_S))["type"] == "response.create"
                assert (await line.receive_json(timeout=WAIT_S))["of"] == "response.create"
                assert (await user.event("echo"))["of"] == "response.create"
                status = (await server.http.post(f"{server.base}{CALLS}/{user.call_id}/hangup")).status
                assert status == 200
                assert (await line.receive(timeout=WAIT_S)).data == 1000
            await asyncio.wait_for(user.closed.wait(), WAIT_S)
            assert (await server.post(f"{CALLS}/{user.call_id}/hangup"))[0] == 404


@pytest.mark.slow
async def test_a_backend_sets_the_session_without_formats(serve: Serve) -> None:
    """Opus is negotiated by SDP: a session that says pcmu would be decoded as noise."""
    session = {"type": "realtime", "model": "support", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}
    async with serve() as server, calling(server, session=session):
        assert server.grants[0].agent == "support"
        assert server.grants[0].config == {"type": "realtime", "model": "support", "audio": {"input": {}}}


def decoded(first_sample: int) -> AudioFrame:
    """20 ms of the user's audio as the decoder gives it."""
    frame = AudioFrame.from_ndarray(np.full((1, 2 * 960), 1_000, np.int16), "s16", "stereo")
    frame.sample_rate, frame.pts = 48_000, first_sample
    return frame


def test_lost_audio_is_silence_and_a_client_that_paused_is_not_waited_for() -> None:
    """What comes later would otherwise seem to have been said earlier."""
    from voicepipe.server.webrtc.peer import MAX_GAP, UserAudio

    def n_samples(*frames: int) -> int:
        audio = UserAudio()
        return sum(len(audio.samples(decoded(first))) for first in frames)

    whole = n_samples(0, 960, 1_920, 2_880)
    assert n_samples(0, 960, 2_880) == whole
    assert n_samples(0, MAX_GAP + 9_600, MAX_GAP + 10_560, MAX_GAP + 11_520) == whole


@pytest.mark.slow
async def test_an_event_that_is_longer_than_the_client_takes_is_left_out(serve: Serve) -> None:
    async def talk(socket: ClientSocket) -> None:
        await socket.send(event("long", text="x" * 100_000))
        await socket.send(hello())
        await until_end(socket)

    async with serve() as server:
        server.talks.append(talk)
        async with calling(server) as user:
            await user.event("session.created")


async def test_a_broken_offer_is_refused_and_leaves_nothing(serve: Serve) -> None:
    async with serve() as server:
        sdp = "v=0\r\nm=audio 9 nonsense\r\nm=application x\r\n"
        async with server.http.post(
            server.base + CALLS, data=sdp, headers={"Content-Type": "application/sdp"}
        ) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["param"] == "sdp"
        assert len(server.context.live_sessions) == 0


async def test_a_client_that_never_connects_loses_its_slot(serve: Serve) -> None:
    async with serve() as server:
        object.__setattr__(server.context.rtc_calls.settings, "connect_ms", 100)
        connection = aiortc.RTCPeerConnection(aiortc.RTCConfiguration([]))
        connection.createDataChannel("oai-events")
        connection.addTrack(Tone())
        await connection.setLocalDescription(await connection.createOffer())
        headers = {"Content-Type": "application/sdp"}
        async with server.http.post(
            server.base + CALLS, data=connection.localDescription.sdp, headers=headers
        ) as answer:
            assert answer.status == 201
        assert await server.context.live_sessions.left(5_000)
        await connection.close()
