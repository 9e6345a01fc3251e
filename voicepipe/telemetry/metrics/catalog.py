"""Declare every metric of `/metrics`: name, kind, labels and meaning. The table of `web/docs/metrics.md` is generated
from this catalog."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "voicepipe_"


class Family(Struct, frozen=True):
    """A metric. Its name is without `voicepipe_`; a counter's ends with `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    merge_by: Literal["sum", "max"] = "sum"
    """How the values of several workers are merged."""

    @property
    def full_name(self) -> str:
        """Return the name in Prometheus."""
        return f"{PREFIX}{self.name}"


COUNTED: Final = (
    Family(
        "turn_latency_seconds",
        "histogram",
        ("agent",),
        "Turn latency: last voiced sample to first audible sample",
    ),
    Family(
        "stage_seconds", "histogram", ("stage", "owner"), "Duration of each stage, by the owner that could shorten it"
    ),
    Family("stage_over_limit_total", "counter", ("stage", "owner"), "Stages that broke their limit"),
    Family("turns_total", "counter", ("agent", "cause", "outcome"), "Turns that ended"),
    Family("turns_over_limit_total", "counter", ("agent",), "Turns whose turn latency broke the total limit"),
    Family(
        "turns_unattributed_total", "counter", (), "Turns with more than 5 ms outside all stages: a bug in voicepipe"
    ),
    Family("actions_total", "counter", ("action",), "Actions taken during turns to keep the budget"),
    Family("provider_calls_total", "counter", ("stage", "provider"), "Calls to providers, and turns that they served"),
    Family("model_attempts_total", "counter", ("provider", "role", "outcome"), "A router's requests to LLMs, by role"),
    Family(
        "tokens_total", "counter", ("provider", "kind"), "Tokens of LLM requests and answers; `input` includes `cached`"
    ),
    Family("cost_usd_total", "counter", ("agent", "part"), "Cost of turns, as far as prices are known"),
    Family("speculation_total", "counter", ("result",), "Speculative replies: started, used, refused"),
    Family("speculation_saved_seconds_total", "counter", (), "Latency that the used speculative replies saved"),
    Family("speculation_wasted_tokens_total", "counter", ("kind",), "Tokens of speculative replies that were not used"),
    Family(
        "http_request_duration_seconds",
        "histogram",
        ("kind", "outcome"),
        "Duration of REST requests: chat, speech, transcription, translation, embedding",
    ),
)
"""Counted as turns and answers end."""

CURRENT: Final = (
    Family("limit_seconds", "gauge", ("stage",), "Limits of the budget", merge_by="max"),
    Family("sessions", "gauge", (), "Sessions that are open"),
    Family("sessions_limit", "gauge", (), "Limit of open sessions", merge_by="max"),
    Family("sessions_opened_total", "counter", (), "Sessions that were opened"),
    Family(
        "sessions_refused_total",
        "counter",
        ("reason",),
        "Sessions and client secrets refused for `full`, `head_room`, `stage_latency` or `quota`",
    ),
    Family(
        "sessions_stuck_total", "counter", (), "Sessions with a turn that only the watchdog ended: a bug in voicepipe"
    ),
    Family("endpointing_failures_total", "counter", ("strategy",), "Sessions in which an end-of-turn strategy failed"),
    Family(
        "endpoint_scores_total",
        "counter",
        ("score", "outcome"),
        "Scores of pauses by models that came `in_time`, or `late` (after 80 ms, and dropped), or `failed`",
    ),
    Family("phrases_cost_usd_total", "counter", ("agent",), "Cost of phrases that were synthesized before any turn"),
    Family("ready", "gauge", (), "1: the server takes sessions; 0: it loads models or stops", merge_by="max"),
    Family(
        "local_model_busy_ratio",
        "gauge",
        ("stage",),
        "Share of the last 4 s in which a local model worked, 0 to 1, for all clients of its engine",
        merge_by="max",
    ),
    Family("http_requests_running", "gauge", ("kind",), "REST requests that are being answered"),
    Family("http_requests_limit", "gauge", ("kind",), "Limit of concurrent REST requests", merge_by="max"),
    Family("connections_waiting", "gauge", (), "Connections without a request"),
    Family("connections_closed_total", "counter", ("why",), "Connections that the server closed, by reason"),
    Family("event_loop_lag_seconds", "histogram", (), "Delay of the event loop after work was due"),
    Family("event_loop_stall_cpu_seconds", "histogram", (), "CPU time of the event loop's thread while work was due"),
    Family("event_loop_stalls_total", "counter", (), "Stalls of the event loop of 100 ms or more"),
    Family("gc_pauses_total", "counter", ("generation",), "Pauses of the garbage collector"),
    Family("gc_pause_seconds_total", "counter", ("generation",), "Total duration of the garbage collector's pauses"),
    Family("gc_longest_pause_seconds", "gauge", (), "Longest pause of the garbage collector", merge_by="max"),
    Family(
        "storage_failing",
        "gauge",
        ("store",),
        "1: the store can't be read or written now; sessions go on",
        merge_by="max",
    ),
    Family("storage_failures_total", "counter", ("store",), "Times that the store began to fail"),
    Family(
        "shared_store_pending",
        "gauge",
        (),
        "Writes that wait for the shared store, such as counts and revocations",
    ),
    Family(
        "shared_store_dropped_total", "counter", (), "Writes dropped for lack of room while the shared store failed"
    ),
    Family("records_waiting", "gauge", (), "Turn records that wait for the store"),
    Family("records_dropped_total", "counter", (), "Turn records dropped because the queue to the store was full"),
    Family("records_lost_total", "counter", (), "Turn records that the store failed to write"),
    Family("log_lines_dropped_total", "counter", (), "Log lines dropped because stderr was blocked"),
    Family("spans_dropped_total", "counter", (), "Spans dropped because the queue to the trace collector was full"),
    Family("spans_lost_total", "counter", (), "Spans that the trace collector did not accept"),
    Family("webhook_attempts_total", "counter", ("result",), "Webhook deliveries: delivered, failed, given up"),
    Family("webhooks_dropped_total", "counter", (), "Webhook events dropped because the queue was full"),
    Family("stream_readers", "gauge", (), "Clients that read a live stream of turns"),
    Family("stream_events_dropped_total", "counter", (), "Live events dropped because a client read too slowly"),
    Family(
        "journal_events_dropped_total", "counter", (), "Journal events and audio dropped because the disk was too slow"
    ),
    Family(
        "recording_slices_dropped_total", "counter", (), "Slices of recorded calls lost because the disk was too slow"
    ),
    Family(
        "phone_calls_total",
        "counter",
        ("result",),
        "Phone calls: answered, refused, dialed, voicemail, transferred; unsigned: requests with a wrong signature; "
        "failed: commands that the carrier's API has not taken",
    ),
    Family("phone_messages_invalid_total", "counter", (), "Messages of phone carriers that could not be read"),
    Family(
        "response_cache_requests_total",
        "counter",
        ("result",),
        "Answers over REST while the response cache is on: hit, miss; excluded: the request may not use it",
    ),
    Family(
        "quality_judged_total",
        "counter",
        ("result",),
        "Answers for the judge of experiments: judged, failed, dropped because it was too slow or at its cost limit",
    ),
    Family("quality_judge_cost_usd_total", "counter", (), "Cost of the judge of experiments, as far as known"),
    Family(
        "bench_runs_total",
        "counter",
        ("result",),
        "Runs of scheduled benches: measured, failed; over_cap: left out, since they could cost too much",
    ),
    Family("bench_cost_usd_total", "counter", (), "Cost of scheduled benches, the unknown part at its most"),
    Family(
        "bench_latency_seconds",
        "gauge",
        ("bench", "stage", "provider", "quantile"),
        "Latency of the latest run of a scheduled bench, from its first comparison on",
        merge_by="max",
    ),
    Family(
        "bench_drift",
        "gauge",
        ("bench", "stage", "provider", "quantile"),
        "1: the latest run of a scheduled bench is slower than those before it; -1: faster; 0: neither",
    ),
    Family("response_cache_saved_usd_total", "counter", (), "Cost that answers from the response cache have saved"),
    Family("response_cache_bytes", "gauge", (), "Memory of the answers in the response cache, about"),
    Family("audio_cache_hits_total", "counter", (), "Clauses played from the audio cache"),
    Family("audio_cache_misses_total", "counter", (), "Clauses that the audio cache did not have"),
    Family(
        "provider_state",
        "gauge",
        ("stage", "provider", "state"),
        "1 for the current state of the provider's circuit breaker, 0 for the others",
        merge_by="max",
    ),
    Family(
        "circuit_breaker_opened_total",
        "counter",
        ("stage", "provider"),
        "Times that the provider's circuit breaker opened",
    ),
    Family(
        "provider_alert",
        "gauge",
        ("stage", "provider"),
        "1: an operator must act, for example replace a key",
        merge_by="max",
    ),
    Family("provider_in_flight", "gauge", ("stage", "provider"), "Running calls to the provider"),
    Family("provider_errors_total", "counter", ("stage", "provider", "kind"), "Errors of the provider"),
    Family("workers", "gauge", (), "Processes that serve the port"),
    Family("worker_restarts_total", "counter", (), "Workers that have died and were started again"),
    Family("build_info", "gauge", ("version",), "Always 1", merge_by="max"),
)
"""Read from the server at each scrape."""

FAMILIES: Final = (*COUNTED, *CURRENT)
BY_NAME: Final = {family.name: family for family in FAMILIES}


class Sample(Struct, frozen=True):
    """A value of a family of `CURRENT` other than a histogram."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


OTHER: Final = "other"
"""The label value for names beyond the bound."""

MAX_NAME_CHARS: Final = 100
"""Maximum length of a label's value."""


class Names:
    """Bounds the values of a label: the configured names, and a few more.

    Each value makes a time series that Prometheus keeps for weeks, and clients choose some of the names. Beyond the
    limit, a name counts as `other`.
    """

    def __init__(self, known: frozenset[str] = frozenset(), *, more: int) -> None:
        self._known, self._n_left = set(known), more

    def of(self, name: str) -> str:
        """Return the label value of a name; an empty name is `none`."""
        if name in self._known:
            return name
        if not name:
            return "none"
        if self._n_left <= 0 or len(name) > MAX_NAME_CHARS:
            return OTHER
        self._n_left -= 1
        self._known.add(name)
        return name
