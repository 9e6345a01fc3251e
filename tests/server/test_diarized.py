"""Times of words and speakers over REST: from every STT that has them, and a refusal that names those that do."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.audio import TranscriptionDiarized, TranscriptionVerbose
from pydantic import TypeAdapter

from tests.server.test_audio_tokens import client_of as secret_of
from tests.server.test_transcriptions import LONG, client_of, transcribe
from voicepipe.testing.fakes import assemblyai_stt, deepgram_stt
from voicepipe.testing.fakes.assemblyai_stt import FakeAssemblyAi
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.deepgram_stt import FakeDeepgram

pytestmark = pytest.mark.slow

KEYS = {"deepgram": deepgram_stt.KEY, "assemblyai": assemblyai_stt.KEY}


def settings(name: str, vendor: FakeDeepgram | FakeAssemblyAi) -> dict[str, object]:
    model = {"deepgram": "nova-3", "assemblyai": "universal-streaming"}[name]
    return {
        "agents.default.stt": f"{name}/{model}",
        f"providers.{name}.base_url": vendor.base_url,
        f"providers.{name}.api_key": KEYS[name],
    }


async def test_times_of_words_from_whisper(fake_server: Any) -> None:
    async with fake_server({"agents.default.stt": "fake/whisper-1"}) as server, client_of(server) as client:
        server.vendor.stt.cue(SttCue(text="One two."), SttCue(text=""), SttCue(text="Three."))
        both = await transcribe(
            client, LONG, response_format="verbose_json", timestamp_granularities=["word", "segment"]
        )
        words = await transcribe(client, response_format="verbose_json", timestamp_granularities=["word"])
        segments = await transcribe(client, response_format="verbose_json")
    assert TypeAdapter(TranscriptionVerbose).validate_python(
        both.model_dump(exclude={"voicepipe", "task"}), strict=True, extra="forbid"
    )
    assert [word.word for word in both.words] == ["One", "two.", "Three."]
    assert (both.words[1].start, both.words[1].end) == (0.25, 0.5)
    assert both.words[2].start == both.segments[1].start
    assert (words.segments, len(words.words)) == (None, 4)
    assert (segments.words, len(segments.segments)) == (None, 1)


@pytest.mark.parametrize("name", ["deepgram", "assemblyai"])
async def test_speakers_from_a_stream(fake_server: Any, name: str) -> None:
    speakers = {"deepgram": "0011", "assemblyai": "AABB"}[name]
    async with (
        FakeDeepgram() if name == "deepgram" else FakeAssemblyAi() as vendor,
        fake_server(settings(name, vendor)) as server,
        client_of(server) as client,
    ):
        vendor.script.cue(
            SttCue(text="How are you? Fine.", speakers=speakers[1:] + speakers[-1]),
            SttCue(text="Good. And you?", speakers=speakers[-1] + "  "),
            SttCue(text="Me?", speakers=speakers[0]),
        )
        answer = await transcribe(client, LONG, response_format="diarized_json", chunking_strategy="auto")
    assert TypeAdapter(TranscriptionDiarized).validate_python(
        answer.model_dump(exclude={"voicepipe"}), strict=True, extra="forbid"
    )
    assert [(segment.speaker, segment.text) for segment in answer.segments] == [
        ("A", "How"),
        ("B", "are you? Fine."),
        ("B", "Good. And you?"),
        ("A", "Me?"),
    ]
    assert answer.text == "How are you? Fine. Good. And you? Me?"
    assert len({segment.id for segment in answer.segments}) == 4
    times = [at for segment in answer.segments for at in (segment.start, segment.end)]
    assert times == sorted(times)
    assert times[0] == pytest.approx(0, abs=0.1)
    assert times[-1] == pytest.approx(61.0, abs=0.3)


async def test_segments_stream_as_they_are_known(fake_server: Any) -> None:
    async with (
        FakeDeepgram() as vendor,
        fake_server(settings("deepgram", vendor)) as server,
        client_of(server) as client,
    ):
        vendor.script.cue(SttCue(text="Hello. Hi.", speakers="01"))
        events = [event async for event in await transcribe(client, response_format="diarized_json", stream=True)]
    assert [event.type for event in events] == [
        "transcript.text.delta",
        "transcript.text.segment",
        "transcript.text.delta",
        "transcript.text.segment",
        "transcript.text.done",
    ]
    assert [event.delta for event in events[0:4:2]] == ["Hello.", " Hi."]
    assert [(event.speaker, event.text) for event in events[1:4:2]] == [("A", "Hello."), ("B", "Hi.")]
    assert events[2].segment_id == events[3].id
    assert events[-1].text == "Hello. Hi."


async def test_speakers_are_labelled_only_on_request(fake_server: Any) -> None:
    async with (
        FakeDeepgram() as vendor,
        fake_server(settings("deepgram", vendor)) as server,
        client_of(server) as client,
    ):
        await transcribe(client, response_format="verbose_json", timestamp_granularities=["word"])
        assert "diarize" not in dict((await vendor.nth(0)).query)


@pytest.mark.parametrize(
    ("more", "param", "what"),
    [
        (
            {"response_format": "verbose_json", "timestamp_granularities": ["word"]},
            "timestamp_granularities",
            "no times of words",
        ),
        ({"response_format": "diarized_json"}, "response_format", "no speakers"),
    ],
)
async def test_a_refusal_names_who_has_them(fake_server: Any, more: dict[str, Any], param: str, what: str) -> None:
    others = {"server.transcription_models": ["deepgram/nova-3"], "providers.deepgram.api_key": "dg"}
    async with fake_server(others) as server:
        async with client_of(server) as client:
            with pytest.raises(openai.BadRequestError, match=what) as refused:
                await transcribe(client, **more)
        assert (refused.value.code, refused.value.param) == ("unsupported_parameter", param)
        assert "page on the gateway" in str(refused.value)
        assert "deepgram/nova-3" in str(refused.value)
        async with await secret_of(server) as client:
            with pytest.raises(openai.BadRequestError, match=what) as refused:
                await transcribe(client, **more)
        assert "deepgram/nova-3" not in str(refused.value)  # no list for a page
        assert server.vendor.stt.received == []


async def test_a_provider_that_sends_no_times(fake_server: Any) -> None:
    async with fake_server({"agents.default.stt": "fake/whisper-1"}) as server, client_of(server) as client:
        server.vendor.stt.cue(SttCue(raw=b'{"text": "One."}'))
        with pytest.raises(openai.InternalServerError, match="times of words"):
            await transcribe(client, response_format="verbose_json", timestamp_granularities=["word"])
