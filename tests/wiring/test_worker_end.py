"""What the other processes send to a worker whose server has ended, and which has not."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from voicepipe.cluster.channel import Channel
from voicepipe.config import load
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import CountFailure, FreeOwnerSlots, Query, Stop, ToWorker, encoded
from voicepipe.server.workers.peers import Workers
from voicepipe.server.workers.shared import SharedFeed
from voicepipe.tasks import background_tasks
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S
from voicepipe.wiring import running
from voicepipe.wiring.components import WorkerParts


async def test_messages_after_the_end_of_the_server_are_dropped(tmp_path: Path) -> None:
    """Its stores are closed: freeing the slots of another worker that ended meanwhile ended this one with an error."""
    ours, remote = socket.socketpair()
    async with FakeVendor() as vendor, background_tasks() as tasks:
        received: list[bytes] = []
        supervisor = Channel(ours, lambda data, _: received.append(data), lambda: None)
        link = WorkerLink(remote, 0, 2, tasks)
        overrides = {
            "server.data_dir": str(tmp_path / "data"),
            "server.drain_ms": 0,
            "providers.fake.base_url": vendor.base_url,
            "agents.default.stt": "fake/stt",
            "agents.default.llm": "fake/llm",
            "agents.default.tts": "fake/tts",
        }
        settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
        parts = WorkerParts(Workers(link, "http://127.0.0.1:1"), SharedFeed(link, "epoch", 0))
        async with running(settings, workers=parts):
            pass
        n_received = len(received)
        messages: list[ToWorker] = [
            FreeOwnerSlots("p"),
            CountFailure("192.0.2.1"),
            Query(1, "metrics", b""),
            Query(2, "state", b""),
        ]
        for message in messages:
            supervisor.send(encoded(message))
        supervisor.send(encoded(Stop()))
        async with asyncio.timeout(WAIT_S):
            await link.stopped.wait()
        await asyncio.sleep(0)  # the tasks of the messages run
        assert received[n_received:] == []
        link.close()
        supervisor.close()
