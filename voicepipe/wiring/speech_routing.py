"""Build STTs and TTSs with fallbacks, and speech-to-speech models, as an agent names them."""

from __future__ import annotations

from typing import Final

from voicepipe import clock
from voicepipe.config.settings import Settings
from voicepipe.ports.speech_model import SpeechModel
from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.ports.transcriber import Transcriber
from voicepipe.providers.built_in import speech_factory
from voicepipe.registry import Spec
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import Health, healths
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.single import SingleSynthesizer, SingleTranscriber
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.speech_to_speech import ObservedSpeechModel
from voicepipe.router.stt.transcriber import RoutedTranscriber, TranscriberCandidate
from voicepipe.router.tts.call import SynthesizerCandidate
from voicepipe.router.tts.synthesizer import RoutedSynthesizer
from voicepipe.session.speech_model import SpeechStage
from voicepipe.turn.record import attribution
from voicepipe.values import replace
from voicepipe.wiring.prices import speech_price_of

FIRST_SOUND_MS: Final = 250.0
"""Assumed time to first audio of a TTS before its first use; published figures are 90 to 400 ms."""


class SpeechRouting:
    """Builds routed STTs and TTSs; those of all agents share what is learned."""

    def __init__(self) -> None:
        # Separate: a session's statistics of an STT are of no use for its TTS.
        self.stt_stats, self.tts_stats = SharedStats(), SharedStats()
        self._model_stats = SharedStats()
        self._models: dict[Spec, SpeechModel] = {}

    def transcriber(self, specs: tuple[Spec, ...], made: list[Transcriber], options: RouterOptions) -> Transcriber:
        """Return the STT: the only one, or all of them with fallback, best first."""
        if len(made) == 1:
            return SingleTranscriber(made[0], self.stt_stats)
        candidates = tuple(Candidate(spec=str(spec)) for spec in specs)
        transcribers = tuple(
            TranscriberCandidate(candidate, transcriber)
            for candidate, transcriber in zip(candidates, made, strict=True)
        )
        return RoutedTranscriber(transcribers, SpeechOrder(candidates, options, self.stt_stats))

    def synthesizer(self, specs: tuple[Spec, ...], made: list[Synthesizer], options: RouterOptions) -> Synthesizer:
        """Return the TTS: the only one, or all of them with fallback, best first."""
        if len(made) == 1:
            return SingleSynthesizer(made[0], self.tts_stats)
        unknown = Candidate(spec="", ttft_p50_ms=FIRST_SOUND_MS)
        candidates = tuple(replace(unknown, spec=str(spec)) for spec in specs)
        speakers = tuple(
            SynthesizerCandidate(candidate, synthesizer, knows_voices=spec.provider == specs[0].provider)
            for spec, candidate, synthesizer in zip(specs, candidates, made, strict=True)
        )
        return RoutedSynthesizer(speakers, SpeechOrder(candidates, options, self.tts_stats))

    def speech_stage(self, settings: Settings, agent: str) -> SpeechStage | None:
        """Return the speech-to-speech model of an agent; None: it has none.

        Raises:
            ConfigError: there is no such adapter, or its key is missing.
        """
        options, key = settings.agents[agent], f"agents.{agent}.model"
        if not options.model:
            return None
        spec = Spec.parse(options.model, key=key)
        if spec not in self._models:
            connection = settings.connection(spec, key=key)
            made = speech_factory(connection.kind, key=key)(spec, connection)
            self._models[spec] = ObservedSpeechModel(made, self._model_stats)
        model = self._models[spec]
        return SpeechStage(
            model=model,
            name=spec.model,
            voice=options.model_voice,
            timeout_ms=options.model_timeout_ms,
            price=speech_price_of(settings, spec),
        )

    def healths(self) -> tuple[Health, ...]:
        """Return the health of each speech-to-speech model, each STT and each TTS."""
        now_ms = clock.monotonic_ms()
        models = healths(self._model_stats, attribution.SPEECH, now_ms)
        return (*models, *healths(self.stt_stats, "stt", now_ms), *healths(self.tts_stats, "tts", now_ms))
