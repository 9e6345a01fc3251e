"""The process of a worker: `python -m voicepipe.wiring.worker DESCRIPTOR`, with its start on stdin.

A new interpreter, not a fork: the supervisor's threads and event loop have no part in it.
"""

from __future__ import annotations

import asyncio
import copyreg
import io
import pickle
import socket
import sys
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from voicepipe.config.reader import SettingsReader
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError, VoicepipeError
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import Listening, Loaded, StartFailed, TerminalLine
from voicepipe.server.workers.peers import Workers
from voicepipe.server.workers.shared import SharedFeed
from voicepipe.tasks import background_tasks
from voicepipe.telemetry.log import logging_to
from voicepipe.wiring.components import WorkerParts
from voicepipe.wiring.serve import exempt_from_gc, loop_factory, stop_signals
from voicepipe.wiring.server import Running, running


class WorkerStart(Struct, frozen=True, kw_only=True):
    """All that a worker needs at its start."""

    settings: Settings | None
    """Those of the supervisor, also when their file has changed since; None: the worker reads them."""

    read: SettingsReader
    """Reads them again, for a reload."""

    index: int
    n_workers: int
    base_url: str
    feed_epoch: str
    feed_number: int


def _view(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)  # the class has no name of its own that pickle could find


class _Pickler(pickle.Pickler):
    """The mappings of frozen settings are views, which pickle does not support."""

    dispatch_table = copyreg.dispatch_table | {MappingProxyType: lambda view: (_view, (dict(view),))}


def packed(start: WorkerStart) -> bytes:
    """Return what a worker reads on stdin: secrets are in no argument and in no environment."""
    file = io.BytesIO()
    _Pickler(file).dump(start)
    return file.getvalue()


def main() -> int:
    """Serve until the supervisor requests the end, or is gone; return the exit status."""
    start: WorkerStart = pickle.load(sys.stdin.buffer)
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    exempt_from_gc()
    with asyncio.Runner(loop_factory=loop_factory()) as runner, logging_to():
        return runner.run(_serve(start, end))


async def _serve(start: WorkerStart, end: socket.socket) -> int:
    async with background_tasks() as tasks:
        link = WorkerLink(end, start.index, start.n_workers, tasks)

        def print_line(line: str) -> None:
            if start.index == 0:  # the others load the same
                link.send(TerminalLine(line))

        parts = WorkerParts(Workers(link, start.base_url), SharedFeed(link, start.feed_epoch, start.feed_number))
        try:
            settings = await asyncio.to_thread(start.read) if start.settings is None else start.settings
            async with running(settings, print_line=print_line, read=start.read, workers=parts) as server:
                link.send(Listening(server.is_open, server.slots_owner))
                await _until_stopped(server, link)
        except VoicepipeError as error:
            link.send(StartFailed(str(error), isinstance(error, ConfigError)))
            return 1
        finally:
            link.close()
    return 0


async def _until_stopped(server: Running, link: WorkerLink) -> None:
    async def report() -> None:
        await server.ready.wait()
        exempt_from_gc()
        link.send(Loaded())

    async def watch() -> None:
        await link.stopped.wait()
        stopped.set()

    with stop_signals() as stopped:
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[Any]] = [
                group.create_task(report(), name="ready"),
                group.create_task(watch(), name="supervisor"),
            ]
            await stopped.wait()
            for task in tasks:
                task.cancel()


if __name__ == "__main__":
    sys.exit(main())
