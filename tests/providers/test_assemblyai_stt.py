"""What the AssemblyAI transcriber sends, and how it reads the vendor's turn messages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import pytest

from voicepipe.errors import ConfigError, StageBroken, StageError, StageExpired, StageRefused, StageTimeout
from voicepipe.ports.transcriber import EndOfTurn, Final, Interim, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.providers.assemblyai import stt
from voicepipe.providers.assemblyai.stt import AssemblyAiOptions, open_transcriber
from voicepipe.providers.built_in import factory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import next_end_of_turn, next_text, push
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.assemblyai_stt import KEY, FakeAssemblyAi, error, turn
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_connection import SttConnection

SPEC = Spec("assemblyai", "universal-streaming")
TRANSCRIPTION = TranscriptionOptions(model="universal-streaming", language="en-US")
SECOND = tone("x" * 25, rate_hz=16_000)
MakeTranscriber = Callable[..., Transcriber]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeAssemblyAi]:
    """A vendor that says only what the test says."""
    async with FakeAssemblyAi() as vendor:
        vendor.script.usual = None
        yield vendor


@pytest.fixture
def make_transcriber(vendor: FakeAssemblyAi, transcriber_factory: Callable[..., MakeTranscriber]) -> MakeTranscriber:
    """Make a transcriber, with options as keywords."""
    return transcriber_factory(SPEC, vendor.base_url, kind="assemblyai", key=KEY)


@asynccontextmanager
async def calling(
    vendor: FakeAssemblyAi, transcriber: Transcriber
) -> AsyncIterator[tuple[TranscriptStream, SttConnection]]:
    """A stream that is up with a second of its first utterance pushed, and the vendor's end of it."""
    async with transcriber.open(TRANSCRIPTION) as stream:
        call = await vendor.nth(0)
        stream.begin(1)
        push(stream, SECOND)
        yield stream, call


# --- what is sent -----------------------------------------------------------------------------


def test_registry_finds_it() -> None:
    assert factory("assemblyai", "stt", key="agents.default.stt") is open_transcriber
    capabilities = open_transcriber(
        SPEC, ProviderSettings(kind="assemblyai", base_url="ws://127.0.0.1:1/v3")
    ).capabilities
    assert (
        capabilities.rate_hz,
        capabilities.streams,
        capabilities.partials,
        capabilities.finalize,
        capabilities.turn_events,
    ) == (16_000, True, True, True, True)


async def test_handshake(vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber) -> None:
    """The bare key, and a query that the vendor's reference knows."""
    async with calling(vendor, make_transcriber()) as (_, call):
        pass
    assert call.headers["Authorization"] == KEY
    assert dict(call.query) == {
        "speech_model": "universal-streaming-english",
        "sample_rate": "16000",
        "encoding": "pcm_s16le",
        "end_of_turn_confidence_threshold": "0.4",
        "min_turn_silence": "160",
        "max_turn_silence": "1280",
        "format_turns": "false",
    }


def query(transcription: TranscriptionOptions, **options: str) -> dict[str, list[str]]:
    settings = ProviderSettings(kind="assemblyai", options=tuple(options.items()))
    return parse_qs(AssemblyAiOptions.of(SPEC, settings).query(transcription))


@pytest.mark.parametrize(
    ("model", "language", "speech_model", "detects", "formats"),
    [
        ("universal-streaming", "en", "universal-streaming-english", False, True),
        ("universal-streaming", None, "universal-streaming-multilingual", True, True),
        ("universal-streaming", "pt-BR", "universal-streaming-multilingual", True, True),
        ("universal-streaming-english", "de", "universal-streaming-english", False, True),
        ("u3-rt-pro", None, "u3-rt-pro", False, False),
    ],
)
def test_model(model: str, language: str | None, speech_model: str, detects: bool, formats: bool) -> None:
    """The family's name stands for the model of the language; a model's own name is taken as it is."""
    sent = query(TranscriptionOptions(model=model, language=language))
    assert sent["speech_model"] == [speech_model]
    assert ("language_detection" in sent, "format_turns" in sent) == (detects, formats)


def test_query() -> None:
    """Terms of the prompt as a list; options; what is added wins."""
    sent = query(
        TranscriptionOptions(model="universal-streaming", prompt="Zürich, Maïs"),
        end_of_turn_confidence="1",
        min_turn_silence_ms="400",
        extra='{"format_turns": "true"}',
    )
    assert json.loads(sent["keyterms_prompt"][0]) == ["Zürich", "Maïs"]
    assert (sent["end_of_turn_confidence_threshold"], sent["min_turn_silence"]) == (["1"], ["400"])
    assert sent["format_turns"] == ["true"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"end_of_turn_confidence": "2"}, "a number from 0 to 1"),
        ({"min_turn_silence_ms": "x"}, "from 0 to 10000"),
        ({"extra": "[]"}, "a JSON object"),
        ({"formatted": "true"}, "unknown for kind assemblyai"),
    ],
)
def test_wrong_option(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        query(TRANSCRIPTION, **options)


async def test_audio_messages_are_as_long_as_the_vendor_takes(
    vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber
) -> None:
    """50 to 1000 ms; what is too short at a flush is filled up, and moves no position."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.push(SECOND[:320])
        stream.flush(1)
        await call.until(lambda: call.controls == ["ForceEndpoint"])
        assert all(1_600 <= n_bytes <= 32_000 for n_bytes in call.message_bytes)
        assert call.received_ms > 1_020
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND)
        await call.send(turn("yes no", 900, call.received_ms + 900, end_of_turn=True))
        assert [await next_text(stream), await next_text(stream)] == [Final(1, 1, "yes"), Final(2, 0, "no")]


async def test_left_in_good_order(vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber) -> None:
    """A session that is not ended is billed until it expires."""
    async with calling(vendor, make_transcriber()) as (_, call):
        pass
    async with promptly():
        await call.closed.wait()
    assert call.controls == ["Terminate"]
    assert call.close_code == 1000


async def test_session_ends_before_it_expires(
    vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends between two utterances: not while the user speaks, nor while a flush waits. The stream ends without an
    error.
    """
    monkeypatch.setattr(stt, "LIFETIME_MS", 1)
    monkeypatch.setattr(stt, "FIRST_FORCED_MS", LONG_TIMEOUT_MS)
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        call = await vendor.nth(0)
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        await call.until(lambda: call.controls == ["ForceEndpoint"])
        await call.send(turn("yes", 0, 900))
        assert await next_text(stream) == Interim(1, "yes")
        await call.send(turn("yes", 0, 960, end_of_turn=True))
        assert await next_text(stream) == Final(1, 1, "yes")
        assert [event async for event in stream] == [EndOfTurn(1, 0.9)]


def test_limits_are_the_vendors() -> None:
    """Three hours a session."""
    assert stt.LIFETIME_MS < 3 * 3_600_000
    assert stt.LINE.buffer_ms >= 30_000


# --- turns ------------------------------------------------------------------------------------


async def test_turn_as_it_goes(vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber) -> None:
    """Unsure words are shown; an utterance's end is reported at once; the turn's end then adds nothing."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(turn("book", 0, 300))
        assert await next_text(stream) == Interim(1, "book")
        await call.send(turn("book a table", 0, 700, utterance="Book a table."))
        assert await next_text(stream) == Final(1, 0, "book a table")
        await call.send(turn("book a table", 0, 700, end_of_turn=True))
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "book a table")
        push(stream, SECOND)
        await call.send(turn("for two", 1_000, 1_600, order=1))
        assert await next_text(stream) == Interim(1, "book a table for two")


async def test_the_vendors_confidence_comes_with_the_end_alone(
    vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber
) -> None:
    """Not with words that are still said, and not a second time with the formatted turn."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(turn("yes please", 0, 500, utterance="Yes, please."))
        await call.send(turn("yes please", 0, 500, end_of_turn=True))
        assert await next_end_of_turn(stream) == EndOfTurn(1, 0.9)
        await call.send(turn("Yes, please.", 0, 500, end_of_turn=True, formatted=True))
        await call.send(turn("now", 600, 800, order=1))
        assert await anext(aiter(stream)) == Final(1, 0, "Yes, please.")
        assert await anext(aiter(stream)) == Interim(1, "Yes, please. now")


async def test_user_continues_after_an_utterance(vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber) -> None:
    """The turn is not over: its text is said again from its beginning, and nothing of it twice."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(turn("I would", 0, 400, utterance="I would"))
        assert await next_text(stream) == Final(1, 0, "I would")
        await call.send(turn("I would like", 0, 700))
        assert await next_text(stream) == Interim(1, "I would like")
        await call.send(turn("I would like tea", 0, 900, end_of_turn=True))
        assert await next_text(stream) == Final(1, 0, "I would like tea")


async def test_formatted_turn_answers_nothing_and_revises(
    vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber
) -> None:
    """It comes after the turn's end, perhaps when the next flush waits."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.flush(1)
        await call.send(turn("yes please", 0, 500, end_of_turn=True, language="en"))
        assert await next_text(stream) == Final(1, 1, "yes please", "en")
        push(stream, SECOND)
        stream.flush(2)
        await call.send(turn("Yes, please.", 0, 500, end_of_turn=True, formatted=True))
        assert await next_text(stream) == Final(1, 0, "Yes, please.", "en")
        await call.send(turn("now", 1_500, 1_800, order=1, end_of_turn=True))
        assert await next_text(stream) == Final(1, 2, "Yes, please. now", "en")


async def test_no_speech(
    vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn to end: a noise is answered by no words, and nothing breaks."""
    monkeypatch.setattr(stt, "FIRST_FORCED_MS", 20)
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "")
        await call.send(turn("yes", 0, 900, end_of_turn=True))
        assert await next_text(stream) == Final(1, 0, "yes")


async def test_stall_in_a_turn(vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber) -> None:
    """While the user speaks the vendor must answer."""
    async with calling(vendor, make_transcriber(idle_timeout_ms=50)) as (stream, call):
        await call.send('{"type": "SpeechStarted", "timestamp": 100}')
        await call.send(turn("yes", 0, 500))
        assert await next_text(stream) == Interim(1, "yes")
        push(stream, SECOND)
        stream.flush(1)
        with pytest.raises(StageTimeout, match="no data for 50 ms"):
            await next_text(stream)


# --- errors -----------------------------------------------------------------------------------


async def test_wrong_key(vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber) -> None:
    """The refusal is reported once the socket is up."""
    async with make_transcriber(api_key="wrong").open(TRANSCRIPTION) as stream:
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.retryable) == (401, False)


@pytest.mark.parametrize(
    ("code", "words", "kind", "retryable"),
    [
        (1008, "Unauthorized Connection: insufficient balance", StageRefused, False),
        (3005, "Session Cancelled: An error occurred", StageBroken, True),
        (3006, "Invalid JSON: x", StageRefused, False),
        (3007, "Input duration violation: 20 ms. Expected between 50 and 1000 ms", StageBroken, True),
        (3008, "Session Expired: Maximum session duration exceeded", StageExpired, True),
        (3009, "Unauthorized Connection: Too many concurrent sessions", StageRefused, True),
    ],
)
async def test_documented_error(
    vendor: FakeAssemblyAi,
    make_transcriber: MakeTranscriber,
    code: int,
    words: str,
    kind: type[StageError],
    retryable: bool,
) -> None:
    """The message before the close says more than the close."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(error(code, words))
        await call.hang_up(code, "See Error message for details")
        with pytest.raises(kind) as raised:
            await next_text(stream)
    assert raised.value.retryable is retryable


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "Begin", "id": "r", "expires_at": 1}',
        '{"type": "Novelty", "words": []}',
        '{"type": "Termination", "audio_duration_seconds": 1, "session_duration_seconds": 1}',
    ],
)
async def test_message_that_says_nothing_to_us(
    vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber, message: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        await call.send(turn("yes", 0, 900, end_of_turn=True))
        assert await next_text(stream) == Final(1, 0, "yes")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ('{"type": "Error"}', r"\(0: no reason\)"),
        ('{"type": "Turn", "words": [1]}', "expected a message of the vendor's API"),
        ("words", "expected a message of the vendor's API"),
        (b"\x00\x01", "expected text, got 2 bytes"),
    ],
)
async def test_message_that_breaks(
    vendor: FakeAssemblyAi, make_transcriber: MakeTranscriber, message: str | bytes, why: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        with pytest.raises(StageBroken, match=why):
            await next_text(stream)
