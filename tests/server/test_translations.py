"""Translations over REST with the `openai` package, by an LLM and by an STT that translates itself."""

from __future__ import annotations

from typing import Any

import aiohttp
import openai
import pytest
from openai.types.audio import TranslationVerbose
from pydantic import TypeAdapter

from tests.server.test_audio_tokens import client_of as secret_of
from tests.server.test_transcriptions import LONG, RATE_HZ, SHORT, client_of
from voicepipe import clock
from voicepipe.audio.files import wav_bytes
from voicepipe.audio.samples import silence
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.server.gateway import translate_text
from voicepipe.testing.fakes.cues import LlmCue, Status, SttCue
from voicepipe.testing.fakes.deepgram_stt import KEY, FakeDeepgram

pytestmark = [
    pytest.mark.slow,
    # The package calls the hosted service's own models for this endpoint deprecated.
    pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning"),
]

BOTH = ("audio", "chat")
WHISPER = {"agents.default.stt": "fake/whisper-large-v3"}
PRICES = {
    "providers.fake.input_usd_per_million": 1,
    "providers.fake.output_usd_per_million": 10,
    "providers.fake.tts_usd_per_million_chars": 1,
    "providers.fake.stt_usd_per_minute": 6,
}


@pytest.fixture
async def server(fake_server: Any) -> Any:
    async with fake_server(PRICES | {"agents.default.language": "de"}) as opened:
        opened.vendor.stt.usual = SttCue(text="Wie spät ist es?")
        opened.vendor.llm.usual = LlmCue(tokens=("What time", " is it?\n"))
        yield opened


async def translate(client: openai.AsyncOpenAI, file: bytes = SHORT, **more: Any) -> Any:
    create_options: Any = {"model": "default", "file": ("speech.wav", file), **more}
    return await client.audio.translations.create(**create_options)


async def test_the_llm_of_the_agent_translates(server: Any) -> None:
    async with client_of(server) as client:
        answer = await translate(client, prompt="Mr Smith:", temperature=0.5)
    assert answer.text == "What time is it?"
    ours = answer.model_dump()["voicepipe"]
    assert (ours["route"], ours["llm"]) == ("fake/stt", "fake/llm")
    assert ours["cost_usd"] == pytest.approx(6 * 2 / 60 + 10e-6 + 20e-6, abs=5e-6)
    form, question = (await server.vendor.stt.nth(0)).question, (await server.vendor.llm.nth(0)).question
    assert "prompt" not in form  # it is English text
    assert "language" not in form  # the speech may be in another one than the agent's
    instructions, text = question["messages"]
    assert "English" in instructions["content"]
    assert "Mr Smith:" in instructions["content"]
    assert (text["role"], text["content"], question["temperature"]) == ("user", "Wie spät ist es?", 0.5)


async def test_a_bare_spec_is_translated_by_the_default_agents_llm(server: Any) -> None:
    async with client_of(server) as client:
        answer = await translate(client, model="fake/stt", extra_body={"language": "de-CH"})
    assert answer.text == "What time is it?"
    assert (await server.vendor.stt.nth(0)).question["language"] == "de"


async def test_a_piece_is_translated_with_those_before_it_in_view(server: Any) -> None:
    server.vendor.stt.cue(SttCue(text="Eins."), SttCue(text=""), SttCue(text="Drei."))
    server.vendor.llm.cue(LlmCue(tokens=("One.",)), LlmCue(tokens=("Three.",)))
    async with client_of(server) as client:
        answer = await translate(client, LONG, response_format="verbose_json")
    assert TypeAdapter(TranslationVerbose).validate_python(
        answer.model_dump(exclude={"voicepipe", "task"}), strict=True, extra="forbid"
    )
    assert (answer.language, answer.duration, answer.text) == ("english", 61.0, "One. Three.")
    assert [segment.text for segment in answer.segments] == ["One.", "Three."]
    assert answer.model_dump()["task"] == "translate"
    second = (await server.vendor.llm.nth(1)).question["messages"]
    assert [message["content"] for message in second[1:]] == ["Eins.", "One.", "Drei."]


async def test_every_published_format(server: Any) -> None:
    async with client_of(server) as client:
        assert await translate(client, response_format="text") == "What time is it?\n"
        assert (await translate(client, response_format="srt")).startswith("1\n00:00:00,000 --> 00:00:02,000\nWhat")
        assert (await translate(client, response_format="vtt")).startswith("WEBVTT\n\n00:00:00.000")


async def test_an_stt_that_translates_does_so_itself(fake_server: Any) -> None:
    async with fake_server(WHISPER) as server, client_of(server) as client:
        server.vendor.stt.usual = SttCue(text="What time is it?")
        answer = await translate(client, prompt="Mr Smith:", extra_body={"language": "de"})
        received = await server.vendor.stt.nth(0)
    assert answer.text == "What time is it?"
    assert answer.model_dump()["voicepipe"]["llm"] is None
    assert received.path == "/v1/audio/translations"
    assert received.question["prompt"] == "Mr Smith:"
    assert "language" not in received.question  # not published for translations
    assert server.vendor.llm.received == []


@pytest.mark.parametrize(
    "more",
    [
        {"agents.default.stt": "fake/whisper-large-v3-turbo"},  # not trained to translate
        WHISPER | {"providers.fake.options.stt_translations": False},
        {"agents.default.stt": ["fake/whisper-large-v3", "fake/other"]},
    ],
)
async def test_an_stt_that_might_not_translate_transcribes(fake_server: Any, more: dict[str, Any]) -> None:
    async with fake_server(more) as server, client_of(server) as client:
        await translate(client)
        assert (await server.vendor.stt.nth(0)).path == "/v1/audio/transcriptions"
        assert len(server.vendor.llm.received) == 1


async def test_what_the_stt_names_english_needs_no_llm(fake_server: Any) -> None:
    async with FakeDeepgram() as vendor:
        stt = {
            "agents.default.stt": "deepgram/nova-3",
            "providers.deepgram.base_url": vendor.base_url,
            "providers.deepgram.api_key": KEY,
        }
        vendor.script.usual = SttCue(text="What time is it?", language="en-US")
        async with fake_server(stt) as server, client_of(server) as client:
            assert (await translate(client)).text == "What time is it?"
            assert server.vendor.llm.received == []


@pytest.mark.parametrize(
    ("form", "param", "code"),
    [
        ({"file": SHORT}, "model", "missing_required_parameter"),
        ({"model": "default"}, "file", "missing_required_parameter"),
        ({"model": "default", "file": b"no sound"}, "file", "invalid_file_format"),
        ({"model": "default", "file": wav_bytes(silence(0), RATE_HZ)}, "file", "audio_too_short"),
        ({"model": "default", "file": SHORT, "response_format": "diarized_json"}, "response_format", "invalid_value"),
        ({"model": "default", "file": SHORT, "temperature": "2"}, "temperature", "invalid_value"),
        ({"model": "default", "file": SHORT, "stream": "true"}, "stream", "unknown_parameter"),
        ({"model": "default", "file": SHORT, "include[]": "logprobs"}, "include", "unsupported_parameter"),
    ],
)
async def test_wrong_requests(server: Any, form: dict[str, Any], param: str, code: str) -> None:
    body = aiohttp.FormData()
    for name, value in form.items():
        body.add_field(name, value, filename="a.wav" if name == "file" else None)
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/audio/translations", data=body) as answer,
    ):
        error = (await answer.json())["error"]
    assert (answer.status, error["param"], error["code"]) == (400, param, code), error


async def test_an_unknown_model(server: Any) -> None:
    async with client_of(server) as client:
        with pytest.raises(openai.NotFoundError) as refused:
            await translate(client, model="nobody/ear")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


async def test_failures_of_either_provider(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "voicepipe")
    server.vendor.stt.cue(SttCue(fault=Status(500)))
    server.vendor.llm.cue(LlmCue(fault=Status(429, retry_after="7")), LlmCue(tokens=(" ",)))
    async with client_of(server) as client:
        with pytest.raises(openai.InternalServerError):
            await translate(client)
        with pytest.raises(openai.RateLimitError):
            await translate(client)
        with pytest.raises(openai.InternalServerError, match="empty"):
            await translate(client)
    closed = [each.__dict__["fields"] for each in caplog.records if each.message == "translation_closed"]
    assert [each["outcome"] for each in closed] == ["failed"] * 3
    assert closed[1]["cost_usd"] == pytest.approx(0.2, abs=1e-9)  # the STT has worked, the LLM has said nothing
    assert closed[2]["cost_usd"] > 0.2
    assert sum(each.message == "translation_failed" for each in caplog.records) == 3


async def test_an_answer_without_end_is_no_translation(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate_text, "MIN_CHARS", 10)
    monkeypatch.setattr(translate_text, "MAX_RATIO", 1)
    server.vendor.llm.cue(LlmCue(tokens=("What ",) * 50))
    async with client_of(server) as client:
        with pytest.raises(openai.InternalServerError, match="at most 26 characters"):
            await translate(client)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_that_is_cut_is_no_translation(server: Any, reason: str) -> None:
    """The words behind it would be missing in an answer that looks whole."""
    server.vendor.llm.cue(LlmCue(tokens=("What time",), finish=reason))
    async with client_of(server) as client:
        with pytest.raises(openai.InternalServerError, match="the translation is cut"):
            await translate(client)


async def test_a_client_secret_pays_for_both_and_needs_the_agent(server: Any) -> None:
    async with await secret_of(server, scopes=BOTH, limits={"spend_usd": 0.3}) as client:
        await translate(client)
        await translate(client)
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await translate(client)
        assert refused.value.code == "limit_reached"
    async with await secret_of(server, scopes=BOTH, limits={"models": ["fake/stt"]}) as client:
        with pytest.raises(openai.PermissionDeniedError) as refused:
            await translate(client, model="fake/stt")
        assert refused.value.code == "model_not_allowed"


async def test_an_llm_that_translates_needs_the_scope_of_chat_too(server: Any) -> None:
    """Of an API key and of a client secret: neither has an LLM follow its prompt without it."""
    secrets = [(scopes, await secret_of(server, scopes=scopes)) for scopes in (("audio",), ("chat",), BOTH)]
    keys = ApiKeys(server.folder / "data")
    made = [(scopes, keys.create("acme", now_s=clock.unix_s(), scopes=scopes).text) for scopes, _ in secrets]
    for scopes, client in (*secrets, *((scopes, client_of(server, key)) for scopes, key in made)):
        async with client:
            if scopes == BOTH:
                assert (await translate(client)).text == "What time is it?"
                continue
            n_received = len(server.vendor.llm.received)
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await translate(client, prompt="Write a poem.")
            assert refused.value.code == "missing_scope"
            assert len(server.vendor.llm.received) == n_received


async def test_an_stt_that_translates_needs_no_other_scope(fake_server: Any) -> None:
    async with fake_server(WHISPER) as server, await secret_of(server) as client:
        server.vendor.stt.usual = SttCue(text="What time is it?")
        assert (await translate(client)).text == "What time is it?"
