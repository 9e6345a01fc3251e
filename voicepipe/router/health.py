"""The health of each provider, for the operator; and the log of its failures."""

from __future__ import annotations

import logging
from typing import Any, Literal

from msgspec import Struct

from voicepipe.errors import StageError, StageExpired
from voicepipe.router.circuit_breaker import BreakerState, CircuitBreaker, kind_of
from voicepipe.router.pool import SharedStats
from voicepipe.router.survival import quantile_ms
from voicepipe.telemetry.log import log_event

HealthStage = Literal["stt", "llm", "tts", "speech_to_speech"]


class Health(Struct, frozen=True, kw_only=True):
    """The health of one provider, as measured so far."""

    stage: HealthStage
    spec: str
    state: BreakerState
    retry_in_ms: int
    """Time until the provider gets requests again; 0 unless the state is `open`. A single provider gets them
    meanwhile."""

    n_opened: int
    """Number of times that its circuit breaker opened."""

    alert: str
    """The provider's error that an operator must resolve; empty: none, or the provider has answered since."""

    in_flight: int
    errors: tuple[tuple[str, int], ...]
    """(kind, count): its failures so far, by `breaker.kind_of`."""

    ttft_p50_ms: int | None
    """Median time to the start of its answers (TTS: to the first audio), learned and published. None: it is a single
    provider or a transcriber."""

    ttft_p95_ms: int | None
    itl_ms: float | None
    """Mean time from one token of its answers to the next; None: not known, or it is no LLM."""

    tokens_per_s: float | None


def healths(stats: SharedStats, stage: HealthStage, now_ms: float) -> tuple[Health, ...]:
    """Return the health of every provider that got a request or is in a pool, by name."""
    return tuple(_health(stats, stage, spec, now_ms) for spec in sorted(stats.breakers))


def _health(stats: SharedStats, stage: HealthStage, spec: str, now_ms: float) -> Health:
    breaker, survival = stats.breakers[spec], stats.latency.known(spec)
    speed = stats.latency.speed(spec)
    curve = None if survival is None else survival.curve(now_ms)
    return Health(
        stage=stage,
        spec=spec,
        state=breaker.state(now_ms),
        retry_in_ms=round(breaker.retry_in_ms(now_ms)),
        n_opened=breaker.n_opened,
        alert=breaker.alert,
        in_flight=stats.running.get(spec, 0),
        errors=tuple(sorted(breaker.errors.items())),
        ttft_p50_ms=None if curve is None else round(quantile_ms(curve, 0.5)),
        ttft_p95_ms=None if curve is None else round(quantile_ms(curve, 0.95)),
        itl_ms=speed.itl_ms,
        tokens_per_s=speed.tokens_per_s,
    )


def record_failure(breaker: CircuitBreaker, spec: str, failure: StageError, now_ms: float) -> None:
    """Record and log a provider's failure, and log when its circuit breaker opens: an error if an operator must act.

    A connection that grew too old is no failure.
    """
    if isinstance(failure, StageExpired):
        return
    n_before = breaker.n_opened
    breaker.failed(failure, now_ms)
    fields: dict[str, Any] = {"stage": failure.stage, "provider": spec, "kind": kind_of(failure), "why": failure.why}
    log_event("provider_failed", level=logging.WARNING, **fields)
    if breaker.n_opened > n_before:
        level = logging.ERROR if breaker.alert else logging.WARNING
        log_event(
            "breaker_opened",
            level=level,
            **fields,
            retry_in_ms=round(breaker.retry_in_ms(now_ms)),
            must_act=bool(breaker.alert),
        )
