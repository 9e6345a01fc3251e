"""Sessions whose agent has a speech-to-speech model: its answers on our wire, and LLM and TTS where it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from voicepipe.config import load
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CallCue, Cut, Garbage, Hold, InBandError, LlmCue, Stall, Status, tokens
from voicepipe.testing.fakes.openai_realtime_speech import KEY, FakeRealtimeSpeech
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.speech_model import SpeechCue
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import eventually
from voicepipe.wiring import running

from .conftest import RunningServer

VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
MODEL = "openai-realtime/gpt-realtime"
PIPELINE = "It is one. From the pipeline."


class Upstream:
    """A server whose agent has the model, the vendor of the model, and the vendor of the pipeline."""

    def __init__(self, server: RunningServer, vendor: FakeRealtimeSpeech, pipeline: FakeVendor) -> None:
        self.server, self.vendor, self.pipeline = server, vendor, pipeline

    @asynccontextmanager
    async def calling(self, **session: Any) -> AsyncIterator[User]:
        """Call, once the model is connected."""
        async with calling(self.server.base_url, session={**VAD, **session}) as user:
            if not self.vendor.refusals:
                call = await self.vendor.nth(len(self.vendor.calls) - 1 if self.vendor.calls else 0)
                await call.until(lambda: bool(call.of_kind("session.update")))
            yield user

    async def record(self, done: dict[str, Any]) -> dict[str, Any]:
        """The record of that answer's turn, once it has an outcome."""
        turn = done["response"]["metadata"]["voicepipe_turn"]
        record: dict[str, Any] = await eventually(lambda: self.server.closed(turn))
        return record


@pytest.fixture
def cues() -> tuple[SpeechCue, ...]:
    return (SpeechCue(text="It is noon. Anything else?"),)


@pytest.fixture
async def upstream(
    tmp_path: Path, cues: tuple[SpeechCue, ...], speculates: bool, more_settings: dict[str, object]
) -> AsyncIterator[Upstream]:
    async with FakeVendor() as pipeline, FakeRealtimeSpeech(*cues) as vendor:
        pipeline.llm.usual = LlmCue(tokens=tokens(PIPELINE))
        settings = load(
            overrides={
                "server.port": 0,
                "server.data_dir": str(tmp_path / "data"),
                "server.drain_ms": 0,
                "providers.fake.base_url": pipeline.base_url,
                "providers.openai-realtime.base_url": vendor.base_url,
                "providers.openai-realtime.api_key": KEY,
                "providers.openai-realtime.audio_input_usd_per_million": 32.0,
                "providers.openai-realtime.audio_output_usd_per_million": 64.0,
                "agents.default.stt": "fake/stt",
                "agents.default.llm": "fake/llm",
                "agents.default.tts": "fake/tts",
                "agents.default.apology": "",
                "agents.default.speculate": speculates,
                "agents.default.model": MODEL,
                "agents.default.model_timeout_ms": 400,
                **more_settings,
            },
            environ={"HOME": str(tmp_path)},
            folder=tmp_path,
        )
        async with running(settings) as server:
            yield Upstream(RunningServer(server.base_url, pipeline), vendor, pipeline)


async def test_the_model_gets_the_users_audio_and_answers_on_our_wire(upstream: Upstream, question: Samples) -> None:
    """No LLM and no TTS is asked; the record names one stage for all that the model does."""
    async with upstream.calling() as user:
        await user.speak(question)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        assert np.abs(user.sound()).max() > 1_000, "it can be heard"
        record = await upstream.record(done)
    (call,) = upstream.vendor.calls
    assert call.items[0]["input_ms"] > 1_000
    assert upstream.pipeline.llm.received == upstream.pipeline.tts.received == []
    assert (record["outcome"], record["user_text"]) == ("completed", "what time is it")
    assert record["agent_text"] == record["played_text"] == "It is noon. Anything else?"
    assert record["providers"]["speech_to_speech"] == MODEL
    assert not {"llm", "tts"} & record["providers"].keys()
    stages = {span["stage"]: span for span in record["stages"]}
    assert stages["speech_to_speech"]["owner"] == MODEL
    assert not {"llm_ttft", "first_clause", "tts_ttfb"} & stages.keys()
    assert abs(record["unattributed_ms"]) <= 5
    assert record["tokens"] == {"input": 200, "output": 150, "cached": 64, "cache_write": 0}
    assert record["cost"]["answer_usd"] == pytest.approx((200 * 32 + 150 * 64) / 1e6)


async def test_a_second_turn_goes_on_with_the_same_conversation(upstream: Upstream, question: Samples) -> None:
    async with upstream.calling() as user:
        for _ in range(2):
            await user.speak(question)
            await user.until("response.done")
    (call,) = upstream.vendor.calls
    assert [item["role"] for item in call.items] == ["user", "assistant", "user", "assistant"]
    assert call.of_kind("conversation.item.create") == []


async def test_a_typed_question_is_answered_with_audio(upstream: Upstream) -> None:
    async with upstream.calling() as user:
        assert await user.prompt("What time is it?") == "It is noon. Anything else?"
    (create,) = upstream.vendor.calls[0].of_kind("conversation.item.create")
    assert create["item"]["content"] == [{"type": "input_text", "text": "What time is it?"}]


async def test_text_alone_and_answers_beside_the_conversation_are_the_llms(upstream: Upstream) -> None:
    async with upstream.calling(output_modalities=["text"]) as user:
        assert await user.prompt("What time is it?") == PIPELINE
    assert upstream.vendor.calls[0].of_kind("response.create") == []


@pytest.mark.parametrize("cues", [(SpeechCue(text="word " * 80, ms_per_char=60),)])
async def test_an_interrupted_answer_is_cut_upstream(upstream: Upstream, question: Samples) -> None:
    """The model remembers only what the user has heard."""
    async with upstream.calling() as user:
        await user.speak(question)
        await user.until("response.output_audio.delta")
        await user.speak(question)
        first = await user.until("response.done")
        assert first["response"]["status"] == "cancelled"
        second = await user.until("response.created")
        await user.send("response.cancel", response_id=second["response"]["id"])
        await user.until("response.done")
    (call,) = upstream.vendor.calls
    cut = call.of_kind("conversation.item.truncate") + call.of_kind("conversation.item.delete")
    assert cut[0]["item_id"] == "item_a1"


@pytest.mark.parametrize("status", [401, 402, 500])
async def test_a_refused_connection_leaves_the_call_to_the_pipeline(
    upstream: Upstream, question: Samples, status: int
) -> None:
    upstream.vendor.refusals.extend([Status(status, "no")] * 100)
    async with upstream.calling() as user:
        await user.speak(question)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        record = await upstream.record(done)
    assert record["agent_text"] == PIPELINE
    assert record["providers"]["llm"] == "fake/llm"


@pytest.mark.parametrize(
    "cues",
    [
        (SpeechCue(fault=fault), SpeechCue(text="I am back."))
        for fault in (Stall(), Cut(), Garbage(), InBandError(), Status(402, "pay"), Status(429, "slow down"))
    ]
    + [(SpeechCue(text=""), SpeechCue(text="I am back."))],
)
async def test_an_answer_that_never_comes_is_the_pipelines(upstream: Upstream, question: Samples) -> None:
    """The same turn is answered, with the text of the conversation; the user hears nothing of the failure."""
    async with upstream.calling() as user:
        await user.speak(question)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        record = await upstream.record(done)
    assert record["agent_text"] == record["played_text"] == PIPELINE
    assert "fallback" in record["actions"]
    assert record["route"].startswith(f"{MODEL}: ")
    stages = [span["stage"] for span in record["stages"]]
    assert {"speech_to_speech", "llm_ttft", "tts_ttfb"} <= set(stages)
    assert abs(record["unattributed_ms"]) <= 5
    requested = upstream.pipeline.llm.received[0].question["messages"]
    assert requested[-1] == {"role": "user", "content": "what time is it"}
    assert record["cost"]["whole"] is False, "nobody knows what the failed answer cost"


@pytest.mark.parametrize("cues", [(SpeechCue(text="It is noon. Anything else I may do?", fault=Cut(6)),)])
async def test_an_answer_that_breaks_off_is_spoken_to_its_end(upstream: Upstream, question: Samples) -> None:
    """All words had come: the TTS says those that have no audio, and no LLM is asked."""
    async with upstream.calling() as user:
        await user.speak(question)
        done = await user.until("response.done")
        record = await upstream.record(done)
    assert record["agent_text"] == "It is noon. Anything else I may do?"
    assert upstream.pipeline.llm.received == []
    said = [request.question["input"] for request in upstream.pipeline.tts.received]
    assert "Anything else I may do?" in said
    assert "continuation" in record["actions"]
    assert abs(record["unattributed_ms"]) <= 5


@pytest.mark.parametrize("cues", [(SpeechCue(text="It is noon.", text_first=False, fault=Cut(3)),)])
async def test_an_answer_whose_words_are_unknown_is_continued_by_the_llm(upstream: Upstream, question: Samples) -> None:
    async with upstream.calling() as user:
        await user.speak(question)
        done = await user.until("response.done")
        record = await upstream.record(done)
    assert done["response"]["status"] == "completed"
    assert record["agent_text"] == PIPELINE


@pytest.mark.parametrize("cues", [(SpeechCue(fault=Stall()), SpeechCue(text="I am back."))])
async def test_the_next_turn_is_the_models_again_and_knows_all(upstream: Upstream, question: Samples) -> None:
    async with upstream.calling() as user:
        await user.speak(question)
        await user.until("response.done")
        call = await upstream.vendor.nth(1)
        await call.until(lambda: bool(call.of_kind("session.update")))
        await user.speak(question)
        record = await upstream.record(await user.until("response.done"))
    assert record["agent_text"] == "I am back."
    sent = [message["item"]["content"][0]["text"] for message in call.of_kind("conversation.item.create")]
    assert sent[0] == "what time is it"
    assert PIPELINE.startswith(sent[1]), "as far as it was heard"


WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


CALLING = SpeechCue(text="", calls=(CallCue("weather", ('{"city":"Rome"}',), "call_1"),))


@pytest.mark.parametrize("cues", [(CALLING, SpeechCue(text="Sunny."))])
async def test_a_function_of_the_client_is_called_and_its_result_answered(
    upstream: Upstream, question: Samples
) -> None:
    async with upstream.calling(tools=[WEATHER]) as user:
        await user.speak(question)
        call = (await user.until("response.done"))["response"]["output"][0]
        assert (call["name"], call["arguments"]) == ("weather", '{"city":"Rome"}')
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        await user.send("conversation.item.create", item=output)
        await user.send("response.create")
        record = await upstream.record(await user.until("response.done"))
    assert record["agent_text"] == "Sunny."
    assert [span["stage"] for span in record["stages"]].count("speech_to_speech") == 1
    assert abs(record["unattributed_ms"]) <= 5
    (sent,) = upstream.vendor.calls[0].of_kind("conversation.item.create")
    assert (sent["item"]["type"], sent["item"]["call_id"]) == ("function_call_output", "call_1")
    assert sent["item"]["output"] == "sunny"


@pytest.mark.parametrize("cues", [(CALLING, SpeechCue(text="", fault=Cut()))])
async def test_a_result_is_answered_by_the_pipeline_where_the_model_fails(
    upstream: Upstream, question: Samples
) -> None:
    async with upstream.calling(tools=[WEATHER]) as user:
        await user.speak(question)
        call = (await user.until("response.done"))["response"]["output"][0]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        await user.send("conversation.item.create", item=output)
        await user.send("response.create")
        record = await upstream.record(await user.until("response.done"))
    assert record["agent_text"] == PIPELINE
    messages = upstream.pipeline.llm.received[0].question["messages"]
    assert [message["role"] for message in messages[-3:]] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("speculates", [True])
async def test_an_early_answer_is_the_models_too(upstream: Upstream, question: Samples) -> None:
    async with upstream.calling() as user:
        await user.speak(question)
        record = await upstream.record(await user.until("response.done"))
    assert record["agent_text"] == "It is noon. Anything else?"


async def test_the_voice_that_the_client_chooses_is_the_models(upstream: Upstream, question: Samples) -> None:
    """A conversation has one voice: another one is opened."""
    async with upstream.calling(audio={**VAD["audio"], "output": {"voice": "cedar"}}) as user:
        await user.speak(question)
        await user.until("response.done")
    update = upstream.vendor.calls[-1].of_kind("session.update")[0]
    assert update["session"]["audio"]["output"]["voice"] == "cedar"


async def test_the_health_of_the_model_is_listed_with_the_providers(upstream: Upstream, question: Samples) -> None:
    upstream.vendor.refusals.extend([Status(401, "no")] * 100)
    async with upstream.calling() as user:
        assert await user.prompt("Hello") == PIPELINE
    async with aiohttp.ClientSession() as http, http.get(f"{upstream.server.base_url}/v1/providers") as answer:
        rows = (await answer.json())["data"]
    (row,) = (row for row in rows if row["stage"] == "speech_to_speech")
    assert (row["id"], row["state"]) == (MODEL, "open")
    assert "401" in row["alert"]


@pytest.mark.parametrize("cues", [(SpeechCue(hold=Hold(after=0)),)])
async def test_an_answer_is_cancelled_upstream_when_the_user_hangs_up(
    upstream: Upstream, cues: tuple[SpeechCue, ...]
) -> None:
    hold = cues[0].hold
    assert hold is not None
    async with upstream.calling() as user:
        content = [{"type": "input_text", "text": "Hello"}]
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await user.send("response.create")
        await soon(hold.reached)
    await soon(upstream.vendor.calls[0].closed)


ENDING = SpeechCue(text="Good bye.", calls=(CallCue("end_call", ("{}",), "call_1"),))


@pytest.mark.parametrize("cues", [(ENDING, SpeechCue(text="Bye."))])
@pytest.mark.parametrize("more_settings", [{"agents.default.tools": "end_call"}])
async def test_a_function_of_the_server_is_run_here(upstream: Upstream, question: Samples) -> None:
    """The model ends the call as any LLM would."""
    async with upstream.calling() as user:
        await user.speak(question)
        await user.until("response.done")
        with pytest.raises(ConnectionError):
            await user.until("never")
        assert user.close_code == 1000
    assert upstream.pipeline.llm.received == []
