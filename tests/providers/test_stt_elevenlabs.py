"""What the ear at ElevenLabs sends, and how it reads what the vendor says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageExpired, StageRefused
from voicepipe.providers.stt import elevenlabs
from voicepipe.providers.stt.elevenlabs import open_transcriber
from voicepipe.registry import ProviderSettings, Spec, factory
from voicepipe.stages.transcriber import Final, Hearing, Interim, Transcriber, TranscriptStream
from voicepipe.testing.conformance.promptness import PATIENT_MS, promptly
from voicepipe.testing.conformance.transcriber import final, heard, push
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.elevenlabs_stt import KEY, FakeScribe, committed, failed, partial
from voicepipe.testing.fakes.live_call import Call
from voicepipe.testing.fakes.tone import tone

SPEC = Spec("elevenlabs", "scribe_v2_realtime")
HEARING = Hearing(model="scribe_v2_realtime", language="en-US")
SECOND = tone("x" * 25, rate_hz=16_000)
Ear = Callable[..., Transcriber]
Late = Callable[[TranscriptStream, int], Awaitable[None]]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeScribe]:
    """A vendor that says only what the test says."""
    async with FakeScribe() as vendor:
        vendor.desk.usual = None
        yield vendor


@pytest.fixture
def ear(vendor: FakeScribe) -> Ear:
    """Make an ear, with options as keywords."""

    def make(*, api_key: str = KEY, **options: str) -> Transcriber:
        settings = ProviderSettings(
            kind="elevenlabs",
            base_url=vendor.base_url,
            api_key=api_key,
            idle_timeout_ms=PATIENT_MS,
            options=tuple(options.items()),
        )
        return open_transcriber(SPEC, settings)

    return make


@asynccontextmanager
async def calling(
    vendor: FakeScribe, transcriber: Transcriber, hearing: Hearing = HEARING
) -> AsyncIterator[tuple[TranscriptStream, Call]]:
    """A stream that is up, and the vendor's end of it."""
    async with transcriber.open(hearing) as stream:
        yield stream, await vendor.nth(0)


# --- what is sent -----------------------------------------------------------------------------


def test_registry_finds_it() -> None:
    """The built-in name leads here; only utterances are sent, and texts come while the caller speaks."""
    assert factory("elevenlabs", "stt", key="agents.default.stt") is open_transcriber
    its = open_transcriber(SPEC, ProviderSettings(kind="elevenlabs", base_url="ws://127.0.0.1:1/v1")).capabilities
    assert (its.rate_hz, its.streams, its.partials, its.finalize, its.turn_events) == (16_000, False, True, True, False)


async def test_handshake(vendor: FakeScribe, ear: Ear) -> None:
    """The key in the vendor's own header, and a query that its reference knows."""
    async with calling(vendor, ear()) as (_, call):
        pass
    assert call.headers["xi-api-key"] == KEY
    assert "Authorization" not in call.headers
    assert dict(call.query) == {
        "model_id": "scribe_v2_realtime",
        "audio_format": "pcm_16000",
        "commit_strategy": "manual",
        "language_code": "en",
    }


async def test_options_and_terms(vendor: FakeScribe, ear: Ear) -> None:
    """Terms beyond the vendor's length are left out; a pair of `stt_extra` counts more than ours."""
    hearing = Hearing(model="scribe_v2_realtime", prompt=f"Voicepipe, {'x' * 21}\nZürich HB")
    transcriber = ear(stt_keep_logs="false", stt_extra='{"no_verbatim": "true", "model_id": "other"}')
    async with calling(vendor, transcriber, hearing) as (_, call):
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
def test_wrong_option(ear: Ear, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ear(**options)


async def test_utterance_reaches_the_vendor_whole(vendor: FakeScribe, ear: Ear) -> None:
    """From before the socket is up, each sample once, and then the commit."""
    async with ear().open(HEARING) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        asked = await vendor.desk.nth(0)
    assert np.array_equal(asked.samples, SECOND)
    assert vendor.calls[0].controls == ["commit"]


async def test_short_word_is_filled_up(vendor: FakeScribe, ear: Ear) -> None:
    """A commit of less than 0.3 s would end the session: silence is added, and the word is heard."""
    vendor.desk.cue(SttCue(text="No."))
    async with calling(vendor, ear()) as (stream, call):
        stream.begin(1)
        stream.push(SECOND[:1_600])
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "No.")
        assert np.array_equal(call.samples[:1_600], SECOND[:1_600])
        assert not call.samples[1_600:].any()


async def test_a_commit_at_the_instant_when_the_waiting_ends(vendor: FakeScribe, ear: Ear, flush_late: Late) -> None:
    """A deadline is met, and before the ear is told a flush comes: it breaks no session and has its own time."""
    vendor.desk.cue(SttCue(text="Yes."))
    async with calling(vendor, ear()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.until(lambda: len(call.samples) >= len(SECOND))
        await flush_late(stream, 1)
        assert await final(stream) == Final(1, 1, "Yes.")


async def test_rest_of_an_utterance_is_committed_and_forgotten(vendor: FakeScribe, ear: Ear) -> None:
    """What came after its last flush is no part of the next one: the vendor can't forget, so its text is."""
    vendor.desk.cue(SttCue(text="Yes."), SttCue(text="Hum."), SttCue(text="No."))
    async with ear().open(HEARING) as stream:
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "Yes.")
        stream.push(SECOND[:1_600])
        stream.begin(2)
        push(stream, SECOND)
        stream.flush(1)
        assert await final(stream) == Final(2, 1, "No.")


async def test_kept_alive_by_silence(vendor: FakeScribe, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between utterances nothing else is sent, and the vendor would hang up. Leaving closes in good order."""
    monkeypatch.setattr(elevenlabs, "LINE", replace(elevenlabs.LINE, keep_alive_ms=10))
    async with calling(vendor, ear()) as (_, call):
        await call.until(lambda: call.heard_ms >= 40)
    assert not call.samples.any()
    async with promptly():
        await call.closed.wait()
    assert call.close_code == 1000


# --- what is heard ----------------------------------------------------------------------------


async def test_utterance_as_it_goes(vendor: FakeScribe, ear: Ear) -> None:
    """Partial texts, the committed one, and its repetition, which is nobody's word."""
    async with calling(vendor, ear()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.say(partial("book a"))
        assert await heard(stream) == Interim(1, "book a")
        stream.flush(1)
        await vendor.desk.nth(0)
        await call.say(committed("Book a table.", language="en"))
        assert await heard(stream) == Final(1, 1, "Book a table.", "en")
        stream.begin(2)
        push(stream, SECOND)
        await call.say(partial("Book a table."))
        await call.say(partial("Book a table."))
        assert await heard(stream) == Interim(2, "Book a table.")


@pytest.mark.parametrize(
    "message",
    [
        '{"message_type": "committed_transcript_with_timestamps", "text": "Twice.", "words": []}',
        '{"message_type": "warning", "text": "mind the gap"}',
    ],
)
async def test_message_that_says_nothing_to_us(vendor: FakeScribe, ear: Ear, message: str) -> None:
    async with calling(vendor, ear()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.say(message)
        await call.say(partial("Yes."))
        assert await heard(stream) == Interim(1, "Yes.")


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
async def test_refusals_in_the_stream(vendor: FakeScribe, ear: Ear, kind: str, status: int, retryable: bool) -> None:
    """The vendor's types of errors as the HTTP status that says the same."""
    async with calling(vendor, ear()) as (stream, call):
        await call.say(failed(kind, "the vendor's words"))
        with pytest.raises(StageRefused) as raised:
            await heard(stream)
    assert (raised.value.status, raised.value.retryable) == (status, retryable)
    assert ("the vendor's words" in raised.value.why) is (status != 401)


@pytest.mark.parametrize(
    "kind",
    ["error", "commit_throttled", "transcriber_error", "insufficient_audio_activity"],
)
async def test_breaks_in_the_stream(vendor: FakeScribe, ear: Ear, kind: str) -> None:
    """After these another stream may do better."""
    async with calling(vendor, ear()) as (stream, call):
        await call.say(failed(kind, "too bad"))
        with pytest.raises(StageBroken, match=rf"{kind} \(too bad\)") as raised:
            await heard(stream)
    assert raised.value.retryable


async def test_a_session_that_grew_old(vendor: FakeScribe, ear: Ear) -> None:
    async with calling(vendor, ear()) as (stream, call):
        await call.say(failed("session_time_limit_exceeded", "too bad"))
        with pytest.raises(StageExpired, match=r"its age \(too bad\)"):
            await heard(stream)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ('{"type": "partial_transcript"}', "expected a message of its own"),
        ('{"message_type": "partial_transcript", "text": 5}', "expected a message of its own"),
        ("[1]", "expected a message of its own"),
        (b"\x00\x01", "expected text, got 2 bytes"),
    ],
)
async def test_message_that_breaks(vendor: FakeScribe, ear: Ear, message: str | bytes, why: str) -> None:
    async with calling(vendor, ear()) as (stream, call):
        await call.say(message)
        with pytest.raises(StageBroken, match=why):
            await heard(stream)


async def test_wrong_key(vendor: FakeScribe, ear: Ear) -> None:
    """The vendor says so on a socket that it has taken."""
    async with ear(api_key="wrong").open(HEARING) as stream:
        with pytest.raises(StageRefused) as raised:
            await heard(stream)
    assert (raised.value.status, raised.value.why) == (401, "HTTP 401: the key was refused")
