"""Build a running server from its settings: every component, in an order that allows clean shutdown."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import voicepipe
from voicepipe.audio.blas import compute_on_one_thread
from voicepipe.auth import tokens
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.rate_limit import FailedAttempts
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster, Snapshots
from voicepipe.cluster.resilient import Resilient
from voicepipe.cluster.response_store import ResponseStore
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError, VoicepipeError
from voicepipe.providers.net import connection_pool, http
from voicepipe.router.tts.audio_cache import AudioCache, open_audio_cache
from voicepipe.server.app import listening
from voicepipe.server.authenticate import Authenticator
from voicepipe.server.context import ServerContext
from voicepipe.server.gateway.request_slots import RequestSlots
from voicepipe.server.gateway.response_cache import ResponseCache
from voicepipe.server.gateway.response_cache_settings import ResponseCacheSettings
from voicepipe.server.head_room import HeadRoom
from voicepipe.server.reference_figures import ReferenceFigures
from voicepipe.server.revocations import watch_revocations
from voicepipe.server.sessions.live_sessions import LiveSessions
from voicepipe.server.tls import tls_context
from voicepipe.server.webrtc.calls import RtcCalls
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.peers import Workers
from voicepipe.server.workers.relay import RelayedRtcCalls, RelayedSessions
from voicepipe.server.workers.shared import SharedAttempts, SharedFeed, deliver_to
from voicepipe.server.workers.snapshots import WorkerSnapshots
from voicepipe.storage import StorageHealth, advice, kind_of
from voicepipe.telemetry.ended_turns import EndedTurns
from voicepipe.telemetry.event_loop import EventLoopMonitor, monitoring
from voicepipe.telemetry.isolation import isolated, keep_running
from voicepipe.telemetry.journal.writer import JournalWriter
from voicepipe.telemetry.live_feed import Feed
from voicepipe.telemetry.record_writer import RecordWriter
from voicepipe.telemetry.recording.writer import RecordingWriter
from voicepipe.telemetry.rollups.retention import maintain
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import StoredTurn, TurnStore
from voicepipe.wiring.answer_judge import JudgedTurns, answer_judge_of
from voicepipe.wiring.audio import Audio
from voicepipe.wiring.chat import Chat
from voicepipe.wiring.cluster import node_of, shared_state
from voicepipe.wiring.detached_tasks import DetachedTasks
from voicepipe.wiring.embeddings import Embeddings
from voicepipe.wiring.engine import LocalModels, is_local_everywhere
from voicepipe.wiring.knowledge import knowledge_of
from voicepipe.wiring.mcp import open_mcp
from voicepipe.wiring.metrics import Counts, log_turn, metrics_of
from voicepipe.wiring.model_routing import keep_distances
from voicepipe.wiring.prices import check_quota_prices
from voicepipe.wiring.reload import Reload, SettingsInForce
from voicepipe.wiring.responses import open_responses, purge_responses
from voicepipe.wiring.router_hints import HintExchange
from voicepipe.wiring.scheduled_benches import ScheduledBenches, bench_state
from voicepipe.wiring.sessions import Sessions
from voicepipe.wiring.shared_keys import KeySync
from voicepipe.wiring.stages import Stages
from voicepipe.wiring.startup_checks import check_models, log_language_limits
from voicepipe.wiring.store import open_turns, retention_of, store_summary
from voicepipe.wiring.tokens import key_store, token_issuer
from voicepipe.wiring.tools import open_tools
from voicepipe.wiring.tracing import tracing
from voicepipe.wiring.webhooks import session_events_of, webhooks_of

if TYPE_CHECKING:
    from voicepipe.wiring.bench_jobs import BenchJob

PROBE_BYTES: Final = 65_536
"""Written to the data folder at the start: with less free space the server could not create its files."""


def _silent(line: str) -> None:
    """Drop a progress line."""


CHAT_SLOTS: Final = "chat completions"
AUDIO_SLOTS: Final = "requests for speech, transcription, translation or audio of items"


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The parts that connect a worker with the others."""

    others: Workers
    feed: SharedFeed

    @property
    def link(self) -> WorkerLink:
        """Return the channel to the supervisor."""
        return self.others.link


@dataclass(frozen=True, slots=True)
class Running:
    """A running server."""

    base_url: str
    """`http://HOST:PORT` or `https://HOST:PORT`, without a slash at its end."""

    is_open: bool
    """Whether any client on this machine may use it without a key."""

    reload: Reload
    """Puts the settings as they are written now in force, for sessions that begin from then on."""

    ready: asyncio.Event
    """Set when the models are loaded and sessions are accepted."""

    slots_owner: str = ""
    """The owner of the process's slots in the shared store."""


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    print_line: Callable[[str], None] = _silent,
    read: Callable[[], Settings] | None = None,
    workers: WorkerParts | None = None,
) -> AsyncIterator[Running]:
    """Run the server for the duration of the block. It answers at once, and accepts sessions when its models are
    loaded. From then on numpy's matrix products are computed on one thread in the whole process.

    Args:
        settings: everything; no other source is read.
        print_line: gets progress lines, one at a time.
        read: reads the settings again from where they came, for a reload; None: there is none.
        workers: the link to the other processes that serve the port; None: this one serves alone.

    Raises:
        VoicepipeError: a setting, this machine or this installation does not work. When the local models
            fail to load, the error comes while the block runs, and the block is cancelled.
    """
    check_quota_prices(settings)
    compute_on_one_thread()
    make_private(settings.data_path)
    try:
        async with _open(settings, print_line, read, workers) as server:
            yield server
    except BaseExceptionGroup as group:
        raise _reason(group) from None


@asynccontextmanager
async def _open(
    settings: Settings,
    print_line: Callable[[str], None],
    read: Callable[[], Settings] | None,
    workers: WorkerParts | None,
) -> AsyncIterator[Running]:
    is_first = workers is None or workers.link.index == 0
    """Whether this process does what is done once for all workers."""

    metrics, health = metrics_of(settings), new_health()
    feed, judged = Feed(hub=None if workers is None else workers.feed), JudgedTurns(settings.quality)
    async with (
        http.lifetime(),
        connection_pool.lifetime(),
        _sounds(settings, health, 1 if workers is None else workers.link.n_workers) as sounds,
        shared_state(settings, health) as cluster,
        open_turns(settings) as turns,
        open_tools() as tools,
        open_mcp() as mcp,
        webhooks_of(settings, health, is_first=is_first) as webhooks,
        session_events_of(webhooks) as session_events,
        tracing(settings) as spans,
        RecordWriter(
            turns,
            observers=(
                feed.on_record,
                session_events.on_record,
                _once(metrics.on_turn_end, log_turn, webhooks.on_turn_end, spans.on_turn_end, judged.on_turn_end),
            ),
            health=health,
        ) as sink,
        _loop_monitor() as loop,
        _journals(settings, health) as journals,
        _recordings(settings, health) as recordings,
        open_responses(settings, health) as responses,
        knowledge_of(settings) as knowledge,
        asyncio.TaskGroup() as group,
    ):
        servers = await mcp.connected(settings)
        mcp.put_in_force(settings, servers)
        stages = Stages(settings, sounds=sounds, tools=tools.of(settings), mcp=servers)
        detached_tasks = DetachedTasks(group)
        sessions = Sessions(settings, stages, sink, journals, recordings, loop, feed, knowledge, detached_tasks)
        session_events.summarize_with(sessions.summary_of_call)
        session_events.store_summaries(sessions.is_summarized, partial(store_summary, turns))
        session_events.wait_for_records(sink.when_passed_on)
        in_force = SettingsInForce(settings)
        judge = answer_judge_of(lambda: in_force.settings, stages, turns, judged)
        jobs = await _bench_jobs(settings) if is_first and settings.benches else []
        benches = ScheduledBenches(settings, jobs, partial(webhooks.notify, "bench.drifted", "", ""))
        reload = Reload(in_force, read, stages=stages, sessions=sessions, tools=tools, mcp=mcp)
        models = LocalModels(stages.engines(), print_line)
        files = await asyncio.to_thread(_read_files, settings, health)
        chat, audio = Chat(settings, stages), Audio(settings, stages)
        context = _context(
            in_force,
            files,
            cluster=cluster,
            turns=turns,
            sessions=sessions,
            chat=chat,
            responses=responses,
            audio=audio,
            models=models,
            health=health,
            loop=loop,
            workers=workers,
        )
        if workers is not None:
            context = _connected(context, workers, feed)
        snapshots: Snapshots | None = WorkerSnapshots(workers.link) if workers is not None else None
        if cluster.node_store is not None:
            snapshots = cluster.node_store.snapshots
        context = replace(
            context,
            phone_lines={name: entry.line(name) for name, entry in settings.phone.items()},
            phone_calls=tools.phone_calls,
            session_snapshots=snapshots,
            left_snapshots=snapshots,
            presence=cluster.node_store,
            node_events=cluster.node_store,
            node=node_of(settings) or socket.gethostname(),
            feed=feed,
            reload=reload,
            webhooks=webhooks,
            session_events=session_events,
            records_lost=lambda: sink.dropped + sink.lost,
            records_written=sink.wait_until_written,
            records_of=sessions.records_of,
            delete_journal=journals.delete_session,
            recordings=journals.recordings,
            call_recordings=recordings,
            metrics=metrics,
            counts=Counts(
                sink=sink,
                shared=cluster,
                sounds=sounds,
                sessions=sessions,
                spans=spans,
                webhooks=webhooks,
                feed=feed,
                journals=journals,
                recordings=recordings,
                phone_calls=tools.phone_calls,
                judge=judge,
                benches=benches,
            ),
            benches=partial(bench_state, settings),
            tracing=spans,
        )
        async with listening(context) as base_url:
            tasks: tuple[asyncio.Task[None], ...] = (
                group.create_task(models.run(), name="local-engine"),
                group.create_task(_warm(models, sessions), name="warm-up"),
                *([group.create_task(judge.run(), name="answer-judge")] if judge is not None else []),
                *(
                    group.create_task(keep_running(name, run), name=name)
                    for name, run in _background_work(
                        settings, context, cluster, sessions, stages, is_first=is_first
                    ).items()
                ),
            )
            if is_first:
                log_language_limits(settings, lambda agent: stages.transcriber_of(agent).capabilities)
                measuring = keep_running("benches", partial(_measure, models, benches))
                tasks += (group.create_task(measuring, name="benches"),)
            is_open = await context.authenticator.is_open()
            if not is_open:
                tokens.prepare()
            yield Running(base_url, is_open, reload, models.warmed, context.live_sessions.slots.owner)
        detached_tasks.stop()
        for task in tasks:
            task.cancel()


def _background_work(
    settings: Settings,
    context: ServerContext,
    cluster: Resilient,
    sessions: Sessions,
    stages: Stages,
    *,
    is_first: bool,
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return what runs beside the sessions, by name: none of it may end the server."""
    live, router = context.live_sessions, stages.router
    work: dict[str, Callable[[], Awaitable[None]]] = {
        "revocations": partial(watch_revocations, cluster, context.registries),
        "slots": live.slots.run,
        "head-room": live.measure,
        "probes": router.run_probes,
        "distances": partial(keep_distances, lambda: sessions.router),
        "router-state": partial(router.keep_state, settings.data_path, saves=is_first),
    }
    if is_first:
        work["startup-checks"] = partial(check_models, settings)
        work["responses"] = partial(purge_responses, context.responses)
        work["records"] = partial(maintain, context.turns, retention_of(settings.records))
    if cluster.node_store is not None:
        work["router-hints"] = HintExchange(stages.hints(), cluster.node_store, live.slots.owner).run
        if is_first:
            work["api-keys"] = KeySync(ApiKeys(settings.data_path), cluster.node_store).run
    return work


def _reason(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what ended the group: the first error of ours, or the only other error, or the group unchanged."""
    reason: BaseException = group.subgroup(VoicepipeError) or group
    while isinstance(reason, BaseExceptionGroup) and (len(reason.exceptions) == 1 or reason is not group):
        reason = reason.exceptions[0]
    return reason


async def _warm(models: LocalModels, sessions: Sessions) -> None:
    with isolated("warm-up"):
        await models.warm(sessions.warm)


async def _bench_jobs(settings: Settings) -> list[BenchJob]:
    # Imported late: what measures is not part of a server without benches.
    from voicepipe.wiring.bench_jobs import jobs_of

    # Stages of their own: speech that is played from disk would take no time.
    return await jobs_of(settings, Stages(settings))


async def _measure(models: LocalModels, benches: ScheduledBenches) -> None:
    await models.loaded.wait()
    await benches.run()


@dataclass(frozen=True, slots=True)
class _Files:
    """The files that are read once, at the start."""

    key_store: KeyStore
    tls: ssl.SSLContext | None


def _read_files(settings: Settings, health: StorageHealth) -> _Files:
    keys = key_store(settings, health)
    keys.keyring(unix_s())  # known from here on, even if the disk fails later
    return _Files(keys, tls_context(settings.server, settings.data_path))


def _context(
    in_force: SettingsInForce,
    files: _Files,
    *,
    cluster: Cluster,
    turns: TurnStore,
    sessions: Sessions,
    chat: Chat,
    responses: ResponseStore,
    audio: Audio,
    models: LocalModels,
    health: StorageHealth,
    loop: EventLoopMonitor,
    workers: WorkerParts | None,
) -> ServerContext:
    settings = in_force.settings
    options = settings.server
    link, others = (None, None) if workers is None else (workers.link, workers.others)
    local_share = models.busiest_share if is_local_everywhere(settings) else None
    head_room = HeadRoom(loop.cpu_share, lag_ms=loop.lag_p95_ms, local_share=local_share) if options.head_room else None
    authenticator = Authenticator(
        key_store=files.key_store,
        api_keys=ApiKeys(settings.data_path, health=health),
        cluster=cluster,
        attempts=FailedAttempts() if link is None else SharedAttempts(link),
        on_loopback=settings.on_loopback,
        proxies=options.proxies,
        allow_query=options.query_token,
        allowed_origins=options.allowed_origins,
        talk_page_tokens=options.talk_page_tokens,
        audience=tokens.audience_of(settings.cluster.region),
    )
    return ServerContext(
        options=options,
        authenticator=authenticator,
        live_sessions=LiveSessions(
            cluster,
            max_sessions=options.max_sessions,
            node=node_of(settings),
            head_room=head_room,
            others=others,
        ),
        quotas=settings.quotas,
        rtc_calls=RtcCalls(settings.webrtc),
        token_issuer=token_issuer(in_force, cluster, files.key_store),
        key_store=files.key_store,
        cluster=cluster,
        turns=turns,
        tls=files.tls,
        pages=Path(voicepipe.__file__).parent / "_web",
        agent_named=in_force.agent_named,
        agent_for=in_force.agent_for,
        session_limit_s=in_force.session_limit_s,
        agent_choices=sessions.agent_choices,
        open_session=sessions.open,
        chat_models=chat,
        # An operator who has texts redacted wants none of them stored as they are.
        response_cache=ResponseCache(
            ResponseCacheSettings() if settings.records.redact else settings.response_cache, chat
        ),
        chat_slots=RequestSlots(CHAT_SLOTS, options.max_chats, options.max_project_chats, link),
        embedding_models=Embeddings(settings),
        responses=responses,
        audio_models=audio,
        audio_slots=RequestSlots(AUDIO_SLOTS, options.max_audio, options.max_project_audio, link),
        healths=sessions.healths,
        missing=models.missing,
        local_loads=models.loads,
        storage=health,
        loop=loop,
        reference_figures=_reference_figures(settings),
        region=settings.cluster.region,
        regions=MappingProxyType({name: region.url for name, region in settings.regions.items()}),
    )


def _connected(context: ServerContext, workers: WorkerParts, feed: Feed) -> ServerContext:
    """Return the context of a worker."""
    link, slots = workers.link, context.live_sessions.slots
    deliver_to(feed, link)
    link.on_free_slots = slots.free_owner
    others = workers.others
    return replace(
        context, workers=others, other_sessions=RelayedSessions(others), other_rtc_calls=RelayedRtcCalls(others)
    )


def _reference_figures(settings: Settings) -> ReferenceFigures:
    specs = {spec for agent in settings.agents for spec in settings.llm_specs(agent)}
    published = {str(spec): settings.facts(spec) for spec in specs}
    return ReferenceFigures(limits=settings.budget, over_allowed=settings.dashboard.over_allowed, published=published)


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


def _once(*handlers: Callable[[StoredTurn], None]) -> Callable[[StoredTurn], None]:
    """Report each turn once, when it has ended."""
    return EndedTurns(handlers).on_record


@asynccontextmanager
async def _loop_monitor() -> AsyncIterator[EventLoopMonitor]:
    with monitoring() as loop:
        yield loop


def make_private(data_path: Path) -> None:
    """Create the one folder that is written at run time, for its owner only, and test a write: SQLite's error would say
    less.
    """
    try:
        data_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data_path) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as problem:
        raise ConfigError(
            f"server.data_dir: expected a folder that can be made and written, got {str(data_path)!r}: "
            f"{problem.strerror or problem}; {advice(kind_of(problem), 'name another folder with --data-dir')}"
        ) from problem
