"""Build STTs and TTSs with fallbacks, as an agent names them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from voicepipe import clock
from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.ports.transcriber import Transcriber
from voicepipe.registry import Spec
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import Health, healths
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.single import SingleSynthesizer, SingleTranscriber
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.stt.transcriber import RoutedTranscriber, TranscriberCandidate
from voicepipe.router.tts.call import SynthesizerCandidate
from voicepipe.router.tts.synthesizer import RoutedSynthesizer

FIRST_SOUND_MS: Final = 250.0
"""Assumed time to first audio of a TTS before its first use; published figures are 90 to 400 ms."""


class SpeechRouting:
    """Builds routed STTs and TTSs; those of all agents share what is learned."""

    def __init__(self) -> None:
        # Separate: a session's knowledge of an STT says nothing about its TTS.
        self._stt_stats, self._tts_stats = SharedStats(), SharedStats()

    def transcriber(self, specs: tuple[Spec, ...], made: list[Transcriber], options: RouterOptions) -> Transcriber:
        """Return the STT: the only one, or all of them with fallback, best first."""
        if len(made) == 1:
            return SingleTranscriber(made[0], self._stt_stats)
        candidates = tuple(Candidate(spec=str(spec)) for spec in specs)
        transcribers = tuple(
            TranscriberCandidate(candidate, transcriber)
            for candidate, transcriber in zip(candidates, made, strict=True)
        )
        return RoutedTranscriber(transcribers, SpeechOrder(candidates, options, self._stt_stats))

    def synthesizer(self, specs: tuple[Spec, ...], made: list[Synthesizer], options: RouterOptions) -> Synthesizer:
        """Return the TTS: the only one, or all of them with fallback, best first."""
        if len(made) == 1:
            return SingleSynthesizer(made[0], self._tts_stats)
        unknown = Candidate(spec="", ttft_p50_ms=FIRST_SOUND_MS)
        candidates = tuple(replace(unknown, spec=str(spec)) for spec in specs)
        speakers = tuple(
            SynthesizerCandidate(candidate, synthesizer, knows_voices=spec.provider == specs[0].provider)
            for spec, candidate, synthesizer in zip(specs, candidates, made, strict=True)
        )
        return RoutedSynthesizer(speakers, SpeechOrder(candidates, options, self._tts_stats))

    def healths(self) -> tuple[Health, ...]:
        """Return the health of each STT and each TTS."""
        now_ms = clock.monotonic_ms()
        return (*healths(self._stt_stats, "stt", now_ms), *healths(self._tts_stats, "tts", now_ms))
