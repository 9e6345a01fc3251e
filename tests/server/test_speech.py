"""Speech over REST with the `openai` package, sync and async, against a server with a fake vendor behind it."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64decode
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
import soundfile

from voicepipe.audio.encode_stream import FORMATS
from voicepipe.server import streaming
from voicepipe.server.gateway.speech import clauses
from voicepipe.testing.fakes.cues import Cut, Hold, Status, TtsCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.turn.clauses import MAX_CHARS

TEXT = "The tallest mountain is Mount Everest."
PCM = tone(TEXT).astype("<i2").tobytes()


def client_of(server: Any, key: str = "any") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


@pytest.fixture
async def server(fake_server: Any) -> Any:
    async with fake_server({"agents.default.voice": "anna", "agents.default.aliases": ["tts-1"]}) as opened:
        yield opened


async def say(client: openai.AsyncOpenAI, text: str = TEXT, **more: Any) -> Any:
    create_options: Any = {"model": "default", "voice": "ben", "input": text, **more}
    return await client.audio.speech.create(**create_options)


async def test_the_sound_is_the_voices(server: Any) -> None:
    async with client_of(server) as client:
        answer = await say(client, response_format="pcm", speed=1.5)
    assert answer.content == PCM
    assert answer.response.headers["Content-Type"] == "audio/pcm"
    assert answer.response.headers["X-Voicepipe-Route"] == "fake/tts"
    assert int(answer.response.headers["X-Voicepipe-TTFB-Ms"]) >= 0
    question = (await server.vendor.tts.nth(0)).question
    assert (question["model"], question["voice"], question["speed"]) == ("tts", "ben", 1.5)


@pytest.mark.parametrize("name", FORMATS)
async def test_every_format(server: Any, name: Any) -> None:
    async with client_of(server) as client:
        answer = await say(client, **({"response_format": name} if name != "mp3" else {}))
    assert answer.response.headers["Content-Type"] == FORMATS[name].content_type
    if name in ("mp3", "opus", "wav"):
        sound, rate_hz = soundfile.read(io.BytesIO(answer.content), dtype="int16")
        assert len(sound) / rate_hz == pytest.approx(len(PCM) / 48_000, abs=0.1)
        assert np.abs(sound).max() > 6_000
    if name == "flac":
        assert answer.content[:4] == b"fLaC"


async def test_the_sync_client(server: Any) -> None:
    def request() -> Any:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            whole = client.audio.speech.create(model="tts-1", voice="ben", input=TEXT, response_format="pcm")
            create = client.audio.speech.with_streaming_response.create
            with create(model="fake/tts", voice={"id": "ben"}, input=TEXT, response_format="wav") as streamed:
                return whole.content, b"".join(streamed.iter_bytes())

    whole, wav = await asyncio.to_thread(request)
    assert whole == wav[44:] == PCM
    assert (await server.vendor.tts.nth(1)).question["voice"] == "ben"


async def test_sound_leaves_as_it_comes(server: Any) -> None:
    hold = Hold(after=24_000)
    server.vendor.tts.cue(TtsCue(hold=hold))
    async with client_of(server) as client:
        create = client.audio.speech.with_streaming_response.create
        async with create(model="default", voice="ben", input=TEXT, response_format="pcm") as answer:
            pieces = answer.iter_bytes()
            first = await anext(pieces)
            assert PCM.startswith(first)
            await soon(hold.reached)
            hold.release.set()
            assert first + b"".join([piece async for piece in pieces]) == PCM


async def test_events(server: Any) -> None:
    body = {"model": "default", "input": TEXT, "response_format": "pcm", "stream_format": "sse", "instructions": "sing"}
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/audio/speech", json=body) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        lines = [line for line in (await answer.text()).split("\n\n") if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert b"".join(b64decode(event["audio"]) for event in events[:-1]) == PCM
    done = events[-1]
    assert done["type"] == "speech.audio.done"
    assert (done["voicepipe"]["characters"], done["voicepipe"]["ignored"]) == (len(TEXT), ["instructions"])
    assert done["voicepipe"]["spoken_ms"] == len(PCM) // 48
    assert (await server.vendor.tts.nth(0)).question["voice"] == "anna"


async def test_a_long_text_is_spoken_whole(server: Any) -> None:
    text = "Well, then. " + "This is a sentence of the story. " * 100
    async with client_of(server) as client:
        answer = await say(client, text, response_format="pcm")
    said = [create_options.question["input"] for create_options in server.vendor.tts.received]
    assert said[0] == "Well, then."
    assert " ".join(said) == text.strip()
    assert max(map(len, said)) <= MAX_CHARS
    assert answer.content == b"".join(tone(each).astype("<i2").tobytes() for each in said)


@pytest.mark.parametrize("text", ["a", "a.\n" * 1_300, "word " * 800, "1. " * 500, "x" * 4_096, "No. 5, e.g. 3.5!"])
def test_no_text_is_too_much_for_a_voice(text: str) -> None:
    """All of it is said, in pieces that any voice will queue."""
    pieces = list(clauses(text, "xx"))  # a language without known numbers
    assert list(filter(str.isalnum, "".join(pieces))) == list(filter(str.isalnum, text))
    assert len(pieces) <= 64


async def test_what_was_written_to_be_read_is_said(fake_server: Any) -> None:
    text = "# Prices\n- **Tea** costs $3.50.\n- Coffee: see https://example.com/menu.\n```\nprint(1)\n```\n"
    async with fake_server({"agents.default.language": "en"}) as server, client_of(server) as client:
        await say(client, text)
        with pytest.raises(openai.BadRequestError) as refused:
            await say(client, "```\nprint(1)\n```")
    said = " ".join([create_options.question["input"] for create_options in server.vendor.tts.received])
    assert "three dollars fifty" in said
    assert not set("#*`$") & set(said)
    assert "print" not in said
    assert (refused.value.param, refused.value.code) == ("input", "invalid_value")


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": "x"}, "model", "missing_required_parameter"),
        ({"model": "default"}, "input", "missing_required_parameter"),
        ({"model": "default", "input": ""}, "input", "invalid_value"),
        ({"model": "default", "input": "... !"}, "input", "invalid_value"),
        ({"model": "default", "input": "x" * 4_097}, "input", "invalid_value"),
        ({"model": "default", "input": "x", "response_format": "aac"}, "response_format", "invalid_value"),
        ({"model": "default", "input": "x", "speed": 5}, "speed", "invalid_value"),
        ({"model": "default", "input": "x", "sped": 1}, "sped", "unknown_parameter"),
        ([], None, "invalid_type"),
    ],
)
async def test_wrong_requests(server: Any, body: Any, param: str | None, code: str) -> None:
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/audio/speech", json=body) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)
    assert server.vendor.tts.received == []


async def test_a_vendors_usual_name_is_the_default_agent(server: Any) -> None:
    async with client_of(server) as client:
        assert await say(client, model="tts-1-hd")


async def test_an_unknown_model(server: Any) -> None:
    async with client_of(server) as client:
        with pytest.raises(openai.NotFoundError) as refused:
            await say(client, model="voice-9")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


async def test_a_refusal_of_the_provider_keeps_its_status(server: Any) -> None:
    server.vendor.tts.cue(TtsCue(fault=Status(429, retry_after="7")), TtsCue(fault=Status(401)))
    async with client_of(server) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await say(client)
        assert refused.value.response.headers["Retry-After"] == "7"
        with pytest.raises(openai.InternalServerError) as failed:
            await say(client)
    assert failed.value.status_code == 502


async def test_a_failure_in_the_middle_is_no_end(server: Any) -> None:
    """A client can't mistake half of the audio for all of it."""
    server.vendor.tts.usual = TtsCue(fault=Cut(after=24_000))
    async with client_of(server) as client:
        with pytest.raises(openai.APIConnectionError):
            await say(client, response_format="pcm")
        body = {"model": "default", "input": TEXT, "response_format": "pcm", "stream_format": "sse"}
        async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/audio/speech", json=body) as answer:
            last = (await answer.text()).strip().rpartition("\n\n")[2]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"


@pytest.mark.parametrize("after", [0, 24_000])
async def test_a_client_that_goes_frees_the_provider(server: Any, after: int) -> None:
    hold = Hold(after=after)
    server.vendor.tts.cue(TtsCue(hold=hold))
    async with client_of(server) as client, asyncio.TaskGroup() as group:
        task = group.create_task(say(client))
        await soon(hold.reached)
        task.cancel()
    await soon((await server.vendor.tts.nth(0)).gone)


async def test_a_client_that_takes_nothing_loses_its_answer(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STUCK_S", 0.3)
    server.vendor.tts.usual = TtsCue(raw=b"\x00\x10\x00\xf0" * 9_000_000)  # 13 minutes, 36 MB
    body = json.dumps({"model": "default", "input": TEXT, "response_format": "pcm"})
    address = server.url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*address.split(":"), limit=1_000)
    writer.write(
        f"POST /v1/audio/speech HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    await soon((await server.vendor.tts.nth(0)).gone)
    writer.transport.abort()


async def test_there_are_so_many_slots(fake_server: Any) -> None:
    hold = Hold()
    async with (
        fake_server({"server.max_audio": 1}) as server,
        client_of(server) as client,
        asyncio.TaskGroup() as group,
    ):
        server.vendor.tts.cue(TtsCue(hold=hold))
        first = group.create_task(say(client))
        await soon(hold.reached)
        with pytest.raises(openai.InternalServerError) as refused:
            await say(client)
        hold.release.set()
        assert (await first).content
        assert (await say(client)).content
    assert (refused.value.status_code, refused.value.code) == (503, "server_overloaded")


async def test_a_tts_of_the_settings_can_be_requested(fake_server: Any) -> None:
    async with fake_server({"server.speech_models": ["fake/other"]}) as server, client_of(server) as client:
        await say(client, model="fake/other")
        assert (await server.vendor.tts.nth(0)).question["model"] == "other"


async def test_the_log_has_the_figures_and_no_text(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "voicepipe")
    async with client_of(server) as client:
        await say(client)
    (line,) = [record for record in caplog.records if record.message == "speech_closed"]
    fields = line.__dict__["fields"]
    assert (fields["outcome"], fields["characters"], fields["route"]) == ("completed", len(TEXT), "fake/tts")
    assert "Everest" not in caplog.text
