"""Prices of turns, as far as the settings and the catalogs have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeVar

from voicepipe.config.settings import LOCAL, Settings
from voicepipe.config.speech_vendors import for_stage
from voicepipe.errors import ConfigError
from voicepipe.ports.speech_price import SpeechPrice
from voicepipe.providers.built_in import published_speech_price, published_usd
from voicepipe.registry import Spec
from voicepipe.turn.cost import Price, PriceList

P = TypeVar("P")


def price_of(settings: Settings, spec: Spec) -> Price | None:
    """Return the price of an LLM by the settings and the catalog; None: not known. Local models are free."""
    return Price(0.0, 0.0) if settings.providers[spec.provider].kind in LOCAL else settings.facts(spec).price


def tts_usd_per_million_of(settings: Settings, spec: Spec) -> float | None:
    """Return the price of 1 million characters of a TTS; None: not known."""
    entry = settings.providers[spec.provider]
    if entry.kind in LOCAL:
        return 0.0
    own = entry.tts_usd_per_million_chars
    return _published_usd(settings, "tts", spec) if own is None else own


def speech_price_of(settings: Settings, spec: Spec) -> SpeechPrice | None:
    """Return the price of a speech-to-speech model by the settings, or else its published one; None: not known."""
    entry = settings.providers[spec.provider]
    audio_usd = entry.audio_input_usd_per_million
    if audio_usd is None:
        return published_speech_price(spec, entry.base_url)
    audio_output_usd = audio_usd if entry.audio_output_usd_per_million is None else entry.audio_output_usd_per_million
    read_usd, written_usd = entry.input_usd_per_million, entry.output_usd_per_million
    text = Price(
        audio_usd if read_usd is None else read_usd,
        audio_output_usd if written_usd is None else written_usd,
        entry.cached_usd_per_million,
    )
    return SpeechPrice(text=text, audio=Price(audio_usd, audio_output_usd))


def stt_usd_per_minute_of(settings: Settings, spec: Spec) -> float | None:
    """Return the price of 1 minute of an STT; None: not known."""
    entry = settings.providers[spec.provider]
    if entry.kind in LOCAL:
        return 0.0
    own = entry.stt_usd_per_minute
    return _published_usd(settings, "stt", spec) if own is None else own


def _published_usd(settings: Settings, stage: Literal["stt", "tts"], spec: Spec) -> float | None:
    # A vendor's STT and TTS may be at another address than its LLMs.
    speech = for_stage(spec.provider, stage, settings.providers[spec.provider].connection())
    return published_usd(stage, spec, speech.base_url)


def embedding_usd_per_million_of(settings: Settings, agent: str) -> float | None:
    """Return the price of 1 million tokens of an agent's embedding model; None: not known."""
    spec = Spec.parse(settings.agents[agent].knowledge_embedding)
    return settings.providers[spec.provider].embedding_usd_per_million


class Prices:
    """The prices of the LLMs, TTSs and STTs of all agents. Local ones are free."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unpriced(self, agent: str) -> str | None:
        """Return the first missing price setting of an agent, and of those that it may hand a call over to; None when
        all prices are known.
        """
        return next(filter(None, map(self._unpriced, self._settings.reachable(agent))), None)

    def _unpriced(self, agent: str) -> str | None:
        settings, options = self._settings, self._settings.agents[agent]
        for spec in settings.llm_specs(agent):
            facts = settings.facts(spec)
            for name in ("input_usd_per_million", "output_usd_per_million"):
                if settings.providers[spec.provider].kind not in LOCAL and getattr(facts, name) is None:
                    return f"providers.{spec.provider}.{name}"
        for voice in options.specs("tts"):
            if tts_usd_per_million_of(settings, voice) is None:
                return f"providers.{voice.provider}.tts_usd_per_million_chars"
        for spec in options.specs("stt"):
            if stt_usd_per_minute_of(settings, spec) is None:
                return f"providers.{spec.provider}.stt_usd_per_minute"
        if options.model:
            spec = Spec.parse(options.model)
            if speech_price_of(settings, spec) is None:
                return f"providers.{spec.provider}.audio_input_usd_per_million"
        if options.knowledge and options.knowledge_embedding and embedding_usd_per_million_of(settings, agent) is None:
            return f"providers.{Spec.parse(options.knowledge_embedding).provider}.embedding_usd_per_million"
        return None

    def of_agent(self, agent: str) -> PriceList:
        """Return the prices of the providers of an agent's sessions, as far as they are known."""
        settings = self._settings
        agents = settings.reachable(agent)
        voices_of = {str(spec): spec for each in agents for spec in settings.agents[each].specs("tts")}
        models = {str(spec): price_of(settings, spec) for each in agents for spec in settings.llm_specs(each)}
        voices = {name: tts_usd_per_million_of(settings, spec) for name, spec in voices_of.items()}
        options = settings.agents[agent]  # its STT serves the whole call
        transcribers = {str(spec): stt_usd_per_minute_of(settings, spec) for spec in options.specs("stt")}
        return PriceList(models=_known(models), voices=_known(voices), transcribers=_known(transcribers))


def check_quota_prices(settings: Settings) -> None:
    """Check that everything that costs money has a price, if a quota limits spending.

    Raises:
        ConfigError: a price is not set; the text names its setting.
    """
    quotas = settings.quotas
    limiting = [name for name in quotas.__slots__ if name.endswith("_usd_per_day") and getattr(quotas, name)]
    missing = next(_unpriced(settings), None) if limiting else None
    if missing is not None:
        raise ConfigError(f"quotas.{limiting[0]}: a quota on spending needs all prices, and {missing} is not set")


def _unpriced(settings: Settings) -> Iterator[str]:
    """Yield the price settings that are missing: of the agents, and of the models that REST requests may name."""
    yield from filter(None, map(Prices(settings).unpriced, settings.agents))
    server = settings.server
    for spec in map(Spec.parse, server.chat_models):
        if price_of(settings, spec) is None:
            yield f"providers.{spec.provider}.input_usd_per_million"
    for spec in map(Spec.parse, server.speech_models):
        if tts_usd_per_million_of(settings, spec) is None:
            yield f"providers.{spec.provider}.tts_usd_per_million_chars"
    for spec in map(Spec.parse, server.embedding_models):
        if settings.providers[spec.provider].embedding_usd_per_million is None:
            yield f"providers.{spec.provider}.embedding_usd_per_million"
    for spec in map(Spec.parse, server.transcription_models):
        if stt_usd_per_minute_of(settings, spec) is None:
            yield f"providers.{spec.provider}.stt_usd_per_minute"


def _known(prices: Mapping[str, P | None]) -> dict[str, P]:
    return {spec: price for spec, price in prices.items() if price is not None}
