"""The TTSs and STTs that REST clients may use: those of the agents, and those that the settings name."""

from __future__ import annotations

from collections.abc import Iterator

from voicepipe.config.settings import Settings
from voicepipe.registry import Spec, Stage
from voicepipe.server.audio_route import SpeechRoute, TranscriptionRoute
from voicepipe.wiring.prices import ear_usd, voice_usd
from voicepipe.wiring.stages import Stages

MILLION = 1_000_000


class Audio:
    """Implements the port `AudioModels`. Builds all at the start: a wrong spec is found then, not by the first
    client.
    """

    def __init__(self, settings: Settings, stages: Stages) -> None:
        """Raises ConfigError, naming the setting, for a provider that is not there or lacks its key."""
        self._settings, self._stages = settings, stages
        self._voices = {route.name: route for route in (*self._named_voices(), *self._agents_voices())}
        self._ears = {route.name: route for route in (*self._named_ears(), *self._agents_ears())}

    def speech(self, name: str) -> SpeechRoute | None:
        """Return the TTS of an agent's name or alias, or of a spec."""
        return self._voices.get(self._settings.agent_named(name) or name)

    def transcription(self, name: str) -> TranscriptionRoute | None:
        """Return the STT of an agent's name or alias, or of a spec."""
        return self._ears.get(self._settings.agent_named(name) or name)

    def speech_usd(self, spec: str, n_chars: int) -> float | None:
        """As `spoken_usd`."""
        return spoken_usd(self._settings, Spec.parse(spec), n_chars)

    def hearing_usd(self, spec: str, duration_s: float) -> float | None:
        """As `heard_usd`."""
        return heard_usd(self._settings, Spec.parse(spec), duration_s)

    def _agents_voices(self) -> Iterator[SpeechRoute]:
        for name, agent in self._settings.agents.items():
            yield SpeechRoute(
                name=name,
                agent=name,
                specs=tuple(map(str, agent.specs("tts"))),
                synthesizer=self._stages.voice_of(name),
                model_name=agent.spec("tts").model,
                voice=agent.voice,
                language=agent.language,
            )

    def _agents_ears(self) -> Iterator[TranscriptionRoute]:
        for name, agent in self._settings.agents.items():
            yield TranscriptionRoute(
                name=name,
                agent=name,
                specs=tuple(map(str, agent.specs("stt"))),
                transcriber=self._stages.ear_of(name),
                model_name=agent.spec("stt").model,
                language=agent.language,
            )

    def _named_voices(self) -> Iterator[SpeechRoute]:
        named = self._agents_specs("tts")
        asked = dict.fromkeys(self._settings.server.speech_models, "server.speech_models")
        for text, key in (asked | named).items():
            spec = Spec.parse(text, key=key)
            synthesizer = self._stages.get("tts", spec, key=key)
            yield SpeechRoute(name=text, agent=None, specs=(text,), synthesizer=synthesizer, model_name=spec.model)

    def _named_ears(self) -> Iterator[TranscriptionRoute]:
        named = self._agents_specs("stt")
        asked = dict.fromkeys(self._settings.server.transcription_models, "server.transcription_models")
        for text, key in (asked | named).items():
            spec = Spec.parse(text, key=key)
            transcriber = self._stages.get("stt", spec, key=key)
            yield TranscriptionRoute(
                name=text, agent=None, specs=(text,), transcriber=transcriber, model_name=spec.model
            )

    def _agents_specs(self, stage: Stage) -> dict[str, str]:
        """Return the specs that agents name, with the setting of each."""
        return {
            str(spec): f"agents.{name}.{stage}"
            for name, its in self._settings.agents.items()
            for spec in its.specs(stage)
        }


def spoken_usd(settings: Settings, spec: Spec, n_chars: int) -> float | None:
    """Return the price of speech for `n_chars` of text, from the settings or the vendor's published price; None: not
    known.
    """
    price = voice_usd(settings, spec)
    return None if price is None else price * n_chars / MILLION


def heard_usd(settings: Settings, spec: Spec, duration_s: float) -> float | None:
    """Return the price of transcribing `duration_s` of audio, from the same sources; None: not known."""
    price = ear_usd(settings, spec)
    return None if price is None else price * duration_s / 60
