"""The openai package for Python: its Realtime client as it is, the one of the beta, and the one for Azure."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from typing import Any

from openai import AsyncAzureOpenAI, AsyncOpenAI

from tests.clients.turn import Turn, run
from voicepipe.testing.strict_events import problems

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather at a place. Always use it for questions about the weather.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}
PCM = {"type": "audio/pcm", "rate": 24_000}
SILENCE_MS = 1_000
"""Longer than this program may be held on a busy machine in the middle of the question: missing frames are silence."""

OLDER_NAMES = {
    "response.audio.delta": "response.output_audio.delta",
    "response.audio_transcript.delta": "response.output_audio_transcript.delta",
}


def flags(arguments: argparse.ArgumentParser) -> None:
    """Add what this driver knows besides."""
    arguments.add_argument("--vad", choices=["server_vad", "semantic_vad", "none"], default="server_vad")
    arguments.add_argument("--tool", action="store_true", help="offer a function, answer its call")
    arguments.add_argument("--mint", action="store_true", help="come with a client secret")
    arguments.add_argument("--strict", action="store_true", help="hold every event to the package's own types")
    arguments.add_argument("--go-on", type=float, metavar="S", help="speak again so long after the first sound")
    arguments.add_argument("--flavour", choices=["ga", "beta", "azure"], default="ga")


def session_settings(given: argparse.Namespace) -> dict[str, Any]:
    """Return the requested session settings, in the shape that the flavour speaks."""
    detection = None if given.vad == "none" else {"type": given.vad}
    if detection == {"type": "server_vad"}:
        detection["silence_duration_ms"] = SILENCE_MS
    tools = {"tools": [TOOL], "tool_choice": "auto"} if given.tool else {}
    if given.flavour == "beta":
        flat = {"modalities": ["text", "audio"], "input_audio_transcription": {"model": "whisper-1"}}
        return {"instructions": "Be brief.", "turn_detection": detection, **flat, **tools}
    audio_input = {"format": PCM, "transcription": {"model": "whisper-1"}, "turn_detection": detection}
    audio = {"input": audio_input, "output": {"format": PCM}}
    return {"type": "realtime", "output_modalities": ["audio"], "instructions": "Be brief.", "audio": audio, **tools}


def client_for(given: argparse.Namespace) -> AsyncOpenAI:
    """The package's client, pointed at the server."""
    if given.flavour == "azure":
        host = given.url.removesuffix("/v1")
        return AsyncAzureOpenAI(
            azure_endpoint=host,
            websocket_base_url=f"{host.replace('http', 'ws', 1)}/openai",
            azure_deployment=given.model,
            api_version="2025-08-28",
            api_key=given.key,
        )
    sockets = given.url.replace("http", "ws", 1)
    return AsyncOpenAI(base_url=given.url, websocket_base_url=sockets, api_key=given.key, max_retries=0)


async def main(turn: Turn, given: argparse.Namespace) -> None:
    """Hold one turn."""
    client, session = client_for(given), session_settings(given)
    if given.mint:
        minted = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 60},
            session=session,  # type: ignore[arg-type]
        )
        assert minted.session.type == "realtime"
        turn.more["minted"] = minted.value[:3]
        given.key = minted.value
        client = client_for(given)
    api: Any = client.realtime if given.flavour == "ga" else client.beta.realtime
    async with api.connect(model=given.model) as line:
        call = Call(turn, given, line)
        await turn.until_over(call.listen(session), call.talk())
    if given.tool:
        assert "call" in turn.more, "the function was never called"


class Call:
    """One connection of the package's client."""

    def __init__(self, turn: Turn, given: argparse.Namespace, line: Any) -> None:
        self.turn, self.given, self.line = turn, given, line
        self.ready = asyncio.Event()
        self.committed = False

    async def talk(self) -> None:
        """Speak, and speak again over the answer if the flags say so; without turn detection say when that is over."""
        await self.ready.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.turn.speak(self.send))
            if self.given.go_on is not None:
                group.create_task(self.turn.go_on(self.given.go_on))

    async def send(self, pcm: bytes) -> None:
        """Pass on a piece of the microphone."""
        await self.line.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())
        if self.given.vad == "none" and self.turn.spoken.is_set() and not self.committed:
            self.committed = True
            await self.line.input_audio_buffer.commit()
            await self.line.response.create()

    async def listen(self, session: dict[str, Any]) -> None:
        """Take every event as the package reads it."""
        await self.line.session.update(session=session)
        while True:
            raw = await self.line.recv_bytes()
            self.check(json.loads(raw))
            event = self.line.parse_event(raw)
            self.turn.event(event.type)
            await self.take(event)

    def check(self, event: dict[str, Any]) -> None:
        """Check an event against the published types, if the flags say so."""
        if self.given.strict:
            faults = problems(event, dialect="ga" if self.given.flavour == "ga" else "beta")
            assert faults == [], f"{event['type']}: {faults}"

    async def take(self, event: Any) -> None:
        """Act on an event as an application would."""
        match OLDER_NAMES.get(event.type, event.type):
            case "session.updated":
                self.ready.set()
            case "conversation.item.input_audio_transcription.completed":
                self.turn.transcripts.append(event.transcript)
            case "response.created":
                self.turn.response_began()
            case "response.output_audio.delta":
                self.turn.audio_came(base64.b64decode(event.delta))
            case "input_audio_buffer.speech_started":
                self.turn.user_began()
            case "response.output_audio_transcript.delta":
                self.turn.said.append(event.delta)
            case "response.done":
                await self.answered(event.response)
            case "error":
                raise RuntimeError(event.error)

    async def answered(self, response: Any) -> None:
        """A response is over: run what it calls, and ask for the words."""
        calls = [item for item in response.output if item.type == "function_call"]
        self.turn.response_ended(response.status)
        for call in calls:
            self.turn.more["call"] = {"name": call.name, "arguments": json.loads(call.arguments)}
            output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "sunny"}'}
            await self.line.conversation.item.create(item=output)
        if calls:
            self.turn.response_began()
            await self.line.response.create()


run("openai-python", main, flags)
