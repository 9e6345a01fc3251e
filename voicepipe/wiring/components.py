"""The components of a server, and the context in which its routes use them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

import voicepipe
from voicepipe.auth import tokens
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.rate_limit import FailedAttempts
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Snapshots
from voicepipe.config.settings import Settings
from voicepipe.server.authenticate import Authenticator
from voicepipe.server.context import ServerContext
from voicepipe.server.gateway.request_slots import RequestSlots
from voicepipe.server.gateway.response_cache import ResponseCache
from voicepipe.server.gateway.response_cache_settings import ResponseCacheSettings
from voicepipe.server.gateway.slot_counts import AUDIO_SLOTS, CHAT_SLOTS, STREAM_CAPS, STREAM_SLOTS, SlotCaps
from voicepipe.server.head_room import HeadRoom
from voicepipe.server.reference_figures import ReferenceFigures
from voicepipe.server.sessions.live_sessions import LiveSessions
from voicepipe.server.sessions.resume import Resumptions
from voicepipe.server.tls import tls_context
from voicepipe.server.wait_limits import RESUME_CAPS
from voicepipe.server.webrtc.calls import RtcCalls
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.peers import Workers
from voicepipe.server.workers.relay import RelayedRtcCalls, RelayedSessions
from voicepipe.server.workers.shared import SharedAttempts, SharedFeed, deliver_to
from voicepipe.server.workers.shared_waits import SharedWaits
from voicepipe.server.workers.snapshots import WorkerSnapshots
from voicepipe.storage import StorageHealth
from voicepipe.telemetry.live_feed import Feed
from voicepipe.values import replace
from voicepipe.wiring.answer_judge import AnswerJudge, answer_judge_of
from voicepipe.wiring.audio import Audio
from voicepipe.wiring.chat import Chat
from voicepipe.wiring.cluster import node_of
from voicepipe.wiring.detached_tasks import DetachedTasks
from voicepipe.wiring.embeddings import Embeddings
from voicepipe.wiring.engine import LocalModels, is_local_everywhere
from voicepipe.wiring.key_store import key_store
from voicepipe.wiring.metrics import Counts
from voicepipe.wiring.reload import Reload, SettingsInForce
from voicepipe.wiring.resources import Resources
from voicepipe.wiring.scheduled_benches import ScheduledBenches, bench_state
from voicepipe.wiring.sessions import Sessions
from voicepipe.wiring.stages import Stages
from voicepipe.wiring.store import store_summary
from voicepipe.wiring.tokens import token_issuer

if TYPE_CHECKING:
    from voicepipe.wiring.bench_jobs import BenchJob


class WorkerParts(Struct, frozen=True):
    """The parts that connect a worker with the others."""

    others: Workers
    feed: SharedFeed

    @property
    def link(self) -> WorkerLink:
        """Return the channel to the supervisor."""
        return self.others.link


class _Files(Struct, frozen=True):
    """The files that are read once, at the start."""

    key_store: KeyStore
    tls: ssl.SSLContext | None


class Components(Struct, frozen=True, kw_only=True):
    """The components of a server beside what it holds open."""

    in_force: SettingsInForce
    stages: Stages
    sessions: Sessions
    detached_tasks: DetachedTasks
    judge: AnswerJudge | None
    benches: ScheduledBenches
    reload: Reload
    models: LocalModels
    files: _Files

    @classmethod
    async def of(
        cls,
        settings: Settings,
        resources: Resources,
        detached_tasks: DetachedTasks,
        read: Callable[[], Settings] | None,
        print_line: Callable[[str], None],
        *,
        is_first: bool,
    ) -> Components:
        """Build the components on open resources; the arguments are those of `running`.

        Raises:
            VoicepipeError: a setting, this machine or this installation does not work.
        """
        servers = await resources.mcp.connected(settings)
        resources.mcp.put_in_force(settings, servers)
        tools = resources.tools.of(settings)
        stages = Stages(settings, sounds=resources.sounds, tools=tools, mcp=servers, n_processes=resources.n_processes)
        sessions = _sessions(settings, stages, resources, detached_tasks)
        in_force = SettingsInForce(settings)
        judge = answer_judge_of(
            lambda: in_force.settings, stages, resources.turns, resources.judged, n_processes=resources.n_processes
        )
        jobs = await _bench_jobs(settings) if is_first and settings.benches else []
        return cls(
            in_force=in_force,
            stages=stages,
            sessions=sessions,
            detached_tasks=detached_tasks,
            judge=judge,
            benches=ScheduledBenches(settings, jobs, partial(resources.webhooks.notify, "bench.drifted", "", "")),
            reload=Reload(in_force, read, stages=stages, sessions=sessions, tools=resources.tools, mcp=resources.mcp),
            models=LocalModels(stages.engines(), print_line),
            files=await asyncio.to_thread(_read_files, settings, resources.health),
        )


def _sessions(settings: Settings, stages: Stages, resources: Resources, detached_tasks: DetachedTasks) -> Sessions:
    """Return what opens sessions; their webhooks get the summaries of calls."""
    sessions = Sessions(
        settings,
        stages,
        resources.record_writer,
        resources.journals,
        resources.recordings,
        resources.loop,
        resources.feed,
        resources.knowledge,
        detached_tasks,
    )
    events = resources.session_events
    events.summarize_with(sessions.summary_of_call)
    events.store_summaries(sessions.is_summarized, partial(store_summary, resources.turns))
    events.wait_for_records(resources.record_writer.when_passed_on)
    return sessions


async def _bench_jobs(settings: Settings) -> list[BenchJob]:
    # Imported late: what measures is not part of a server without benches.
    from voicepipe.wiring.bench_jobs import jobs_of

    # Stages of their own: speech that is played from disk would take no time.
    return await jobs_of(settings, Stages(settings))


def _read_files(settings: Settings, health: StorageHealth) -> _Files:
    keys = key_store(settings, health)
    keys.keyring(unix_s())  # known from here on, even if the disk fails later
    return _Files(keys, tls_context(settings.server, settings.data_path))


def context_of(parts: Components, resources: Resources, workers: WorkerParts | None) -> ServerContext:
    """Return what the routes use, in a process that serves alone or beside other `workers`."""
    context = _context(parts, resources, workers)
    if workers is not None:
        context = _connected(context, workers, resources.feed)
    context = _with_telemetry(context, parts, resources)
    return _with_nodes(context, parts.in_force.settings, resources, workers)


def _context(parts: Components, resources: Resources, workers: WorkerParts | None) -> ServerContext:
    settings, sessions, cluster = parts.in_force.settings, parts.sessions, resources.cluster
    options, files = settings.server, parts.files
    chat = Chat(settings, parts.stages)
    link = None if workers is None else workers.link
    return ServerContext(
        options=options,
        authenticator=_authenticator(settings, parts, resources, link),
        live_sessions=_live_sessions(settings, parts, resources, workers),
        quotas=settings.quotas,
        rtc_calls=RtcCalls(settings.webrtc),
        token_issuer=token_issuer(parts.in_force, cluster, files.key_store),
        key_store=files.key_store,
        cluster=cluster,
        turns=resources.turns,
        tls=files.tls,
        pages=Path(voicepipe.__file__).parent / "_web",
        agent_named=parts.in_force.agent_named,
        agent_for=parts.in_force.agent_for,
        session_limit_s=parts.in_force.session_limit_s,
        agent_choices=sessions.agent_choices,
        open_session=sessions.open,
        chat_models=chat,
        # An operator who has texts redacted wants none of them stored as they are.
        response_cache=ResponseCache(
            ResponseCacheSettings() if settings.records.redact else settings.response_cache,
            chat,
            n_processes=resources.n_processes,
        ),
        chat_slots=RequestSlots(CHAT_SLOTS, SlotCaps(options.max_chats, options.max_project_chats), link),
        embedding_models=Embeddings(settings),
        responses=resources.responses,
        audio_models=Audio(settings, parts.stages),
        audio_slots=RequestSlots(AUDIO_SLOTS, SlotCaps(options.max_audio, options.max_project_audio), link),
        stream_slots=RequestSlots(STREAM_SLOTS, STREAM_CAPS, link),
        healths=sessions.healths,
        missing=parts.models.missing,
        local_loads=parts.models.loads,
        storage=resources.health,
        loop=resources.loop,
        reference_figures=_reference_figures(settings),
        region=settings.cluster.region,
        regions=MappingProxyType({name: region.url for name, region in settings.regions.items()}),
        reload=parts.reload,
        phone_lines={name: entry.line(name) for name, entry in settings.phone.items()},
        phone_calls=resources.tools.phone_calls,
    )


def _authenticator(
    settings: Settings, parts: Components, resources: Resources, link: WorkerLink | None
) -> Authenticator:
    options = settings.server
    return Authenticator(
        key_store=parts.files.key_store,
        api_keys=ApiKeys(settings.data_path, health=resources.health),
        cluster=resources.cluster,
        attempts=FailedAttempts() if link is None else SharedAttempts(link),
        on_loopback=settings.on_loopback,
        proxies=options.proxies,
        allow_query=options.query_token,
        allowed_origins=options.allowed_origins,
        talk_page_tokens=options.talk_page_tokens,
        audience=tokens.audience_of(settings.cluster.region),
    )


def _live_sessions(
    settings: Settings, parts: Components, resources: Resources, workers: WorkerParts | None
) -> LiveSessions:
    options, loop = settings.server, resources.loop
    local_share = parts.models.busiest_share if is_local_everywhere(settings) else None
    head_room = HeadRoom(loop.cpu_share, lag_ms=loop.lag_p95_ms, local_share=local_share) if options.head_room else None
    return LiveSessions(
        resources.cluster,
        max_sessions=options.max_sessions,
        node=node_of(settings),
        head_room=head_room,
        others=None if workers is None else workers.others,
    )


def _with_telemetry(context: ServerContext, parts: Components, resources: Resources) -> ServerContext:
    """Return the context with what is recorded, counted and reported of sessions."""
    record_writer, journals = resources.record_writer, resources.journals
    return replace(
        context,
        feed=resources.feed,
        webhooks=resources.webhooks,
        session_events=resources.session_events,
        records_lost=lambda: record_writer.dropped + record_writer.lost,
        records_written=record_writer.wait_until_written,
        records_of=parts.sessions.records_of,
        delete_journal=journals.delete_session,
        recordings=journals.recordings,
        call_recordings=resources.recordings,
        metrics=resources.metrics,
        counts=Counts(
            record_writer=record_writer,
            shared=resources.cluster,
            sounds=resources.sounds,
            sessions=parts.sessions,
            spans=resources.spans,
            webhooks=resources.webhooks,
            feed=resources.feed,
            journals=journals,
            recordings=resources.recordings,
            phone_calls=resources.tools.phone_calls,
            judge=parts.judge,
            benches=parts.benches,
        ),
        benches=partial(bench_state, parts.in_force.settings),
        tracing=resources.spans,
    )


def _with_nodes(
    context: ServerContext, settings: Settings, resources: Resources, workers: WorkerParts | None
) -> ServerContext:
    """Return the context with what nodes and workers share of sessions."""
    nodes = resources.cluster.node_store
    snapshots: Snapshots | None = WorkerSnapshots(workers.link) if workers is not None else None
    if nodes is not None:
        snapshots = nodes.snapshots
    return replace(
        context,
        session_snapshots=snapshots,
        left_snapshots=snapshots,
        presence=nodes,
        node_events=nodes,
        node=node_of(settings) or socket.gethostname(),
    )


def _connected(context: ServerContext, workers: WorkerParts, feed: Feed) -> ServerContext:
    """Return the context of a worker."""
    link, slots = workers.link, context.live_sessions.slots
    resumptions = Resumptions(SharedWaits(link, "resume", RESUME_CAPS))
    deliver_to(feed, link)
    link.on_free_slots = slots.free_owner
    others = workers.others
    return replace(
        context,
        workers=others,
        other_sessions=RelayedSessions(others),
        other_rtc_calls=RelayedRtcCalls(others),
        resumptions=resumptions,
    )


def _reference_figures(settings: Settings) -> ReferenceFigures:
    specs = {spec for agent in settings.agents for spec in settings.llm_specs(agent)}
    published = {str(spec): settings.facts(spec) for spec in specs}
    return ReferenceFigures(limits=settings.budget, over_allowed=settings.dashboard.over_allowed, published=published)
