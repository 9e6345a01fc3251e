"""litellm: chat, speech and transcription by vendors' model names, its Realtime proxy, and a wrong key.

All ways go in one process, since litellm takes 6 s of CPU to import.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import wave
from pathlib import Path
from typing import Any

import litellm

CHUNK_BYTES = 9_600
MODEL = "openai/gpt-4o"
REALTIME_MODEL = "openai/gpt-realtime"


class Client:
    """A client of litellm's proxy: what it says, and what it gets."""

    def __init__(self, pcm: bytes) -> None:
        self.headers: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        self._to_send = [{"type": "session.update", "session": SESSION}, *appends(pcm)]
        self._to_send.append(
            {"type": "input_audio_buffer.commit"}
        )  # litellm requests the answer to a transcript itself
        self._over = asyncio.Event()

    async def receive_text(self) -> str:
        """Return the next event for the server; wait for the answer's end after the last."""
        if not self._to_send:
            await self._over.wait()
            raise EOFError("the client hangs up")
        return json.dumps(self._to_send.pop(0))

    async def send_text(self, frame: str) -> None:
        """Take an event of the server."""
        event = json.loads(frame)
        self.events.append(event)
        if event["type"] in ("response.done", "error"):
            self._over.set()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Be hung up on."""
        self.events.append({"type": "close", "code": code, "reason": reason})
        self._over.set()


PCM = {"type": "audio/pcm", "rate": 24_000}
SESSION = {
    "type": "realtime",
    "audio": {"input": {"format": PCM, "transcription": {"model": "whisper-1"}, "turn_detection": None}},
}


def appends(pcm: bytes) -> list[dict[str, Any]]:
    """Return the events that send a recording."""
    pieces = (pcm[at : at + CHUNK_BYTES] for at in range(0, len(pcm), CHUNK_BYTES))
    return [{"type": "input_audio_buffer.append", "audio": base64.b64encode(piece).decode()} for piece in pieces]


async def chat(given: argparse.Namespace, where: dict[str, Any]) -> dict[str, Any]:
    """Ask each model as a whole, and as a stream."""
    question = [{"role": "user", "content": "What time is it?"}]
    said: dict[str, Any] = {}
    for model in given.models.split(","):
        whole = await litellm.acompletion(model=model, messages=question, **where)
        pieces = await litellm.acompletion(model=model, messages=question, stream=True, **where)
        streamed = [piece.choices[0].delta.content async for piece in pieces]
        said[model] = [whole.choices[0].message.content, "".join(filter(None, streamed))]
    return {"said": said}


async def tool(given: argparse.Namespace, where: dict[str, Any]) -> dict[str, Any]:
    """Offer a function, and answer its call."""
    question: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    place = {"type": "object", "properties": {"place": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": place}}]
    first = await litellm.acompletion(model=MODEL, messages=question, tools=tools, **where)
    (call,) = first.choices[0].message.tool_calls
    output = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [*question, first.choices[0].message, output]
    second = await litellm.acompletion(model=MODEL, messages=messages, tools=tools, **where)
    called = [call.function.name, json.loads(call.function.arguments)]
    return {"call": called, "said": second.choices[0].message.content}


async def audio(given: argparse.Namespace, where: dict[str, Any]) -> dict[str, Any]:
    """Have a text spoken, and a recording transcribed."""
    speech = await litellm.aspeech(
        model="openai/tts-1", voice="alloy", input="It is sunny.", response_format="wav", **where
    )
    with given.recording.open("rb") as recording:
        text = await litellm.atranscription(model="openai/whisper-1", file=recording, **where)
    with given.recording.open("rb") as recording:
        verbose = await litellm.atranscription(
            model="openai/whisper-1", file=recording, response_format="verbose_json", **where
        )
    return {"wav": speech.content[:4].decode(), "text": text.text, "language": verbose["language"]}


async def realtime(given: argparse.Namespace, where: dict[str, Any]) -> dict[str, Any]:
    """Hold a turn through the Realtime part of litellm's proxy."""
    with wave.open(str(given.recording)) as recording:
        client = Client(recording.readframes(recording.getnframes()))
    await litellm._arealtime(model=REALTIME_MODEL, websocket=client, **where)
    kinds = [event["type"] for event in client.events]
    said = [event["transcript"] for event in client.events if event["type"] == "response.output_audio_transcript.done"]
    closed = [event for event in client.events if event["type"] in ("close", "error")]
    return {"kinds": sorted(set(kinds)), "said": " ".join(said), "closed": closed}


async def wrong_key(given: argparse.Namespace, where: dict[str, Any]) -> dict[str, Any]:
    """Come with a key that the server does not know, and name what litellm makes of it."""
    found: dict[str, Any] = {}
    question = [{"role": "user", "content": "What time is it?"}]
    try:
        await litellm.acompletion(model=MODEL, messages=question, **where)
    except Exception as refused:
        found["chat"] = type(refused).__name__
    try:
        await litellm.aspeech(model="openai/tts-1", voice="alloy", input="It is sunny.", **where)
    except Exception as refused:
        found["speech"] = type(refused).__name__
    return found


WAYS = {"chat": chat, "tool": tool, "audio": audio, "realtime": realtime, "wrong-key": wrong_key}


async def go(given: argparse.Namespace) -> dict[str, Any]:
    """Go all ways, one after the other; return each one's result, or its error."""
    results: dict[str, Any] = {}
    for name, way in WAYS.items():
        where: dict[str, Any] = {"api_base": given.url, "api_key": "any"}
        if way is wrong_key:
            where = {"api_base": given.guarded_url, "api_key": "sk-wrong"}
        if way is not realtime:
            where["max_retries"] = 0
        try:
            results[name] = {"error": None, **await way(given, where)}
        except Exception as problem:
            results[name] = {"error": f"{type(problem).__name__}: {problem}"}
    return results


def main() -> None:
    """Go all ways, and print what came of each."""
    arguments = argparse.ArgumentParser(description="litellm against a server")
    arguments.add_argument("--url", required=True, help="the base, http://HOST:PORT/v1")
    arguments.add_argument("--guarded-url", required=True, help="the base of a server with API keys")
    arguments.add_argument("--recording", required=True, type=Path)
    arguments.add_argument("--models", required=True, help="models for chat, with commas between")
    result = {"error": None, "ways": asyncio.run(go(arguments.parse_args()))}
    sys.stdout.write(json.dumps(result) + "\n")


main()
