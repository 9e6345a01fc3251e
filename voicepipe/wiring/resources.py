"""The open resources of a running server: connections, stores, files and their writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct

from voicepipe.cluster.resilient import Resilient
from voicepipe.cluster.response_store import ResponseStore
from voicepipe.config.settings import Settings
from voicepipe.providers.net import connection_pool, http
from voicepipe.router.tts.audio_cache import AudioCache, open_audio_cache
from voicepipe.session.knowledge import Knowledge
from voicepipe.storage import StorageHealth
from voicepipe.telemetry.ended_turns import EndedTurns
from voicepipe.telemetry.event_loop import EventLoopMonitor, monitoring
from voicepipe.telemetry.journal.writer import JournalWriter
from voicepipe.telemetry.live_feed import Feed, FeedHub
from voicepipe.telemetry.metrics.prometheus import Metrics
from voicepipe.telemetry.record_writer import RecordWriter
from voicepipe.telemetry.recording.writer import RecordingWriter
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import TurnStore
from voicepipe.telemetry.tracing.port import Tracing
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.telemetry.webhooks.session_events import SessionEvents
from voicepipe.wiring.answer_judge import JudgedTurns
from voicepipe.wiring.cluster import shared_state
from voicepipe.wiring.knowledge import knowledge_of
from voicepipe.wiring.mcp import McpServers, open_mcp
from voicepipe.wiring.metrics import log_turn, metrics_of
from voicepipe.wiring.responses import open_responses
from voicepipe.wiring.store import open_turns
from voicepipe.wiring.tools import Tools, open_tools
from voicepipe.wiring.tracing import tracing
from voicepipe.wiring.webhooks import session_events_of, webhooks_of


class Resources(Struct, frozen=True, kw_only=True):
    """The open resources of a server, closed in the reverse order."""

    n_processes: int
    """The processes that serve the port: limits of the server are shared by them."""

    metrics: Metrics
    health: StorageHealth
    feed: Feed
    judged: JudgedTurns
    """The turns whose answers are to be judged."""

    sounds: AudioCache | None
    cluster: Resilient
    turns: TurnStore
    tools: Tools
    mcp: McpServers
    webhooks: Webhooks
    session_events: SessionEvents
    spans: Tracing
    record_writer: RecordWriter
    loop: EventLoopMonitor
    journals: JournalWriter
    recordings: RecordingWriter
    responses: ResponseStore
    knowledge: Mapping[str, Knowledge]
    """Agent -> its documents."""


@asynccontextmanager
async def open_resources(
    settings: Settings, *, is_first: bool, n_processes: int, hub: FeedHub | None
) -> AsyncIterator[Resources]:
    """Open all resources for the duration of the block, in an order that allows a clean shutdown.

    Args:
        settings: everything; no other source is read.
        is_first: whether this process does what is done once for all workers.
        n_processes: the processes that serve the port, and share its limits.
        hub: the way of the live feed's events to the other workers; None: this process serves alone.

    Raises:
        VoicepipeError: a resource cannot be opened.
    """
    metrics, health = metrics_of(settings), new_health()
    feed, judged = Feed(hub=hub), JudgedTurns(settings.quality)
    async with (
        http.lifetime(),
        connection_pool.lifetime(),
        _sounds(settings, health, n_processes) as sounds,
        shared_state(settings, health) as cluster,
        open_turns(settings) as turns,
        open_tools() as tools,
        open_mcp() as mcp,
        webhooks_of(settings, health, is_first=is_first) as webhooks,
        session_events_of(webhooks) as session_events,
        tracing(settings) as spans,
        _writer(turns, health, feed, session_events, metrics, webhooks, spans, judged) as record_writer,
        _loop_monitor() as loop,
        _journals(settings, health) as journals,
        _recordings(settings, health) as recordings,
        open_responses(settings, health) as responses,
        knowledge_of(settings) as knowledge,
    ):
        yield Resources(
            n_processes=n_processes,
            metrics=metrics,
            health=health,
            feed=feed,
            judged=judged,
            sounds=sounds,
            cluster=cluster,
            turns=turns,
            tools=tools,
            mcp=mcp,
            webhooks=webhooks,
            session_events=session_events,
            spans=spans,
            record_writer=record_writer,
            loop=loop,
            journals=journals,
            recordings=recordings,
            responses=responses,
            knowledge=knowledge,
        )


@asynccontextmanager
async def _sounds(settings: Settings, health: StorageHealth, n_processes: int) -> AsyncIterator[AudioCache | None]:
    """Open the audio cache. Each process holds its share of the limit, since each counts what it has written."""
    if not settings.server.audio_cache_mb:
        yield None
        return
    folder = settings.data_path / "audio-cache"
    max_bytes = settings.server.audio_cache_mb * 1_000_000 // n_processes
    async with open_audio_cache(folder, max_bytes=max_bytes, health=health) as store:
        yield store


@asynccontextmanager
async def _journals(settings: Settings, health: StorageHealth) -> AsyncIterator[JournalWriter]:
    folder = settings.data_path / "journals"
    writer = JournalWriter(folder, settings.journals, keeps_text=settings.journals_keep_text, health=health)
    try:
        await asyncio.to_thread(writer.start)
        yield writer
    finally:
        await asyncio.to_thread(writer.stop)


@asynccontextmanager
async def _recordings(settings: Settings, health: StorageHealth) -> AsyncIterator[RecordingWriter]:
    folder, keep_days = settings.data_path / "recordings", settings.records.keep_days or None
    writer = RecordingWriter(folder, settings.recordings, keep_days=keep_days, health=health)
    if await asyncio.to_thread(folder.exists):
        writer.start()
    try:
        yield writer
    finally:
        await asyncio.to_thread(writer.stop)


def _writer(
    turns: TurnStore,
    health: StorageHealth,
    feed: Feed,
    session_events: SessionEvents,
    metrics: Metrics,
    webhooks: Webhooks,
    spans: Tracing,
    judged: JudgedTurns,
) -> RecordWriter:
    """Return what writes records. The feed and the webhooks of sessions get each; the others a turn that has ended,
    once.
    """
    handlers = (metrics.on_turn_end, log_turn, webhooks.on_turn_end, spans.on_turn_end, judged.on_turn_end)
    observers = (feed.on_record, session_events.on_record, EndedTurns(handlers).on_record)
    return RecordWriter(turns, observers=observers, health=health)


@asynccontextmanager
async def _loop_monitor() -> AsyncIterator[EventLoopMonitor]:
    with monitoring() as loop:
        yield loop
