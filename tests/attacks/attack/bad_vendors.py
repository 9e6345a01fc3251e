"""Providers that misbehave, chosen by the requested model's name: a language model, a TTS, a transcriber.

They speak OpenAI's protocol on a real socket. `CHATS`, `VOICES` and `TRANSCRIBERS` list all faults.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiohttp import web

TONE = b"\x00\x10\x00\xf0" * 12_000
"""A second at 24 kHz that is no silence."""

END = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
ACCOUNT = "organization org-acme-7731"
"""Words about our account: clients never see them."""

PROVIDER_KEY = "sk-secret0123456789abcdefghij"
REFUSAL = {"error": {"message": f"Rate limit reached for {ACCOUNT} on tokens per min. Key {PROVIDER_KEY}"}}

PACE_S = 0.05
"""Between two pieces of what never ends."""

Behaviour = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


def delta(text: str | None = None, **more: Any) -> bytes:
    """One server-sent event with a piece of text."""
    fields = ({"content": text} if text is not None else {}) | more
    return b"data: " + json.dumps({"id": "x", "choices": [{"index": 0, "delta": fields}]}).encode() + b"\n\n"


def says(*pieces: bytes) -> Behaviour:
    """Send these pieces and end."""

    async def behave(request: web.Request, answer: web.StreamResponse) -> None:
        for piece in pieces:
            await answer.write(piece)

    return behave


def repeats(*pieces: bytes, pace_s: float = PACE_S) -> Behaviour:
    """Send the first pieces once and the last one for ever."""
    *first, again = pieces

    async def behave(request: web.Request, answer: web.StreamResponse) -> None:
        await says(*first)(request, answer)
        while True:
            await answer.write(again)
            await asyncio.sleep(pace_s)

    return behave


def stalls(*pieces: bytes) -> Behaviour:
    """Send these pieces and then nothing, without an end."""

    async def behave(request: web.Request, answer: web.StreamResponse) -> None:
        await says(*pieces)(request, answer)
        await asyncio.Event().wait()

    return behave


def cuts(*pieces: bytes) -> Behaviour:
    """Send these pieces and break the connection."""

    async def behave(request: web.Request, answer: web.StreamResponse) -> None:
        await says(*pieces)(request, answer)
        assert request.transport is not None
        request.transport.abort()

    return behave


def _call(arguments: str) -> dict[str, Any]:
    return {
        "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    }


def _usage(n_input: int, n_output: int) -> bytes:
    usage = {"prompt_tokens": n_input, "completion_tokens": n_output}
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


_MB = b"x" * (1 << 20)

CHATS: dict[str, Behaviour] = {
    "for-ever": repeats(delta("and so on, ") * 50),
    "keep-alives-only": repeats(b": keep\n\n"),
    "empty-deltas-only": repeats(delta("")),
    "no-first-token": stalls(),
    "half-a-sentence": stalls(delta("Well, let me think. I would say ")),
    "cut": cuts(delta("Well, let me think. I would say ")),
    "line-without-end": repeats(b"data: ", _MB),
    "one-huge-delta": says(delta("word " * (1 << 20)), END),
    "no-space": says(delta("x" * (1 << 20)), END),
    "arguments-without-end": repeats(delta(**_call("")), delta(**_call("x" * 100_000))),
    "huge-arguments": says(delta(**_call('{"a":"' + "x" * (4 << 20) + '"}')), END),
    "negative-usage": says(delta("Hello."), _usage(-5_000_000, -5_000_000), END),
    "huge-usage": says(delta("Hello."), _usage(99_999_999_999_999_999_999, 10**30), END),
    "garbage": says(b"data: {]\n\n", END),
    "deep": says(b'data: {"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n", END),
    "nothing": says(END),
    "lone-surrogate": says(b'data: {"choices":[{"index":0,"delta":{"content":"Hello \\ud800 there."}}]}\n\n', END),
}
"""Language models by name; `our-account` and `hangs` come in `_chat`."""

VOICES: dict[str, Behaviour] = {
    "voice-for-ever": repeats(TONE, pace_s=0.0),
    "voice-drips": repeats(TONE[:48], pace_s=0.3),
    "voice-stalls": stalls(TONE[:9_600]),
    "voice-no-first-byte": stalls(),
    "voice-cut": cuts(TONE[:9_600]),
    "voice-odd-bytes": says(TONE[:9_601]),
    "voice-empty": says(),
    "voice-silence": says(*[bytes(48_000)] * 300),
}

OTHER_CHATS = ("our-account", "hangs")
SLOW = frozenset({"for-ever", "keep-alives-only", "empty-deltas-only", "no-first-token", "half-a-sentence", "hangs"})


async def _chat(request: web.Request) -> web.StreamResponse:
    model = (await request.json())["model"]
    if model == "our-account":
        return web.json_response(REFUSAL, status=429)
    if model == "hangs":
        await asyncio.Event().wait()
    return await _behave(request, CHATS[model], "text/event-stream")


async def _speech(request: web.Request) -> web.StreamResponse:
    return await _behave(request, VOICES[(await request.json())["model"]], "audio/pcm")


async def _behave(request: web.Request, behaviour: Behaviour, content_type: str) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": content_type})
    await answer.prepare(request)
    with suppress(ConnectionError):  # the client has closed the connection
        await behaviour(request, answer)
    return answer


def app() -> web.Application:
    """The provider, as an app."""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", _chat)
    app.router.add_post("/v1/audio/speech", _speech)
    return app


def agents() -> str:
    """An agent for each behaviour, in TOML, called as it is."""
    parts = [
        f'[agents.{name}]\nstt = "fake/stt"\nllm = "bad/{name}"\ntts = "fake/tts"' for name in (*CHATS, *OTHER_CHATS)
    ]
    parts += [f'[agents.{name}]\nstt = "fake/stt"\nllm = "fake/llm"\ntts = "bad/{name}"' for name in VOICES]
    return "\n".join(parts)
