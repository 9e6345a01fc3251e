"""What turns cost, as far as the settings and the catalog tell."""

from __future__ import annotations

from voicepipe.config.settings import Settings
from voicepipe.registry import Spec
from voicepipe.turn.prices import PriceList, Tariff
from voicepipe.turn.record import TurnRecord
from voicepipe.wiring.stages import LOCAL

MILLION = 1_000_000


class Prices:
    """Of the models and voices of all agents. Local ones cost nothing; who hears is not charged for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unpriced(self, agent: str) -> str | None:
        """The first setting without which it isn't known what the agent costs; None when all are there."""
        for mind in self._settings.thinkers(agent):
            facts = self._settings.facts(mind)
            for name in ("input_usd_per_million", "output_usd_per_million"):
                if self._settings.providers[mind.provider].kind != LOCAL and getattr(facts, name) is None:
                    return f"providers.{mind.provider}.{name}"
        mouth = self._settings.agents[agent].spec("tts")
        voice = self._settings.providers[mouth.provider]
        if voice.kind != LOCAL and voice.speech_usd_per_million is None:
            return f"providers.{mouth.provider}.speech_usd_per_million"
        return None

    def of_agent(self, agent: str) -> PriceList:
        """What the providers of an agent's sessions charge, as far as it is known."""
        tariffs = {}
        for mind in self._settings.thinkers(agent):
            facts = self._settings.facts(mind)
            if self._settings.providers[mind.provider].kind == LOCAL:
                tariffs[str(mind)] = Tariff(0.0, 0.0)
            elif facts.input_usd_per_million is not None and facts.output_usd_per_million is not None:
                cache = (facts.cached_usd_per_million, facts.cache_write_usd_per_million)
                tariffs[str(mind)] = Tariff(facts.input_usd_per_million, facts.output_usd_per_million, *cache)
        voice = self._settings.providers[self._settings.agents[agent].spec("tts").provider]
        return PriceList(models=tariffs, speech_usd=0.0 if voice.kind == LOCAL else voice.speech_usd_per_million)

    def cost_usd(self, agent: str, record: TurnRecord) -> float:
        """What one turn of the agent cost, calls that were closed unheard and replies begun in vain among it; what has
        no price counts as nothing."""
        tokens = record.tokens
        thought = self._settings.facts(self._mind(agent, record)).cost_usd(
            input_tokens=tokens.input, output_tokens=tokens.output, cached_tokens=tokens.cached
        )
        voice = self._settings.providers[self._settings.agents[agent].spec("tts").provider]
        spoken = len(record.agent_text) * (voice.speech_usd_per_million or 0.0) if record.spoken_ms else 0.0
        unheard = sum(call.cost_usd or 0.0 for call in record.attempts if call.outcome != "spoke")
        return (thought or 0.0) + unheard + record.cost.speculation_usd + spoken / MILLION

    def _mind(self, agent: str, record: TurnRecord) -> Spec:
        """Who answered: of several models the one that the record names."""
        provider, _, model = dict(record.providers).get("llm", "").partition("/")
        own = self._settings.agents[agent].spec("llm")
        return Spec(provider, model) if model and provider in self._settings.providers else own
