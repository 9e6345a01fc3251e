"""Speech and transcriptions with a client secret: only if minted for it, and under its limits and locks."""

from __future__ import annotations

from typing import Any

import aiohttp
import openai
import pytest

from voicepipe.audio.files import wav_bytes
from voicepipe.testing.fakes.cues import Status, TtsCue
from voicepipe.testing.fakes.tone import tone

pytestmark = pytest.mark.slow

SOUND = ("a.wav", wav_bytes(tone("x" * 25, rate_hz=16_000), 16_000))  # 1 s
PRICES = {
    "providers.fake.input_usd_per_million": 1,
    "providers.fake.output_usd_per_million": 10,
    "providers.fake.tts_usd_per_million_chars": 100_000,
    "providers.fake.stt_usd_per_minute": 6,
}


async def client_of(server: Any, *, session: Any = None, scopes: Any = ("audio",), **ours: Any) -> openai.AsyncOpenAI:
    body = {"session": session, "voicepipe": {"scopes": scopes, **ours}}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/realtime/client_secrets", json=body) as answer,
    ):
        minted = await answer.json()
        assert answer.status == 200, minted
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=minted["value"], max_retries=0)


async def say(client: openai.AsyncOpenAI, model: str = "default", **more: Any) -> Any:
    create_options: Any = {"model": model, "input": "Hello there.", "response_format": "pcm", "voice": "anna", **more}
    return await client.audio.speech.create(**create_options)


async def transcribe(client: openai.AsyncOpenAI, model: str = "default", **more: Any) -> Any:
    return await client.audio.transcriptions.create(model=model, file=SOUND, **more)


async def test_a_secret_without_the_scope_gets_no_audio_route(fake_server: Any) -> None:
    async with fake_server() as server, await client_of(server, scopes=("realtime", "turns", "chat")) as client:
        for request in (say, transcribe):
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await request(client)
            assert refused.value.code == "missing_scope"
        assert server.vendor.tts.received == server.vendor.stt.received == []


async def test_a_secret_reaches_agents_and_the_models_it_names(fake_server: Any) -> None:
    async with fake_server() as server:
        async with await client_of(server) as client:
            await say(client)
            await transcribe(client)
            for request, spec in ((say, "fake/tts"), (transcribe, "fake/stt")):
                with pytest.raises(openai.PermissionDeniedError) as refused:
                    await request(client, spec)
                assert refused.value.code == "model_not_allowed"
        async with await client_of(server, limits={"models": ["fake/tts"]}) as client:
            await say(client, "fake/tts")


async def test_each_takes_a_turn_and_a_failure_gives_it_back(fake_server: Any) -> None:
    async with fake_server() as server, await client_of(server, limits={"turns": 2}) as client:
        server.vendor.tts.cue(TtsCue(fault=Status(500, "account 4711 is out of money")))
        with pytest.raises(openai.InternalServerError) as failed:
            await say(client)
        assert "4711" not in str(failed.value)
        await say(client)
        await transcribe(client)
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await say(client)
    assert refused.value.code == "limit_reached"


async def test_money_is_counted_for_both(fake_server: Any) -> None:
    """0.1 USD a character, 0.1 USD a second."""
    async with fake_server(PRICES) as server, await client_of(server, limits={"spend_usd": 1.3}) as client:
        await say(client)  # 12 characters
        await transcribe(client)
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await transcribe(client)
    assert refused.value.code == "limit_reached"


async def test_a_limit_on_spending_needs_prices(fake_server: Any) -> None:
    other = {"server.transcription_models": ["other/ear"], "providers.other.base_url": "http://127.0.0.1:9/v1"}
    limits = {"spend_usd": 5, "models": ["other/ear"]}
    async with fake_server(PRICES | other) as server, await client_of(server, limits=limits) as client:
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await transcribe(client, model="other/ear")
    assert refused.value.code == "price_unknown"


async def test_locks_of_its_session_hold(fake_server: Any) -> None:
    session = {
        "type": "realtime",
        "audio": {
            "output": {"voice": "anna", "speed": 1.2},
            "input": {"transcription": {"language": "de", "prompt": "Uhr"}},
        },
    }
    locks = [{"field": "audio.output.voice"}, {"field": "audio.output.speed"}, {"field": "audio.input.transcription"}]
    async with fake_server() as server, await client_of(server, session=session, locks=locks) as client:
        await say(client)
        await transcribe(client)
        spoken, stt_request = (await server.vendor.tts.nth(0)).question, (await server.vendor.stt.nth(0)).question
        assert (spoken["voice"], spoken["speed"]) == ("anna", 1.2)
        assert (stt_request["language"], stt_request["prompt"]) == ("de", "Uhr")
        for create_options, field in (({"voice": "ben"}, "voice"), ({"speed": 2}, "speed")):
            with pytest.raises(openai.BadRequestError) as refused:
                await say(client, **create_options)
            assert (refused.value.code, refused.value.param) == ("field_locked", field)
        for create_options, field in (({"language": "en"}, "language"), ({"prompt": "x"}, "prompt")):
            with pytest.raises(openai.BadRequestError) as refused:
                await transcribe(client, **create_options)
            assert (refused.value.code, refused.value.param) == ("field_locked", field)
