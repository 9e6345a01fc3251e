"""Compute what turns cost: the answer that was played and, separately, what was paid for unplayed answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from voicepipe.turn.pricing import PriceList, tts_usd
from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import SessionCost, TokenCount, TurnCost
from voicepipe.turn.speculation import tokens_of
from voicepipe.turn.turn import Turn

MINUTE_MS: Final = 60_000

OPEN_TURNS: Final = 32
"""Number of turns kept open: more than can run at once or get late events."""


def turn_cost(turn: Turn, prices: PriceList) -> TurnCost:
    """Return what a turn has cost so far, as far as prices are known."""
    provider = turn.account.providers.get("llm", "")
    price = prices.models.get(provider)
    answer_tokens = _answer_tokens(turn)
    wasted = turn.account.speculation
    answer_usd = speculation_usd = 0.0
    if price is not None:
        cache = (answer_tokens.cached, answer_tokens.cache_write)
        answer_usd = price.cost_usd(answer_tokens.input, answer_tokens.output, *cache)
        speculation_usd = price.cost_usd(wasted.wasted_input_tokens, wasted.wasted_output_tokens)
    played_usd = _tts_usd(turn.account.tts_usage.played, prices.voices)
    stt_usd = _stt_usd(turn.account.stt_ms, prices.transcribers)
    unused_calls = [call.cost_usd for call in turn.reply.attempts if call.outcome != "spoke"]
    unused_usd = _tts_usd(turn.account.tts_usage.unused, prices.voices)
    hedge_usd = sum(usd or 0.0 for usd in unused_calls) + unused_usd
    unknown = (
        (bool(provider) and price is None)
        or not _priced(turn.account.tts_usage.played, prices.voices)
        or not _priced(turn.account.tts_usage.unused, prices.voices)
        or not _priced(turn.account.stt_ms, prices.transcribers)
        or any(usd is None for usd in unused_calls)
    )
    return TurnCost(
        usd=answer_usd + hedge_usd + speculation_usd + played_usd + stt_usd,
        answer_usd=answer_usd,
        hedge_usd=hedge_usd,
        speculation_usd=speculation_usd,
        tts_usd=played_usd,
        stt_usd=stt_usd,
        whole=not unknown,
        estimated=bool(provider) and not turn.reply.tokens.input + turn.reply.tokens.output,
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
        whole=all(cost.whole for cost in costs),
        estimated=any(cost.estimated for cost in costs),
    )


def _tts_usd(n_chars: Mapping[str, int], prices: Mapping[str, float]) -> float:
    return sum(tts_usd(max(0, n), prices.get(provider, 0.0)) for provider, n in n_chars.items())


def _stt_usd(duration_ms: Mapping[str, int], prices: Mapping[str, float]) -> float:
    return sum(max(0, ms) * prices.get(provider, 0.0) for provider, ms in duration_ms.items()) / MINUTE_MS


def _priced(used: Mapping[str, int], prices: Mapping[str, float]) -> bool:
    return all(provider in prices for provider, amount in used.items() if amount > 0)


def _answer_tokens(turn: Turn) -> TokenCount:
    """Return what the running reply's LLM has read and written: as its provider reports, or estimated from the text."""
    reported = turn.reply.tokens.input + turn.reply.tokens.output > 0
    if reported or not turn.account.providers.get("llm") or attribution.LLM_REQUESTED not in turn.marks:
        return turn.reply.tokens
    calls = (call.arguments for call in turn.reply.calls.values())
    return TokenCount(turn.account.input_tokens, tokens_of(turn.reply.text, *calls))


@dataclass(slots=True)
class _Sum:
    usd: float = 0.0
    hedge_usd: float = 0.0
    speculation_usd: float = 0.0
    active_ms: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    whole: bool = True


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

    def charge(self, turn: Turn) -> None:
        """Charge to a turn the audio transcribed by now: its words, and the silence before them if an STT gets that
        too.
        """
        for provider, duration_ms in self._stt_ms.items():
            turn.account.stt_ms[provider] = turn.account.stt_ms.get(provider, 0) + duration_ms
        self._stt_ms.clear()

    def note(self, turn: Turn) -> None:
        """Record what a turn has cost by now."""
        cost, tokens = turn_cost(turn, self.prices), turn.reply.tokens
        self._latest[turn.number] = _Sum(
            cost.usd,
            cost.hedge_usd,
            cost.speculation_usd,
            turn.account.active_ms,
            tokens.input,
            tokens.cached,
            cost.whole,
        )
        if len(self._latest) > OPEN_TURNS:
            oldest = min(number for number in self._latest if number != turn.number)
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
    )
