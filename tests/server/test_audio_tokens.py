"""Speech and transcriptions with a client secret: only if minted for it, and under its limits and locks."""

from __future__ import annotations

from typing import Any

import aiohttp
import openai
import pytest

from voicepipe.audio.files import wav_bytes
from voicepipe.testing.fakes.cues import Status, TtsCue
from voicepipe.testing.fakes.tone import tone

SOUND = ("a.wav", wav_bytes(tone("x" * 25, rate_hz=16_000), 16_000))  # 1 s
PRICES = {
    "providers.fake.input_usd_per_million": 1,
    "providers.fake.output_usd_per_million": 10,
    "providers.fake.speech_usd_per_million": 100_000,
    "providers.fake.hearing_usd_per_minute": 6,
}


async def client_of(house: Any, *, session: Any = None, scopes: Any = ("audio",), **ours: Any) -> openai.AsyncOpenAI:
    body = {"session": session, "voicepipe": {"scopes": scopes, **ours}}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{house.url}/v1/realtime/client_secrets", json=body) as answer,
    ):
        minted = await answer.json()
        assert answer.status == 200, minted
    return openai.AsyncOpenAI(base_url=f"{house.url}/v1", api_key=minted["value"], max_retries=0)


async def say(client: openai.AsyncOpenAI, model: str = "default", **more: Any) -> Any:
    asked: Any = {"model": model, "input": "Hello there.", "response_format": "pcm", "voice": "anna", **more}
    return await client.audio.speech.create(**asked)


async def hear(client: openai.AsyncOpenAI, model: str = "default", **more: Any) -> Any:
    return await client.audio.transcriptions.create(model=model, file=SOUND, **more)


async def test_a_secret_without_the_scope_neither_speaks_nor_hears(fake_house: Any) -> None:
    async with fake_house() as house, await client_of(house, scopes=("realtime", "turns", "chat")) as client:
        for ask in (say, hear):
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await ask(client)
            assert refused.value.code == "missing_scope"
        assert house.vendor.tts.asked == house.vendor.stt.asked == []


async def test_a_secret_asks_agents_and_what_it_names(fake_house: Any) -> None:
    async with fake_house() as house:
        async with await client_of(house) as client:
            await say(client)
            await hear(client)
            for ask, spec in ((say, "fake/mouth"), (hear, "fake/ear")):
                with pytest.raises(openai.PermissionDeniedError) as refused:
                    await ask(client, spec)
                assert refused.value.code == "model_not_allowed"
        async with await client_of(house, limits={"models": ["fake/mouth"]}) as client:
            await say(client, "fake/mouth")


async def test_each_takes_a_turn_and_a_failure_gives_it_back(fake_house: Any) -> None:
    async with fake_house() as house, await client_of(house, limits={"turns": 2}) as client:
        house.vendor.tts.cue(TtsCue(fault=Status(500, "account 4711 is out of money")))
        with pytest.raises(openai.InternalServerError) as failed:
            await say(client)
        assert "4711" not in str(failed.value)
        await say(client)
        await hear(client)
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await say(client)
    assert refused.value.code == "limit_reached"


async def test_money_is_counted_for_both(fake_house: Any) -> None:
    """0.1 USD a character, 0.1 USD a second."""
    async with fake_house(PRICES) as house, await client_of(house, limits={"spend_usd": 1.3}) as client:
        await say(client)  # 12 characters
        await hear(client)
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await hear(client)
    assert refused.value.code == "limit_reached"


async def test_a_limit_on_spending_needs_prices(fake_house: Any) -> None:
    other = {"server.transcription_models": ["other/ear"], "providers.other.base_url": "http://127.0.0.1:9/v1"}
    limits = {"spend_usd": 5, "models": ["other/ear"]}
    async with fake_house(PRICES | other) as house, await client_of(house, limits=limits) as client:
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await hear(client, model="other/ear")
    assert refused.value.code == "price_unknown"


async def test_locks_of_its_session_hold(fake_house: Any) -> None:
    session = {
        "type": "realtime",
        "audio": {
            "output": {"voice": "anna", "speed": 1.2},
            "input": {"transcription": {"language": "de", "prompt": "Uhr"}},
        },
    }
    locks = [{"field": "audio.output.voice"}, {"field": "audio.output.speed"}, {"field": "audio.input.transcription"}]
    async with fake_house() as house, await client_of(house, session=session, locks=locks) as client:
        await say(client)
        await hear(client)
        spoken, heard = (await house.vendor.tts.nth(0)).question, (await house.vendor.stt.nth(0)).question
        assert (spoken["voice"], spoken["speed"]) == ("anna", 1.2)
        assert (heard["language"], heard["prompt"]) == ("de", "Uhr")
        for asked, field in (({"voice": "ben"}, "voice"), ({"speed": 2}, "speed")):
            with pytest.raises(openai.BadRequestError) as refused:
                await say(client, **asked)
            assert (refused.value.code, refused.value.param) == ("field_locked", field)
        for asked, field in (({"language": "en"}, "language"), ({"prompt": "x"}, "prompt")):
            with pytest.raises(openai.BadRequestError) as refused:
                await hear(client, **asked)
            assert (refused.value.code, refused.value.param) == ("field_locked", field)
