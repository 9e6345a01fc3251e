"""A telephone's audio reaches an STT at 8 kHz, in the encoding that the request names, where the vendor takes that."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest

from voicepipe.audio.encoding import AudioEncoding, TelephoneFormat
from voicepipe.audio.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.errors import StageError
from voicepipe.ports.provider_events import ProviderChanged
from voicepipe.ports.transcriber import Transcriber, TranscriptEvent, TranscriptionOptions
from voicepipe.providers.built_in import factory
from voicepipe.providers.cartesia import stt as cartesia
from voicepipe.providers.deepgram import flux
from voicepipe.providers.elevenlabs import stt as elevenlabs
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.router.candidate import Candidate
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.stt.transcriber import RoutedTranscriber, TranscriberCandidate
from voicepipe.testing.conformance.transcriber import final, push
from voicepipe.testing.fakes import (
    assemblyai_stt,
    cartesia_stt,
    deepgram_flux,
    deepgram_stt,
    elevenlabs_stt,
    inworld_stt,
    openai_realtime_stt,
    together_stt,
)
from voicepipe.testing.fakes.cues import HangUp, SttCue
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber

CODECS = {"audio/pcmu": (encode_mulaw, decode_mulaw), "audio/pcma": (encode_alaw, decode_alaw)}
BOTH = {"audio/pcmu", "audio/pcma"}


@dataclass(frozen=True)
class Vendor:
    """A vendor of STT, and its fake."""

    spec: Spec
    kind: str
    fake: type[FakeWsTranscriber]
    key: str
    telephone: frozenset[str]
    options: tuple[tuple[str, str], ...] = ()

    def transcriber(self, fake: FakeWsTranscriber) -> Transcriber:
        settings = ProviderSettings(kind=self.kind, base_url=fake.base_url, api_key=self.key, options=self.options)
        made: Transcriber = factory(self.kind, "stt", key="agents.default.stt")(self.spec, settings)
        return made


def vendor(
    spec: str, fake: type[FakeWsTranscriber], key: str, telephone: set[str], *, kind: str = "", **options: str
) -> Vendor:
    provider, _, model = spec.partition("/")
    of = Spec(provider, model)
    return Vendor(of, kind or provider, fake, key, frozenset(telephone), tuple(options.items()))


VENDORS = {
    "nova": vendor("deepgram/nova-3", deepgram_stt.FakeDeepgram, deepgram_stt.KEY, BOTH),
    "flux": vendor("deepgram/flux-general-en", deepgram_flux.FakeFlux, deepgram_stt.KEY, BOTH),
    "ink-whisper": vendor("cartesia/ink-whisper", cartesia_stt.FakeInk, cartesia_stt.KEY, BOTH),
    "ink-2": vendor("cartesia/ink-2", cartesia_stt.FakeInkTurns, cartesia_stt.KEY, BOTH),
    "scribe": vendor("elevenlabs/scribe_v2_realtime", elevenlabs_stt.FakeScribe, elevenlabs_stt.KEY, BOTH),
    "assemblyai": vendor(
        "assemblyai/universal-streaming", assemblyai_stt.FakeAssemblyAi, assemblyai_stt.KEY, {"audio/pcmu"}
    ),
    "openai": vendor(
        "openai/gpt-4o-transcribe",
        openai_realtime_stt.FakeRealtimeStt,
        openai_realtime_stt.KEY,
        BOTH,
        kind="openai_realtime",
    ),
    "speaches": vendor(
        "here/whisper",
        openai_realtime_stt.FakeSpeachesStt,
        "",
        set(),
        kind="openai_realtime",
        stt_server="speaches",
    ),
    "vllm": vendor(
        "here/whisper", openai_realtime_stt.FakeVllmStt, "", set(), kind="openai_realtime", stt_server="vllm"
    ),
    "together": vendor("together/openai/whisper-large-v3", together_stt.FakeTogetherStt, together_stt.KEY, set()),
    "inworld": vendor("inworld/inworld-stt-1", inworld_stt.FakeInworldStt, inworld_stt.KEY, set()),
}
CASES = [(name, telephone) for name, each in VENDORS.items() for telephone in sorted(each.telephone)]


def telephone_speech(telephone: str) -> Samples:
    """Return about a second of audio as it comes from a telephone: int16, (n_samples,), at 8 kHz."""
    encode, decode = CODECS[telephone]
    return decode(encode(tone("as long as this takes", rate_hz=8_000)))


def options_of(telephone: TelephoneFormat, name: str = "nova") -> TranscriptionOptions:
    return TranscriptionOptions(model=VENDORS[name].spec.model, language="en", telephone=telephone)


@pytest.mark.parametrize("name", VENDORS)
async def test_vendor_takes_what_it_documents(name: str) -> None:
    """A vendor without 8 kHz gets the rate that it always gets."""
    async with VENDORS[name].fake() as fake:
        capabilities = VENDORS[name].transcriber(fake).capabilities
    assert capabilities.telephone == VENDORS[name].telephone
    assert all(capabilities.push_hz(options_of(each)) == 8_000 for each in capabilities.telephone)
    assert capabilities.push_hz(TranscriptionOptions(model="any")) == capabilities.rate_hz >= 16_000


@pytest.mark.parametrize(("name", "telephone"), CASES)
async def test_vendor_gets_each_sample_of_the_telephone(name: str, telephone: TelephoneFormat) -> None:
    """Decoded as the request says, the audio is what the telephone has sent; nothing was resampled."""
    speech = telephone_speech(telephone)
    async with VENDORS[name].fake() as fake:
        async with VENDORS[name].transcriber(fake).open(options_of(telephone, name)) as stream:
            stream.begin(1)
            push(stream, speech, piece_samples=160)
            stream.flush(1)
            call = await fake.nth(0)
            if name == "ink-2":  # answers no request
                await call.until(lambda: call.received_ms >= len(speech) // 8)
                await call.send(cartesia_stt.turn("end", "what time is it"))
            assert (await final(stream)).text == "what time is it"
        assert call.encoding.rate_hz == 8_000
        assert np.array_equal(call.samples[: len(speech)], speech)
        assert not call.samples[len(speech) :].any()  # AssemblyAI gets messages of at least 50 ms


@pytest.mark.parametrize(("name", "telephone"), [case for case in CASES if case[0] in ("scribe", "openai")])
async def test_short_utterance_is_padded_with_silence(name: str, telephone: TelephoneFormat) -> None:
    """Zero bytes would be the loudest samples of G.711."""
    word = telephone_speech(telephone)[:400]
    async with VENDORS[name].fake() as fake:
        async with VENDORS[name].transcriber(fake).open(options_of(telephone, name)) as stream:
            stream.begin(1)
            push(stream, word)
            stream.flush(1)
            assert (await final(stream)).text == "what time is it"
        call = await fake.nth(0)
    assert np.array_equal(call.samples[: len(word)], word)
    assert call.received_ms > 100
    assert np.abs(call.samples[len(word) :]).max() <= 8  # A-law has no zero


@pytest.mark.parametrize(
    ("name", "module"), [("flux", flux), ("ink-2", cartesia), ("ink-whisper", cartesia), ("scribe", elevenlabs)]
)
async def test_connection_is_held_open_by_silence(
    name: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_MS", 10)
    async with VENDORS[name].fake() as fake:
        async with VENDORS[name].transcriber(fake).open(options_of("audio/pcmu", name)):
            call = await fake.nth(0)
            await call.until(lambda: call.received_ms >= 100)
        assert not call.samples.any()


@pytest.mark.parametrize(("name", "telephone"), CASES)
async def test_another_encoding_is_refused(
    name: str, telephone: TelephoneFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fakes check the bytes that they get: int16 in place of G.711, and G.711 in place of int16."""
    speech = telephone_speech(telephone)

    def other(encoding: AudioEncoding, samples: Samples) -> bytes:
        return encode_mulaw(samples) if encoding.name == "audio/pcm" else to_pcm(samples)

    monkeypatch.setattr(AudioEncoding, "encode", other)
    async with (
        VENDORS[name].fake() as fake,
        VENDORS[name].transcriber(fake).open(options_of(telephone, name)) as stream,
    ):
        stream.begin(1)
        push(stream, speech, piece_samples=160)
        with pytest.raises(StageError, match="another encoding"):
            await final(stream)


# --- several vendors --------------------------------------------------------------------------------


def routed(*vendors: tuple[Vendor, FakeWsTranscriber]) -> RoutedTranscriber:
    """Return a pool of these vendors, the first one first."""
    candidates = tuple(Candidate(spec=str(each.spec)) for each, _ in vendors)
    order = SpeechOrder(candidates, RouterOptions(fallback_after_ms=60_000), SharedStats())
    made = (
        TranscriberCandidate(c, each.transcriber(fake)) for c, (each, fake) in zip(candidates, vendors, strict=True)
    )
    return RoutedTranscriber(tuple(made), order)


@pytest.mark.parametrize(
    ("first", "second", "n_kinds"), [("nova", "inworld", 2), ("inworld", "nova", 2), ("nova", "scribe", 1)]
)
async def test_fallback_gets_the_audio_again_at_its_rate(first: str, second: str, n_kinds: int) -> None:
    """The utterance is replayed to the next vendor: as it came where that takes it, else resampled."""
    speech, beside = telephone_speech("audio/pcmu"), list[TranscriptEvent]()
    one, other = VENDORS[first], VENDORS[second]
    async with one.fake() as broken, other.fake() as fallback:
        broken.script.cue(SttCue(fault=HangUp()))
        fallback.script.cue(SttCue(text="from the second"))
        transcriber = routed((one, broken), (other, fallback))
        assert transcriber.capabilities.push_hz(options_of("audio/pcmu")) == 8_000
        async with transcriber.open(options_of("audio/pcmu")) as stream:
            stream.begin(1)
            push(stream, speech, piece_samples=160)
            stream.flush(1)
            assert (await final(stream, beside=beside)).text == "from the second"
        assert [type(each) for each in beside].count(ProviderChanged) == 1
        calls = [await broken.nth(0), await fallback.nth(0)]
    resampled = Resampler(8_000, 16_000).push(speech)
    for call in calls:
        expected = speech if call.encoding.rate_hz == 8_000 else resampled
        n = min(len(expected), len(call.samples))  # a vendor may get padding behind it; the filter holds back a little
        assert n >= len(resampled) // 2
        assert np.array_equal(call.samples[:n], expected[:n])
    assert len({call.encoding.rate_hz for call in calls}) == n_kinds


async def test_pool_without_8_khz_gets_its_own_rate() -> None:
    """Nothing changes where no vendor takes a telephone's audio."""
    async with VENDORS["inworld"].fake() as one, VENDORS["together"].fake() as other:
        capabilities = routed((VENDORS["inworld"], one), (VENDORS["together"], other)).capabilities
    assert (capabilities.telephone, capabilities.rate_hz) == (frozenset(), 16_000)
