"""What the Flux transcriber sends, and how it reads the vendor's turn messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageRefused, StageTimeout
from voicepipe.ports.transcriber import EndOfTurn, Final, Interim, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.providers.built_in import factory
from voicepipe.providers.deepgram import flux, stt
from voicepipe.providers.deepgram.flux import FluxOptions, open_transcriber
from voicepipe.providers.deepgram.stt_options import OF_FLUX
from voicepipe.providers.deepgram.stt_options import READERS as OF_NOVA
from voicepipe.providers.deepgram.tts import STT_OPTIONS, open_synthesizer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import next_end_of_turn, next_text, push
from voicepipe.testing.conformance.waits import promptly
from voicepipe.testing.fakes.deepgram_flux import FakeFlux, turn_info
from voicepipe.testing.fakes.deepgram_stt import KEY
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_connection import SttConnection

SPEC = Spec("deepgram", "flux-general-en")
TRANSCRIPTION = TranscriptionOptions(model="flux-general-en", language="en-US")
SECOND = tone("x" * 25, rate_hz=16_000)
MakeTranscriber = Callable[..., Transcriber]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeFlux]:
    """A vendor that says only what the test says."""
    async with FakeFlux() as vendor:
        vendor.script.usual = None
        yield vendor


@pytest.fixture
def make_transcriber(vendor: FakeFlux, transcriber_factory: Callable[..., MakeTranscriber]) -> MakeTranscriber:
    """Make a transcriber, with options as keywords."""
    return transcriber_factory(SPEC, vendor.base_url, kind="flux", key=KEY)


@asynccontextmanager
async def calling(vendor: FakeFlux, transcriber: Transcriber) -> AsyncIterator[tuple[TranscriptStream, SttConnection]]:
    """A stream that is up with a second of its first utterance pushed, and the vendor's end of it."""
    async with transcriber.open(TRANSCRIPTION) as stream:
        call = await vendor.nth(0)
        stream.begin(1)
        push(stream, SECOND)
        yield stream, call


# --- what is sent -----------------------------------------------------------------------------


def test_registry_finds_it() -> None:
    """The registry finds it by its own name, and by Deepgram's for its models; its capabilities say that it reports
    turns.
    """
    assert factory("flux", "stt", key="agents.default.stt") is open_transcriber
    settings = ProviderSettings(kind="deepgram", base_url="ws://127.0.0.1:1/v1")
    capabilities = stt.open_transcriber(SPEC, settings).capabilities
    assert (
        capabilities.rate_hz,
        capabilities.streams,
        capabilities.partials,
        capabilities.finalize,
        capabilities.turn_events,
    ) == (16_000, True, True, True, True)


async def test_handshake(vendor: FakeFlux) -> None:
    """The key in Deepgram's own scheme at the second version of its address, whatever version the settings name."""
    settings = ProviderSettings(kind="deepgram", base_url=vendor.base_url.replace("/v2", "/v1"), api_key=KEY)
    async with calling(vendor, stt.open_transcriber(SPEC, settings)) as (_, call):
        pass
    assert call.headers["Authorization"] == f"Token {KEY}"
    assert dict(call.query) == {
        "model": "flux-general-en",
        "encoding": "linear16",
        "sample_rate": "16000",
        "eot_threshold": "0.7",
        "eager_eot_threshold": "0.5",
        "eot_timeout_ms": "5000",
    }


def query(transcription: TranscriptionOptions, **options: str) -> dict[str, list[str]]:
    settings = ProviderSettings(kind="flux", options=tuple(options.items()))
    return parse_qs(FluxOptions.of(SPEC, settings).query(transcription))


def test_query() -> None:
    """A language only as a hint to the model that takes one; terms of the prompt; options; what is added wins."""
    many = query(TranscriptionOptions(model="flux-general-multi", language="pt-BR", prompt="Zürich, Maïs"))
    assert (many["language_hint"], many["keyterm"]) == (["pt"], ["Zürich", "Maïs"])
    one = query(TRANSCRIPTION, eager_eot_threshold="0", eot_threshold="1", extra='{"tag": "t", "model": "mine"}')
    assert (one["eot_threshold"], one["tag"], one["model"]) == (["1"], ["t"], ["mine"])
    assert not {"language_hint", "eager_eot_threshold"} & one.keys()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"eot_threshold": "0.4"}, "a number from 0.5 to 1"),
        ({"eager_eot_threshold": "0.8"}, "0.3 to the eot_threshold of 0.7"),
        ({"eager_eot_threshold": "0.1"}, "expected 0, or 0.3"),
        ({"eot_timeout_ms": "1"}, "from 500 to 60000"),
        ({"force_end_after_ms": "-1"}, "from 0 to 5000"),
        ({"extra": "[]"}, "a JSON object"),
        ({"eot": "1"}, "unknown for kind flux"),
    ],
)
def test_wrong_option(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        query(TRANSCRIPTION, **options)


def test_one_section_serves_all_of_deepgrams_models() -> None:
    """Nova, Flux and the voices pass over what only another of them understands."""
    assert set(flux.READERS) == {*OF_FLUX, "extra"}
    assert set(STT_OPTIONS) == {*flux.READERS, *OF_NOVA}
    options = (("eot_threshold", "0.8"), ("endpointing_ms", "20"), ("tts_extra", "{}"))
    settings = ProviderSettings(kind="deepgram", base_url="ws://127.0.0.1:1/v1", options=options)
    for model in ("nova-3", "flux-general-en"):
        stt.open_transcriber(Spec("deepgram", model), settings)
    open_synthesizer(Spec("deepgram", "aura-2-thalia-en"), settings)


async def test_wrong_key(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    async with make_transcriber(api_key="wrong").open(TRANSCRIPTION) as stream:
        with pytest.raises(StageRefused) as raised:
            await next_text(stream)
    assert (raised.value.status, raised.value.retryable) == (401, False)


async def test_keep_alive_by_silence_and_orderly_close(
    vendor: FakeFlux, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flux knows no message for it. Silence moves no position: the words after it are still the user's."""
    monkeypatch.setattr(flux, "KEEP_ALIVE_MS", 10)
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.until(lambda: call.received_ms >= 1_200)
        await call.send(turn_info("EndOfTurn", "Yes.", 100, call.received_ms))
        assert await next_text(stream) == Final(1, 0, "Yes.")
    async with promptly():
        await call.closed.wait()
    assert call.controls == ["CloseStream"]
    assert call.close_code == 1000
    assert np.array_equal(call.samples[:16_000], SECOND)


# --- turns ------------------------------------------------------------------------------------


async def test_turn_as_it_goes(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """The end that is expected is reported at once; the end that follows adds nothing."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(turn_info("StartOfTurn", "book", 0, 400))
        assert await next_text(stream) == Interim(1, "book")
        await call.send(turn_info("Update", "book a table", 0, 700))
        assert await next_text(stream) == Interim(1, "book a table")
        await call.send(turn_info("EagerEndOfTurn", "Book a table.", 0, 950, languages=["en"]))
        assert await next_text(stream) == Final(1, 0, "Book a table.", "en")
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "Book a table.", "en")
        await call.send(turn_info("EndOfTurn", "Book a table.", 0, 1_000, trigger="model"))
        push(stream, SECOND)
        await call.send(turn_info("Update", "for two", 1_000, 1_800, turn=1))
        assert await next_text(stream) == Interim(1, "Book a table. for two")
    assert "ForceEndTurn" not in call.controls


async def test_the_vendors_confidence_comes_with_each_end(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """Not with updates: they are of the words before the last ones."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(turn_info("Update", "book a table", 0, 700))
        await call.send(turn_info("EagerEndOfTurn", "Book a table.", 0, 950))
        assert await next_end_of_turn(stream) == EndOfTurn(1, 0.9)
        await call.send(turn_info("TurnResumed", "Book a table", 0, 1_000))
        await call.send(turn_info("Update", "Book a table for two", 0, 1_400))
        assert await anext(aiter(stream)) == Interim(1, "Book a table")
        assert await anext(aiter(stream)) == Interim(1, "Book a table for two")


async def test_end_that_is_taken_back(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """The user goes on after an expected end: the whole turn is said again, and nothing of it twice."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(turn_info("EagerEndOfTurn", "I would like", 0, 600))
        assert await next_text(stream) == Final(1, 0, "I would like")
        await call.send(turn_info("TurnResumed", "I would like", 0, 700))
        await call.send(turn_info("Update", "I would like a table", 0, 900))
        assert await next_text(stream) == Interim(1, "I would like a table")
        await call.send(turn_info("EndOfTurn", "I would like a table.", 0, 1_000))
        assert await next_text(stream) == Final(1, 0, "I would like a table.")


async def test_flush_is_answered_by_what_reaches_so_far(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """The turn is not cut for it. Text that ends before the flush does not answer it."""
    async with calling(vendor, make_transcriber(force_end_after_ms="5000")) as (stream, call):
        stream.flush(1)
        await call.send(turn_info("Update", "book a", 0, 800))
        assert await next_text(stream) == Interim(1, "book a")
        await call.send(turn_info("Update", "book a table", 0, 1_000))
        assert await next_text(stream) == Final(1, 1, "book a table")
    assert call.controls == ["CloseStream"]


async def test_a_word_may_arrive_late(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """No text yet is no answer: the newest audio may hold speech."""
    async with calling(vendor, make_transcriber(force_end_after_ms="5000")) as (stream, call):
        stream.flush(1)
        await call.send(turn_info("Update", "", 0, 1_250))
        await call.send(turn_info("StartOfTurn", "yes", 0, 1_300))
        assert await next_text(stream) == Final(1, 1, "yes")
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND)
        stream.flush(1)
        await call.send(turn_info("Update", "", 1_300, 3_500, turn=1))
        assert await next_text(stream) == Final(2, 1, "")


async def test_turn_is_ended_when_nothing_reaches_so_far(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """As when audio has stopped coming: Flux says nothing without any."""
    async with calling(vendor, make_transcriber(force_end_after_ms="20")) as (stream, call):
        await call.send(turn_info("Update", "book a", 0, 800))
        assert await next_text(stream) == Interim(1, "book a")
        stream.flush(1)
        await call.until(lambda: call.controls == ["ForceEndTurn"])
        await call.send(turn_info("EndOfTurn", "Book a table.", 0, 960, trigger="manual"))
        assert await next_text(stream) == Final(1, 1, "Book a table.")


async def test_no_speech(vendor: FakeFlux, make_transcriber: MakeTranscriber, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a turn in progress the request is ignored: a noise is answered by no words, and nothing breaks."""
    monkeypatch.setattr(flux, "FIRST_FORCED_MS", 20)
    async with calling(vendor, make_transcriber(force_end_after_ms="0")) as (stream, call):
        stream.flush(1)
        assert await next_text(stream) == Final(1, 1, "")
        await call.send(turn_info("EndOfTurn", "Yes.", 0, 1_000))
        assert await next_text(stream) == Final(1, 0, "Yes.")
    assert call.controls == ["ForceEndTurn", "CloseStream"]


async def test_stall_in_a_turn(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """While the user speaks the vendor must answer."""
    async with calling(vendor, make_transcriber(force_end_after_ms="0", idle_timeout_ms=50)) as (stream, call):
        await call.send(turn_info("StartOfTurn", "yes", 0, 500))
        assert await next_text(stream) == Interim(1, "yes")
        stream.flush(1)
        with pytest.raises(StageTimeout, match="no data for 50 ms"):
            await next_text(stream)


async def test_words_without_times(vendor: FakeFlux, make_transcriber: MakeTranscriber) -> None:
    """An earlier model gives none: the next utterance gets what the first did not have."""
    async with calling(vendor, make_transcriber()) as (stream, call):
        stream.flush(1)
        await call.send(turn_info("Update", "yes", 0, 1_000, timed=False))
        assert await next_text(stream) == Final(1, 1, "yes")
        push(stream, SECOND)
        stream.begin(2)
        push(stream, SECOND)
        await call.send(turn_info("EndOfTurn", "Yes. No no.", 0, 3_000, timed=False))
        assert [await next_text(stream), await next_text(stream)] == [Final(1, 0, "Yes."), Final(2, 0, "No no.")]


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "Connected", "request_id": "r", "sequence_id": 0}',
        '{"type": "Warning", "request_id": "r", "sequence_id": 1, "code": "SLOW", "description": "x"}',
        '{"type": "ConfigureSuccess", "thresholds": {}}',
        '{"type": "Novelty", "words": []}',
    ],
)
async def test_message_that_says_nothing_to_us(
    vendor: FakeFlux, make_transcriber: MakeTranscriber, message: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        await call.send(turn_info("EndOfTurn", "Yes.", 0, 900))
        assert await next_text(stream) == Final(1, 0, "Yes.")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ('{"type": "Error", "code": "INTERNAL_SERVER_ERROR", "description": "Broke."}', r"\(Broke\.\)"),
        ('{"type": "Error", "code": "INTERNAL_SERVER_ERROR"}', r"\(INTERNAL_SERVER_ERROR\)"),
        ('{"type": "Error"}', r"\(no reason\)"),
        ('{"type": "TurnInfo", "words": [1]}', "expected a message of the vendor's API"),
        ("words", "expected a message of the vendor's API"),
        (b"\x00\x01", "expected text, got 2 bytes"),
    ],
)
async def test_message_that_breaks(
    vendor: FakeFlux, make_transcriber: MakeTranscriber, message: str | bytes, why: str
) -> None:
    async with calling(vendor, make_transcriber()) as (stream, call):
        await call.send(message)
        with pytest.raises(StageBroken, match=why) as raised:
            await next_text(stream)
    assert raised.value.retryable
