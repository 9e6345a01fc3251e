"""The engine's event loop: accepts clients, passes jobs to the workers, returns replies, and ends the engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from voicepipe.audio.blas import compute_on_one_thread
from voicepipe.providers.local import wire
from voicepipe.providers.local.engine.worker import Model, Task, Worker

STARTER_WAIT_MS: Final = 15_000
"""Wait of a new engine for its first client, which may have died while the engine started."""

STAGE_OF: Final[dict[type[wire.Job], wire.Stage]] = {
    wire.Transcribe: "stt",
    wire.Generate: "llm",
    wire.Warm: "llm",
    wire.Score: "llm",
    wire.ScoreAudio: "endpoint",
    wire.Speak: "tts",
}

Loaders = dict[wire.Stage, Callable[[], Model]]


class Daemon:
    """Serves one socket until its last client has been gone for `linger_ms`."""

    def __init__(self, loaders: Loaders, *, linger_ms: int) -> None:
        self._loaders, self._linger_ms = loaders, linger_ms
        self._workers: dict[wire.Stage, Worker] = {}
        self._clients = 0
        self._given_back = False
        """Whether the last lease was given back, not lost: then no client will look for the engine again."""
        self._progress_changed = asyncio.Event()
        self._over = asyncio.Event()
        self._end: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._leases: set[asyncio.StreamWriter] = set()

    async def serve(self, socket_path: Path) -> None:
        """Listen until it is time to end. The socket is removed before this returns, so that no client finds a stopping
        engine."""
        compute_on_one_thread()
        clients: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                client = group.create_task(self._serve(reader, writer), name="client")
                clients.add(client)
                client.add_done_callback(clients.discard)

            reporting = group.create_task(self._report_load(), name="load")
            server = await asyncio.start_unix_server(accept, socket_path)
            try:
                self._end_in(STARTER_WAIT_MS)
                await self._over.wait()
            finally:
                os.unlink(socket_path)
                server.close()
                reporting.cancel()
                for client in clients:  # a client of the last instant: it looks for the next engine
                    client.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._arrived()
        try:
            match await wire.receive(reader, wire.REQUESTS):
                case wire.Attach() as attach:
                    await self._attend(attach, reader, writer)
                case wire.Leave() | None:
                    pass
                case job:
                    await self._work(job, reader, writer)
        except (ValueError, msgspec.MsgspecError) as error:
            send(writer, wire.JobRefused(f"not a message of version {wire.VERSION}: {error}", retryable=False))
        finally:
            writer.close()
            self._left()

    async def _attend(self, attach: wire.Attach, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Report how loading goes, then hold the lease until it is given back or lost."""
        if attach.version != wire.VERSION:
            why = f"an engine of version {wire.VERSION} is running, this is version {attach.version}; stop the other"
            send(writer, wire.JobRefused(why, retryable=False))
            return
        workers = [self._worker(stage) for stage in attach.stages]
        reported: set[wire.LoadProgress] = set()
        while True:
            changed = self._progress_changed
            for worker in workers:
                if worker.progress not in reported:
                    reported.add(worker.progress)
                    send(writer, worker.progress)
            if all(worker.progress.state != "loading" for worker in workers):
                break
            await changed.wait()
        send(writer, wire.Ready(wire.VERSION, os.getpid()))
        self._leases.add(writer)
        try:
            match await wire.receive(reader, wire.REQUESTS):
                case wire.Leave():
                    self._given_back = True
        finally:
            self._leases.discard(writer)

    async def _report_load(self) -> None:
        """Report to all clients how busy the models are, until cancelled."""
        while True:
            await asyncio.sleep(wire.LOAD_S)
            load = wire.Load({stage: worker.read_load() for stage, worker in self._workers.items()})
            for writer in self._leases:
                send(writer, load)

    async def _work(self, job: wire.Job, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass the job to its worker and wait until the client closes the connection, which it does when it has enough.

        Unread replies wait in memory: the replies of one job, whose size the models bound.
        """

        def emit(reply: wire.EngineReply) -> None:
            self._loop.call_soon_threadsafe(send, writer, reply)

        worker = self._worker(STAGE_OF[type(job)])
        task = Task(job, emit)
        if not worker.submit(task):
            send(writer, wire.JobRefused("the queue is full", retryable=True, retry_after_ms=1_000))
        try:
            while await reader.read(4096):
                pass  # a job's connection carries only its request upwards
        except ConnectionError:
            pass  # the same as closing
        finally:
            worker.cancel(task)

    def _worker(self, stage: wire.Stage) -> Worker:
        """Return the stage's worker; the first request loads it."""
        if stage not in self._workers:
            self._workers[stage] = Worker(stage, self._loaders[stage], self._on_progress)
        return self._workers[stage]

    def _on_progress(self) -> None:
        self._loop.call_soon_threadsafe(self._report_progress)

    def _report_progress(self) -> None:
        self._progress_changed.set()
        self._progress_changed = asyncio.Event()

    def _arrived(self) -> None:
        self._clients += 1
        self._given_back = False
        if self._end is not None:
            self._end.cancel()

    def _left(self) -> None:
        self._clients -= 1
        if self._clients == 0:
            self._end_in(0 if self._given_back else self._linger_ms)

    def _end_in(self, wait_ms: int) -> None:
        self._end = self._loop.call_later(wait_ms / 1000, self._over.set)


def send(writer: asyncio.StreamWriter, message: wire.EngineReply) -> None:
    """Write a message, unless the client has disconnected."""
    if not writer.is_closing():
        writer.write(wire.frame(message))
