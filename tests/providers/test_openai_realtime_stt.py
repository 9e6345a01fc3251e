"""What the transcribers on OpenAI's Realtime wire send, and how they read their vendors' messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from openai.types.realtime import RealtimeServerEvent, SessionUpdateEvent
from pydantic import TypeAdapter

from voicepipe.errors import ConfigError, StageBroken, StageExpired, StageRefused, StageTimeout
from voicepipe.ports.transcriber import Final, Interim, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.providers.built_in import factory
from voicepipe.providers.openai import realtime_stt
from voicepipe.providers.openai.realtime_stt import open_transcriber
from voicepipe.providers.stt import manual_commit
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import final, next_text, push
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.openai_realtime_stt import (
    KEY,
    FakeRealtimeStt,
    FakeSpeachesStt,
    FakeVllmStt,
    committed,
    completed,
    delta,
    error,
    event,
    failed,
)
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber

SPEC = Spec("openai-realtime", "gpt-live-transcribe")
TRANSCRIPTION = TranscriptionOptions(model="gpt-live-transcribe", language="en-US")
SECOND = tone("x" * 25, rate_hz=24_000)
FAKES: dict[str, type[FakeWsTranscriber]] = {
    "openai": FakeRealtimeStt,
    "speaches": FakeSpeachesStt,
    "vllm": FakeVllmStt,
}
MakeTranscriber = Callable[..., Transcriber]


@pytest.fixture
def server() -> str:
    """The vendor's server."""
    return "openai"


@pytest.fixture
async def vendor(server: str) -> AsyncIterator[FakeWsTranscriber]:
    """A vendor that says only what the test says."""
    async with FAKES[server]() as vendor:
        vendor.script.usual = None
        yield vendor


@pytest.fixture
def make_transcriber(vendor: FakeWsTranscriber, server: str) -> MakeTranscriber:
    """Make a transcriber, with options as keywords."""

    def make(*, api_key: str = KEY, idle_timeout_ms: int = LONG_TIMEOUT_MS, **options: str) -> Transcriber:
        settings = ProviderSettings(
            kind="openai_realtime",
            base_url=vendor.base_url,
            api_key=api_key,
            idle_timeout_ms=idle_timeout_ms,
            options=(("stt_server", server), *options.items()),
        )
        return open_transcriber(SPEC, settings)

    return make


at = pytest.mark.parametrize


@asynccontextmanager
async def calling(
    vendor: FakeWsTranscriber, transcriber: Transcriber, transcription: TranscriptionOptions = TRANSCRIPTION
) -> AsyncIterator[tuple[TranscriptStream, SttConnection]]:
    """Open a configured stream, and the vendor's end of it."""
    async with transcriber.open(transcription) as stream:
        call = await vendor.nth(0)
        await call.until(lambda: bool(call.texts))
        yield stream, call


# --- what is sent -----------------------------------------------------------------------------


@at(("server", "rate_hz"), [("openai", 24_000), ("speaches", 24_000), ("vllm", 16_000)])
def test_registry_finds_it(server: str, rate_hz: int) -> None:
    """The built-in name leads here; only utterances are sent, at the one rate that the server takes."""
    assert factory("openai_realtime", "stt", key="agents.default.stt") is open_transcriber
    settings = ProviderSettings(
        kind="openai_realtime", base_url="ws://127.0.0.1:1/v1", options=(("stt_server", server),)
    )
    capabilities = open_transcriber(SPEC, settings).capabilities
    assert (capabilities.rate_hz, capabilities.streams, capabilities.partials, capabilities.finalize) == (
        rate_hz,
        False,
        True,
        True,
    )


async def sent_update(
    vendor: FakeWsTranscriber, transcriber: Transcriber, transcription: TranscriptionOptions
) -> dict[str, Any]:
    """The `session.update` that the vendor gets."""
    async with calling(vendor, transcriber, transcription) as (_, call):
        update: dict[str, Any] = json.loads(call.texts[0])
    return update


async def test_session_at_openai(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    """What it says is an event that OpenAI's own package knows, with turn detection off."""
    transcription = TranscriptionOptions(model="gpt-live-transcribe", language="de-CH", prompt="Voicepipe, Zürich HB")
    update = await sent_update(
        vendor, make_transcriber(stt_noise_reduction="far_field", stt_extra='{"delay": "low"}'), transcription
    )
    SessionUpdateEvent.model_validate(update)
    assert update["session"] == {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": {
                    "model": "gpt-live-transcribe",
                    "language": "de",
                    "keywords": ["Voicepipe", "Zürich HB"],
                    "delay": "low",
                },
                "turn_detection": None,
                "noise_reduction": {"type": "far_field"},
            }
        },
    }
    assert vendor.calls[0].headers["Authorization"] == f"Bearer {KEY}"
    assert vendor.calls[0].query == [("intent", "transcription")]


@at(
    ("model", "expected"),
    [
        ("gpt-4o-transcribe", {"model": "gpt-4o-transcribe", "prompt": "Trains."}),
        ("gpt-realtime-whisper", {"model": "gpt-realtime-whisper"}),
        ("gpt-4o-transcribe-diarize", {"model": "gpt-4o-transcribe-diarize"}),
    ],
)
async def test_prompt(
    vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber, model: str, expected: dict[str, str]
) -> None:
    """For models that take one."""
    update = await sent_update(vendor, make_transcriber(), TranscriptionOptions(model=model, prompt="Trains."))
    assert update["session"]["audio"]["input"]["transcription"] == expected


@at("server", ["speaches"])
async def test_session_at_speaches(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    """The model stands in the address, and the session has the shape of the older API."""
    update = await sent_update(
        vendor, make_transcriber(), TranscriptionOptions(model="Systran/whisper", language="en-US")
    )
    assert update["session"] == {
        "turn_detection": None,
        "input_audio_transcription": {"model": "Systran/whisper", "language": "en"},
    }
    assert vendor.calls[0].query == [("intent", "transcription"), ("model", "Systran/whisper"), ("language", "en")]


@at("server", ["vllm"])
async def test_session_at_vllm(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    update = await sent_update(vendor, make_transcriber(), TRANSCRIPTION)
    assert update == {"type": "session.update", "model": "gpt-live-transcribe"}
    assert vendor.calls[0].query == []


@at(
    ("options", "why"),
    [
        ({"tier": "x"}, r"openai-realtime\.tier: unknown for kind openai_realtime"),
        ({"stt_noise_reduction": "loud"}, r"stt_noise_reduction: expected off or near_field or far_field, got 'loud'"),
        ({"stt_extra": "[]"}, r"stt_extra: expected a JSON object"),
    ],
)
def test_wrong_option(make_transcriber: MakeTranscriber, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_transcriber(**options)


async def test_wrong_key(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    async with make_transcriber(api_key="wrong").open(TRANSCRIPTION) as stream:
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.why) == (401, "HTTP 401: the key was refused")


@at("server", ["openai", "speaches"])
async def test_short_word_is_filled_up(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    """A commit of less than 100 ms is refused: silence is added, and the word is transcribed."""
    vendor.script.cue(SttCue(text="No."))
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        stream.push(SECOND[:480])
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "No.")
        assert np.array_equal(call.samples[:480], SECOND[:480])
        assert not call.samples[480:].any()


async def test_rest_of_an_utterance_is_cleared(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    """What came after its last flush is no part of the next one, nor is it paid for."""
    vendor.script.cue(SttCue(text="Yes."), SttCue(text="No."))
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "Yes.")
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(2, 1, "No.")
    assert call.controls[1:] == ["input_audio_buffer.commit", "input_audio_buffer.clear", "input_audio_buffer.commit"]


async def test_session_ends_between_two_utterances(
    vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the vendor cuts it at 60 minutes, and never in an utterance: the next stream takes over."""
    monkeypatch.setitem(realtime_stt.LIFETIME_MS, "openai", 1)
    monkeypatch.setattr(manual_commit, "QUIET_S", 0.02)
    vendor.script.cue(SttCue(text="Yes."))
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        # All said before the connection is up: an idle one would end at once.
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        async with promptly():
            assert [said async for said in stream if isinstance(said, Final)] == [Final(1, 1, "Yes.")]


# --- what is transcribed --------------------------------------------------------------------------


async def test_utterance_as_it_goes(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    """Deltas while the user speaks, before there is an item, and the whole text after the commit."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(delta("item_1", "Book"))
        await call.send(delta("item_1", " a"))
        assert [await next_text(stream), await next_text(stream)] == [Interim(1, "Book"), Interim(1, "Book a")]
        stream.flush(1)
        await vendor.script.nth(0)
        await call.send(committed("item_1"))
        await call.send(delta("item_1", " table."))
        assert await next_text(stream) == Interim(1, "Book a table.")
        await call.send(completed("item_1", "Book a table.", languages=["en"]))
        assert await next_text(stream) == Final(1, 1, "Book a table.", "en")


async def test_items_out_of_order(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    """OpenAI promises no order between items; each text is its own utterance's all the same."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        for utterance in (1, 2):
            stream.begin(utterance)
            push(stream, SECOND)
            stream.flush(1)
            await vendor.script.nth(utterance - 1)
        await call.send(committed("a"))
        await call.send(committed("b"))
        await call.send(delta("b", "No"))
        await call.send(completed("b", "No."))
        await call.send(completed("a", "Yes."))
        assert [await next_text(stream), await next_text(stream)] == [Final(1, 1, "Yes."), Final(2, 1, "No.")]


@at("server", ["vllm"])
async def test_segments_at_vllm(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    """Its texts grow while the user speaks; the next segment begins when the last one has its text."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND[:8_000])
        await call.send(json.dumps({"type": "transcription.delta", "delta": "Book"}))
        assert await next_text(stream) == Interim(1, "Book")
        stream.flush(1)
        push(stream, SECOND[:8_000])
        stream.flush(2)
        await vendor.script.nth(0)
        await call.send(json.dumps({"type": "transcription.done", "text": "Book a table", "usage": {}}))
        assert await next_text(stream) == Interim(1, "Book a table")
        await call.until(lambda: call.received_ms >= 500)
        assert call.controls[:3] == ["model", "begin", "end"]


@at("server", ["vllm"])
async def test_audio_that_waits_is_bounded(
    vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a text is due, the latest 30 s of audio are held."""
    monkeypatch.setattr("voicepipe.providers.openai.vllm_wire.WAITING_MS", 1_000)
    vendor.script.cue(SttCue(text="Yes."), SttCue(text="No."))
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, SECOND[:16_000])
        stream.flush(1)
        stream.begin(2)
        for _ in range(3):
            push(stream, SECOND[:16_000])
        stream.flush(1)
        assert [await final(stream), await final(stream)] == [Final(1, 1, "Yes."), Final(2, 1, "No.")]
    assert len(vendor.script.received[1].samples) == 2 * 16_000


def test_the_fakes_events_are_openais() -> None:
    """As its own package types them."""
    known: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
    for said in (committed("i"), delta("i", "x"), completed("i", "x", languages=["en"]), failed("i", "x"), error("x")):
        parsed = known.validate_json(said)
        assert parsed.type == json.loads(said)["type"]
        assert type(parsed).__name__ != "dict"


async def test_event_that_says_nothing_to_us(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        for kind in ("session.updated", "input_audio_buffer.cleared", "rate_limits.updated", "novelty"):
            await call.send(event(kind))
        await call.send(delta("item_1", "Yes."))
        assert await next_text(stream) == Interim(1, "Yes.")


@at(
    ("code", "status", "retryable"),
    [
        ("invalid_api_key", 401, False),
        ("insufficient_quota", 402, False),
        ("model_not_found", 404, False),
        ("rate_limit_exceeded", 429, True),
    ],
)
async def test_refusals_in_the_stream(
    vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber, code: str, status: int, retryable: bool
) -> None:
    """The API's codes as the HTTP status that says the same."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(error("no", code=code))
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.retryable) == (status, retryable)


async def test_a_session_that_grew_old(vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(error("Your session hit the maximum duration of 60 minutes.", code="session_expired"))
        with pytest.raises(StageExpired, match="60 minutes"):
            await next_text(stream)


@at(
    ("message", "why"),
    [
        (error("Session expired.", code="session_expired"), r"\(Session expired\.\)"),
        (error("too small", code="input_audio_buffer_commit_empty"), r"\(too small\)"),
        (failed("item_1", "It could not be heard."), r"\(It could not be heard\.\)"),
        ('{"type": "error", "error": "Error in generation", "code": "processing_error"}', r"\(Error in generation\)"),
        ('{"type": "error"}', r"ended its answer with an error"),
        ('{"kind": "delta"}', "expected a message of the vendor's API"),
        ("[1]", "expected a message of the vendor's API"),
        (b"\x00\x01", "expected text, got 2 bytes"),
    ],
)
async def test_message_that_breaks(
    vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber, message: str | bytes, why: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        with pytest.raises(StageBroken, match=why) as raised:
            await next_text(stream)
    assert raised.value.retryable


async def test_silence_is_no_stall_unless_an_answer_is_due(
    vendor: FakeWsTranscriber, make_transcriber: MakeTranscriber
) -> None:
    async with calling(vendor, make_transcriber(idle_timeout_ms=50)) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.until(lambda: call.received_ms == 1_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await next_text(stream)
        stream.flush(1)
        with pytest.raises(StageTimeout, match="no data for 50 ms"):
            await next_text(stream)
