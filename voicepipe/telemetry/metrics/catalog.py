"""Every metric that `/metrics` shows: its name, its kind, its labels, and its meaning. The docs' table repeats it
by hand; `tests/test_operating.py` compares the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "voicepipe_"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. Its name is without `voicepipe_`; a counter's ends with `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def full_name(self) -> str:
        """Return the name in Prometheus."""
        return f"{PREFIX}{self.name}"


TURNS: Final = (
    Family(
        "turn_latency_seconds",
        "histogram",
        ("agent",),
        "Turn latency of turns: last voiced sample to first audible one",
    ),
    Family("stage_seconds", "histogram", ("stage", "owner"), "How long each stage took, by who could make it shorter"),
    Family("stage_over_limit_total", "counter", ("stage", "owner"), "Stages that broke their limit"),
    Family("turns_total", "counter", ("agent", "cause", "outcome"), "Turns that have ended"),
    Family("turns_over_limit_total", "counter", ("agent",), "Turns whose turn latency broke the limit of the total"),
    Family("turns_unattributed_total", "counter", (), "Turns with more than 5 ms that no stage accounts for: our bug"),
    Family("actions_total", "counter", ("action",), "What was done during turns to save the budget"),
    Family("provider_calls_total", "counter", ("stage", "provider"), "Calls to providers, and turns that they served"),
    Family("model_attempts_total", "counter", ("provider", "role", "outcome"), "Calls of a router to models, by role"),
    Family("tokens_total", "counter", ("provider", "kind"), "Tokens of answers, `cached` ones being part of `input`"),
    Family("cost_usd_total", "counter", ("agent", "part"), "What turns cost, as far as prices are known"),
    Family(
        "speculation_total", "counter", ("result",), "Replies begun before the turn was over: started, used, refused"
    ),
    Family("speculation_saved_seconds_total", "counter", (), "How much sooner the kept ones could be heard"),
    Family("speculation_wasted_tokens_total", "counter", ("kind",), "Tokens of replies that were never played"),
    Family(
        "http_request_duration_seconds",
        "histogram",
        ("kind", "outcome"),
        "Answers over REST: chat, speech, transcription",
    ),
)
"""Counted as turns and answers end."""

NOW: Final = (
    Family("limit_seconds", "gauge", ("stage",), "The budget's limits, as they are set"),
    Family("sessions", "gauge", (), "Users who are connected"),
    Family("sessions_limit", "gauge", (), "How many may be"),
    Family("sessions_opened_total", "counter", (), "Users who were let in"),
    Family("sessions_stuck_total", "counter", (), "Sessions that only the last resort freed: our bug"),
    Family("endpointing_failures_total", "counter", ("strategy",), "Sessions in which an end-of-turn strategy failed"),
    Family("phrases_cost_usd_total", "counter", ("agent",), "What phrases cost that were spoken before any turn"),
    Family("ready", "gauge", (), "1: sessions are taken; 0: models load, or the server stops"),
    Family("http_requests_running", "gauge", ("kind",), "Requests over REST that are being answered"),
    Family("http_requests_limit", "gauge", ("kind",), "How many may be"),
    Family("connections_waiting", "gauge", (), "Connections without a request"),
    Family("connections_closed_total", "counter", ("why",), "Connections that the server has closed, by reason"),
    Family("event_loop_lag_seconds", "histogram", (), "How late the event loop came back to work that was due"),
    Family("event_loop_stall_cpu_seconds", "histogram", (), "CPU time of the event loop's thread while work was due"),
    Family("event_loop_stalls_total", "counter", (), "Times that the event loop was held for 100 ms or longer"),
    Family("gc_pauses_total", "counter", ("generation",), "Pauses of the garbage collector"),
    Family("gc_pause_seconds_total", "counter", ("generation",), "How long they lasted in all"),
    Family("gc_longest_pause_seconds", "gauge", (), "The longest of them"),
    Family("storage_failing", "gauge", ("store",), "1: it can't be read or written now, and calls go on without it"),
    Family("storage_failures_total", "counter", ("store",), "Times that it has begun to fail"),
    Family(
        "shared_store_pending",
        "gauge",
        (),
        "Counts, revocations and the like that the shared store lacks so far",
    ),
    Family("shared_store_dropped_total", "counter", (), "Counts that found no room while the shared store was away"),
    Family("records_waiting", "gauge", (), "Turns' records that wait for the store"),
    Family("records_dropped_total", "counter", (), "Turns' records that found no room before the store"),
    Family("records_lost_total", "counter", (), "Turns' records that the store failed to write"),
    Family("log_lines_dropped_total", "counter", (), "Log lines that nobody took"),
    Family("spans_dropped_total", "counter", (), "Spans that found no room before the collector of traces"),
    Family("spans_lost_total", "counter", (), "Spans that the collector of traces did not take"),
    Family("webhook_attempts_total", "counter", ("result",), "Deliveries of webhooks: delivered, failed, given up"),
    Family("webhooks_dropped_total", "counter", (), "Webhooks' events that found no room before their queue"),
    Family("stream_readers", "gauge", (), "Live streams of turns that are read"),
    Family("stream_events_dropped_total", "counter", (), "Events that their readers were too slow for"),
    Family("journal_events_dropped_total", "counter", (), "Events and audio that found no room before their journal"),
    Family("audio_cache_hits_total", "counter", (), "Clauses that were played from disk"),
    Family("audio_cache_misses_total", "counter", (), "Clauses that were not there"),
    Family("provider_state", "gauge", ("stage", "provider", "state"), "1 for its breaker's state, 0 for the others"),
    Family("circuit_breaker_opened_total", "counter", ("stage", "provider"), "Times that its breaker has opened"),
    Family("provider_alert", "gauge", ("stage", "provider"), "1: a person must put something right, such as a key"),
    Family("provider_in_flight", "gauge", ("stage", "provider"), "Calls to it that are running"),
    Family("provider_errors_total", "counter", ("stage", "provider", "kind"), "Its failures"),
    Family("build_info", "gauge", ("version",), "Always 1"),
)
"""Read from the server at each scrape."""

FAMILIES: Final = (*TURNS, *NOW)
BY_NAME: Final = {family.name: family for family in FAMILIES}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family of `NOW` that is no histogram."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


OTHER: Final = "other"
"""The label value for names beyond the bound."""

LONGEST: Final = 100
"""The most characters of a label's value."""


class Names:
    """The values of a label, bounded: those that are known beforehand, and a few more as they come.

    Each value makes a time series that Prometheus keeps for weeks, and clients choose some of the names. When all
    values are taken, every further name is `other` for good.
    """

    def __init__(self, known: frozenset[str] = frozenset(), *, more: int) -> None:
        self._taken, self._room = set(known), more

    def of(self, name: str) -> str:
        """Return the value to count `name` under; an empty one is `none`."""
        if name in self._taken:
            return name
        if not name:
            return "none"
        if self._room <= 0 or len(name) > LONGEST:
            return OTHER
        self._room -= 1
        self._taken.add(name)
        return name
