"""A client over WebRTC by aiortc: what it sends and gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import aiortc
import numpy as np
from aiortc.mediastreams import AudioStreamTrack
from av.audio.frame import AudioFrame

WAIT_S = 15.0

CALLS = "/v1/realtime/calls"


class Tone(AudioStreamTrack):  # type: ignore[misc] # mypy does not read aiortc
    """A microphone in front of a tone of 440 Hz."""

    async def recv(self) -> AudioFrame:
        frame = await super().recv()
        samples = 8_000 * np.sin(2 * np.pi * 440 / 8_000 * (frame.pts + np.arange(frame.samples)))
        loud = AudioFrame.from_ndarray(samples.astype(np.int16)[np.newaxis], "s16", "mono")
        loud.pts, loud.sample_rate, loud.time_base = frame.pts, frame.sample_rate, frame.time_base
        return loud


@dataclass
class RtcUser:
    """A client: what it sent and got."""

    connection: Any
    channel: Any
    events: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    call_id: str = ""
    track: Any = None

    async def event(self, kind: str) -> dict[str, Any]:
        """The next event of that type; those before it are dropped."""
        while True:
            event = await asyncio.wait_for(self.events.get(), WAIT_S)
            if event["type"] == kind:
                return event

    async def sound(self) -> np.ndarray[Any, Any]:
        """The next 20 ms of the agent's audio that are not silent."""
        while True:
            frame = await asyncio.wait_for(self.track.recv(), WAIT_S)
            samples: np.ndarray[Any, Any] = frame.to_ndarray()
            if np.abs(samples).max() > 500:
                return samples

    def send(self, event: dict[str, Any]) -> None:
        self.channel.send(json.dumps(event))


def form(sdp: str, session: dict[str, Any]) -> aiohttp.FormData:
    fields = aiohttp.FormData()
    fields.add_field("sdp", sdp, content_type="application/sdp")
    fields.add_field("session", json.dumps(session), content_type="application/json")
    return fields


@asynccontextmanager
async def rtc_call(
    http: aiohttp.ClientSession,
    base_url: str,
    *,
    session: dict[str, Any] | None = None,
    query: str = "",
    microphone: Any = None,
) -> AsyncIterator[RtcUser]:
    """Hold a call while the block runs; it begins once events can flow."""
    connection = aiortc.RTCPeerConnection(aiortc.RTCConfiguration([]))
    user = RtcUser(connection, connection.createDataChannel("oai-events"))
    is_open = asyncio.Event()
    user.channel.on("open", is_open.set)
    user.channel.on("message", lambda text: user.events.put_nowait(json.loads(text)))
    connection.on("track", lambda track: setattr(user, "track", track))
    connection.on(
        "connectionstatechange", lambda: user.closed.set() if connection.connectionState == "closed" else None
    )
    connection.addTrack(microphone or Tone())
    await connection.setLocalDescription(await connection.createOffer())
    offer = connection.localDescription.sdp
    body: Any = {"data": offer, "headers": {"Content-Type": "application/sdp"}}
    if session is not None:
        body = {"data": form(offer, session)}
    try:
        async with http.post(f"{base_url}{CALLS}{query}", **body) as answer:
            assert answer.status == 201, await answer.text()
            assert answer.content_type == "application/sdp"
            user.call_id = answer.headers["Location"].removeprefix(f"{CALLS}/")
            await connection.setRemoteDescription(aiortc.RTCSessionDescription(await answer.text(), "answer"))
        await asyncio.wait_for(is_open.wait(), WAIT_S)
        yield user
    finally:
        await connection.close()
