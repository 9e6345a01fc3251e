"""What the ElevenLabs transcriber sends, and how it reads the vendor's messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageExpired, StageRefused
from voicepipe.ports.transcriber import Final, Interim, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.providers.built_in import factory
from voicepipe.providers.elevenlabs import stt
from voicepipe.providers.elevenlabs.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import final, next_text, push
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.elevenlabs_stt import KEY, FakeScribe, committed, failed, partial
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_connection import SttConnection

SPEC = Spec("elevenlabs", "scribe_v2_realtime")
TRANSCRIPTION = TranscriptionOptions(model="scribe_v2_realtime", language="en-US")
SECOND = tone("x" * 25, rate_hz=16_000)
MakeTranscriber = Callable[..., Transcriber]
Late = Callable[[TranscriptStream, int], Awaitable[None]]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeScribe]:
    """A vendor that says only what the test says."""
    async with FakeScribe() as vendor:
        vendor.script.usual = None
        yield vendor


@pytest.fixture
def make_transcriber(vendor: FakeScribe) -> MakeTranscriber:
    """Make a transcriber, with options as keywords."""

    def make(*, api_key: str = KEY, **options: str) -> Transcriber:
        settings = ProviderSettings(
            kind="elevenlabs",
            base_url=vendor.base_url,
            api_key=api_key,
            idle_timeout_ms=LONG_TIMEOUT_MS,
            options=tuple(options.items()),
        )
        return open_transcriber(SPEC, settings)

    return make


@asynccontextmanager
async def calling(
    vendor: FakeScribe, transcriber: Transcriber, transcription: TranscriptionOptions = TRANSCRIPTION
) -> AsyncIterator[tuple[TranscriptStream, SttConnection]]:
    """A stream that is up, and the vendor's end of it."""
    async with transcriber.open(transcription) as stream:
        yield stream, await vendor.nth(0)


# --- what is sent -----------------------------------------------------------------------------


def test_registry_finds_it() -> None:
    """The built-in name leads here; only utterances are sent, and texts come while the user speaks."""
    assert factory("elevenlabs", "stt", key="agents.default.stt") is open_transcriber
    capabilities = open_transcriber(
        SPEC, ProviderSettings(kind="elevenlabs", base_url="ws://127.0.0.1:1/v1")
    ).capabilities
    assert (
        capabilities.rate_hz,
        capabilities.streams,
        capabilities.partials,
        capabilities.finalize,
        capabilities.turn_events,
    ) == (16_000, False, True, True, False)


async def test_handshake(vendor: FakeScribe, make_transcriber: MakeTranscriber) -> None:
    """The key in the vendor's own header, and a query that its reference knows."""
    async with calling(vendor, make_transcriber()) as (_, call):
        pass
    assert call.headers["xi-api-key"] == KEY
    assert "Authorization" not in call.headers
    assert dict(call.query) == {
        "model_id": "scribe_v2_realtime",
        "audio_format": "pcm_16000",
        "commit_strategy": "manual",
        "language_code": "en",
    }


async def test_options_and_terms(vendor: FakeScribe, make_transcriber: MakeTranscriber) -> None:
    """Terms beyond the vendor's length are left out; a pair of `stt_extra` counts more than ours."""
    transcription = TranscriptionOptions(model="scribe_v2_realtime", prompt=f"Voicepipe, {'x' * 21}\nZürich HB")
    transcriber = make_transcriber(stt_keep_logs="false", stt_extra='{"no_verbatim": "true", "model_id": "other"}')
    async with calling(vendor, transcriber, transcription) as (_, call):
        pass
    assert call.query == [
        ("audio_format", "pcm_16000"),
        ("commit_strategy", "manual"),
        ("enable_logging", "false"),
        ("keyterms", "Voicepipe"),
        ("keyterms", "Zürich HB"),
        ("no_verbatim", "true"),
        ("model_id", "other"),
    ]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tier": "x"}, r"providers\.elevenlabs\.tier: unknown for kind elevenlabs"),
        ({"stt_keep_logs": "1"}, r"elevenlabs\.stt_keep_logs: expected true or false, got '1'"),
        ({"stt_extra": '{"a": 1}'}, r"elevenlabs\.stt_extra: expected a JSON object"),
    ],
)
def test_wrong_option(make_transcriber: MakeTranscriber, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_transcriber(**options)


async def test_utterance_reaches_the_vendor_whole(vendor: FakeScribe, make_transcriber: MakeTranscriber) -> None:
    """From before the socket is up, each sample once, and then the commit."""
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        received = await vendor.script.nth(0)
    assert np.array_equal(received.samples, SECOND)
    assert vendor.calls[0].controls == ["commit"]


async def test_short_word_is_filled_up(vendor: FakeScribe, make_transcriber: MakeTranscriber) -> None:
    """A commit of less than 0.3 s would end the session: silence is added, and the word is transcribed."""
    vendor.script.cue(SttCue(text="No."))
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        stream.push(SECOND[:1_600])
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "No.")
        assert np.array_equal(call.samples[:1_600], SECOND[:1_600])
        assert not call.samples[1_600:].any()


async def test_a_commit_at_the_instant_when_the_waiting_ends(
    vendor: FakeScribe, make_transcriber: MakeTranscriber, flush_late: Late
) -> None:
    """A flush comes when a deadline is met, before the transcriber is notified: it breaks no session and has its own
    time.
    """
    vendor.script.cue(SttCue(text="Yes."))
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.until(lambda: len(call.samples) >= len(SECOND))
        await flush_late(stream, 1)
        assert await final(stream) == Final(1, 1, "Yes.")


async def test_rest_of_an_utterance_is_committed_and_ignored(
    vendor: FakeScribe, make_transcriber: MakeTranscriber
) -> None:
    """What came after its last flush is no part of the next one: the vendor can't forget, so its text is."""
    vendor.script.cue(SttCue(text="Yes."), SttCue(text="Hum."), SttCue(text="No."))
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "Yes.")
        stream.push(SECOND[:1_600])
        stream.begin(2)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(2, 1, "No.")


async def test_keep_alive_by_silence(
    vendor: FakeScribe, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between utterances nothing else is sent, and the vendor would hang up. Leaving closes in good order."""
    monkeypatch.setattr(stt, "KEEP_ALIVE_MS", 10)
    async with calling(vendor, make_transcriber()) as (_, call):
        await call.until(lambda: call.received_ms >= 40)
    assert not call.samples.any()
    async with promptly():
        await call.closed.wait()
    assert call.close_code == 1000


# --- what is transcribed --------------------------------------------------------------------------


async def test_utterance_as_it_goes(vendor: FakeScribe, make_transcriber: MakeTranscriber) -> None:
    """Partial texts, the committed one, and its repetition, which belongs to no utterance."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(partial("book a"))
        assert await next_text(stream) == Interim(1, "book a")
        stream.flush(1)
        await vendor.script.nth(0)
        await call.send(committed("Book a table.", language="en"))
        assert await next_text(stream) == Final(1, 1, "Book a table.", "en")
        stream.begin(2)
        push(stream, SECOND)
        await call.send(partial("Book a table."))
        await call.send(partial("Book a table."))
        assert await next_text(stream) == Interim(2, "Book a table.")


@pytest.mark.parametrize(
    "message",
    [
        '{"message_type": "committed_transcript_with_timestamps", "text": "Twice.", "words": []}',
        '{"message_type": "warning", "text": "mind the gap"}',
    ],
)
async def test_message_that_says_nothing_to_us(
    vendor: FakeScribe, make_transcriber: MakeTranscriber, message: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(message)
        await call.send(partial("Yes."))
        assert await next_text(stream) == Interim(1, "Yes.")


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [
        ("auth_error", 401, False),
        ("quota_exceeded", 402, False),
        ("unaccepted_terms", 403, False),
        ("input_error", 400, False),
        ("invalid_request", 400, False),
        ("chunk_size_exceeded", 413, False),
        ("rate_limited", 429, True),
        ("queue_overflow", 429, True),
        ("resource_exhausted", 503, True),
    ],
)
async def test_refusals_in_the_stream(
    vendor: FakeScribe, make_transcriber: MakeTranscriber, kind: str, status: int, retryable: bool
) -> None:
    """The vendor's types of errors as the HTTP status that says the same."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(failed(kind, "the vendor's words"))
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.retryable) == (status, retryable)
    assert ("the vendor's words" in raised.value.why) is (status != 401)


@pytest.mark.parametrize(
    "kind",
    ["error", "commit_throttled", "transcriber_error", "insufficient_audio_activity"],
)
async def test_breaks_in_the_stream(vendor: FakeScribe, make_transcriber: MakeTranscriber, kind: str) -> None:
    """After these another stream may do better."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(failed(kind, "too bad"))
        with pytest.raises(StageBroken, match=rf"{kind} \(too bad\)") as raised:
            await next_text(stream)
    assert raised.value.retryable


async def test_a_session_that_grew_old(vendor: FakeScribe, make_transcriber: MakeTranscriber) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(failed("session_time_limit_exceeded", "too bad"))
        with pytest.raises(StageExpired, match=r"its age \(too bad\)"):
            await next_text(stream)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ('{"type": "partial_transcript"}', "expected a message of the vendor's API"),
        ('{"message_type": "partial_transcript", "text": 5}', "expected a message of the vendor's API"),
        ("[1]", "expected a message of the vendor's API"),
        (b"\x00\x01", "expected text, got 2 bytes"),
    ],
)
async def test_message_that_breaks(
    vendor: FakeScribe, make_transcriber: MakeTranscriber, message: str | bytes, why: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        with pytest.raises(StageBroken, match=why):
            await next_text(stream)


async def test_wrong_key(vendor: FakeScribe, make_transcriber: MakeTranscriber) -> None:
    """The vendor says so on a socket that it has taken."""
    async with make_transcriber(api_key="wrong").open(TRANSCRIPTION) as stream:
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.why) == (401, "HTTP 401: the key was refused")
