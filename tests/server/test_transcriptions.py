"""Transcriptions over REST with the `openai` package, sync and async, against a server with a fake vendor behind it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
import soundfile
from openai.types.audio import TranscriptionVerbose
from pydantic import TypeAdapter

from voicepipe.audio.files import wav_bytes
from voicepipe.audio.samples import silence
from voicepipe.server import body_limits, form_reader, request_bodies
from voicepipe.server.gateway import uploaded_recording
from voicepipe.testing.fakes.cues import Hang, Hold, Status, SttCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone

pytestmark = pytest.mark.slow

RATE_HZ = 16_000
SHORT = wav_bytes(tone("x" * 50, rate_hz=RATE_HZ), RATE_HZ)  # 2 s
SPOKEN, PAUSE = tone("x" * 500, rate_hz=RATE_HZ), silence(RATE_HZ // 2)  # 20 s, 0.5 s
LONG = wav_bytes(np.concatenate([SPOKEN, PAUSE, SPOKEN, PAUSE, SPOKEN]), RATE_HZ)


def client_of(server: Any, key: str = "any") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


@pytest.fixture
async def server(fake_server: Any) -> Any:
    async with fake_server({"agents.default.aliases": ["whisper-1"]}) as opened:
        yield opened


async def transcribe(client: openai.AsyncOpenAI, file: bytes = SHORT, **more: Any) -> Any:
    create_options: Any = {"model": "default", "file": ("speech.wav", file), **more}
    return await client.audio.transcriptions.create(**create_options)


async def test_what_was_said(server: Any) -> None:
    server.vendor.stt.usual = SttCue(text="What time is it?")
    async with client_of(server) as client:
        answer = await transcribe(client, language="de-CH", prompt="Uhrzeit", temperature=0.25)
    assert answer.text == "What time is it?"
    assert (answer.usage.type, answer.usage.seconds) == ("duration", 2.0)
    create_options = await server.vendor.stt.nth(0)
    fields = create_options.question
    assert (fields["model"], fields["language"], fields["prompt"]) == ("stt", "de", "Uhrzeit")
    assert fields["temperature"] == "0.25"
    assert len(create_options.samples) == 2 * RATE_HZ


async def test_the_sync_client(server: Any, question: Path) -> None:
    def request() -> tuple[Any, list[Any]]:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            whole = client.audio.transcriptions.create(model="whisper-1", file=question, response_format="text")
            with question.open("rb") as file:
                events = list(client.audio.transcriptions.create(model="fake/stt", file=file, stream=True))
            return whole, events

    whole, events = await asyncio.to_thread(request)
    assert whole == "what time is it\n"
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3"])
async def test_files_of_many_kinds(server: Any, kind: str) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone("x" * 50)] * 2, axis=1), 24_000, format=kind)
    async with client_of(server) as client:
        assert (await transcribe(client, file.getvalue())).text == "what time is it"
    samples = (await server.vendor.stt.nth(0)).samples
    assert len(samples) == pytest.approx(2 * RATE_HZ, abs=0.1 * RATE_HZ)
    assert np.abs(samples).max() > 6_000


async def test_long_speech_is_transcribed_in_pieces(server: Any) -> None:
    server.vendor.stt.cue(SttCue(text="One."), SttCue(text=""), SttCue(text="Three."))
    async with client_of(server) as client:
        answer = await transcribe(client, LONG, response_format="verbose_json", timestamp_granularities=["segment"])
    assert (answer.text, answer.duration) == ("One. Three.", 61.0)
    assert [segment.text for segment in answer.segments] == ["One.", "Three."]
    first, last = answer.segments
    assert (first.id, first.start, last.id, last.end) == (0, 0, 1, 61.0)
    assert TypeAdapter(TranscriptionVerbose).validate_python(answer.model_dump(exclude={"voicepipe"}), strict=True)
    assert answer.language == "und"
    assert first.end == pytest.approx(20.25, abs=0.3)
    assert sum(len(create_options.samples) for create_options in server.vendor.stt.received) == 61 * RATE_HZ


async def test_text_streams_during_transcription(server: Any) -> None:
    hold = Hold()
    server.vendor.stt.cue(SttCue(text="One."), SttCue(text="Two.", hold=hold), SttCue(text="Three."))
    async with client_of(server) as client:
        stream = await transcribe(client, LONG, stream=True)
        first = await anext(stream)
        await soon(hold.reached)
        hold.release.set()
        rest = [event async for event in stream]
    assert [event.delta for event in (first, *rest[:-1])] == ["One.", " Two.", " Three."]
    assert (rest[-1].type, rest[-1].text) == ("transcript.text.done", "One. Two. Three.")


async def test_subtitles(server: Any) -> None:
    server.vendor.stt.usual = SttCue(text="So --> there.")
    async with client_of(server) as client:
        assert await transcribe(client, response_format="srt") == "1\n00:00:00,000 --> 00:00:02,000\nSo -> there.\n"
        assert (
            await transcribe(client, response_format="vtt") == "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nSo -> there.\n"
        )


async def test_silence_is_no_word(server: Any) -> None:
    server.vendor.stt.usual = SttCue(text="")
    async with client_of(server) as client:
        assert (await transcribe(client)).text == ""
        events = [event async for event in await transcribe(client, stream=True)]
    assert [event.type for event in events] == ["transcript.text.done"]


@pytest.mark.parametrize(
    ("form", "param", "code"),
    [
        ({"file": SHORT}, "model", "missing_required_parameter"),
        ({"model": "default"}, "file", "missing_required_parameter"),
        ({"model": "default", "file": b"no sound"}, "file", "invalid_file_format"),
        ({"model": "default", "file": wav_bytes(silence(0), RATE_HZ)}, "file", "audio_too_short"),
        ({"model": "default", "file": SHORT, "response_format": "xml"}, "response_format", "invalid_value"),
        ({"model": "default", "file": SHORT, "stream": "true", "response_format": "srt"}, "response_format", None),
        ({"model": "default", "file": SHORT, "temperature": "2"}, "temperature", "invalid_value"),
        ({"model": "default", "file": SHORT, "temperature": "warm"}, "temperature", "invalid_type"),
        ({"model": "default", "file": SHORT, "include[]": "logprobs"}, "include", "unsupported_parameter"),
        ({"model": "default", "file": SHORT, "timestamp_granularities[]": "word"}, "response_format", None),
        ({"model": "default", "file": SHORT, "timestamp_granularities[]": "line"}, "timestamp_granularities", None),
        ({"model": "default", "file": SHORT, "lang": "de"}, "lang", "unknown_parameter"),
        ({"model": "default", "file": SHORT, "prompt": "x" * 5_000}, "prompt", "string_above_max_length"),
    ],
)
async def test_wrong_requests(server: Any, form: dict[str, Any], param: str, code: str | None) -> None:
    body = aiohttp.FormData()
    for name, value in form.items():
        body.add_field(name, value, filename="a.wav" if name == "file" else None)
    body.add_field("chunking_strategy", "auto")
    status, error = await post(server, data=body)
    assert (status, error["param"]) == (400, param), error
    assert error["code"] == code or code is None
    assert server.vendor.stt.received == []


async def post(server: Any, **more: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/audio/transcriptions", **more) as answer,
    ):
        return answer.status, (await answer.json())["error"]


@pytest.mark.parametrize(
    "more",
    [
        {"json": {"model": "default"}},
        {"data": b"", "headers": {"Content-Type": "multipart/form-data"}},
        {"data": b"--x\r\nnothing", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"data": b"--x--\r\n", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
    ],
)
async def test_what_is_no_form(server: Any, more: dict[str, Any]) -> None:
    status, error = await post(server, **more)
    assert (status, error["type"]) == (400, "invalid_request_error")


async def test_a_file_that_is_too_large(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it says of itself, or by what comes."""
    monkeypatch.setattr(form_reader, "FILE_BYTES", 100_000)
    monkeypatch.setattr(form_reader, "FIELD_BYTES", 1_000)
    async with client_of(server) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await transcribe(client, b"x" * 500_000)
        assert (refused.value.status_code, refused.value.code) == (413, "request_too_large")
        with pytest.raises(openai.APIStatusError) as refused:
            await transcribe(client, b"x" * 100_500)
        assert refused.value.status_code == 413
        with pytest.raises(openai.BadRequestError) as wrong:
            await transcribe(client, b"x", prompt="x" * 2_000)
        assert (wrong.value.code, wrong.value.param) == ("form_too_large", "prompt")


async def test_a_file_that_is_too_long(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploaded_recording, "MAX_DURATION_S", 45)
    async with client_of(server) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await transcribe(client, LONG)
    assert (refused.value.code, refused.value.param) == ("audio_too_long", "file")


@asynccontextmanager
async def uploading(server: Any, **more: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """The beginning of an upload whose rest does not come."""
    address = server.url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*address.split(":"), **more)
    writer.write(
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n".encode()
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_an_upload_that_stalls_ends(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "GRACE_S", 0.2)
    async with uploading(server) as (reader, _):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")


async def test_an_upload_that_trickles_ends(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte gives it time for a byte, not for another wait."""
    monkeypatch.setattr(request_bodies, "GRACE_S", 0.3)

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(b'Content-Disposition: form-data; name="file"\r\n\r\n')
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    async with uploading(server) as (reader, writer), asyncio.TaskGroup() as group:
        trickling = group.create_task(trickle(writer))
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        trickling.cancel()


async def test_uploads_on_their_way_take_no_slot(fake_server: Any) -> None:
    """However many uploads are running, a client that has sent its whole recording is served meanwhile."""
    async with (
        fake_server({"server.max_audio": 2}) as server,
        AsyncExitStack() as stack,
        client_of(server) as client,
    ):
        for _ in range(8):
            reader, _ = await stack.enter_async_context(uploading(server))
        assert (await transcribe(client)).text == "what time is it"
        assert not reader.at_eof()


async def test_an_address_has_so_many_uploads_on_their_way(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest of its own goes; other addresses are not concerned."""
    monkeypatch.setattr(body_limits, "ADDRESS_BODIES", 3)
    async with AsyncExitStack() as stack, client_of(server) as client:
        other, _ = await stack.enter_async_context(uploading(server, local_addr=("127.0.0.2", 0)))
        ours = [(await stack.enter_async_context(uploading(server)))[0] for _ in range(5)]
        ended = [asyncio.ensure_future(reader.readline()) for reader in (*ours, other)]
        while sum(line.done() for line in ended) < 2:
            await asyncio.wait([line for line in ended if not line.done()], return_when=asyncio.FIRST_COMPLETED)
        assert {line.result()[:12] for line in ended if line.done()} == {b"HTTP/1.1 503"}
        assert not ended[-1].done()
        assert (await transcribe(client)).text == "what time is it"
        for line in ended:
            line.cancel()


async def test_a_body_whose_time_is_over_is_not_ended_again() -> None:
    """Another request that makes room in the same turn of the loop must not fail for it."""
    deadline = request_bodies.BodyDeadline()

    async def read() -> None:
        async with deadline.limit:
            deadline.limit.reschedule(0)
            try:
                await asyncio.Event().wait()
            finally:
                deadline.cut()
                deadline.extend(1)

    with pytest.raises(TimeoutError):
        await read()
    assert not deadline.is_cut


async def test_bodies_on_their_way_have_so_much_memory_and_no_more(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload that holds most of the memory is refused, not the newest one."""
    monkeypatch.setattr(body_limits, "ALL_BYTES", 150_000)
    async with uploading(server, local_addr=("127.0.0.2", 0)) as (little, few), uploading(server) as (first, much):
        few.write(b'Content-Disposition: form-data; name="file"\r\n\r\n' + b"x" * 20_000)
        much.write(b'Content-Disposition: form-data; name="file"\r\n\r\n' + b"x" * 90_000)
        async with uploading(server) as (second, more):
            more.write(b'Content-Disposition: form-data; name="file"\r\n\r\n' + b"x" * 90_000)
            lines = [asyncio.ensure_future(reader.readline()) for reader in (first, second, little)]
            done, _ = await asyncio.wait(lines, return_when=asyncio.FIRST_COMPLETED)
            assert [line.result()[:12] for line in done] == [b"HTTP/1.1 503"]
            assert not lines[-1].done()
            for line in lines:
                line.cancel()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/audio/speech", "/v1/realtime/client_secrets"])
async def test_other_bodies_that_stall_end_too(server: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "GRACE_S", 0.2)
    address = server.url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000\r\n\r\n{{".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.transport.abort()


async def test_failures_of_the_provider(server: Any) -> None:
    server.vendor.stt.cue(SttCue(fault=Status(429, retry_after="7")), SttCue(text="One."), SttCue(fault=Status(500)))
    async with client_of(server) as client:
        with pytest.raises(openai.RateLimitError):
            await transcribe(client)
        stream = await transcribe(client, LONG, stream=True)
        assert (await anext(stream)).delta == "One."
        with pytest.raises(openai.APIError):
            await anext(stream)


async def test_a_client_that_goes_frees_the_provider(server: Any) -> None:
    server.vendor.stt.cue(SttCue(fault=Hang()))
    async with client_of(server) as client, asyncio.TaskGroup() as group:
        task = group.create_task(transcribe(client))
        create_options = await server.vendor.stt.nth(0)
        task.cancel()
    await soon(create_options.gone)


async def test_the_log_has_the_figures_and_no_text(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "voicepipe")
    async with client_of(server) as client:
        await transcribe(client)
    (line,) = [record for record in caplog.records if record.message == "transcription_closed"]
    assert (line.__dict__["fields"]["outcome"], line.__dict__["fields"]["audio_ms"]) == ("completed", 2_000)
    assert "what time" not in caplog.text


async def test_usage_stands_in_the_plain_answer_and_the_last_event(server: Any) -> None:
    form = aiohttp.FormData({"model": "default", "stream": "true"})
    form.add_field("file", SHORT, filename="a.wav")
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/audio/transcriptions", data=form) as answer,
    ):
        done = json.loads((await answer.text()).strip().rpartition("\n\n")[2].removeprefix("data: "))
    assert done["usage"] == {"type": "duration", "seconds": 2.0}
    assert done["voicepipe"]["route"] == "fake/stt"
