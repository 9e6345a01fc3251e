"""The router watches pooled STT and TTS providers as it watches models."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from voicepipe import clock
from voicepipe.ports.synthesizer import Voice
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import healths
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.stt.transcriber import RoutedTranscriber, TranscriberCandidate
from voicepipe.router.tts.call import SynthesizerCandidate
from voicepipe.router.tts.synthesizer import RoutedSynthesizer
from voicepipe.testing.conformance.synthesizer import speak
from voicepipe.testing.conformance.transcriber import final, push
from voicepipe.testing.fakes.cues import Status, SttCue, TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer, FakeTranscriber
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.transcriber import ReceivedFlush

OPTIONS = RouterOptions(policy="fallback", fallback_after_ms=60_000, attempt_timeout_ms=60_000)
PAIR = (Candidate(spec="v0/m"), Candidate(spec="v1/m"))


def opened(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    records = [record for record in caplog.records if record.getMessage() == "breaker_opened"]
    return [(r.levelname, vars(r)["fields"]["stage"], vars(r)["fields"]["provider"]) for r in records]


async def test_a_voice_whose_key_is_refused_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The user gets the other voice, and the operator finds the error in the log."""
    cues, stats = (TtsCue(fault=Status(401)), TtsCue()), SharedStats()
    speakers = tuple(
        SynthesizerCandidate(c, FakeSynthesizer(cue, name=c.spec), True) for c, cue in zip(PAIR, cues, strict=True)
    )
    with caplog.at_level(logging.WARNING, logger="voicepipe"):
        await speak(RoutedSynthesizer(speakers, SpeechOrder(PAIR, OPTIONS, stats)), Voice(model="any"), "Hello.")
    assert opened(caplog) == [("ERROR", "tts", "v0/m")]
    refused, well = healths(stats, "tts", clock.monotonic_ms())
    assert (refused.alert[:5], well.alert, well.state) == ("401: ", "", "closed")


def always(cue: SttCue, _: ReceivedFlush) -> SttCue:
    return cue


async def test_a_transcriber_with_a_refused_key_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    cues, stats = (SttCue(fault=Status(403)), SttCue(text="it is noon")), SharedStats()
    transcribers = tuple(
        TranscriberCandidate(c, FakeTranscriber(partial(always, cue), name=c.spec))
        for c, cue in zip(PAIR, cues, strict=True)
    )
    transcriber = RoutedTranscriber(transcribers, SpeechOrder(PAIR, OPTIONS, stats))
    with caplog.at_level(logging.WARNING, logger="voicepipe"):
        async with transcriber.open(TranscriptionOptions(model="any")) as stream:
            stream.begin(1)
            push(stream, tone("so long", rate_hz=16_000))
            stream.flush(1)
            assert (await final(stream)).text == "it is noon"
    assert opened(caplog) == [("ERROR", "stt", "v0/m")]
    refused, _ = healths(stats, "stt", clock.monotonic_ms())
    assert refused.alert.startswith("403: ")
