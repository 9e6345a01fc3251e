"""pipecat: its service for the Realtime API in a pipeline, with the pair of aggregators that keeps the conversation."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMRunFrame,
    LLMTextFrame,
    ProposedUserStartedSpeakingFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.events import (
    AudioConfiguration,
    AudioInput,
    InputAudioTranscription,
    SessionProperties,
    TurnDetection,
)
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from tests.clients.turn import RATE_HZ, Turn, run

WEATHER = FunctionSchema("get_weather", "Current weather at a place.", {"place": {"type": "string"}}, ["place"])


def flags(arguments: argparse.ArgumentParser) -> None:
    """Add what this driver knows besides."""
    arguments.add_argument("--tool", action="store_true", help="offer a function, which must be called")
    arguments.add_argument("--go-on", type=float, metavar="S", help="speak again so long after the first sound")
    arguments.add_argument("--step", type=int, default=0, metavar="MS", help="how long a step before the service takes")


async def main(turn: Turn, given: argparse.Namespace) -> None:
    """Hold one turn, after a greeting."""
    logger.remove()  # it logs every frame
    service = service_for(given)
    context = LLMContext(tools=ToolsSchema(standard_tools=[WEATHER] * given.tool))
    # What the service recommends for detection by the server; the default would first load a model that is not used.
    pair = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies())
    )
    calls: list[str] = []

    async def get_weather(call: FunctionCallParams) -> None:
        calls.append(call.arguments["place"])
        await call.result_callback({"weather": "sunny"})

    service.register_function("get_weather", get_weather)
    watch = Watch(turn)
    worker = PipelineWorker(
        Pipeline([pair.user(), UserWatch(turn), Step(given.step), service, watch, pair.assistant()]),
        enable_rtvi=False,
        idle_timeout_secs=None,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    running = asyncio.ensure_future(runner.run())

    async def listen() -> None:
        await asyncio.shield(running)  # it would take a cancellation for its end

    async def talk() -> None:
        await watch.started.wait()
        await worker.queue_frame(LLMRunFrame())
        await watch.greeted.wait()
        turn.begin_anew()
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.speak(lambda pcm: worker.queue_frame(InputAudioRawFrame(pcm, RATE_HZ, 1))))
            if given.go_on is not None:
                group.create_task(turn.go_on(given.go_on))

    await turn.until_over(listen(), talk())
    history: list[Any] = context.get_messages()
    turn.more |= {"calls": calls, "interrupted": watch.n_interrupted}
    turn.more["history"] = [[each["role"], each.get("content")] for each in history]
    assert calls or not given.tool, "the function was never called"


def service_for(given: argparse.Namespace) -> OpenAIRealtimeLLMService:
    """Return the service as an application makes it, with the address of the server."""
    # A busy machine sends frames up to half a second late, and missing frames are a silence.
    detection = TurnDetection(silence_duration_ms=1_000)
    user_audio = AudioInput(transcription=InputAudioTranscription(), turn_detection=detection)
    properties = SessionProperties(audio=AudioConfiguration(input=user_audio))
    settings = OpenAIRealtimeLLMService.Settings(
        model=given.model, system_instruction="Be brief.", session_properties=properties
    )
    url = f"{given.url.replace('http', 'ws', 1)}/realtime"
    return OpenAIRealtimeLLMService(api_key=given.key, base_url=url, settings=settings)


class Step(FrameProcessor):  # type: ignore[misc]
    """A step of an application between the user's side and the service: it takes its time at the end of a turn."""

    def __init__(self, takes_ms: int) -> None:
        super().__init__()
        self._takes_ms = takes_ms

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass a frame on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, UserStoppedSpeakingFrame):
            await asyncio.sleep(self._takes_ms / 1_000)
        await self.push_frame(frame, direction)


class UserWatch(FrameProcessor):  # type: ignore[misc]
    """Reports what the service sends towards the user's side."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass a frame on."""
        await super().process_frame(frame, direction)
        if direction is FrameDirection.UPSTREAM:
            self._turn.event(type(frame).__name__)
            if isinstance(frame, TranscriptionFrame):
                self._turn.transcripts.append(frame.text)
        await self.push_frame(frame, direction)


class Watch(FrameProcessor):  # type: ignore[misc]
    """Reports what the service sends towards the loudspeaker."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.started = asyncio.Event()
        self.greeted = asyncio.Event()
        """An answer is over."""

        self.n_interrupted = 0
        self._turn = turn

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass a frame on."""
        await super().process_frame(frame, direction)
        if direction is FrameDirection.DOWNSTREAM:
            self.started.set()  # the first frame is the pipeline's start
            if not isinstance(frame, InputAudioRawFrame):
                self._turn.event(type(frame).__name__)
                self.take(frame)
        await self.push_frame(frame, direction)

    def take(self, frame: Frame) -> None:
        """Act on a frame as a transport would."""
        match frame:
            case ErrorFrame():
                raise RuntimeError(frame.error)
            case LLMFullResponseStartFrame():
                self._turn.response_began()
            case LLMFullResponseEndFrame():
                self._turn.response_ended("completed")
                self.greeted.set()
            case TTSAudioRawFrame():
                self._turn.audio_came(frame.audio)
            case LLMTextFrame():
                self._turn.said.append(frame.text)
            case ProposedUserStartedSpeakingFrame():
                self._turn.user_began()
            case InterruptionFrame():
                self.n_interrupted += 1


run("pipecat", main, flags)
