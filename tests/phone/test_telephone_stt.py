"""The audio of a call on its way from the carrier to the vendor of STT, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.phone.carriers import FakeTwilio, played, turns, webhook
from voicepipe.audio.g711 import decode_mulaw
from voicepipe.testing.fakes import deepgram_stt, inworld_stt
from voicepipe.testing.fakes.cues import HangUp, LlmCue, SttCue, tokens
from voicepipe.testing.fakes.deepgram_stt import FakeDeepgram
from voicepipe.testing.fakes.inworld_stt import FakeInworldStt

pytestmark = pytest.mark.slow  # a call takes as long as what is said in it


@pytest.fixture
async def deepgram() -> AsyncIterator[FakeDeepgram]:
    async with FakeDeepgram() as vendor:
        vendor.script.usual = SttCue(text="No.")
        yield vendor


@pytest.fixture
async def inworld() -> AsyncIterator[FakeInworldStt]:
    async with FakeInworldStt() as vendor:
        vendor.script.usual = SttCue(text="No.")
        yield vendor


def settings(deepgram: FakeDeepgram, **more: object) -> dict[str, object]:
    return {
        "providers.deepgram.base_url": deepgram.base_url,
        "providers.deepgram.api_key": deepgram_stt.KEY,
        "agents.default.stt": "deepgram/nova-3",
        "records.text": "always",
        **more,
    }


async def test_stt_gets_the_bytes_of_the_carrier(
    fake_server: Any, deepgram: FakeDeepgram, http: aiohttp.ClientSession, no: bytes
) -> None:
    """Mu-law at 8 kHz, with each sample as the carrier has sent it, and no connection but this one."""
    carrier = FakeTwilio()
    async with carrier.opened(), fake_server(settings(deepgram) | carrier.settings) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        async with carrier.calling(http, webhook(server)) as call:
            call.speak(no)
            await played(call)
            await call.hang_up()
        (turn,) = await turns(server, 1)
    (stream,) = deepgram.calls
    query = dict(stream.query)
    assert (query["encoding"], query["sample_rate"]) == ("mulaw", "8000")
    assert decode_mulaw(no).tobytes() in stream.samples.tobytes()
    assert (turn["outcome"], turn["user_text"]) == ("completed", "No.")


async def test_fallback_without_8_khz_gets_the_utterance_resampled(
    fake_server: Any, deepgram: FakeDeepgram, inworld: FakeInworldStt, http: aiohttp.ClientSession, no: bytes
) -> None:
    """The first vendor breaks at the user's first words: the second one gets them from their start."""
    deepgram.script.cue(SttCue(fault=HangUp()))
    carrier = FakeTwilio()
    more = {
        "providers.inworld.base_url": inworld.base_url,
        "providers.inworld.api_key": inworld_stt.KEY,
        "agents.default.stt": "deepgram/nova-3, inworld/inworld-stt-1",
    }
    async with carrier.opened(), fake_server(settings(deepgram, **more) | carrier.settings) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        async with carrier.calling(http, webhook(server)) as call:
            call.speak(no)
            await played(call)
            await call.hang_up()
        (turn,) = await turns(server, 1)
    assert [call.encoding.rate_hz for call in (deepgram.calls[0], inworld.calls[0])] == [8_000, 16_000]
    assert inworld.calls[0].received_ms >= len(no) // 8
    assert (turn["outcome"], turn["user_text"]) == ("completed", "No.")
