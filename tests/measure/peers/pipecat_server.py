"""Pipecat for `tests.measure.load_peers`: FastAPI's WebSocket with protobuf frames, a process for all sessions.

`--mode tuned`: the turn ends where Silero's silence of `--silence-ms` ends, and Deepgram's endpointing is so long that
its Finalize yields the final text. `--mode defaults`: what the project's own scaffold has, with smart-turn.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI, WebSocket
from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

ENDPOINTING_MS = 300


async def talk(websocket: WebSocket, options: argparse.Namespace) -> None:
    """Run a session."""
    await websocket.accept()
    transport = FastAPIWebsocketTransport(
        websocket=websocket,
        params=FastAPIWebsocketParams(
            serializer=ProtobufFrameSerializer(), audio_in_enabled=True, audio_out_enabled=True, add_wav_header=False
        ),
    )
    settings = DeepgramSTTService.Settings(endpointing=ENDPOINTING_MS)
    stt = DeepgramSTTService(api_key="x", base_url=f"ws://{options.providers}", settings=settings)
    url, model = f"http://{options.providers}/v1", OpenAILLMService.Settings(model="fake")
    llm = OpenAILLMService(api_key="x", base_url=url, settings=model)
    tts = OpenAITTSService(api_key="x", base_url=url)
    vad = SileroVADAnalyzer(params=VADParams(stop_secs=options.silence_ms / 1_000))
    user = LLMUserAggregatorParams(vad_analyzer=vad)
    if options.mode == "tuned":
        user.user_turn_strategies = UserTurnStrategies(
            stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.0)]
        )
    context = LLMContext(messages=[{"role": "system", "content": "You are helpful."}])
    pair = LLMContextAggregatorPair(context, user_params=user)
    parts = [transport.input(), stt, pair.user(), llm, tts, transport.output(), pair.assistant()]
    worker = PipelineWorker(Pipeline(parts), params=PipelineParams(enable_metrics=True, enable_usage_metrics=True))
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    async def on_client_disconnected(_transport: Any, _client: Any) -> None:
        await worker.cancel()

    transport.event_handler("on_client_disconnected")(on_client_disconnected)
    await runner.run()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--providers", required=True, metavar="HOST:PORT")
    parser.add_argument("--mode", choices=("tuned", "defaults"), required=True)
    parser.add_argument("--silence-ms", type=int, default=200)
    options = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    app = FastAPI()

    async def ws(websocket: WebSocket) -> None:
        await talk(websocket, options)

    # The framework reads the types of arguments from annotations as objects, not as text.
    ws.__annotations__["websocket"] = WebSocket
    app.websocket("/ws")(ws)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", loop="uvloop", ws="auto")


if __name__ == "__main__":
    main()
