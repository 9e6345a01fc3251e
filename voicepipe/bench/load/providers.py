"""Providers with delays known to the millisecond, in a separate process, for measuring the server alone.

`python -m voicepipe.bench.load.providers` prints its address and serves Deepgram's `/v1/listen` and OpenAI's
transcriptions, chat completions and speech until it is ended. The recognised text is counted up, the answer is always
the same, the TTS sends a tone: all time beyond these delays is the server's. Offered tools are called.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import numpy as np
from aiohttp import WSMsgType, web

from voicepipe import clock
from voicepipe.audio.encoding import AudioEncoding, FormatName
from voicepipe.bench.load.fast_loop import run_fast
from voicepipe.bench.load.stt_stream import DeepgramStream

ANSWER: Final = (
    "Sure number {n} is easy to find. It stands by the river behind the old bridge. The door is open until nine. "
    "Shall I tell you how to get there?"
)
"""The first clause ends with the seventh token, at the full stop."""

ENCODINGS: Final[dict[str, FormatName]] = {"linear16": "audio/pcm", "mulaw": "audio/pcmu", "alaw": "audio/pcma"}
"""Deepgram's names of encodings."""

N_FIRST_CLAUSE: Final = 7
"""Words up to the first full stop."""

RATE_HZ: Final = 24_000
MS_PER_CHAR: Final = 30
CHUNK_BYTES: Final = RATE_HZ * 2 // 5
"""200 ms of sound a write."""

MAX_MS: Final = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """The delay of each stage, in ms."""

    stt_ms: int = 50
    """From the last voiced sample, or from a request to finalize, to the final text."""

    llm_ms: int = 200
    """To the first token."""

    token_ms: int = 10
    """From one token to the next."""

    tts_ms: int = 80
    """To the first byte of audio."""

    tts_speed: int = 20
    """Speed of the TTS as a multiple of real time."""

    def minimum_ms(self, silence_ms: int) -> int:
        """Return the minimum latency from the last voiced sample, with this silence and replies started at the final
        text: the first clause must be synthesized, and the turn be over."""
        clause_ms = self.stt_ms + self.llm_ms + (N_FIRST_CLAUSE - 1) * self.token_ms
        return max(silence_ms, clause_ms) + self.tts_ms


@dataclass(frozen=True, slots=True)
class Shared:
    """State shared by all requests."""

    delays: Delays
    numbers: Iterator[int]
    """Increased with each utterance."""


SHARED: Final = web.AppKey("shared", Shared)


def providers(delays: Delays) -> web.Application:
    """Return the application that serves all providers."""
    app = web.Application(client_max_size=64 << 20)
    app[SHARED] = Shared(delays, itertools.count(1))
    app.add_routes(
        [
            web.get("/v1/listen", _listen),
            web.post("/v1/audio/transcriptions", _transcribe),
            web.post("/v1/chat/completions", _chat),
            web.post("/v1/audio/speech", _speak),
            web.get("/v1/models", _models),
        ]
    )
    return app


async def _listen(request: web.Request) -> web.WebSocketResponse:
    websocket = web.WebSocketResponse(max_msg_size=0, compress=False)
    await websocket.prepare(request)
    hold_ms = max(request.app[SHARED].delays.stt_ms, _endpointing_ms(request.query.get("endpointing", "10")))
    encoding = AudioEncoding(int(request.query["sample_rate"]), ENCODINGS[request.query["encoding"]])
    punctuate = request.query.get("punctuate") == "true"
    stream = DeepgramStream(
        websocket.send_str, encoding, request.app[SHARED].numbers, hold_ms=hold_ms, punctuate=punctuate
    )
    stream.finalize_ms = request.app[SHARED].delays.stt_ms
    async with asyncio.TaskGroup() as group:
        speaking = group.create_task(stream.send_finals(), name="finals")
        async for message in websocket:
            if message.type is WSMsgType.BINARY:
                await stream.receive(message.data)
            elif message.type is WSMsgType.TEXT:
                stream.control(json.loads(message.data)["type"])
        speaking.cancel()
    return websocket


def _endpointing_ms(value: str) -> int:
    """Parse the endpointing. Deepgram's default is 10 ms; `false` leaves the end of speech to the client."""
    return int(value) if value.isdecimal() else 10 if value == "true" else MAX_MS


async def _transcribe(request: web.Request) -> web.Response:
    await request.read()
    await asyncio.sleep(request.app[SHARED].delays.stt_ms / 1_000)
    return web.json_response({"text": f"where is number {next(request.app[SHARED].numbers)}"})


async def _chat(request: web.Request) -> web.StreamResponse:
    requested_at_ms, delays = clock.monotonic_ms(), request.app[SHARED].delays
    request_body: dict[str, Any] = await request.json()
    deltas = [_call(request_body)] if _calls(request_body) else list(_text_deltas(request_body))
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for n, delta in enumerate(deltas):
        await until(requested_at_ms + delays.llm_ms + n * delays.token_ms)
        await answer.write(_chunk({"role": "assistant", **delta}))
    usage = {"prompt_tokens": 20, "completion_tokens": len(deltas), "total_tokens": 20 + len(deltas)}
    await answer.write(_chunk({}, finish="tool_calls" if _calls(request_body) else "stop"))
    await answer.write(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
    return answer


def _calls(request_body: dict[str, Any]) -> bool:
    """Return whether a tool may be called, and the last item is no tool result."""
    may = bool(request_body.get("tools")) and request_body.get("tool_choice") != "none"
    return may and request_body["messages"][-1]["role"] != "tool"


def _call(request_body: dict[str, Any]) -> dict[str, Any]:
    """Return a call of the first tool."""
    function = {"name": request_body["tools"][0]["function"]["name"], "arguments": "{}"}
    return {"tool_calls": [{"index": 0, "id": f"call_{uuid4().hex}", "type": "function", "function": function}]}


def _text_deltas(request_body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the answer, a word at a time."""
    for n, word in enumerate(ANSWER.format(n=_number(request_body)).split(" ")):
        yield {"content": word if n == 0 else f" {word}"}


def _number(request_body: dict[str, Any]) -> str:
    """Return the latest number in the user's messages."""
    found = re.findall(r"number (\d+)", json.dumps(request_body["messages"]))
    return found[-1] if found else "0"


def _chunk(delta: dict[str, Any], *, finish: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _event(fields: dict[str, Any]) -> bytes:
    known = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
    return b"data: " + json.dumps(known | fields).encode() + b"\n\n"


TONE: Final = (8_000 * np.sin(2 * np.pi * 220 * np.arange(RATE_HZ * MAX_MS // 1_000) / RATE_HZ)).astype("<i2")
"""At -15 dBFS, as loud as well-levelled speech."""


async def _speak(request: web.Request) -> web.StreamResponse:
    requested_at_ms, delays = clock.monotonic_ms(), request.app[SHARED].delays
    text = str((await request.json())["input"]).strip()
    sound = memoryview(TONE.tobytes())[: 2 * min(len(text) * MS_PER_CHAR, MAX_MS) * RATE_HZ // 1_000]
    answer = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
    await answer.prepare(request)
    for n, first in enumerate(range(0, len(sound), CHUNK_BYTES)):
        await until(requested_at_ms + delays.tts_ms + n * 200 // delays.tts_speed)
        await answer.write(bytes(sound[first : first + CHUNK_BYTES]))
    return answer


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": []})


async def until(due_ms: int) -> None:
    """Wait until an instant of the monotonic clock."""
    await asyncio.sleep(max(0, due_ms - clock.monotonic_ms()) / 1_000)


async def serve(port: int, delays: Delays) -> None:
    """Serve on loopback until the process is terminated; the first line printed is the address."""
    runner = web.AppRunner(providers(delays), handler_cancellation=True, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    sys.stdout.write(f"http://127.0.0.1:{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    stopping = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)
    await stopping.wait()
    await runner.cleanup()


def main(arguments: list[str] | None = None) -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="python -m voicepipe.bench.load.providers", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (0)")
    for name in ("stt_ms", "llm_ms", "token_ms", "tts_ms", "tts_speed"):
        usual = getattr(Delays(), name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=usual, help=f"({usual})")
    options = vars(parser.parse_args(arguments))
    run_fast(serve(options.pop("port"), Delays(**options)))


if __name__ == "__main__":
    main()
