"""Calls held to what their tokens say, from the mint to the close, with the real session between."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import pytest

from voicepipe.audio.files import read_sound
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.cli import main
from voicepipe.clock import unix_s
from voicepipe.session import phrase_preparation
from voicepipe.session.phrase_preparation import MAX_BETWEEN_TURNS
from voicepipe.testing.fakes.cues import Hold, LlmCue, SttCue, tokens
from voicepipe.testing.user import WIRE_HZ, User, calling
from voicepipe.testing.waiting import WAIT_S, eventually

PRICES: dict[str, object] = {
    "providers.fake.input_usd_per_million": 1_000,
    "providers.fake.output_usd_per_million": 1_000,
    "providers.fake.tts_usd_per_million_chars": 1_000,
    "providers.fake.stt_usd_per_minute": 1,
}


async def post(url: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as answer:
        return await answer.json()


async def minted(server: Any, session: dict[str, Any] | None = None, **ours: Any) -> Any:
    body = {"session": session or {}, "voicepipe": ours}
    answer = await post(f"{server.url}/v1/realtime/client_secrets", body)
    assert "value" in answer, answer
    return answer


def bearer(token: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token['value']}"}


async def chat(user: User, text: str = "What time is it?", **response: Any) -> None:
    part = {"type": "input_text", "text": text}
    await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": [part]})
    await user.send("response.create", response=response)


async def closed(user: User) -> tuple[dict[str, Any], int]:
    """The last error event, and the close code."""
    with pytest.raises(ConnectionError):
        await user.until("no such event")
    error = next(event["error"] for event in reversed(user.events) if event["type"] == "error")
    assert user.close_code is not None
    return error, user.close_code


async def test_the_last_turn_is_played_to_its_end_before_the_session_ends(fake_server: Any) -> None:
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        token = await minted(server, limits={"turns": 1})
        async with calling(server.url, headers=bearer(token)) as user:
            await chat(user)
            done = await user.until("response.done")
            error, code = await closed(user)
        assert done["response"]["status"] == "completed"
        assert (error["code"], code) == ("limit_reached", 1008)
        assert error["message"] == "turn limit of this client secret reached: 1 turns"
        assert len(user.sound()) > 0
        user.require_sound_wire()


@pytest.mark.slow
async def test_a_session_that_is_over_time_lets_the_answer_end_and_takes_no_other(fake_server: Any) -> None:
    """The user's audio is ignored too: otherwise an interruption could extend the session for ever."""
    async with fake_server() as server:
        hold = Hold(after=2)
        server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon."), hold=hold))
        token = await minted(server, limits={"session_seconds": 5})  # the answer begins before, also on a busy machine
        async with calling(server.url, headers=bearer(token)) as user:
            await chat(user, output_modalities=["text"])
            await asyncio.wait_for(hold.reached.wait(), WAIT_S)
            refused = await _refused_in_time(user)
            hold.release.set()
            done = await user.until("response.done")
            error, code = await closed(user)
        assert (refused, done["response"]["status"]) == ("session_expired", "completed")
        assert (error["code"], code) == ("session_expired", 1001)
        user.require_sound_wire()


async def _refused_in_time(user: User) -> str:
    """Ask for more until that is refused because the session is ending."""

    async def probe() -> str | None:
        await user.send("response.create")
        code = (await user.until("error"))["error"]["code"]
        return None if code == "conversation_already_has_active_response" else str(code)

    return await eventually(probe)


async def test_spending_is_counted_by_the_prices_in_the_settings(fake_server: Any) -> None:
    async with fake_server(PRICES) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."), input_tokens=600)
        token = await minted(server, limits={"spend_usd": 0.5})
        async with calling(server.url, headers=bearer(token)) as user:
            await chat(user, output_modalities=["text"])
            await user.until("response.done")
            error, code = await closed(user)
        assert (error["message"], code) == ("spend limit of this client secret reached: 0.5 USD", 1008)


async def test_spending_is_not_limited_where_a_price_is_missing(fake_server: Any) -> None:
    async with fake_server() as server:
        body = {"voicepipe": {"limits": {"spend_usd": 0.5}}}
        answer = await post(f"{server.url}/v1/realtime/client_secrets", body)
        assert "providers.fake.input_usd_per_million is not set" in answer["error"]["message"]


async def test_a_revoked_call_is_cut_in_the_middle_of_its_answer(fake_server: Any) -> None:
    async with fake_server() as server:
        hold = Hold(after=2)
        server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon."), hold=hold))
        token = await minted(server, subject="anna")
        async with calling(server.url, headers=bearer(token)) as user:
            await chat(user)
            await asyncio.wait_for(hold.reached.wait(), WAIT_S)
            await post(f"{server.url}/v1/realtime/client_secrets/revoke", {"subject": "anna"})
            error, code = await closed(user)
        assert (error["code"], code) == ("token_revoked", 4001)
        assert await eventually(lambda: _freed(server))


async def _freed(server: Any) -> bool | None:
    return server.vendor.llm.busy() == 0 or None


async def test_locked_fields_stay_and_hidden_ones_are_not_seen(fake_server: Any) -> None:
    """In the answers to every `session.update`, of both dialects, and for a single reply."""
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Arr."))
        session = {"type": "realtime", "instructions": "Be a parrot."}
        token = await minted(server, session, locks=[{"field": "instructions", "hidden": True}])
        async with calling(server.url, headers=bearer(token)) as user:
            await user.send("session.update", session={"type": "realtime", "instructions": "Be rude."})
            refused = await user.until("error")
            assert (refused["error"]["code"], refused["error"]["param"]) == ("field_locked", "session.instructions")
            await user.send("session.update", session={"type": "realtime", "max_output_tokens": 9})
            assert (await user.until("session.updated"))["session"]["instructions"] == ""
            await chat(user, instructions="Be rude.", output_modalities=["text"])
            assert (await user.until("error"))["error"]["code"] == "field_locked"
            await user.send("response.create", response={"output_modalities": ["text"]})
            await user.until("response.done")
            user.require_sound_wire()
        assert user.events[0]["session"]["instructions"] == ""
        question = (await server.vendor.llm.nth(0)).question
        assert question["messages"][0] == {"role": "system", "content": "Be a parrot."}
        async with aiohttp.ClientSession() as http:
            older = bearer(token) | {"OpenAI-Beta": "realtime=v1"}
            async with http.ws_connect(f"{server.url}/v1/realtime", headers=older) as line:
                assert (await line.receive_json(timeout=WAIT_S))["session"]["instructions"] == ""


async def test_a_call_of_a_killed_token_ends_from_the_shell_too(fake_server: Any) -> None:
    """The command line shares the server's data folder, and nothing else."""
    async with fake_server() as server:
        token = await minted(server, subject="anna")
        async with calling(server.url, headers=bearer(token)) as user:
            arguments = ["revoke", token["voicepipe"]["token_id"], "--data-dir", str(server.folder / "data")]
            assert await asyncio.to_thread(main, arguments) == 0
            _, code = await closed(user)
        assert code == 4001


async def test_nothing_secret_is_logged_from_the_mint_to_the_close(
    fake_server: Any, question: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a run with good keys and bad ones, refusals, a call, a spoken turn, a crash of a provider and a revocation."""
    caplog.set_level(logging.DEBUG)
    async with fake_server() as server:
        keys = ApiKeys(server.folder / "data")
        key = await asyncio.to_thread(keys.create, "default", now_s=unix_s())
        headers = {"Authorization": f"Bearer {key.text}"}
        body = {"session": {"instructions": "Sing of hush-4."}, "voicepipe": {"subject": "anna"}}
        token = await post(f"{server.url}/v1/realtime/client_secrets", body, headers)
        server.vendor.stt.usual = SttCue(text="tell me of hush-5")
        server.vendor.llm.usual = LlmCue(tokens=tokens("I know hush-6."))
        wrong = "vp_default_" + "w" * 51
        async with aiohttp.ClientSession() as http:
            for credential in (wrong, "sk-hush-1", token["value"][:-4] + "AAAA"):
                for place in ({"Authorization": f"Bearer {credential}"}, {"api-key": credential}):
                    async with http.get(f"{server.url}/v1/turns?token=hush-2", headers=place) as answer:
                        assert answer.status in (401, 429)
        protocols = ("realtime", f"openai-insecure-api-key.{token['value']}")
        async with calling(server.url, protocols=protocols) as user:
            await user.speak(read_sound(question, WIRE_HZ), then_silence_ms=1_500)
            await user.until("response.done")
            await post(f"{server.url}/v1/realtime/client_secrets/revoke", {"subject": "anna"}, headers)
            await closed(user)
    assert "session_opened" in caplog.text
    assert "refused" in caplog.text
    logged = caplog.text + "".join(str(getattr(record, "fields", "")) for record in caplog.records)
    for secret in (key.text, token["value"], wrong, "AAAA", "hush-"):
        assert secret not in logged, secret


def speed(n: int) -> dict[str, Any]:
    return {"type": "realtime", "audio": {"output": {"speed": 0.5 + n / 1_000}}}


async def test_changing_the_voice_again_and_again_is_no_free_speech(fake_server: Any) -> None:
    """The agent's filler is spoken in the voice that stays, as often as turns pay for, and not for each change."""
    async with fake_server({**PRICES, "agents.default.filler": "One moment, please."}) as server:
        token = await minted(server, limits={"turns": 1})
        async with calling(server.url, headers=bearer(token)) as user:
            for n in range(100):
                await user.send("session.update", session=speed(n))
                await user.until("session.updated")
            assert len(server.vendor.tts.received) <= MAX_BETWEEN_TURNS
            assert user.close_code is None


async def test_another_voice_is_charged_to_the_token_of_who_wants_it(
    fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """19 characters at 1000 USD a million; the voice that the session began with is its agent's."""
    monkeypatch.setattr(phrase_preparation, "STEADY_S", 0.0)
    async with fake_server({**PRICES, "agents.default.filler": "One moment, please."}) as server:
        token = await minted(server, limits={"spend_usd": 0.018})
        async with calling(server.url, headers=bearer(token)) as user:
            assert await eventually(lambda: _requested(server, 1))
            await user.send("session.update", session=speed(700))
            error, code = await closed(user)
        assert (error["message"], code) == ("spend limit of this client secret reached: 0.018 USD", 1008)
        assert len(server.vendor.tts.received) == 2


async def _requested(server: Any, n: int) -> bool | None:
    return len(server.vendor.tts.received) >= n or None
