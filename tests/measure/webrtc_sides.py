"""Both sides of `webrtc_network`, each a program in a namespace of its own: the server, and one client.

The user's microphone gives a tone for the first `TONE_MS` of each `PERIOD_MS` of the machine's monotonic clock, which
both sides share: so the server knows when each beginning and end of a tone was spoken.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError
from av.audio.frame import AudioFrame

from tests.measure.tun_link import join_link
from tests.server.rtc_user import rtc_call
from voicepipe.audio.files import read_sound
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.config import load
from voicepipe.session.session import Session
from voicepipe.testing.chromium import chromium
from voicepipe.testing.fakes.cues import LlmCue, TtsCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.wiring import running

SERVER: Final = "10.213.77.1"
CLIENT: Final = "10.213.77.2"
PORT: Final = 8_080

PERIOD_MS: Final = 2_000
TONE_MS: Final = 800
RATE_HZ: Final = 24_000
FRAME_MS: Final = 20
BLOCK_MS: Final = 5
LOUD: Final = 1_500
"""The mean of a block's absolute samples from which it is a tone: half of it is a third as loud as the tone."""

MIN_PAUSE_MS: Final = 400
"""A shorter silence in a tone is lost audio; the pauses have 1200 ms."""

SPEECH: Final = Path(__file__).parents[1] / "data" / "clean" / "LJ001-0004.flac"
"""What the agent says, again and again."""

NO_TURNS: Final = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}


def tone_ms(begin_ms: float, duration_ms: int, rate_hz: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Return what the microphone has recorded from a time of the clock on, int16, mono."""
    at_ms = begin_ms + np.arange(duration_ms * rate_hz // 1_000) * 1_000 / rate_hz
    return np.where(at_ms % PERIOD_MS < TONE_MS, 8_000 * np.sin(2 * np.pi * 0.44 * at_ms), 0).astype(np.int16)


def now_ms() -> float:
    """Return the machine's monotonic clock."""
    return time.monotonic_ns() / 1e6


def say(found: dict[str, Any]) -> None:
    """Print a line of JSON."""
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


# --- the server -----------------------------------------------------------------------------------


class Received:
    """The user's audio as it comes to the session."""

    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.begun_cpu_s = 0.0

    def take(self, message: str | bytes | None) -> None:
        """Take a message of the client."""
        if message is None or b'"input_audio_buffer.append"' not in (raw := _bytes(message))[:120]:
            return
        if not self.pieces:
            self.begun_cpu_s = time.process_time()
        self.pieces.append((now_ms(), base64.b64decode(json.loads(raw)["audio"])))

    def figures(self) -> dict[str, float]:
        """Return what was lost, how late the tones' beginnings and ends came, and the CPU time of the server."""
        duration_s = (self.pieces[-1][0] - self.pieces[0][0]) / 1_000
        cpu = {"cpu_ms_per_s": (time.process_time() - self.begun_cpu_s) * 1_000 / duration_s}
        length = RATE_HZ * BLOCK_MS // 1_000
        samples = np.frombuffer(b"".join(pcm for _, pcm in self.pieces), "<i2").astype(float)
        blocks = np.abs(samples[: len(samples) // length * length]).reshape(-1, length).mean(axis=1) > LOUD
        (loud,) = np.nonzero(blocks)
        gaps = np.flatnonzero(np.diff(loud) > MIN_PAUSE_MS // BLOCK_MS)
        begins, lasts = loud[np.append(0, gaps + 1)][1:-1], loud[np.append(gaps, len(loud) - 1)][1:-1]
        if not len(begins):  # a microphone without pauses
            return cpu
        n_spoken = int((lasts - begins + 1).sum())
        n_loud = sum(int(blocks[begin : last + 1].sum()) for begin, last in zip(begins, lasts, strict=True))
        ends = np.cumsum([len(pcm) // 2 for _, pcm in self.pieces])

        def came_ms(block: int) -> float:
            return self.pieces[int(np.searchsorted(ends, block * length, side="right"))][0]

        late = [came_ms(begin) % PERIOD_MS for begin in begins]
        late += [(came_ms(last + 1) - TONE_MS) % PERIOD_MS for last in lasts]
        half, most = np.quantile(late, (0.5, 0.95))
        audio = {"user_lost": 100 * (1 - n_loud / n_spoken), "user_late_p50_ms": float(half)}
        return audio | {"user_late_p95_ms": float(most)} | cpu


def _bytes(message: str | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.encode()


async def serve(duration_s: int) -> None:
    """Serve until a line comes from stdin; print the key, and then the figures."""
    received, run = Received(), Session.run

    async def run_received(session: Session, client: Any) -> None:
        receive = client.receive

        async def taking() -> str | bytes | None:
            message = await receive()
            received.take(message)
            return message  # type: ignore[no-any-return]

        client.receive = taking
        await run(session, client)

    Session.run = run_received  # type: ignore[assignment, method-assign]
    folder = Path(tempfile.mkdtemp())
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(tokens=tokens("Ask not what your country can do for you."))
        speech = np.resize(read_sound(SPEECH, RATE_HZ), duration_s * RATE_HZ)
        vendor.tts.usual = TtsCue(raw=speech.astype("<i2").tobytes())
        overrides = {
            "server.host": SERVER,
            "server.port": PORT,
            "server.drain_ms": 0,
            "server.data_dir": str(folder),
            "providers.fake.base_url": vendor.base_url,
            **{f"agents.default.{stage}": f"fake/{stage}" for stage in ("stt", "llm", "tts")},
        }
        key = ApiKeys(folder).create("default", now_s=1)
        async with running(load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)):
            say({"key": key.text})
            await asyncio.to_thread(sys.stdin.readline)
            say(received.figures())


# --- the client -----------------------------------------------------------------------------------


class Microphone(AudioStreamTrack):  # type: ignore[misc] # mypy does not read aiortc
    """The tones, as aiortc's own pace has them."""

    async def recv(self) -> AudioFrame:
        """Return the last 20 ms."""
        frame = await super().recv()
        duration_ms = frame.samples * 1_000 // frame.sample_rate
        samples = tone_ms(now_ms() - duration_ms, duration_ms, frame.sample_rate)
        loud = AudioFrame.from_ndarray(samples[np.newaxis], "s16", "mono")
        loud.pts, loud.sample_rate, loud.time_base = frame.pts, frame.sample_rate, frame.time_base
        return loud


class Trips:
    """Round trips of events: `input_audio_buffer.clear` and its answer."""

    def __init__(self) -> None:
        self._sent_ms: list[float] = []
        self.found_ms: list[float] = []

    def sent(self) -> str:
        """Return the next event to send now."""
        self._sent_ms.append(now_ms())
        return json.dumps({"type": "input_audio_buffer.clear"})

    def take(self, kind: str) -> None:
        """Take the type of an event."""
        if kind == "input_audio_buffer.cleared":
            self.found_ms.append(now_ms() - self._sent_ms[len(self.found_ms)])

    def figures(self) -> dict[str, float]:
        """Return the round trips."""
        half, most = np.quantile(self.found_ms, (0.5, 0.95))
        return {"trip_p50_ms": float(half), "trip_p95_ms": float(most)}


def question() -> list[str]:
    """Return the events that have the agent speak."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Speak."}]}
    events: list[dict[str, Any]] = [
        {"type": "session.update", "session": NO_TURNS},
        {"type": "conversation.item.create", "item": item},
        {"type": "response.create"},
    ]
    return [json.dumps(each) for each in events]


class Loudspeaker:
    """A client that plays from the first audio on: how long it has nothing to play in the middle of an answer."""

    def __init__(self) -> None:
        self._begun_ms, self._played_until_ms, self.silent_ms = 0.0, 0.0, 0.0

    def take(self, duration_ms: float) -> None:
        """Take more audio."""
        at_ms = now_ms()
        if not self._begun_ms:
            self._begun_ms = self._played_until_ms = at_ms
        self.silent_ms += max(0.0, at_ms - self._played_until_ms)
        self._played_until_ms = max(self._played_until_ms, at_ms) + duration_ms

    def figures(self) -> dict[str, float]:
        """Return the share that was silence."""
        return {"agent_lost": 100 * self.silent_ms / (self._played_until_ms - self._begun_ms)}


async def call_websocket(http: aiohttp.ClientSession, duration_s: int) -> dict[str, float]:
    """Hold a call over a WebSocket."""
    trips, loudspeaker = Trips(), Loudspeaker()
    async with http.ws_connect(f"http://{SERVER}:{PORT}/v1/realtime", max_msg_size=0) as line:

        async def listen() -> None:
            async for message in line:
                event = json.loads(message.data)
                trips.take(event["type"])
                if event["type"] == "response.output_audio.delta":
                    loudspeaker.take(len(base64.b64decode(event["delta"])) / 2 / RATE_HZ * 1_000)

        async def speak() -> None:
            begun_ms = now_ms()
            for n in range(1, duration_s * 1_000 // FRAME_MS):
                await asyncio.sleep(max(0.0, begun_ms + n * FRAME_MS - now_ms()) / 1_000)
                pcm = tone_ms(now_ms() - FRAME_MS, FRAME_MS, RATE_HZ).astype("<i2").tobytes()
                audio = base64.b64encode(pcm).decode()
                await line.send_str(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
                if n % (1_000 // FRAME_MS) == 0:
                    await line.send_str(trips.sent())

        for event in question():
            await line.send_str(event)
        listening = asyncio.create_task(listen())
        await speak()
        listening.cancel()
    return loudspeaker.figures() | trips.figures()


async def call_webrtc(http: aiohttp.ClientSession, duration_s: int) -> dict[str, float]:
    """Hold a call over WebRTC, with aiortc as the client: its microphone has the machine's clock."""
    trips = Trips()
    async with rtc_call(http, f"http://{SERVER}:{PORT}", microphone=Microphone()) as user:

        async def listen() -> None:
            while True:
                trips.take((await user.events.get())["type"])

        async def play() -> None:
            while True:
                try:
                    await user.track.recv()
                except MediaStreamError:
                    return

        tasks = [asyncio.create_task(each()) for each in (listen, play)]
        for event in question():
            user.channel.send(event)
        for _ in range(duration_s):
            await asyncio.sleep(1)
            user.channel.send(trips.sent())
        for task in tasks:
            task.cancel()
    return trips.figures()


PAGE: Final = """
(async () => {
  const connection = (window.connection = new RTCPeerConnection());
  connection.ontrack = ({ streams: [stream] }) => {
    window.speaker = new Audio();
    window.speaker.srcObject = stream;
    window.speaker.play();
  };
  const context = new AudioContext();
  await context.resume();
  const microphone = context.createMediaStreamDestination();
  const tone = new OscillatorNode(context, { frequency: 440 });
  tone.connect(microphone);
  tone.start();
  connection.addTrack(microphone.stream.getTracks()[0], microphone.stream);
  const channel = connection.createDataChannel("oai-events");
  const opened = new Promise((resolve) => (channel.onopen = resolve));
  window.started = new Promise((resolve) => {
    channel.onmessage = ({ data }) => JSON.parse(data).type === "output_audio_buffer.started" && resolve(true);
  });
  await connection.setLocalDescription(await connection.createOffer());
  const headers = { "Content-Type": "application/sdp", Authorization: "Bearer KEY" };
  const sdp = connection.localDescription.sdp;
  const answer = await fetch("/v1/realtime/calls", { method: "POST", headers, body: sdp });
  await connection.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  await opened;
  for (const event of QUESTION) channel.send(event);
  await window.started;
})()
"""

STATS: Final = """
connection.getStats().then((stats) => [...stats.values()].find((each) => each.type === "inbound-rtp"))
"""


async def call_chromium(key: str, duration_s: int) -> dict[str, float]:
    """Hold a call over WebRTC from Chromium: what it says of the agent's audio."""
    folder = Path(tempfile.mkdtemp())
    async with chromium(folder) as browser, browser.page(f"http://{SERVER}:{PORT}/talk") as page:
        await page.evaluate(PAGE.replace("KEY", key).replace("QUESTION", json.dumps(question())))
        before = await page.evaluate(STATS)
        await asyncio.sleep(duration_s - 5)
        after = await page.evaluate(STATS)
        grown = {name: after[name] - before[name] for name in after if isinstance(after[name], int | float)}
        await page.evaluate("connection.close()")
    return {
        "agent_lost": 100 * grown["concealedSamples"] / grown["totalSamplesReceived"],
        "agent_silent": 100 * grown["silentConcealedSamples"] / grown["totalSamplesReceived"],
        "agent_packets_lost": 100 * grown["packetsLost"] / (grown["packetsLost"] + grown["packetsReceived"]),
        "agent_buffer_ms": 1_000 * grown["jitterBufferDelay"] / grown["jitterBufferEmittedCount"],
    }


async def call(transport: str, key: str, duration_s: int) -> None:
    """Hold a call; print its figures."""
    if transport == "chromium":
        found = await call_chromium(key, duration_s)
    else:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http:
            hold = call_websocket if transport == "websocket" else call_webrtc
            found = await hold(http, duration_s)
    say(found)


def main() -> None:
    """Run a side."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("side", choices=("server", "websocket", "webrtc", "chromium"))
    arguments.add_argument("--link", type=int, required=True, help="the descriptor of the socket to the link")
    arguments.add_argument("--duration", type=int, required=True)
    arguments.add_argument("--key", default="")
    given = arguments.parse_args()
    own, peer = (SERVER, CLIENT) if given.side == "server" else (CLIENT, SERVER)
    join_link(socket.socket(fileno=given.link), own, peer)
    asyncio.run(serve(given.duration) if given.side == "server" else call(given.side, given.key, given.duration))


if __name__ == "__main__":
    main()
