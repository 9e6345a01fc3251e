"""The cost of turns: prices, what a turn has used of its providers, and what that costs.

Apart from each other: the answer that was played, and what was paid for answers that were not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from voicepipe.turn.record.values import ModelAttempt, SessionCost, Speculation, TokenCount, TurnCost

MINUTE_MS: Final = 60_000

# --- prices -----------------------------------------------------------------------------------

MILLION: Final = 1_000_000

CHARS_PER_TOKEN: Final = 4
"""Of English text in common vocabularies, by OpenAI's rule of thumb."""


def estimated_tokens(n_chars: int) -> float:
    """Return about how many tokens a text of this length is, for what no provider has counted."""
    return n_chars / CHARS_PER_TOKEN


def text_tokens(*texts: str) -> int:
    """Return about how many tokens these texts are."""
    return int(estimated_tokens(sum(map(len, texts))))


def tts_usd(n_chars: int, usd_per_million: float) -> float:
    """Return what the speech of a text of this length costs, at a price for a million characters."""
    return n_chars * usd_per_million / MILLION


class Price(msgspec.Struct, frozen=True):
    """The price of a model for a million tokens of one kind, in USD. An LLM has one kind, a speech-to-speech model has
    text and audio.
    """

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    """Of the input, the price of tokens read from the provider's cache; None: as the rest of the input."""

    cache_write_usd: float | None = None
    """Of the input, the price of tokens written to the provider's cache; None: as the rest of the input."""

    def cost_usd(
        self, input_tokens: float, output_tokens: float, cached_tokens: float = 0, cache_write_tokens: float = 0
    ) -> float:
        """Return the cost of these tokens in USD; those read from and written to the cache are among `input_tokens`."""
        cached_usd = self.input_usd if self.cached_usd is None else self.cached_usd
        write_usd = self.input_usd if self.cache_write_usd is None else self.cache_write_usd
        cached = min(cached_tokens, input_tokens)
        written = min(cache_write_tokens, input_tokens - cached)
        usd = (input_tokens - cached - written) * self.input_usd + cached * cached_usd + written * write_usd
        return (usd + output_tokens * self.output_usd) / MILLION


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of a session's providers. An unlisted provider has no known price."""

    models: Mapping[str, Price] = msgspec.field(default_factory=dict)
    """By spec."""

    voices: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Likewise, for a million characters."""

    transcribers: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Likewise, for a minute of audio."""


# --- usage ------------------------------------------------------------------------------------


@dataclass(slots=True)
class TtsUsage:
    """Characters in spoken form that were sent to each TTS, by provider. Text whose audio comes from the cache costs
    nothing, and is subtracted.
    """

    played: Counter[str] = field(default_factory=Counter)
    """Text whose audio is used."""

    unused: Counter[str] = field(default_factory=Counter)
    """Text of a TTS that lost to a faster TTS."""

    def add_played(self, provider: str, n_chars: int) -> None:
        """Add text sent to a TTS whose audio is used."""
        self.played[provider] += n_chars

    def move(self, n_chars: int, *, since: str, to: str) -> None:
        """Move text to another TTS. The first TTS failed with that text, and is not paid for it."""
        self.played[since] -= n_chars
        self.played[to] += n_chars

    def add_unused(self, provider: str, n_chars: int) -> None:
        """Add text sent to a TTS whose audio is not used. Its text from the cache was subtracted from `played`, which
        is negative once another TTS has that text.
        """
        n_cached = min(n_chars, max(0, -self.played[provider]))
        self.played[provider] += n_cached
        self.unused[provider] += n_chars - n_cached

    def add_cached(self, provider: str, n_chars: int) -> None:
        """Subtract text whose audio came from the cache."""
        counter = self.unused if provider in self.unused else self.played
        counter[provider] -= n_chars


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The use that a turn has made of its providers so far."""

    llm: str
    """The provider of the running reply; empty: none has answered."""

    tokens: TokenCount
    """What it has read and written for the running reply: as it reports, or estimated from the text."""

    counted: TokenCount
    """The same, only as it reports."""

    attempts: Sequence[ModelAttempt]
    """The requests for the answer, if a router made them."""

    speculation: Speculation
    tts: TtsUsage
    stt_ms: Mapping[str, int]
    """STT -> audio sent to it, in ms."""

    embedding_usd: float | None
    """The cost of embedded queries; None: the price is unknown."""

    speech_usd: float = 0.0
    """The cost of a speech-to-speech model, as far as it was counted."""

    speech_counted: bool = True
    """Whether all of it was counted."""

    active_ms: int
    """How long the turn took, in ms; 0 until its end."""

    @property
    def estimated(self) -> bool:
        """Return whether the provider has not counted the tokens of the running reply."""
        return bool(self.llm) and not self.counted.input + self.counted.output


# --- cost -------------------------------------------------------------------------------------

OPEN_TURNS: Final = 32
"""Number of turns kept open: more than can run at once or get late events."""


def turn_cost(usage: TurnUsage, prices: PriceList) -> TurnCost:
    """Return what a turn has cost so far, as far as prices are known."""
    price = prices.models.get(usage.llm)
    answer_tokens, wasted = usage.tokens, usage.speculation
    answer_usd = speculation_usd = 0.0
    if price is not None:
        cache = (answer_tokens.cached, answer_tokens.cache_write)
        answer_usd = price.cost_usd(answer_tokens.input, answer_tokens.output, *cache)
        speculation_usd = price.cost_usd(wasted.wasted_input_tokens, wasted.wasted_output_tokens)
    answer_usd += usage.speech_usd
    played_usd = _tts_usd(usage.tts.played, prices.voices)
    stt_usd, embedding_usd = _stt_usd(usage.stt_ms, prices.transcribers), usage.embedding_usd or 0.0
    unused_calls = [call.cost_usd for call in usage.attempts if call.outcome != "spoke"]
    unused_usd = _tts_usd(usage.tts.unused, prices.voices)
    hedge_usd = sum(usd or 0.0 for usd in unused_calls) + unused_usd
    unknown = (
        (bool(usage.llm) and price is None)
        or not _priced(usage.tts.played, prices.voices)
        or not _priced(usage.tts.unused, prices.voices)
        or not _priced(usage.stt_ms, prices.transcribers)
        or usage.embedding_usd is None
        or not usage.speech_counted
        or any(usd is None for usd in unused_calls)
    )
    return TurnCost(
        usd=answer_usd + hedge_usd + speculation_usd + played_usd + stt_usd + embedding_usd,
        answer_usd=answer_usd,
        hedge_usd=hedge_usd,
        speculation_usd=speculation_usd,
        tts_usd=played_usd,
        stt_usd=stt_usd,
        embedding_usd=embedding_usd,
        whole=not unknown,
        estimated=usage.estimated,
    )


def sum_of(costs: Sequence[TurnCost]) -> TurnCost:
    """Return the cost of several replies that are one turn for the user."""
    if len(costs) == 1:
        return costs[0]
    return TurnCost(
        usd=sum(cost.usd for cost in costs),
        answer_usd=sum(cost.answer_usd for cost in costs),
        hedge_usd=sum(cost.hedge_usd for cost in costs),
        speculation_usd=sum(cost.speculation_usd for cost in costs),
        tts_usd=sum(cost.tts_usd for cost in costs),
        stt_usd=sum(cost.stt_usd for cost in costs),
        embedding_usd=sum(cost.embedding_usd for cost in costs),
        whole=all(cost.whole for cost in costs),
        estimated=any(cost.estimated for cost in costs),
    )


def _tts_usd(n_chars: Mapping[str, int], prices: Mapping[str, float]) -> float:
    return sum(tts_usd(max(0, n), prices.get(provider, 0.0)) for provider, n in n_chars.items())


def _stt_usd(duration_ms: Mapping[str, int], prices: Mapping[str, float]) -> float:
    return sum(max(0, ms) * prices.get(provider, 0.0) for provider, ms in duration_ms.items()) / MINUTE_MS


def _priced(used: Mapping[str, int], prices: Mapping[str, float]) -> bool:
    return all(provider in prices for provider, amount in used.items() if amount > 0)


@dataclass(slots=True)
class _Sum:
    usd: float = 0.0
    hedge_usd: float = 0.0
    speculation_usd: float = 0.0
    active_ms: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    whole: bool = True
    summary_usd: float = 0.0


class CostTracker:
    """The costs of one session. A turn is counted once, by its latest known cost."""

    def __init__(self, prices: PriceList) -> None:
        self.prices = prices
        self._closed = _Sum()
        # Bounded: the oldest of these turns is closed for good when another comes.
        self._latest: dict[int, _Sum] = {}
        self._stt_ms: Counter[str] = Counter()
        """STT provider -> the audio that was sent to it and not charged to a turn yet, in ms."""

    def add_audio(self, provider: str, duration_ms: int) -> None:
        """Record that an STT's text has come, for `duration_ms` more audio."""
        if provider and duration_ms:
            self._stt_ms[provider] += duration_ms

    def add_summary(self, usd: float) -> None:
        """Count what a summary of the conversation has cost; no turn waited for it."""
        self._closed = _added(self._closed, _Sum(usd=usd, summary_usd=usd))

    def charge(self, stt_ms: dict[str, int]) -> None:
        """Add to a turn's audio what was transcribed by now: its words, and the silence before them if an STT gets that
        too.
        """
        for provider, duration_ms in self._stt_ms.items():
            stt_ms[provider] = stt_ms.get(provider, 0) + duration_ms
        self._stt_ms.clear()

    def record(self, turn: int, usage: TurnUsage) -> None:
        """Record what the turn of that number has cost by now."""
        cost = turn_cost(usage, self.prices)
        self._latest[turn] = _Sum(
            cost.usd,
            cost.hedge_usd,
            cost.speculation_usd,
            usage.active_ms,
            usage.counted.input,
            usage.counted.cached,
            cost.whole,
        )
        if len(self._latest) > OPEN_TURNS:
            oldest = min(number for number in self._latest if number != turn)
            self._closed = _added(self._closed, self._latest.pop(oldest))

    def total(self) -> SessionCost:
        """Return the cost of the session so far."""
        total = self._closed
        for each in self._latest.values():
            total = _added(total, each)
        per_minute = total.usd * MINUTE_MS / total.active_ms if total.active_ms else None
        return SessionCost(
            usd=total.usd,
            hedge_usd=total.hedge_usd,
            speculation_usd=total.speculation_usd,
            summary_usd=total.summary_usd,
            active_ms=total.active_ms,
            usd_per_active_minute=per_minute,
            cached_share=total.cached_tokens / total.input_tokens if total.input_tokens else None,
            whole=total.whole,
        )


def _added(one: _Sum, other: _Sum) -> _Sum:
    return _Sum(
        one.usd + other.usd,
        one.hedge_usd + other.hedge_usd,
        one.speculation_usd + other.speculation_usd,
        one.active_ms + other.active_ms,
        one.input_tokens + other.input_tokens,
        one.cached_tokens + other.cached_tokens,
        one.whole and other.whole,
        one.summary_usd + other.summary_usd,
    )
