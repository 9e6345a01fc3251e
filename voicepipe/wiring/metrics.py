"""The counters of the server, for `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from voicepipe.cluster.resilient import Resilient
from voicepipe.config.settings import STAGES, Settings
from voicepipe.phone.calls import PhoneCalls
from voicepipe.router.tts.audio_cache import AudioCache
from voicepipe.telemetry.journal.writer import JournalWriter
from voicepipe.telemetry.live_feed import Feed
from voicepipe.telemetry.log import lines_dropped, log_turn_closed
from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.telemetry.metrics.prometheus import Metrics
from voicepipe.telemetry.record_writer import RecordWriter
from voicepipe.telemetry.recording.writer import RecordingWriter
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.tracing.port import Tracing
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.wiring.answer_judge import AnswerJudge
from voicepipe.wiring.scheduled_benches import ScheduledBenches
from voicepipe.wiring.sessions import Sessions


def metrics_of(settings: Settings) -> Metrics:
    """Return metrics for the agents and the providers of the settings."""
    return Metrics(settings.budget, agents=frozenset(settings.agents), providers=frozenset(_providers(settings)))


def _providers(settings: Settings) -> Iterator[str]:
    for name, agent in settings.agents.items():
        for stage in STAGES:
            yield from map(str, agent.specs(stage))
        yield from map(str, settings.llm_specs(name))


def log_turn(turn: StoredTurn) -> None:
    """Log that a turn has ended."""
    log_turn_closed(turn.record, turn.agent)


class Counts(Struct, frozen=True, kw_only=True):
    """The components that count. Calling it returns their current counts."""

    record_writer: RecordWriter
    shared: Resilient
    sounds: AudioCache | None
    sessions: Sessions
    spans: Tracing
    webhooks: Webhooks
    feed: Feed
    journals: JournalWriter
    recordings: RecordingWriter
    phone_calls: PhoneCalls
    judge: AnswerJudge | None
    benches: ScheduledBenches

    def __call__(self) -> Iterator[Sample]:
        yield Sample("sessions_stuck_total", self.sessions.counts.n_stuck)
        for strategy, n_sessions in self.sessions.counts.n_strategy_failures.items():
            yield Sample("endpointing_failures_total", n_sessions, (strategy,))
        for (score, outcome), count in self.sessions.counts.n_scores.items():
            yield Sample("endpoint_scores_total", count, (score, outcome))
        for agent, usd in self.sessions.counts.phrases_usd.items():
            yield Sample("phrases_cost_usd_total", usd, (agent,))
        yield Sample("shared_store_pending", self.shared.n_unwritten)
        yield Sample("shared_store_dropped_total", self.shared.n_lost)
        yield Sample("records_waiting", self.record_writer.n_waiting)
        yield Sample("records_dropped_total", self.record_writer.dropped)
        yield Sample("records_lost_total", self.record_writer.lost)
        yield Sample("log_lines_dropped_total", lines_dropped())
        yield Sample("spans_dropped_total", self.spans.dropped)
        yield Sample("spans_lost_total", self.spans.lost)
        yield Sample("journal_events_dropped_total", self.journals.dropped)
        yield Sample("recording_slices_dropped_total", self.recordings.dropped)
        phone = self.phone_calls
        for result in phone.results:
            yield Sample("phone_calls_total", phone.results[result], (result,))
        yield Sample("phone_messages_invalid_total", phone.n_invalid)
        counts = self.webhooks.counts
        yield Sample("webhook_attempts_total", counts.delivered, ("delivered",))
        yield Sample("webhook_attempts_total", counts.failed, ("failed",))
        yield Sample("webhook_attempts_total", counts.given_up, ("given_up",))
        yield Sample("webhooks_dropped_total", counts.dropped)
        yield Sample("stream_readers", self.feed.n_readers)
        yield Sample("stream_events_dropped_total", self.feed.dropped)
        if self.judge is not None:
            for result, count in self.judge.counts.items():
                yield Sample("quality_judged_total", count, (result,))
            yield Sample("quality_judge_cost_usd_total", self.judge.cost_usd)
        yield from self.benches.samples()
        if self.sounds is not None:
            yield Sample("audio_cache_hits_total", self.sounds.hits)
            yield Sample("audio_cache_misses_total", self.sounds.misses)
