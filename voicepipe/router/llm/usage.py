"""Count the tokens and the cost of each LLM call of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from voicepipe.errors import StageError
from voicepipe.ports.model import Attempted, Usage
from voicepipe.router.candidate import Candidate
from voicepipe.router.race import Attempt
from voicepipe.turn.cost import estimated_tokens

Tokens = tuple[float, float]
"""(input, output)"""


def answer_tokens(input_tokens: float, text: str, usage: Usage | None) -> Tokens:
    """Return the tokens of a request and its answer: the provider's count, else the estimate `input_tokens` and one of
    the text. The provider of a losing call sends no count."""
    if usage is not None and usage.input_tokens:
        return float(usage.input_tokens), float(usage.output_tokens)
    return input_tokens, estimated_tokens(len(text))


def summed(before: Usage | None, usage: Usage) -> Usage:
    """Return the sum of both counts: some providers send the count since the last one."""
    if before is None:
        return usage
    return Usage(
        input_tokens=before.input_tokens + usage.input_tokens,
        output_tokens=before.output_tokens + usage.output_tokens,
        cached_tokens=before.cached_tokens + usage.cached_tokens,
        cache_write_tokens=before.cache_write_tokens + usage.cache_write_tokens,
    )


def attempted(
    attempt: Attempt,
    tokens: Tokens,
    usage: Usage | None,
    failure: StageError | None,
    *,
    began_ms: float,
    cached_share: float,
) -> Attempted:
    """Return the record of one LLM call.

    `cached_share`: of the tokens that a call without a count of its provider has read, the share charged as cached.
    """
    outcome: Literal["spoke", "lost", "failed"] = attempt.state if attempt.state in ("spoke", "failed") else "lost"
    return Attempted(
        provider=attempt.candidate.spec,
        role=attempt.role,
        outcome=outcome,
        began_ms=round(attempt.began_ms - began_ms),
        first_ms=None if attempt.first_ms is None else round(attempt.first_ms),
        why=failure.why if failure is not None else "",
        cost_usd=_charged_usd(attempt, tokens, usage, cached_share),
    )


def cached_share(usage: Usage) -> float | None:
    """Return the share of the input tokens that a provider has charged as cached; None: it read none."""
    return min(1.0, usage.cached_tokens / usage.input_tokens) if usage.input_tokens else None


def _charged_usd(attempt: Attempt, tokens: Tokens, usage: Usage | None, cached_share: float) -> float | None:
    price = attempt.candidate.price
    if price is None:
        return None
    if usage is not None:
        return price.cost_usd(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
    read, written = billed_tokens(attempt, tokens)
    return price.cost_usd(read, written, cached_share * read)


def planned_usd(attempt: Attempt, tokens: Tokens, *, cached_share: float) -> float:
    """Return the cost of one LLM call by the planning prices, so that a cap holds for models without a price too."""
    return attempt.candidate.cost_usd(*billed_tokens(attempt, tokens), cached_share=cached_share)


def hedges_usd(costs: Sequence[tuple[Attempt, float]], alone_usd: float, *, first: Candidate, is_down: bool) -> float:
    """Return what a turn costs above the first choice alone, without its failovers: the part that a cap bounds.

    Args:
        costs: each call of the turn, with its cost.
        alone_usd: what the first choice alone would cost.
        first, is_down: as for `failover_usd`.
    """
    extra_usd = sum([usd for _, usd in costs]) - alone_usd
    return extra_usd - failover_usd(costs, extra_usd, first=first, is_down=is_down)


def failover_usd(costs: Sequence[tuple[Attempt, float]], extra_usd: float, *, first: Candidate, is_down: bool) -> float:
    """Return the part of a turn's extra cost that is no hedge's, so that no cap bounds it: replacements of models that
    failed or were alone and silent at the deadline, continuations, probes, better models for a harder question, and a
    dearer primary call after a failure.

    Args:
        costs: each call of the turn, with its cost.
        extra_usd: the cost of the turn above that of the first choice alone.
        first: the first choice.
        is_down: whether the first choice is not called first since its circuit breaker is open.
    """
    if extra_usd <= 0:
        return 0.0
    alone_usd = sum([usd for _, usd in costs]) - extra_usd
    attempts, usd = [attempt for attempt, _ in costs], 0.0
    for attempt, cost_usd in costs:
        if attempt.role == "primary":
            # The first choice has lost its cache, or a dearer model is in its place.
            usd += max(0.0, cost_usd - alone_usd) if is_down or attempt.candidate is first else 0.0
        elif not _is_hedge(attempt, attempts):
            usd += cost_usd
    return min(extra_usd, usd)


def _is_hedge(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Return whether a call was started beside others though none had failed: not the only one at the deadline."""
    if attempt.role != "replacement":
        return attempt.role == "hedge" and not attempt.is_better
    had_failed = any(each.state == "failed" and (each.ended_ms or 0.0) <= attempt.began_ms for each in attempts)
    return attempt.number >= 2 and not had_failed


def billed_tokens(attempt: Attempt, tokens: Tokens) -> Tokens:
    """Return the billed tokens of an LLM call: the whole answer if it was used; else the input, and the output before
    it was closed.

    A call that was refused, or broke before its first token, is billed nothing.
    """
    if attempt.state == "spoke":
        return tokens
    if attempt.state == "failed" and not attempt.timed_out and attempt.first_ms is None:
        return 0.0, 0.0
    if attempt.first_ms is None or attempt.ended_ms is None:
        return tokens[0], 0.0
    spoke_for_ms = attempt.ended_ms - attempt.began_ms - attempt.first_ms
    return tokens[0], min(tokens[1], _tokens_in(attempt.candidate, spoke_for_ms))


def _tokens_in(candidate: Candidate, ms: float) -> float:
    return candidate.tokens_per_s * max(0.0, ms) / 1_000
