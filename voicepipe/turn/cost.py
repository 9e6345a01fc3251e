"""Compute what turns cost: the answer that was heard and, separately, what was paid without being heard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from voicepipe.turn import budget
from voicepipe.turn.prices import MILLION, PriceList
from voicepipe.turn.record import SessionCost, TokenCount, TurnCost
from voicepipe.turn.speculation import tokens_of
from voicepipe.turn.turns import Turn

MINUTE_MS: Final = 60_000

KEPT_OPEN: Final = 32
"""Number of turns kept open: more than can run at once or get late news."""


def turn_cost(turn: Turn, prices: PriceList) -> TurnCost:
    """Return what a turn has cost so far, as far as prices are known."""
    provider = turn.account.providers.get("llm", "")
    tariff = prices.models.get(provider)
    answer_tokens = _answer_tokens(turn)
    wasted = turn.account.speculation
    answer_usd = speculation_usd = 0.0
    if tariff is not None:
        cache = (answer_tokens.cached, answer_tokens.cache_write)
        answer_usd = tariff.cost_usd(answer_tokens.input, answer_tokens.output, *cache)
        speculation_usd = tariff.cost_usd(wasted.wasted_input_tokens, wasted.wasted_output_tokens)
    speech_usd = _sum_usd(turn.account.voiced.heard, prices.voices) / MILLION
    hearing_usd = _sum_usd(turn.account.ear_ms, prices.ears) / MINUTE_MS
    in_vain = [call.cost_usd for call in turn.reply.attempts if call.outcome != "spoke"]
    losers_usd = sum(usd or 0.0 for usd in in_vain) + _sum_usd(turn.account.voiced.in_vain, prices.voices) / MILLION
    unknown = (
        (bool(provider) and tariff is None)
        or not _priced(turn.account.voiced.heard, prices.voices)
        or not _priced(turn.account.voiced.in_vain, prices.voices)
        or not _priced(turn.account.ear_ms, prices.ears)
        or any(usd is None for usd in in_vain)
    )
    return TurnCost(
        usd=answer_usd + losers_usd + speculation_usd + speech_usd + hearing_usd,
        answer_usd=answer_usd,
        losers_usd=losers_usd,
        speculation_usd=speculation_usd,
        speech_usd=speech_usd,
        hearing_usd=hearing_usd,
        whole=not unknown,
        estimated=bool(provider) and not turn.reply.tokens.input + turn.reply.tokens.output,
    )


def _sum_usd(used: Mapping[str, int], prices: Mapping[str, float]) -> float:
    return sum(max(0, amount) * prices.get(provider, 0.0) for provider, amount in used.items())


def _priced(used: Mapping[str, int], prices: Mapping[str, float]) -> bool:
    return all(provider in prices for provider, amount in used.items() if amount > 0)


def _answer_tokens(turn: Turn) -> TokenCount:
    """Return what the running reply's LLM has read and written: as its provider reports, or estimated from the text."""
    told = turn.reply.tokens.input + turn.reply.tokens.output > 0
    if told or not turn.account.providers.get("llm") or budget.ASKED not in turn.marks:
        return turn.reply.tokens
    calls = (call.arguments for call in turn.reply.calls.values())
    return TokenCount(turn.account.input_tokens, tokens_of(turn.reply.text, *calls))


@dataclass(slots=True)
class _Sum:
    usd: float = 0.0
    losers_usd: float = 0.0
    speculation_usd: float = 0.0
    active_ms: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    whole: bool = True


class Purse:
    """The costs of one session. A turn is counted once, by its latest known cost."""

    def __init__(self, prices: PriceList) -> None:
        self.prices = prices
        self._closed = _Sum()
        # Bounded: the oldest of these turns is closed for good when another comes.
        self._latest: dict[int, _Sum] = {}
        self._ear_ms: Counter[str] = Counter()
        """STT provider -> the audio that it was given and that is not charged to a turn yet, in ms."""

    def hear(self, provider: str, duration_ms: int) -> None:
        """Record that an STT's text has come, for `duration_ms` more audio."""
        if provider and duration_ms:
            self._ear_ms[provider] += duration_ms

    def charge(self, turn: Turn) -> None:
        """Charge to a turn the audio transcribed by now: its words, and the silence before them if an STT gets that
        too.
        """
        for provider, duration_ms in self._ear_ms.items():
            turn.account.ear_ms[provider] = turn.account.ear_ms.get(provider, 0) + duration_ms
        self._ear_ms.clear()

    def note(self, turn: Turn) -> None:
        """Record what a turn has cost by now."""
        cost, tokens = turn_cost(turn, self.prices), turn.reply.tokens
        self._latest[turn.number] = _Sum(
            cost.usd,
            cost.losers_usd,
            cost.speculation_usd,
            turn.account.active_ms,
            tokens.input,
            tokens.cached,
            cost.whole,
        )
        if len(self._latest) > KEPT_OPEN:
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
            losers_usd=total.losers_usd,
            speculation_usd=total.speculation_usd,
            active_ms=total.active_ms,
            usd_per_active_minute=per_minute,
            cached_share=total.cached_tokens / total.input_tokens if total.input_tokens else None,
            whole=total.whole,
        )


def _added(one: _Sum, other: _Sum) -> _Sum:
    return _Sum(
        one.usd + other.usd,
        one.losers_usd + other.losers_usd,
        one.speculation_usd + other.speculation_usd,
        one.active_ms + other.active_ms,
        one.input_tokens + other.input_tokens,
        one.cached_tokens + other.cached_tokens,
        one.whole and other.whole,
    )
