"""What the Cartesia transcribers send, and how they read the vendor's messages, with turns and without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.ports.transcriber import Final, Interim, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.providers.built_in import factory
from voicepipe.providers.cartesia import stt
from voicepipe.providers.cartesia.stt import CartesiaOptions, open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import next_end_of_turn, next_text, push
from voicepipe.testing.conformance.waits import LONG_TIMEOUT_MS, promptly
from voicepipe.testing.fakes.cartesia_stt import KEY, FakeInk, FakeInkTurns, encoded, transcript, turn
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_connection import SttConnection

TURNS, WHISPER = Spec("cartesia", "ink-2"), Spec("cartesia", "ink-whisper")
SECOND = tone("x" * 25, rate_hz=16_000)


@pytest.fixture
async def turns() -> AsyncIterator[FakeInkTurns]:
    async with FakeInkTurns() as vendor:
        yield vendor


@pytest.fixture
async def manual() -> AsyncIterator[FakeInk]:
    """A vendor that says only what the test says."""
    async with FakeInk() as vendor:
        vendor.script.usual = None
        yield vendor


def make_transcriber(
    vendor: FakeInk, spec: Spec, *, api_key: str = KEY, idle_ms: int = LONG_TIMEOUT_MS, **options: str
) -> Transcriber:
    """Make a transcriber, with options as keywords."""
    settings = ProviderSettings(
        kind="cartesia",
        base_url=vendor.base_url,
        api_key=api_key,
        idle_timeout_ms=idle_ms,
        options=tuple(options.items()),
    )
    return open_transcriber(spec, settings)


@asynccontextmanager
async def calling(vendor: FakeInk, transcriber: Transcriber) -> AsyncIterator[tuple[TranscriptStream, SttConnection]]:
    """Open a stream that has received a second of its first utterance, and the vendor's end of it."""
    async with transcriber.open(TranscriptionOptions(model="ink", language="en-US")) as stream:
        call = await vendor.nth(0)
        stream.begin(1)
        push(stream, SECOND)
        await call.until(lambda: call.received_ms == 1_000)
        yield stream, call


# --- what is sent -----------------------------------------------------------------------------


def test_registry_finds_it() -> None:
    """The capabilities are those of the way that the model is listened to."""
    assert factory("cartesia", "stt", key="agents.default.stt") is open_transcriber
    settings = ProviderSettings(kind="cartesia", base_url="ws://127.0.0.1:1")
    by_turns, reported = (open_transcriber(spec, settings).capabilities for spec in (TURNS, WHISPER))
    assert (by_turns.streams, by_turns.finalize, by_turns.turn_events) == (True, False, True)
    assert (reported.streams, reported.finalize, reported.turn_events) == (True, True, False)


async def test_handshake(turns: FakeInkTurns) -> None:
    async with calling(turns, make_transcriber(turns, TURNS)) as (_, call):
        pass
    assert call.headers["X-API-Key"] == KEY
    assert call.headers["Cartesia-Version"] == "2026-03-01"
    assert dict(call.query) == {
        "model": "ink",
        "encoding": "pcm_s16le",
        "sample_rate": "16000",
        "turn_eager_end_threshold": "0.4",
        "turn_end_threshold": "0.2",
        "turn_end_timeout_ms": "5600",
    }


def path(transcription: TranscriptionOptions, with_turns: bool, **options: str) -> str:
    settings = ProviderSettings(kind="cartesia", options=tuple(options.items()))
    return CartesiaOptions.of(TURNS, settings).path(transcription, with_turns)


def test_path() -> None:
    """Terms only where they are taken, with %20 for a space; a language only where there are several."""
    transcription = TranscriptionOptions(model="ink-2", language="pt-BR", prompt=f"Zürich HB, {'x' * 1_200}, Maïs")
    sent = path(transcription, True)
    assert "/stt/turns/websocket?" in sent
    assert "keyterm=Z%C3%BCrich%20HB" in sent
    assert parse_qs(urlsplit(sent).query)["keyterm"] == ["Zürich HB", "Maïs"]
    manual = parse_qs(urlsplit(path(transcription, False, stt_extra='{"min_volume": "0.1"}')).query)
    assert (manual["language"], manual["min_volume"]) == (["pt"], ["0.1"])
    assert not {"keyterm", "turn_end_threshold"} & manual.keys()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"stt_turn_eager_end_threshold": "0.7"}, "a number from 0.3 to 0.6"),
        ({"stt_turn_end_threshold": "0.4"}, "less than the stt_turn_eager_end_threshold of 0.4"),
        ({"stt_turn_end_timeout_ms": "1"}, "from 640 to 11200"),
        ({"stt_turns": "perhaps"}, "true or false"),
        ({"stt_extra": "[]"}, "a JSON object"),
        ({"stt_voice": "x"}, "unknown for kind cartesia"),
    ],
)
def test_wrong_option(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        path(TranscriptionOptions(model="ink-2"), True, **options)


def test_options_of_the_voice_are_left_alone() -> None:
    """One section serves the vendor's voice too."""
    assert "model=ink-2" in path(TranscriptionOptions(model="ink-2"), True, tts_voice="x")


@pytest.mark.parametrize("model", ["ink-2", "ink-whisper"])
async def test_keep_alive_by_silence_and_orderly_close(
    turns: FakeInkTurns, manual: FakeInk, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stt, "KEEP_ALIVE_MS", 10)
    vendor = turns if model == "ink-2" else manual
    async with make_transcriber(vendor, Spec("cartesia", model)).open(TranscriptionOptions(model=model)):
        call = await vendor.nth(0)
        await call.until(lambda: call.received_ms >= 200)
    async with promptly():
        await call.closed.wait()
    assert (call.controls, call.close_code) == (["close"], 1000)
    assert not call.samples.any()


def test_limits_are_the_vendors() -> None:
    """Three minutes without anything."""
    assert stt.KEEP_ALIVE_MS < 180_000


# --- with turns -------------------------------------------------------------------------------


async def test_turn_as_it_goes(turns: FakeInkTurns) -> None:
    """The end that is expected is reported at once and answers the flush; the end that follows adds nothing."""
    async with calling(turns, make_transcriber(turns, TURNS)) as (stream, call):
        await call.send(turn("start"))
        await call.send(turn("update", "Book a"))
        assert await next_text(stream) == Interim(1, "Book a")
        stream.flush(1)
        await call.send(turn("eager_end", "Book a table."))
        assert await next_text(stream) == Final(1, 1, "Book a table.")
        await call.send(turn("end", "Book a table."))
        push(stream, SECOND)
        await call.until(lambda: call.received_ms == 2_000)
        await call.send(turn("start"))
        await call.send(turn("update", " For two"))
        assert await next_text(stream) == Interim(1, "Book a table. For two")
    assert call.controls == ["close"]


async def test_each_end_has_the_probability_of_its_threshold(turns: FakeInkTurns) -> None:
    """The thresholds are of more speech: 0.4 and 0.2, unless the settings say otherwise."""
    async with calling(turns, make_transcriber(turns, TURNS)) as (stream, call):
        await call.send(turn("update", "Book a table"))
        await call.send(turn("eager_end", "Book a table."))
        assert (await next_end_of_turn(stream)).probability == pytest.approx(0.6)
        await call.send(turn("end", "Book a table."))
        assert (await next_end_of_turn(stream)).probability == pytest.approx(0.8)


async def test_end_that_is_taken_back(turns: FakeInkTurns) -> None:
    """The user goes on after an expected end: the whole turn is said again, and nothing of it twice."""
    async with calling(turns, make_transcriber(turns, TURNS)) as (stream, call):
        await call.send(turn("eager_end", "I would"))
        assert await next_text(stream) == Final(1, 0, "I would")
        push(stream, SECOND)
        await call.until(lambda: call.received_ms == 2_000)
        await call.send(turn("resume"))
        await call.send(turn("update", "I would like"))
        assert await next_text(stream) == Interim(1, "I would like")
        await call.send(turn("end", "I would like tea."))
        assert await next_text(stream) == Final(1, 0, "I would like tea.")


async def test_flush_is_answered_with_what_is_known(turns: FakeInkTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor takes no flush: after a while its text so far is the answer, and later words revise it."""
    monkeypatch.setattr(stt, "FLUSH_TIMEOUT_MS", 20)
    async with calling(turns, make_transcriber(turns, TURNS)) as (stream, call):
        await call.send(turn("update", "yes"))
        assert await next_text(stream) == Interim(1, "yes")
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "yes")
        await call.send(turn("end", "Yes, please."))
        assert await next_text(stream) == Final(1, 0, "Yes, please.")


async def test_turn_that_goes_on_into_the_next_utterance(turns: FakeInkTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor still waits when the reply begins: what was answered stays where it was."""
    monkeypatch.setattr(stt, "FLUSH_TIMEOUT_MS", 20)
    async with calling(turns, make_transcriber(turns, TURNS)) as (stream, call):
        await call.send(turn("update", "book a table"))
        assert await next_text(stream) == Interim(1, "book a table")
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "book a table")
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND)
        await call.until(lambda: call.received_ms == 3_000)
        await call.send(turn("end", "Book a table. No, wait."))
        assert [await next_text(stream), await next_text(stream)] == [
            Final(1, 0, "Book a table."),
            Final(2, 0, "No, wait."),
        ]


async def test_noise_leaves_no_mark(turns: FakeInkTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that was answered by nothing does not draw later words to itself."""
    monkeypatch.setattr(stt, "FIRST_FLUSH_TIMEOUT_MS", 20)
    async with calling(turns, make_transcriber(turns, TURNS)) as (stream, call):
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "")
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND)
        await call.until(lambda: call.received_ms == 3_000)
        await call.send(turn("update", "Hello"))
        assert await next_text(stream) == Interim(2, "Hello")


# --- without ----------------------------------------------------------------------------------


async def test_texts_are_joined_as_they_come(manual: FakeInk) -> None:
    """A chunk may end in a word. Only `flush_done` says that all is there."""
    async with calling(manual, make_transcriber(manual, WHISPER)) as (stream, call):
        await call.send(transcript("Book a ta"))
        assert await next_text(stream) == Interim(1, "Book a ta")
        await call.send(transcript("Book a tab", is_final=True))
        assert await next_text(stream) == Interim(1, "Book a tab")
        await call.send(transcript("le for"))
        assert await next_text(stream) == Interim(1, "Book a table for")
        stream.flush(1)
        await call.until(lambda: call.controls == ["finalize"])
        await call.send(transcript("le for two.", is_final=True))
        assert await next_text(stream) == Interim(1, "Book a table for two.")
        await call.send(encoded("flush_done"))
        assert await next_text(stream) == Final(1, 1, "Book a table for two.", "en")


async def test_ink_2_options(manual: FakeInk) -> None:
    """When turns are switched off for it."""
    transcriber = make_transcriber(manual, TURNS, stt_turns="false")
    assert transcriber.capabilities.finalize
    async with calling(manual, transcriber) as (stream, call):
        stream.flush(1)
        await call.send(encoded("flush_done"))
        assert await next_text(stream) == Final(1, 1, "")


async def test_stall(manual: FakeInk) -> None:
    """A `finalize` is always answered."""
    async with calling(manual, make_transcriber(manual, WHISPER, idle_ms=50)) as (stream, _):
        stream.flush(1)
        with pytest.raises(StageTimeout, match="no data for 50 ms"):
            await next_text(stream)


# --- errors -----------------------------------------------------------------------------------


async def test_wrong_key(turns: FakeInkTurns) -> None:
    async with make_transcriber(turns, TURNS, api_key="wrong").open(TranscriptionOptions(model="ink-2")) as stream:
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.retryable) == (401, False)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [(400, StageRefused, False), (429, StageRefused, True), (500, StageRefused, True), (None, StageBroken, True)],
)
@pytest.mark.parametrize("spec", [TURNS, WHISPER], ids=str)
async def test_documented_error(
    turns: FakeInkTurns, manual: FakeInk, spec: Spec, status: int | None, kind: type[StageError], retryable: bool
) -> None:
    """The status that the message names counts; without one the stream is broken."""
    vendor = turns if spec is TURNS else manual
    async with calling(vendor, make_transcriber(vendor, spec)) as (stream, call):
        await call.send(encoded("error", title="Invalid model", message="Not a model.", status_code=status))
        with pytest.raises(kind, match=r"\(Not a model\.\)") as raised:
            await next_text(stream)
    assert raised.value.retryable is retryable


@pytest.mark.parametrize(
    "message",
    [encoded("connected"), encoded("done"), encoded("novelty", transcript="x", text="y")],
)
@pytest.mark.parametrize("spec", [TURNS, WHISPER], ids=str)
async def test_message_that_says_nothing_to_us(turns: FakeInkTurns, manual: FakeInk, spec: Spec, message: str) -> None:
    vendor = turns if spec is TURNS else manual
    async with calling(vendor, make_transcriber(vendor, spec)) as (stream, call):
        await call.send(message)
        await call.send(turn("update", "Yes.") if spec is TURNS else transcript("Yes."))
        assert await next_text(stream) == Interim(1, "Yes.")


@pytest.mark.parametrize("message", ["words", "[1]", '{"type": "turn.update", "transcript": 5}', b"\x00\x01"])
async def test_message_that_breaks(turns: FakeInkTurns, message: str | bytes) -> None:
    async with calling(turns, make_transcriber(turns, TURNS)) as (stream, call):
        await call.send(message)
        with pytest.raises(StageBroken, match=r"expected (a message of the vendor's API|text)"):
            await next_text(stream)
