"""Build STTs and TTSs with fallbacks, as an agent names them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from voicepipe import clock
from voicepipe.registry import Spec
from voicepipe.router.alone import LoneEar, LoneVoice
from voicepipe.router.candidate import Candidate
from voicepipe.router.ears import RoutedTranscriber
from voicepipe.router.health import Health, healths
from voicepipe.router.lineup import Lineup
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import Experience
from voicepipe.router.relay import Hearer
from voicepipe.router.take import Speaker
from voicepipe.router.voices import RoutedSynthesizer
from voicepipe.stages.synthesizer import Synthesizer
from voicepipe.stages.transcriber import Transcriber

FIRST_SOUND_MS: Final = 250.0
"""Assumed time to first audio of a TTS before its first use; published figures are 90 to 400 ms."""


class StandIns:
    """Builds routed STTs and TTSs; those of all agents share what is learned."""

    def __init__(self, options: RouterOptions) -> None:
        self._options = options
        # Separate: a session's knowledge of an STT says nothing about its TTS.
        self._ears, self._voices = Experience(), Experience()

    def ear(self, specs: tuple[Spec, ...], made: list[Transcriber]) -> Transcriber:
        """Return the STT: the only one, or all of them with fallback, best first."""
        if len(made) == 1:
            return LoneEar(made[0], self._ears)
        candidates = tuple(Candidate(spec=str(spec)) for spec in specs)
        hearers = tuple(Hearer(candidate, ear) for candidate, ear in zip(candidates, made, strict=True))
        return RoutedTranscriber(hearers, Lineup(candidates, self._options, self._ears))

    def voice(self, specs: tuple[Spec, ...], made: list[Synthesizer]) -> Synthesizer:
        """Return the TTS: the only one, or all of them with fallback, best first."""
        if len(made) == 1:
            return LoneVoice(made[0], self._voices)
        unknown = Candidate(spec="", ttft_p50_ms=FIRST_SOUND_MS)
        candidates = tuple(replace(unknown, spec=str(spec)) for spec in specs)
        speakers = tuple(
            Speaker(candidate, voice, knows_voices=spec.provider == specs[0].provider)
            for spec, candidate, voice in zip(specs, candidates, made, strict=True)
        )
        return RoutedSynthesizer(speakers, Lineup(candidates, self._options, self._voices))

    def healths(self) -> tuple[Health, ...]:
        """Return the health of each STT and each TTS."""
        now_ms = clock.monotonic_ms()
        return (*healths(self._ears, "stt", now_ms), *healths(self._voices, "tts", now_ms))
