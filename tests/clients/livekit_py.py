"""livekit: the Realtime model of its plugin for OpenAI, in a session without a room."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import llm
from livekit.plugins import openai
from openai.types.realtime.realtime_audio_input_turn_detection import ServerVad

from tests.clients.turn import RATE_HZ, Turn, run


def flags(arguments: argparse.ArgumentParser) -> None:
    """Add what this driver knows besides."""
    arguments.add_argument("--tool", action="store_true", help="offer a function, answer its call")
    arguments.add_argument("--go-on", type=float, metavar="S", help="speak again so long after the first sound")


@llm.function_tool  # type: ignore[untyped-decorator]
async def get_weather(place: str) -> str:
    """Current weather at a place. Always use it for questions about the weather."""
    return "sunny"


async def main(turn: Turn, given: argparse.Namespace) -> None:
    """Hold one turn."""
    async with aiohttp.ClientSession() as http:
        # A busy machine sends frames up to half a second late, and missing frames are a silence.
        detection = ServerVad(type="server_vad", silence_duration_ms=1_000)
        model = openai.realtime.RealtimeModel(
            model=given.model, base_url=given.url, api_key=given.key, http_session=http, turn_detection=detection
        )
        session = model.session()
        call = Call(turn, session)
        await session.update_instructions("Be brief.")
        if given.tool:
            await session.update_tools([get_weather])

        async def send(pcm: bytes) -> None:
            session.push_audio(rtc.AudioFrame(pcm, RATE_HZ, 1, len(pcm) // 2))

        async def talk() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(turn.speak(send))
                if given.go_on is not None:
                    group.create_task(turn.go_on(given.go_on))

        await turn.until_over(call.listen(), talk())
        turn.more |= {"calls": call.calls, "interrupted": call.n_interrupted}
        turn.more["history"] = [[item.role, item.text_content] for item in session.chat_ctx.messages()]
        assert call.calls or not given.tool, "the function was never called"


class Call:
    """One session of the plugin."""

    def __init__(self, turn: Turn, session: Any) -> None:
        self.turn, self.session = turn, session
        self.calls: list[list[str]] = []
        self.n_interrupted = 0
        self._statuses: dict[str, str] = {}
        self._generations: asyncio.Queue[Any] = asyncio.Queue()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.on("generation_created", self._generations.put_nowait)
        session.on("input_speech_started", self.user_began)
        session.on("input_audio_transcription_completed", self.understood)
        session.on("openai_server_event_received", self.event)
        session.on("error", lambda event: self._failed.set_exception(event.error))

    async def listen(self) -> None:
        """Take every answer, each beside the next."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fail())
            while True:
                group.create_task(self.take(await self._generations.get()))

    async def _fail(self) -> None:
        await self._failed

    def event(self, event: dict[str, Any]) -> None:
        """An event of the wire."""
        self.turn.event(event["type"])
        if event["type"] == "response.created":
            self.turn.response_began()
        elif event["type"] == "response.done":
            self._statuses[event["response"]["id"]] = event["response"]["status"]

    def user_began(self, _: Any) -> None:
        """The server has recognised the user's voice: what plays is stopped, as a session of its agents does."""
        self.turn.user_began()
        if self.session.has_active_generation:
            self.session.interrupt()
            self.n_interrupted += 1

    def understood(self, event: Any) -> None:
        """What the user said."""
        if event.is_final:
            self.turn.transcripts.append(event.transcript)

    async def take(self, generation: Any) -> None:
        """Play an answer, and run the functions that it calls."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.run_functions(generation.function_stream))
            async for message in generation.message_stream:
                group.create_task(self.play(message))
        self.turn.response_ended(self._statuses[generation.response_id])  # the plugin ends the streams at that event

    async def play(self, message: Any) -> None:
        """Take the words and the sound of a message."""
        async for frame in message.audio_stream:
            self.turn.audio_came(bytes(frame.data))
        async for piece in message.text_stream:
            self.turn.said.append(piece)

    async def run_functions(self, calls: Any) -> None:
        """Answer the calls, and request the words."""
        async for call in calls:
            self.calls.append([call.name, call.arguments])
            context = self.session.chat_ctx.copy()
            output = llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="sunny", is_error=False)
            context.items.append(output)
            await self.session.update_chat_ctx(context)
            await self.session.generate_reply()


run("livekit", main, flags)
