"""Serve one port with several processes: a supervisor and its workers."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import voicepipe
from voicepipe import __version__
from voicepipe.clock import unix_s
from voicepipe.config.reader import SettingsReader
from voicepipe.config.settings import LOCAL, STAGES, Settings
from voicepipe.errors import ConfigError
from voicepipe.server.descriptors import raise_descriptor_limit
from voicepipe.server.gateway.slot_counts import (
    AUDIO_SLOTS,
    CHAT_SLOTS,
    STREAM_CAPS,
    STREAM_SLOTS,
    SlotCaps,
    SlotCounts,
)
from voicepipe.server.listeners import address, bound
from voicepipe.server.tls import tls_context
from voicepipe.server.wait_limits import RESUME_CAPS
from voicepipe.server.workers.broker import Broker
from voicepipe.server.workers.supervisor import Supervisor, WorkerProcess
from voicepipe.server.workers.wait_counts import WaitCounts
from voicepipe.telemetry.log import log_event, logging_to
from voicepipe.wiring.data_folder import make_private
from voicepipe.wiring.key_store import key_store
from voicepipe.wiring.machine_limits import ControlGroup
from voicepipe.wiring.prices import check_quota_prices
from voicepipe.wiring.signals import on_hang_up, stop_signals
from voicepipe.wiring.terminal import first_notes, greet
from voicepipe.wiring.worker_start import WorkerStart, packed

WORKER_MB: Final = 150
"""Memory of a worker with 120 sessions: 84 MB, and 0.45 MB for each."""

SUPERVISOR_MB: Final = 50
LOCAL_MODELS_MB: Final = 1_000
"""Memory of the local models' process: 740 MB with the default ones."""

_OWN_GROUP: Final = ControlGroup()


def count(settings: Settings, group: ControlGroup = _OWN_GROUP) -> int:
    """Return how many workers serve: `server.workers`, or one for each core, less one where local models run, whatever
    `server.max_sessions` is. There are no more than the memory of the machine or the container has room for."""
    if settings.server.workers:
        return settings.server.workers
    runs_local_models = _runs_local_models(settings)
    n_workers, memory_mb = group.cores() - runs_local_models, group.memory_mb()
    if memory_mb is not None:
        memory_mb -= SUPERVISOR_MB + runs_local_models * LOCAL_MODELS_MB
        n_workers = min(n_workers, memory_mb // WORKER_MB)
    return max(1, n_workers)


def _runs_local_models(settings: Settings) -> bool:
    specs = (spec for name, agent in settings.agents.items() for stage in STAGES for spec in agent.specs(stage))
    return any(settings.providers[spec.provider].kind in LOCAL for spec in specs)


def run(settings: Settings, n_workers: int, print_line: Callable[[str], None], read: SettingsReader) -> None:
    """Serve with `n_workers` until SIGINT or SIGTERM; a second signal ends the server at once.
    At SIGHUP all workers `read` the settings again.

    Raises:
        VoicepipeError: the server or its local models could not start; the text has the reason.
    """
    with asyncio.Runner() as runner, logging_to():
        runner.run(serve(settings, n_workers, print_line, read))


class _Latest:
    """The settings for a worker that starts now."""

    def __init__(self, settings: Settings, read: SettingsReader) -> None:
        self._settings, self._read = settings, read
        self._n_reloads = 0

    async def of(self, n_reloads: int) -> Settings | None:
        """Return the settings, read again if the other workers have done so; None: the worker reads them itself, since
        functions of a Python file can't be passed on. Settings that are wrong by now are logged, and the last ones
        returned.
        """
        if n_reloads != self._n_reloads:
            self._n_reloads = n_reloads
            try:
                self._settings = await asyncio.to_thread(self._read)
            except ConfigError as why:
                log_event("settings_refused", level=logging.WARNING, why=str(why))
        return None if self._settings.python_agents else self._settings


async def serve(settings: Settings, n_workers: int, print_line: Callable[[str], None], read: SettingsReader) -> None:
    """Serve until the process is stopped.

    Raises:
        VoicepipeError: as `run` does.
    """
    check_quota_prices(settings)
    make_private(settings.data_path)
    await asyncio.to_thread(_make_files, settings)
    raise_descriptor_limit()
    options = settings.server
    listeners = bound(options)
    base_url = address(listeners, options)
    latest = _Latest(settings, read)

    async def spawn(index: int, end: socket.socket, broker: Broker) -> WorkerProcess:
        start = WorkerStart(
            settings=await latest.of(broker.n_reloads),
            read=read,
            index=index,
            n_workers=n_workers,
            base_url=base_url,
            feed_epoch=broker.epoch,
            feed_number=broker.feed_number,
        )
        return await _spawn(start, end)

    supervisor = Supervisor(
        listeners,
        spawn,
        n_workers=n_workers,
        drain_ms=options.drain_ms,
        slots={
            CHAT_SLOTS: SlotCounts(SlotCaps(options.max_chats, options.max_project_chats)),
            AUDIO_SLOTS: SlotCounts(SlotCaps(options.max_audio, options.max_project_audio)),
            STREAM_SLOTS: SlotCounts(STREAM_CAPS),
        },
        wait_counts=WaitCounts({"connection": options.connection_limits.wait_caps, "resume": RESUME_CAPS}),
        print_line=print_line,
    )

    with stop_signals() as stopped, on_hang_up(supervisor.reload):
        async with asyncio.TaskGroup() as group:
            greeter = group.create_task(_greet(settings, base_url, supervisor, n_workers, print_line), name="greeter")
            group.create_task(supervisor.run(stopped), name="supervisor")
            await stopped.wait()
            greeter.cancel()
            print_line("stopping ...")


async def _greet(
    settings: Settings, base_url: str, supervisor: Supervisor, n_workers: int, print_line: Callable[[str], None]
) -> None:
    is_open = await supervisor.listening
    print_line(f"voicepipe {__version__} listens with {n_workers} workers on {base_url}")
    for line in first_notes(settings):
        print_line(line)
    if settings.python_agents and not settings.server.workers:
        print_line(
            f"NOTE: each of the {n_workers} workers loads the Python file and has variables of its own. What calls "
            "share belongs in a database; --workers 1 serves with one."
        )
    await greet(settings, base_url, supervisor.loaded, is_open=is_open, print_line=print_line)


def _make_files(settings: Settings) -> None:
    """Make the files that all workers read, before several workers make them at once."""
    key_store(settings).keyring(unix_s())
    tls_context(settings.server, settings.data_path)


async def _spawn(start: WorkerStart, end: socket.socket) -> WorkerProcess:
    data = packed(start)
    root = str(Path(voicepipe.__file__).parent.parent)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voicepipe.wiring.worker", str(end.fileno())),
        stdin=asyncio.subprocess.PIPE,
        pass_fds=(end.fileno(),),
        process_group=0,  # Ctrl-C is for the supervisor alone: the workers drain first
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))},
    )
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.close()
    return process
