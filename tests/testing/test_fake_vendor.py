"""The fake vendor speaks OpenAI's HTTP so that OpenAI's own client takes it for one, and dies on cue."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import numpy as np
import openai
import pytest

from voicepipe.testing.fakes.cues import CallCue, Hang, LlmCue, Status, SttCue, TtsCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone, wav_header
from voicepipe.testing.fakes.vendor import FakeVendor


@pytest.fixture
async def vendor() -> AsyncIterator[FakeVendor]:
    async with FakeVendor() as vendor:
        yield vendor


@pytest.fixture
async def client(vendor: FakeVendor) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=vendor.base_url, api_key="sk-fake", max_retries=0) as client:
        yield client


async def test_chat_streams(vendor: FakeVendor, client: openai.AsyncOpenAI) -> None:
    """Text and usage arrive as the cue says."""
    vendor.llm.cue(LlmCue(tokens=("Hi", " you"), cached_tokens=4))
    stream = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "q"}], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hi you"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens_details is not None
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 4
    assert vendor.llm.received[0].question["messages"] == [{"role": "user", "content": "q"}]


async def test_chat_in_one_piece(vendor: FakeVendor, client: openai.AsyncOpenAI) -> None:
    """A request without streaming gets JSON; cues may be a function of the request."""
    vendor.llm.usual = lambda body: LlmCue(calls=(CallCue("f", ('{"m":', f'"{body["model"]}"}}')),))
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("f", '{"m":"m"}')


async def test_speech_and_transcription(vendor: FakeVendor, client: openai.AsyncOpenAI) -> None:
    """The vendor's STT can transcribe the vendor's own speech."""
    vendor.tts.cue(TtsCue(ttfb_ms=1, gap_ms=1))
    spoken = await client.audio.speech.create(model="m", voice="v", input="Hello.", response_format="pcm")
    pcm = spoken.content
    assert np.array_equal(np.frombuffer(pcm, dtype="<i2"), tone("Hello."))
    vendor.stt.cue(SttCue(text="Hello."))
    file = io.BytesIO(wav_header(24_000) + pcm)
    file.name = "hello.wav"
    transcription = await client.audio.transcriptions.create(model="m", file=file)
    assert transcription.text == "Hello."
    assert np.array_equal(vendor.stt.received[0].samples, tone("Hello."))


async def test_refusals_are_openais(vendor: FakeVendor, client: openai.AsyncOpenAI) -> None:
    """The client raises what it would raise for the real one."""
    vendor.llm.cue(LlmCue(fault=Status(429, "slow down", retry_after="1")))
    with pytest.raises(openai.RateLimitError, match="slow down"):
        await client.chat.completions.create(model="m", messages=[])
    vendor.unplug()
    with pytest.raises(openai.APIConnectionError):
        await client.chat.completions.create(model="m", messages=[])


async def test_unplugged_vendor_comes_back_at_its_port(vendor: FakeVendor, client: openai.AsyncOpenAI) -> None:
    """Dying cuts what is under way; afterwards all is as before."""
    port = vendor.port
    vendor.llm.cue(LlmCue(fault=Hang()))
    stream = client.chat.completions.create(model="m", messages=[])

    async def die() -> None:
        request = await vendor.llm.nth(0)
        vendor.unplug()
        await soon(request.gone)

    async with asyncio.TaskGroup() as group:
        group.create_task(die())
        with pytest.raises(openai.APIConnectionError):
            await stream
    await vendor.plug_in()
    assert vendor.port == port
    assert (await client.chat.completions.create(model="m", messages=[])).choices
