"""openai-agents for Python: an agent, its runner and their session over a WebSocket."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

from tests.clients.turn import Turn, run


def flags(arguments: argparse.ArgumentParser) -> None:
    """Add what this driver knows besides."""
    arguments.add_argument("--tool", action="store_true", help="give the agent a function, which must be called")
    arguments.add_argument("--vad", choices=["server_vad", "semantic_vad"], default="server_vad")
    arguments.add_argument("--barge-in", type=float, metavar="S", help="speak again so long after the first sound")


async def main(turn: Turn, given: argparse.Namespace) -> None:
    """Hold one turn."""
    calls: list[str] = []

    @function_tool
    def get_weather(place: str) -> str:
        """Current weather at a place. Always use it for questions about the weather."""
        calls.append(place)
        return "sunny"

    agent: RealtimeAgent[Any] = RealtimeAgent(name="A", instructions="Be brief.", tools=[get_weather] * given.tool)
    runner = RealtimeRunner(agent, config={"model_settings": settings(given)})  # type: ignore[arg-type]
    url = f"{given.url.replace('http', 'ws', 1)}/realtime?model={given.model}"
    async with await runner.run(model_config={"url": url, "api_key": given.key}) as session:
        call = Call(turn, given, session)
        await turn.until_over(call.listen(), call.talk())
    turn.said = [" ".join(text for role, text in call.history.values() if role == "assistant")]
    turn.more |= {"calls": calls, "interrupted": call.n_interrupted, "history": list(call.history.values())}
    assert any(role == "user" for role, _ in call.history.values()), "no message of the user in the history"
    assert calls or not given.tool, "the function was never called"
    assert call.n_interrupted or not given.barge_in, "the answer was never interrupted"


def settings(given: argparse.Namespace) -> dict[str, Any]:
    """Return the session settings that the agent requests."""
    detection = {"type": given.vad, "create_response": True, "interrupt_response": True}
    audio_input = {"format": "pcm16", "transcription": {"model": "whisper-1"}, "turn_detection": detection}
    audio = {"input": audio_input, "output": {"format": "pcm16"}}
    return {"model_name": given.model, "output_modalities": ["audio"], "audio": audio}


class Call:
    """One session of the package."""

    def __init__(self, turn: Turn, given: argparse.Namespace, session: Any) -> None:
        self.turn, self.given, self.session = turn, given, session
        self.ready = asyncio.Event()
        self.history: dict[str, tuple[str, str]] = {}
        """Item -> (role, text)."""

        self.n_interrupted = 0

    async def talk(self) -> None:
        """Speak, and speak again over the answer if the flags say so."""
        await self.ready.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.turn.speak(self.session.send_audio))
            if self.given.barge_in:
                await self.turn.go_on(self.given.barge_in)

    async def listen(self) -> None:
        """Receive every event of the session."""
        async for event in self.session:
            match event.type:
                case "raw_model_event":
                    self.take(event.data)
                case "audio":
                    self.turn.audio_came(event.audio.data)
                case "audio_interrupted":
                    self.n_interrupted += 1
                case "history_updated" | "history_added":
                    self.remember(event.history if event.type == "history_updated" else [event.item])
                case "error":
                    raise RuntimeError(event.error)

    def take(self, data: Any) -> None:
        """An event of the wire, as the package understands it."""
        match data.type:
            case "raw_server_event":
                self.turn.event(data.data["type"])
                self.of_response(data.data)
            case "turn_started":
                self.turn.response_began()
            case "input_audio_transcription_completed":
                self.turn.transcripts.append(data.transcript)
            case "exception":
                raise RuntimeError(f"{data.context}: {data.exception!r}")

    def of_response(self, event: dict[str, Any]) -> None:
        """Whether the session is set up, and whether the answer is over."""
        if event["type"] == "session.updated":
            self.ready.set()
        elif event["type"] == "input_audio_buffer.speech_started":
            self.turn.user_began()
        elif event["type"] == "response.done":
            response = event["response"]
            self.turn.response_ended(response["status"])
            if any(item["type"] == "function_call" for item in response["output"]):
                self.turn.response_began()  # the package runs the function and requests the words

    def remember(self, items: Any) -> None:
        """Keep the messages of the history."""
        for item in items:
            if item.type == "message":
                parts = (getattr(part, "transcript", None) or getattr(part, "text", None) for part in item.content)
                self.history[item.item_id] = (item.role, " ".join(part for part in parts if part))


run("openai-agents-python", main, flags)
