"""The TTSs and STTs that REST clients may use: those of the agents, and those that the settings name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from voicepipe.config.settings import Settings
from voicepipe.registry import Spec, Stage
from voicepipe.server.audio_ports import SpeechRoute, TranscriptionRoute
from voicepipe.turn.cost import tts_usd
from voicepipe.wiring.prices import stt_usd_per_minute_of, tts_usd_per_million_of
from voicepipe.wiring.stages import Stages


class Audio:
    """Implements the port `AudioModels`. Builds all at the start: a wrong spec is found then, not by the first
    client.
    """

    def __init__(self, settings: Settings, stages: Stages) -> None:
        """Raises ConfigError, naming the setting, for a provider that is not there or lacks its key."""
        self._settings, self._stages = settings, stages
        self._synthesizers = {
            route.name: route for route in (*self._named_synthesizers(), *self._agents_synthesizers())
        }
        self._transcribers = {
            route.name: route for route in (*self._named_transcribers(), *self._agents_transcribers())
        }

    def speech(self, name: str) -> SpeechRoute | None:
        """Return the TTS of an agent's name or alias, or of a spec."""
        return self._synthesizers.get(self._settings.agent_named(name) or name)

    def transcription(self, name: str) -> TranscriptionRoute | None:
        """Return the STT of an agent's name or alias, or of a spec."""
        return self._transcribers.get(self._settings.agent_named(name) or name)

    def transcriptions(self) -> Iterable[TranscriptionRoute]:
        """Return all STT routes."""
        return self._transcribers.values()

    def tts_usd(self, spec: str, n_chars: int) -> float | None:
        """As `speech_cost_usd`."""
        return speech_cost_usd(self._settings, Spec.parse(spec), n_chars)

    def stt_usd(self, spec: str, duration_s: float) -> float | None:
        """As `transcription_usd`."""
        return transcription_usd(self._settings, Spec.parse(spec), duration_s)

    def _agents_synthesizers(self) -> Iterator[SpeechRoute]:
        for name, agent in self._settings.agents.items():
            yield SpeechRoute(
                name=name,
                agent=name,
                specs=tuple(map(str, agent.specs("tts"))),
                synthesizer=self._stages.synthesizer_of(name),
                model_name=agent.spec("tts").model,
                voice=agent.voice,
                language=agent.language,
            )

    def _agents_transcribers(self) -> Iterator[TranscriptionRoute]:
        for name, agent in self._settings.agents.items():
            yield TranscriptionRoute(
                name=name,
                agent=name,
                specs=tuple(map(str, agent.specs("stt"))),
                transcriber=self._stages.transcriber_of(name),
                model_name=agent.spec("stt").model,
                language=agent.language,
            )

    def _named_synthesizers(self) -> Iterator[SpeechRoute]:
        named = self._agents_specs("tts")
        configured = dict.fromkeys(self._settings.server.speech_models, "server.speech_models")
        for text, key in (configured | named).items():
            spec = Spec.parse(text, key=key)
            synthesizer = self._stages.get("tts", spec, key=key)
            yield SpeechRoute(name=text, agent=None, specs=(text,), synthesizer=synthesizer, model_name=spec.model)

    def _named_transcribers(self) -> Iterator[TranscriptionRoute]:
        named = self._agents_specs("stt")
        configured = dict.fromkeys(self._settings.server.transcription_models, "server.transcription_models")
        for text, key in (configured | named).items():
            spec = Spec.parse(text, key=key)
            transcriber = self._stages.get("stt", spec, key=key)
            yield TranscriptionRoute(
                name=text, agent=None, specs=(text,), transcriber=transcriber, model_name=spec.model
            )

    def _agents_specs(self, stage: Stage) -> dict[str, str]:
        """Return the specs that agents name, with the setting of each."""
        return {
            str(spec): f"agents.{name}.{stage}"
            for name, agent in self._settings.agents.items()
            for spec in agent.specs(stage)
        }


def speech_cost_usd(settings: Settings, spec: Spec, n_chars: int) -> float | None:
    """Return the price of speech for `n_chars` of text, from the settings or the vendor's published price; None: not
    known.
    """
    price = tts_usd_per_million_of(settings, spec)
    return None if price is None else tts_usd(n_chars, price)


def transcription_usd(settings: Settings, spec: Spec, duration_s: float) -> float | None:
    """Return the price of transcribing `duration_s` of audio, from the same sources; None: not known."""
    price = stt_usd_per_minute_of(settings, spec)
    return None if price is None else price * duration_s / 60
