"""LiveKit Agents without a LiveKit server, for `tests.measure.load_peers`: an `AgentSession` for each WebSocket, PCM at
24 kHz in binary messages both ways. All sessions share a process, which takes less CPU than the product's process for
each job.

`--mode tuned`: the turn ends with its VAD, after `--silence-ms`. `--mode defaults`: its own choices.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import uvloop
from aiohttp import WSMsgType, web
from livekit import rtc
from livekit.agents import Agent, AgentSession, inference
from livekit.agents.voice import io
from livekit.plugins import deepgram, openai

RATE_HZ = 24_000
HTTP = web.AppKey("http", aiohttp.ClientSession)
OPTIONS = web.AppKey("options", argparse.Namespace)


class Microphone(io.AudioInput):  # type: ignore[misc]
    """The user's audio."""

    def __init__(self) -> None:
        super().__init__(label="ws")
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue(10_000)

    async def __anext__(self) -> Any:
        data = await self.frames.get()
        if data is None:
            raise StopAsyncIteration
        return rtc.AudioFrame(data=data, sample_rate=RATE_HZ, num_channels=1, samples_per_channel=len(data) // 2)


class Loudspeaker(io.AudioOutput):  # type: ignore[misc]
    """The answer's audio, sent as it comes; it counts as played in real time."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        super().__init__(label="ws", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=RATE_HZ)
        self._socket = socket
        self._pushed_s = self._began_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: Any) -> None:
        await super().capture_frame(frame)
        if not self._pushed_s:
            self._began_s = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self._pushed_s += frame.duration
        await self._socket.send_bytes(bytes(frame.data))

    def flush(self) -> None:
        super().flush()
        if self._pushed_s:
            left_s = max(0.0, self._began_s + self._pushed_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left_s, self._finish, False)

    def clear_buffer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._finish(True)

    def _finish(self, interrupted: bool) -> None:
        if self._pushed_s:
            played_s = min(self._pushed_s, time.monotonic() - self._began_s) if interrupted else self._pushed_s
            self._pushed_s, self._timer = 0.0, None
            self.on_playback_finished(playback_position=played_s, interrupted=interrupted)


async def talk(request: web.Request) -> web.WebSocketResponse:
    """Run a session."""
    options, socket = request.app[OPTIONS], web.WebSocketResponse(compress=False)
    await socket.prepare(request)
    url = f"http://{options.providers}/v1"
    settings: dict[str, Any] = {}
    if options.mode == "tuned":
        settings["vad"] = inference.VAD(min_silence_duration=options.silence_ms / 1_000)
        settings["turn_handling"] = {
            "turn_detection": "vad",
            "endpointing": {"min_delay": options.silence_ms / 1_000},
            "preemptive_generation": {"enabled": True},
        }
    session = AgentSession(
        stt=deepgram.STT(api_key="x", base_url=f"{url}/listen", http_session=request.app[HTTP]),
        llm=openai.LLM(model="fake", api_key="x", base_url=url),
        tts=openai.TTS(api_key="x", base_url=url, response_format="pcm"),
        user_away_timeout=None,
        **settings,
    )
    microphone = Microphone()
    session.input.audio, session.output.audio = microphone, Loudspeaker(socket)
    await session.start(Agent(instructions="You are helpful."), record=False)
    try:
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                microphone.frames.put_nowait(message.data)
    finally:
        microphone.frames.put_nowait(None)
        await session.aclose()
    return socket


async def with_http(app: web.Application) -> AsyncIterator[None]:
    """Hold the connections to the providers."""
    app[HTTP] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    yield
    await app[HTTP].close()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--providers", required=True, metavar="HOST:PORT")
    parser.add_argument("--mode", choices=("tuned", "defaults"), required=True)
    parser.add_argument("--silence-ms", type=int, default=200)
    app = web.Application()
    app[OPTIONS] = options = parser.parse_args()
    app.cleanup_ctx.append(with_http)
    app.add_routes([web.get("/ws", talk)])
    web.run_app(app, host="127.0.0.1", port=options.port, access_log=None, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main()
