"""The process of a worker: `python -m voicepipe.wiring.worker DESCRIPTOR`, with its start on stdin.

A new interpreter, not a fork: the supervisor's threads and event loop have no part in it.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys
from typing import Any

from voicepipe.errors import ConfigError, VoicepipeError
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import Listening, Loaded, StartFailed, TerminalLine
from voicepipe.server.workers.peers import Workers
from voicepipe.server.workers.shared import SharedFeed
from voicepipe.tasks import background_tasks
from voicepipe.telemetry.log import logging_to
from voicepipe.wiring.components import WorkerParts
from voicepipe.wiring.serve import exempt_from_gc, loop_factory
from voicepipe.wiring.server import Running, running
from voicepipe.wiring.signals import stop_signals
from voicepipe.wiring.worker_start import WorkerStart


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
