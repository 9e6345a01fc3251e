"""Build a running server from its settings: every component, in an order that allows clean shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec import Struct

from voicepipe.audio.blas import compute_on_one_thread
from voicepipe.auth import tokens
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.cluster.resilient import Resilient
from voicepipe.config.settings import Settings
from voicepipe.errors import VoicepipeError
from voicepipe.server.app import listening
from voicepipe.server.context import ServerContext
from voicepipe.server.revocations import watch_revocations
from voicepipe.server.workers.hints import WorkerHints
from voicepipe.telemetry.isolation import isolated, keep_running
from voicepipe.telemetry.rollups.retention import maintain
from voicepipe.wiring.components import Components, WorkerParts, context_of
from voicepipe.wiring.data_folder import make_private
from voicepipe.wiring.detached_tasks import DetachedTasks
from voicepipe.wiring.engine import LocalModels
from voicepipe.wiring.model_routing import keep_distances
from voicepipe.wiring.prices import check_quota_prices
from voicepipe.wiring.reload import Reload
from voicepipe.wiring.resources import Resources, open_resources
from voicepipe.wiring.responses import purge_responses
from voicepipe.wiring.router_hints import HintExchange
from voicepipe.wiring.scheduled_benches import ScheduledBenches
from voicepipe.wiring.sessions import Sessions
from voicepipe.wiring.shared_keys import KeySync
from voicepipe.wiring.startup_checks import check_models, log_language_limits
from voicepipe.wiring.store import retention_of


def _silent(line: str) -> None:
    """Drop a progress line."""


class Running(Struct, frozen=True):
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
    is_first = _is_first(workers)
    n_processes, hub = (1, None) if workers is None else (workers.link.n_workers, workers.feed)
    async with (
        open_resources(settings, is_first=is_first, n_processes=n_processes, hub=hub) as resources,
        asyncio.TaskGroup() as group,
    ):
        parts = await Components.of(settings, resources, DetachedTasks(group), read, print_line, is_first=is_first)
        context = context_of(parts, resources, workers)
        async with listening(context) as base_url:
            tasks = [
                group.create_task(run, name=name)
                for name, run in _tasks(settings, context, parts, resources, workers).items()
            ]
            if is_first:
                log_language_limits(settings, lambda agent: parts.stages.transcriber_of(agent).capabilities)
            is_open = await context.authenticator.is_open()
            if not is_open:
                tokens.prepare()
            owner = context.live_sessions.slots.owner
            yield Running(base_url, is_open, parts.reload, parts.models.warmed, owner)
        parts.detached_tasks.stop()
        for task in tasks:
            task.cancel()


def _is_first(workers: WorkerParts | None) -> bool:
    """Return whether this process does what is done once for all workers."""
    return workers is None or workers.link.index == 0


def _tasks(
    settings: Settings, context: ServerContext, parts: Components, resources: Resources, workers: WorkerParts | None
) -> dict[str, Coroutine[Any, Any, None]]:
    """Return the server's own tasks by name, in the order in which they start."""
    tasks: dict[str, Coroutine[Any, Any, None]] = {
        "local-engine": parts.models.run(),
        "warm-up": _warm(parts.models, parts.sessions),
    }
    if parts.judge is not None:
        tasks["answer-judge"] = parts.judge.run()
    work = _background_work(settings, context, parts, resources.cluster, workers)
    if _is_first(workers):
        work["benches"] = partial(_measure, parts.models, parts.benches)
    return tasks | {name: keep_running(name, run) for name, run in work.items()}


def _background_work(
    settings: Settings,
    context: ServerContext,
    parts: Components,
    cluster: Resilient,
    workers: WorkerParts | None,
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return what runs beside the sessions, by name: none of it may end the server."""
    live, router, is_first = context.live_sessions, parts.stages.router, _is_first(workers)
    work: dict[str, Callable[[], Awaitable[None]]] = {
        "revocations": partial(watch_revocations, cluster, context.registries),
        "slots": live.slots.run,
        "head-room": live.measure,
        "probes": router.run_probes,
        "distances": partial(keep_distances, lambda: parts.sessions.router),
        "router-state": partial(router.keep_state, settings.data_path, saves=is_first),
    }
    if is_first:
        work["startup-checks"] = partial(check_models, settings)
        work["responses"] = partial(purge_responses, context.responses)
        work["records"] = partial(maintain, context.turns, retention_of(settings.records))
    if workers is not None:
        work["worker-hints"] = HintExchange(parts.stages.hints(), WorkerHints(workers.link), live.slots.owner).run
    if cluster.node_store is not None:
        work["router-hints"] = HintExchange(parts.stages.hints(), cluster.node_store, live.slots.owner).run
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


async def _measure(models: LocalModels, benches: ScheduledBenches) -> None:
    await models.loaded.wait()
    await benches.run()
