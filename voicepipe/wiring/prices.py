"""Prices of turns, as far as the settings and the catalogs have them."""

from __future__ import annotations

from voicepipe.config.settings import Settings
from voicepipe.providers.built_in import published_usd
from voicepipe.registry import Spec
from voicepipe.turn.pricing import PriceList, Tariff
from voicepipe.wiring.stages import LOCAL


def tts_usd_per_million_of(settings: Settings, spec: Spec) -> float | None:
    """Return the price of 1 million characters of a TTS; None: not known."""
    entry = settings.providers[spec.provider]
    if entry.kind == LOCAL:
        return 0.0
    own = entry.tts_usd_per_million_chars
    return published_usd("tts", spec, entry.base_url) if own is None else own


def stt_usd_per_minute_of(settings: Settings, spec: Spec) -> float | None:
    """Return the price of 1 minute of an STT; None: not known."""
    entry = settings.providers[spec.provider]
    if entry.kind == LOCAL:
        return 0.0
    own = entry.stt_usd_per_minute
    return published_usd("stt", spec, entry.base_url) if own is None else own


class Prices:
    """The prices of the LLMs, TTSs and STTs of all agents. Local ones are free."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unpriced(self, agent: str) -> str | None:
        """Return the first missing price setting of an agent; None when all prices are known."""
        settings, its = self._settings, self._settings.agents[agent]
        for spec in settings.llm_specs(agent):
            facts = settings.facts(spec)
            for name in ("input_usd_per_million", "output_usd_per_million"):
                if settings.providers[spec.provider].kind != LOCAL and getattr(facts, name) is None:
                    return f"providers.{spec.provider}.{name}"
        for voice in its.specs("tts"):
            if tts_usd_per_million_of(settings, voice) is None:
                return f"providers.{voice.provider}.tts_usd_per_million_chars"
        for spec in its.specs("stt"):
            if stt_usd_per_minute_of(settings, spec) is None:
                return f"providers.{spec.provider}.stt_usd_per_minute"
        return None

    def of_agent(self, agent: str) -> PriceList:
        """Return the prices of the providers of an agent's sessions, as far as they are known."""
        tariffs = {}
        for spec in self._settings.llm_specs(agent):
            facts = self._settings.facts(spec)
            if self._settings.providers[spec.provider].kind == LOCAL:
                tariffs[str(spec)] = Tariff(0.0, 0.0)
            elif facts.input_usd_per_million is not None and facts.output_usd_per_million is not None:
                cache = (facts.cached_usd_per_million, facts.cache_write_usd_per_million)
                tariffs[str(spec)] = Tariff(facts.input_usd_per_million, facts.output_usd_per_million, *cache)
        its = self._settings.agents[agent]
        voices = {str(spec): tts_usd_per_million_of(self._settings, spec) for spec in its.specs("tts")}
        transcribers = {str(spec): stt_usd_per_minute_of(self._settings, spec) for spec in its.specs("stt")}
        return PriceList(models=tariffs, voices=_known(voices), transcribers=_known(transcribers))


def _known(prices: dict[str, float | None]) -> dict[str, float]:
    return {spec: usd for spec, usd in prices.items() if usd is not None}
