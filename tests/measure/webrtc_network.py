"""Measure calls over WebRTC beside a WebSocket on a bad network: `python -m tests.measure.webrtc_network`.

Server and client run in network namespaces of their own (`tun_link`). The user's audio is judged where the session gets
it, the agent's where the client plays it: by Chromium's own figures over WebRTC, and by a client without a buffer over
the WebSocket. CPU time is that of the whole server process, with fake vendors, while both sides speak.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.measure.tun_link import PREFIX, LinkPlan, device_of, joined

PLANS: Final = {
    "clean": LinkPlan(delay_ms=20),
    "jitter": LinkPlan(delay_ms=20, jitter_ms=100),
    "loss": LinkPlan(delay_ms=20, loss=0.05),
    "both": LinkPlan(delay_ms=20, jitter_ms=100, loss=0.05),
}
TRANSPORTS: Final = ("websocket", "webrtc", "chromium")
COLUMNS: Final = (
    ("user_lost", "user's audio lost, %"),
    ("user_late_p50_ms", "user late, p50 ms"),
    ("user_late_p95_ms", "p95 ms"),
    ("agent_lost", "agent's audio lost, %"),
    ("agent_buffer_ms", "agent's buffer, ms"),
    ("trip_p50_ms", "event's round trip, p50 ms"),
    ("trip_p95_ms", "p95 ms"),
    ("cpu_ms_per_s", "server's CPU, ms a second"),
)


@asynccontextmanager
async def side(name: str, *more: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Start a side in a namespace of its own; yields its process, and the device of its end of the link."""
    ours, remote = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        *(*PREFIX, sys.executable, "-m", "tests.measure.webrtc_sides", name, "--link", str(remote.fileno()), *more),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=(remote.fileno(),),
    )
    remote.close()
    device = await asyncio.to_thread(device_of, ours)
    ours.close()
    try:
        yield process, device
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(device)


async def line_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Return the next line of a side, as JSON."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.startswith(b"{"):
            return dict(json.loads(line))
    raise EOFError("a side has ended without its figures")


async def measured(transport: str, plan: LinkPlan, duration_s: int) -> dict[str, Any]:
    """Return the figures of one call."""
    duration = ("--duration", str(duration_s))
    async with side("server", *duration) as (server, one):
        key = (await line_of(server))["key"]
        async with side(transport, *duration, "--key", key) as (client, other), joined(one, other, plan):
            found = await line_of(client)
        assert server.stdin is not None
        server.stdin.write(b"report\n")
        received = await line_of(server)
    return found | received


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(names: list[str], transports: list[str], duration_s: int) -> None:
    """Print the table."""
    say(f"| network | transport | {' | '.join(title for _, title in COLUMNS)} |")
    say("| --- " * (2 + len(COLUMNS)) + "|")
    for name in names:
        for transport in transports:
            found = await measured(transport, PLANS[name], duration_s)
            cells = [f"{found[column]:.1f}" if column in found else "" for column, _ in COLUMNS]
            say(f"| {name} | {transport} | {' | '.join(cells)} |")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--networks", nargs="+", choices=PLANS, default=list(PLANS))
    arguments.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS))
    arguments.add_argument("--duration", type=int, default=60, help="of each call, in seconds")
    given = arguments.parse_args()
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        sys.exit("expected Linux, root, and the programs unshare (util-linux) and ip (iproute2)")
    asyncio.run(main(given.networks, given.transports, given.duration))
