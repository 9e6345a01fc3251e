"""What the Deepgram transcriber sends, and how it reads the vendor's messages, in whatever order they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageRefused, StageTimeout
from voicepipe.ports.transcriber import Final, Interim, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.providers.built_in import factory
from voicepipe.providers.deepgram import stt
from voicepipe.providers.deepgram.stt import open_transcriber
from voicepipe.providers.deepgram.stt_options import DeepgramOptions
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import final, next_text, push
from voicepipe.testing.conformance.waits import promptly
from voicepipe.testing.fakes.deepgram_stt import KEY, FakeDeepgram, results
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_connection import SttConnection
from voicepipe.testing.waiting import eventually
from voicepipe.values import replace

SPEC = Spec("deepgram", "nova-3")
TRANSCRIPTION = TranscriptionOptions(model="nova-3", language="en-US")
SECOND = tone("x" * 25, rate_hz=16_000)
MakeTranscriber = Callable[..., Transcriber]
Late = Callable[[TranscriptStream, int], Awaitable[None]]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeDeepgram]:
    """A vendor that says only what the test says."""
    async with FakeDeepgram() as vendor:
        vendor.script.usual = None
        yield vendor


@pytest.fixture
def make_transcriber(vendor: FakeDeepgram, transcriber_factory: Callable[..., MakeTranscriber]) -> MakeTranscriber:
    """Make a transcriber, with options as keywords."""
    return transcriber_factory(SPEC, vendor.base_url, kind="deepgram", key=KEY)


@asynccontextmanager
async def calling(
    vendor: FakeDeepgram, transcriber: Transcriber
) -> AsyncIterator[tuple[TranscriptStream, SttConnection]]:
    """A stream that is up, and the vendor's end of it."""
    async with transcriber.open(TRANSCRIPTION) as stream:
        yield stream, await vendor.nth(0)


async def flushed(call: SttConnection, n: int) -> None:
    """Wait until the vendor has seen that many `Finalize`."""
    await call.until(lambda: call.controls.count("Finalize") == n)


# --- what is sent -----------------------------------------------------------------------------


def test_registry_finds_it() -> None:
    """The built-in name leads here, and its capabilities are those of a streaming transcriber."""
    assert factory("deepgram", "stt", key="agents.default.stt") is open_transcriber
    capabilities = open_transcriber(
        SPEC, ProviderSettings(kind="deepgram", base_url="ws://127.0.0.1:1/v1")
    ).capabilities
    assert (
        capabilities.rate_hz,
        capabilities.streams,
        capabilities.partials,
        capabilities.finalize,
        capabilities.turn_events,
    ) == (16_000, True, True, True, False)


async def test_handshake(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """The key in Deepgram's own scheme, and a query that its reference knows."""
    async with calling(vendor, make_transcriber()) as (_, call):
        pass
    assert call.headers["Authorization"] == f"Token {KEY}"
    assert dict(call.query) == {
        "model": "nova-3",
        "language": "en-US",
        "encoding": "linear16",
        "sample_rate": "16000",
        "channels": "1",
        "interim_results": "true",
        "punctuate": "true",
        "smart_format": "false",
        "endpointing": "10",
    }


def query(transcription: TranscriptionOptions, **options: str) -> str:
    settings = ProviderSettings(kind="deepgram", options=tuple(options.items()))
    return DeepgramOptions.of(SPEC, settings).query(transcription)


@pytest.mark.parametrize(
    ("model", "language", "expected"),
    [
        ("nova-3", None, "&language=multi"),
        ("nova-3-medical", None, "&language=multi"),
        ("nova-3", "pt-BR", "&language=pt-BR"),
        ("nova-2-phonecall", None, ""),
    ],
)
def test_language(model: str, language: str | None, expected: str) -> None:
    """Found out by the models that can; the others take English."""
    sent = query(TranscriptionOptions(model=model, language=language))
    assert expected in sent
    assert ("language=" in sent) is bool(expected)


def test_prompt_becomes_terms() -> None:
    """A list of words does, for models that take them; prose has no terms in it."""
    prompt = "Voicepipe, Zürich HB\nPlease listen carefully to what the user says about trains"
    assert query(TranscriptionOptions(model="nova-3", prompt=prompt)).endswith(
        "&keyterm=Voicepipe&keyterm=Z%C3%BCrich+HB"
    )
    assert "keyterm" not in query(TranscriptionOptions(model="nova-2", prompt=prompt))


def test_options() -> None:
    sent = query(
        TRANSCRIPTION,
        endpointing_ms="0",
        smart_format="True",
        tts_extra="{}",
        extra='{"punctuate": "false", "mip_opt_out": "true"}',
    )
    for pair in ("endpointing=false", "smart_format=true", "mip_opt_out=true", "punctuate=false"):
        assert pair in sent
    assert "punctuate=true" not in sent


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tier": "x"}, r"providers\.deepgram\.tier: unknown for kind deepgram; expected one of endpointing_ms"),
        ({"endpointing_ms": "soon"}, r"deepgram\.endpointing_ms: expected milliseconds from 0 to 5000, got 'soon'"),
        ({"smart_format": "1"}, r"deepgram\.smart_format: expected true or false, got '1'"),
        ({"extra": "[]"}, r"deepgram\.extra: expected a JSON object"),
        ({"extra": '{"a": 1}'}, r"deepgram\.extra: expected a JSON object"),
    ],
)
def test_wrong_option(make_transcriber: MakeTranscriber, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_transcriber(**options)


async def test_wrong_key(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """The error has the package's own text: the vendor's may hold a part of the key."""
    async with make_transcriber(api_key="wrong").open(TRANSCRIPTION) as stream:
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.why) == (401, "HTTP 401: the key was refused")


async def test_whole_call_is_sent(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """From before the socket is up, between utterances too, each sample once."""
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        push(stream, SECOND)
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        stream.push(SECOND[:0])
        push(stream, SECOND)
        call = await vendor.nth(0)
        await call.until(lambda: call.received_ms == 3_000)
    assert np.array_equal(call.samples, np.tile(SECOND, 3))
    assert np.array_equal(vendor.script.received[0].samples, np.tile(SECOND, 2))


async def test_keep_alive_and_orderly_close(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without audio for a while, text keeps the stream open; leaving says so, and closes."""
    monkeypatch.setattr(stt, "LINE", replace(stt.LINE, keep_alive_ms=10))
    async with calling(vendor, make_transcriber()) as (_, call):
        await call.until(lambda: call.controls.count("KeepAlive") >= 2)
    async with promptly():
        await call.closed.wait()
    assert call.controls[-1] == "CloseStream"
    assert call.close_code == 1000


async def test_cancelled_session_is_seen(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    up = asyncio.Event()

    async def session() -> None:
        async with calling(vendor, make_transcriber()) as (stream, _):
            stream.begin(1)
            up.set()
            await next_text(stream)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(session())
        await soon(up)
        task.cancel()
        async with promptly():
            await vendor.calls[0].closed.wait()
    assert vendor.calls[0].controls == ["CloseStream"]


def test_limits_are_the_vendors() -> None:
    """The docs: a text every 3 to 5 s, or the stream ends after 10."""
    assert 3_000 <= stt.LINE.keep_alive_ms <= 5_000
    assert stt.LINE.buffer_ms >= 30_000


# --- what is transcribed --------------------------------------------------------------------------


async def test_utterance_as_it_goes(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """Interim texts, a final inside, the vendor's own end, and the flush answered from it without asking."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        push(stream, SECOND)
        stream.begin(1)
        push(stream, SECOND)
        await call.send(results("book a table", 900, 1_500))
        assert await next_text(stream) == Interim(1, "book a table")
        await call.send(results("Book a table", 900, 1_600, is_final=True))
        assert await next_text(stream) == Interim(1, "Book a table")
        await call.send(results("for two.", 1_600, 1_850, is_final=True, speech_final=True))
        assert await next_text(stream) == Final(1, 0, "Book a table for two.")
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "Book a table for two.")
    assert "Finalize" not in call.controls


async def test_flush_requests_and_awaits_the_last_words(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        await flushed(call, 1)
        await call.send(results("book a", 0, 700))
        assert await next_text(stream) == Interim(1, "book a")
        await call.send(results("Book a table.", 0, 1_000, is_final=True, from_finalize=True))
        assert await next_text(stream) == Final(1, 1, "Book a table.")


async def test_late_final_after_the_next_begin(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """It answers the flush of its own utterance; a word of the next in the same breath is the next one's."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        stream.flush(1)
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND)
        await flushed(call, 1)
        await call.send(results("Yes. No no.", 0, 3_000, is_final=True))
        assert [await next_text(stream), await next_text(stream)] == [Final(1, 1, "Yes."), Interim(2, "No no.")]


async def test_words_after_the_answer_revise_it(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """The vendor ended the utterance before the flush, and transcribed more after all."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(results("Yes.", 0, 900, is_final=True, speech_final=True))
        assert await next_text(stream) == Final(1, 0, "Yes.")
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "Yes.")
        await call.send(results("Please.", 900, 1_000, is_final=True, speech_final=True))
        assert await next_text(stream) == Final(1, 0, "Yes. Please.")


async def test_unanswered_finalize(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor need not answer when next to no audio is left: what is known is the answer, nothing breaks."""
    monkeypatch.setattr(stt, "FINALIZE_MS", 20)
    monkeypatch.setattr(stt, "FIRST_FINALIZE_MS", 20)
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(results("Yes.", 0, 900, is_final=True))
        assert await next_text(stream) == Interim(1, "Yes.")
        stream.flush(1)
        assert await final(stream) == Final(1, 1, "Yes.")
        stream.begin(2)
        stream.push(SECOND[:1_600])
        stream.flush(1)
        assert await final(stream) == Final(2, 1, "")
        await call.send(results("No.", 1_000, 1_100, is_final=True, from_finalize=True))
        assert await next_text(stream) == Final(2, 0, "No.")
    assert call.controls.count("Finalize") == 2


async def test_a_flush_at_the_instant_when_the_waiting_ends(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber, flush_late: Late
) -> None:
    """A flush comes when a deadline is met, before the transcriber is notified: it breaks no session and has its own
    time.
    """
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.until(lambda: call.received_ms == 1_000)
        await flush_late(stream, 1)
        await flushed(call, 1)
        await call.send(results("Yes.", 0, 1_000, is_final=True, from_finalize=True))
        assert await final(stream) == Final(1, 1, "Yes.")


async def test_silence_is_no_stall_unless_a_flush_waits(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber
) -> None:
    """A vendor may be silent as long as the user; after a flush it must answer within the idle time."""
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


async def test_positions_count_what_was_dropped(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor counts what it got, we count what was said."""
    monkeypatch.setattr(stt, "LINE", replace(stt.LINE, buffer_ms=1_000))
    async with make_transcriber().open(TRANSCRIPTION) as stream:
        push(stream, SECOND)
        stream.begin(1)
        stream.flush(1)
        push(stream, SECOND)  # all before it is dropped: the line is not up yet
        stream.begin(2)
        call = await vendor.nth(0)
        await call.until(lambda: call.received_ms == 1_000)
        await call.send(results("Hello.", 700, 1_000, is_final=True, speech_final=True))
        assert [await next_text(stream), await next_text(stream)] == [Final(1, 1, ""), Final(2, 0, "Hello.")]


async def test_detected_language(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(results("Hola.", 0, 900, is_final=True, speech_final=True, languages=["es", "en"]))
        assert await next_text(stream) == Final(1, 0, "Hola.", "es")


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "Metadata", "request_id": "r", "duration": 1.0, "channels": 1}',
        '{"type": "SpeechStarted", "channel": [0, 1], "timestamp": 0.5}',
        '{"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 0.9}',
        '{"type": "Novelty", "channel": {"alternatives": 5}}',
        '{"type": "Results", "channel": {"alternatives": []}, "start": 0, "duration": 0.5, "is_final": true}',
    ],
)
async def test_message_that_says_nothing_to_us(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber, message: str
) -> None:
    """It is passed over, and the next one is read."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        await call.send(message)
        await call.send(results("Yes.", 0, 900, is_final=True, speech_final=True))
        assert await next_text(stream) == Final(1, 0, "Yes.")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ('{"type": "Error", "description": "Could not process audio.", "message": "x"}', r"\(Could not process audio"),
        ('{"type": "Error", "err_code": "E", "err_msg": "Worse."}', r"\(Worse\.\)"),
        ('{"type": "Error"}', r"\(no reason\)"),
        ('{"err_code": "E", "err_msg": "x"}', "expected a message of the vendor's API"),
        ('{"type": "Results", "channel": {}, "start": 0, "duration": 1}', "expected a message of the vendor's API"),
        ("[1]", "expected a message of the vendor's API"),
        ("words", "expected a message of the vendor's API"),
        (b"\x00\x01", "expected text, got 2 bytes"),
    ],
)
async def test_message_that_breaks(
    vendor: FakeDeepgram, make_transcriber: MakeTranscriber, message: str | bytes, why: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        with pytest.raises(StageBroken, match=why):
            await next_text(stream)


async def test_cut_in_the_middle(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """After some audio, without a word: the stream is over, and a new one works."""
    transcriber = make_transcriber()
    async with transcriber.open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, SECOND)
        call = await vendor.nth(0)
        await call.until(lambda: call.received_ms >= 500)
        call.cut()
        with pytest.raises(StageBroken, match="without a close frame"):
            await next_text(stream)
        push(stream, SECOND)  # the session has no notice of it yet
        stream.flush(1)
    async with transcriber.open(TRANSCRIPTION) as stream:
        stream.begin(1)
        push(stream, SECOND)
        await (await vendor.nth(1)).send(results("Yes.", 0, 900, is_final=True, speech_final=True))
        assert await next_text(stream) == Final(1, 0, "Yes.")


async def test_vendor_hangs_up_on_silence(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """As it does when neither audio nor KeepAlive came for 10 s."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.hang_up(1011, "NET-0001")
        with pytest.raises(StageBroken, match=r"\(1011: NET-0001\)") as raised:
            await next_text(stream)
    assert raised.value.retryable


async def test_unread_texts(vendor: FakeDeepgram, make_transcriber: MakeTranscriber) -> None:
    """The vendor has to wait, and no flush is lost: a flush without room for its answer is sent to the vendor."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.begin(1)
        push(stream, SECOND)
        for n in range(100):
            await call.send(results(f"word {n}", 0, 900))
        await call.send(results("Yes.", 0, 900, is_final=True, speech_final=True))

        async def full() -> bool | None:
            return stream._texts.full() or None  # type: ignore[attr-defined]

        await eventually(full)
        stream.flush(1)
        await flushed(call, 1)
        await call.send(results("", 900, 1_000, is_final=True, from_finalize=True))
        assert await final(stream) == Final(1, 1, "Yes.")
