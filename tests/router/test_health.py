"""Ears and voices that stand in for one another are watched as models are."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from voicepipe import clock
from voicepipe.router.candidate import Candidate
from voicepipe.router.ears import RoutedTranscriber
from voicepipe.router.health import healths
from voicepipe.router.lineup import Lineup
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import Experience
from voicepipe.router.relay import Hearer
from voicepipe.router.take import Speaker
from voicepipe.router.voices import RoutedSynthesizer
from voicepipe.stages.synthesizer import Voice
from voicepipe.stages.transcriber import Hearing
from voicepipe.testing.conformance.synthesizer import speak
from voicepipe.testing.conformance.transcriber import final, push
from voicepipe.testing.fakes.cues import Status, SttCue, TtsCue
from voicepipe.testing.fakes.stages import FakeSynthesizer, FakeTranscriber
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.transcriber import AskedEar

OPTIONS = RouterOptions(policy="fallback", fallback_after_ms=60_000, patience_ms=60_000)
PAIR = (Candidate(spec="v0/m"), Candidate(spec="v1/m"))


def opened(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    records = [record for record in caplog.records if record.getMessage() == "breaker_opened"]
    return [(r.levelname, vars(r)["fields"]["stage"], vars(r)["fields"]["provider"]) for r in records]


async def test_a_voice_whose_key_is_refused_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The caller hears the other one, and whoever operates the server hears of it."""
    cues, experience = (TtsCue(fault=Status(401)), TtsCue()), Experience()
    speakers = tuple(Speaker(c, FakeSynthesizer(cue, name=c.spec), True) for c, cue in zip(PAIR, cues, strict=True))
    with caplog.at_level(logging.WARNING, logger="voicepipe"):
        await speak(RoutedSynthesizer(speakers, Lineup(PAIR, OPTIONS, experience)), Voice(model="any"), "Hello.")
    assert opened(caplog) == [("ERROR", "tts", "v0/m")]
    refused, well = healths(experience, "tts", clock.monotonic_ms())
    assert (refused.alert[:5], well.alert, well.state) == ("401: ", "", "closed")


def always(cue: SttCue, _: AskedEar) -> SttCue:
    return cue


async def test_an_ear_whose_key_is_refused_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    cues, experience = (SttCue(fault=Status(403)), SttCue(text="it is noon")), Experience()
    hearers = tuple(
        Hearer(c, FakeTranscriber(partial(always, cue), name=c.spec)) for c, cue in zip(PAIR, cues, strict=True)
    )
    ear = RoutedTranscriber(hearers, Lineup(PAIR, OPTIONS, experience))
    with caplog.at_level(logging.WARNING, logger="voicepipe"):
        async with ear.open(Hearing(model="any")) as stream:
            stream.begin(1)
            push(stream, tone("so long", rate_hz=16_000))
            stream.flush(1)
            assert (await final(stream)).text == "it is noon"
    assert opened(caplog) == [("ERROR", "stt", "v0/m")]
    refused, _ = healths(experience, "stt", clock.monotonic_ms())
    assert refused.alert.startswith("403: ")
