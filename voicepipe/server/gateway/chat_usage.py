"""Measure one chat completion while it streams: the provider, the latency and the tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from voicepipe.ports.model import (
    Attempted,
    CallDelta,
    Finished,
    ModelEvent,
    ModelRequest,
    Routed,
    TextDelta,
    Usage,
    text_chars,
)
from voicepipe.protocol.chat_response import TokensUsed
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.server.chat_ports import ChatModels
from voicepipe.server.gateway.exchange import AnswerResult
from voicepipe.turn.cost import estimated_tokens


class ChatUsage:
    """The usage of one answer. Times are ms after the request."""

    def __init__(self, request: ModelRequest, spec: str, ignored: Sequence[str], *, to_page: bool) -> None:
        """Prepare.

        Args:
            spec: the spec that answers unless a router reports another one.
            ignored: the parameters that had no effect.
            to_page: the answer goes to a page, which does not get the providers' own error texts.
        """
        self._request, self._ignored, self._to_page = request, ignored, to_page
        self.spec = spec
        """The spec of the provider that answers."""

        self.cache: Literal["hit", "miss"] | None = None
        """Whether the answer came from the response cache; None: the request may not use it."""

        self.ttft_ms: int | None = None
        """Time to the first text or function call."""

        self.finished: Finished | None = None
        self._route_reason = ""
        self._attempts: list[Attempted] = []
        self._usage: Usage | None = None
        self._n_chars = 0

    def record(self, event: ModelEvent, now_ms: int) -> None:
        """Record the next event of the answer."""
        match event:
            case TextDelta(text):
                self._add_output(len(text), now_ms)
            case CallDelta(name=name, arguments=arguments):
                self._add_output(len(name) + len(arguments), now_ms)
            case Routed(provider, why):
                self.spec, self._route_reason = provider, why
            case Attempted():
                self._attempts.append(event)
            case Usage() if event.is_possible:
                self._usage = event
            case Finished():
                self.finished = event

    @property
    def reported(self) -> Usage | None:
        """The tokens as the provider reports them; None: the provider has not reported them."""
        return self._usage

    @property
    def estimated(self) -> bool:
        """Whether the tokens are an estimate: the provider has not reported them."""
        return self._usage is None

    def tokens(self) -> TokensUsed:
        """Return the tokens of the answer: as reported, or an estimate."""
        known = self._usage
        if known is not None:
            return TokensUsed(known.input_tokens, known.output_tokens, known.cached_tokens, known.cache_write_tokens)
        # An estimate: otherwise a client that disconnects just before the end would pay nothing.
        n_input, n_output = estimated_tokens(text_chars(self._request)), estimated_tokens(self._n_chars)
        return TokensUsed(int(n_input), math.ceil(n_output), 0)

    def answer_usd(self, models: ChatModels) -> float | None:
        """Return the provider's price of the answer alone; None: unknown."""
        used = self.tokens()
        estimated = Usage(input_tokens=used.input, output_tokens=used.output)
        return models.cost_usd(self.spec, self._usage or estimated)

    def cost_usd(self, models: ChatModels) -> float | None:
        """Return the answer's cost, including failed attempts; 0 from the cache; None: unknown."""
        if self.cache == "hit":
            return 0.0
        cost = self.answer_usd(models)
        return None if cost is None else cost + self.lost_usd

    @property
    def lost_usd(self) -> float:
        """The cost of the attempts whose answers were not sent."""
        return sum(attempt.cost_usd or 0.0 for attempt in self._attempts if attempt.outcome != "spoke")

    def result(self, models: ChatModels, *, failed: bool) -> AnswerResult:
        """Return the result of the answer, for the log and the limits."""
        # An empty answer fails, and its provider charges for it.
        is_unanswered = failed and self.ttft_ms is None and self._usage is None
        cost_usd = self.lost_usd if is_unanswered else self.cost_usd(models)
        cache = {} if self.cache is None else {"cache": self.cache}
        costs = {} if is_unanswered else {"cost_usd": cost_usd, **self._token_figures()}
        figures = {"ttft_ms": self.ttft_ms} | cache | costs
        return AnswerResult(cost_usd, figures, is_unanswered)

    def _token_figures(self) -> dict[str, int | bool]:
        used = self.tokens()
        return {
            "input_tokens": used.input,
            "output_tokens": used.output,
            "cached_tokens": used.cached,
            "estimated": self.estimated,
        }

    def headers(self) -> dict[str, str]:
        """Return the response headers with the usage."""
        ttft = {} if self.ttft_ms is None else {"X-Voicepipe-TTFT-Ms": str(self.ttft_ms)}
        cache = {} if self.cache is None else {"X-Voicepipe-Cache": self.cache}
        return {"X-Voicepipe-Route": self.spec.encode("ascii", "replace").decode()} | ttft | cache

    def voicepipe_field(self, models: ChatModels | None = None) -> JsonObject:
        """Return the response's field `voicepipe`; with the cost if `models`, which have the prices, are given."""
        fields: JsonObject = {"route": self.spec, "ttft_ms": self.ttft_ms}
        if self.cache is not None:
            fields["cache"] = self.cache
        if self._route_reason and not self._to_page:
            fields["why"] = self._route_reason
        if self._attempts and not self._to_page:
            fields["attempts"] = [_attempt(attempt) for attempt in self._attempts]
        if self._ignored:
            fields["ignored"] = list(self._ignored)
        if models is not None:
            fields |= {"cost_usd": self.cost_usd(models), "estimated": self.estimated}
        return fields

    def _add_output(self, n_chars: int, now_ms: int) -> None:
        self._n_chars += n_chars
        if self.ttft_ms is None:
            self.ttft_ms = now_ms


def _attempt(attempt: Attempted) -> JsonObject:
    return {
        "provider": attempt.provider,
        "role": attempt.role,
        "outcome": attempt.outcome,
        "began_ms": attempt.began_ms,
        "first_ms": attempt.first_ms,
        "why": attempt.why,
        "cost_usd": attempt.cost_usd,
    }
