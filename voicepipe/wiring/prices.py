"""What turns cost, as far as the settings and the catalog tell."""

from __future__ import annotations

from voicepipe.config.settings import ProviderEntry, Settings
from voicepipe.registry import Spec, Stage
from voicepipe.turn.record import TurnRecord
from voicepipe.wiring.stages import LOCAL

MILLION = 1_000_000


class Prices:
    """Of the models and voices of all agents. Local ones cost nothing; who hears is not charged for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unpriced(self, agent: str) -> str | None:
        """The first setting without which it isn't known what the agent costs; None when all are there."""
        mind, model = self._of(agent, "llm")
        if model.kind != LOCAL:
            facts = self._settings.facts(mind)
            for name in ("input_usd_per_million", "output_usd_per_million"):
                if getattr(facts, name) is None:
                    return f"providers.{mind.provider}.{name}"
        mouth, voice = self._of(agent, "tts")
        if voice.kind != LOCAL and voice.speech_usd_per_million is None:
            return f"providers.{mouth.provider}.speech_usd_per_million"
        return None

    def cost_usd(self, agent: str, record: TurnRecord) -> float:
        """What one turn of the agent cost; what has no price counts as nothing."""
        mind, _ = self._of(agent, "llm")
        tokens = record.tokens
        thought = self._settings.facts(mind).cost_usd(
            input_tokens=tokens.input, output_tokens=tokens.output, cached_tokens=tokens.cached
        )
        _, voice = self._of(agent, "tts")
        spoken = len(record.agent_text) * (voice.speech_usd_per_million or 0.0) if record.spoken_ms else 0.0
        return (thought or 0.0) + spoken / MILLION

    def _of(self, agent: str, stage: Stage) -> tuple[Spec, ProviderEntry]:
        spec = self._settings.agents[agent].spec(stage)
        return spec, self._settings.providers[spec.provider]
