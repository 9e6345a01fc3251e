"""What turns cost, as far as the settings tell."""

from __future__ import annotations

from voicepipe.config.settings import ProviderEntry, Settings
from voicepipe.turn.record import TurnRecord
from voicepipe.wiring.stages import LOCAL

MILLION = 1_000_000


class Prices:
    """Of the models and voices of all agents. Local ones cost nothing; who hears is not charged for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unpriced(self, agent: str) -> str | None:
        """The first setting without which it isn't known what the agent costs; None when all are there."""
        for stage, names in (
            ("llm", ("input_usd_per_million", "output_usd_per_million")),
            ("tts", ("speech_usd_per_million",)),
        ):
            provider, entry = self._entry(agent, stage)
            missing = next((name for name in names if entry.kind != LOCAL and getattr(entry, name) is None), None)
            if missing is not None:
                return f"providers.{provider}.{missing}"
        return None

    def cost_usd(self, agent: str, record: TurnRecord) -> float:
        """What one turn of the agent cost; what has no price counts as nothing."""
        _, model = self._entry(agent, "llm")
        _, voice = self._entry(agent, "tts")
        read = record.tokens.input * (model.input_usd_per_million or 0.0)
        written = record.tokens.output * (model.output_usd_per_million or 0.0)
        spoken = len(record.agent_text) * (voice.speech_usd_per_million or 0.0) if record.spoken_ms else 0.0
        return (read + written + spoken) / MILLION

    def _entry(self, agent: str, stage: str) -> tuple[str, ProviderEntry]:
        settings = self._settings.agents[agent]
        provider = settings.spec("llm" if stage == "llm" else "tts").provider
        return provider, self._settings.providers[provider]
