"""Two network namespaces, joined by a link that loses and delays packets by a seeded plan.

The link is this process: it passes IP packets from the one namespace's TUN device to the other's. So it needs no
queueing discipline of the kernel's, and TCP repeats what is lost as on a real network. No interface comes into this
machine's own namespace. Needs Linux, root, `unshare` (util-linux) and `ip` (iproute2).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

TUNSETIFF: Final = 0x400454CA
IFF_TUN: Final = 0x0001
IFF_NO_PI: Final = 0x1000
PACKET_BYTES: Final = 2_048

PREFIX: Final = ("unshare", "--net")
"""The beginning of a command that runs in a namespace of its own."""


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """What becomes of packets, in each direction by itself."""

    delay_ms: float
    jitter_ms: float = 0.0
    """Further delay of a packet, drawn evenly from 0 to this: packets overtake each other."""

    loss: float = 0.0
    """The probability that a packet is lost."""

    seed: int = 1


def join_link(link: socket.socket, own: str, peer: str) -> None:
    """Make this namespace's end of the link, in the process that runs in it, and pass it to the link's process."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"link0", IFF_TUN | IFF_NO_PI))
    for command in (
        "link set lo up",
        f"addr add {own} peer {peer} dev link0",
        "link set link0 up",
    ):
        subprocess.run(("ip", *command.split()), check=True)
    socket.send_fds(link, [b"."], [device])


def device_of(link: socket.socket) -> int:
    """Return the device that a namespace's process has passed; waits for it."""
    _, devices, _, _ = socket.recv_fds(link, 1, 1)
    os.set_blocking(devices[0], False)
    return devices[0]


class _Direction:
    """The way from one device to the other."""

    def __init__(self, source: int, target: int, plan: LinkPlan, name: str) -> None:
        self._source, self._target, self._plan = source, target, plan
        self._random = random.Random(f"{plan.seed} {name}")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(source, self._read)
        self.n_passed = self.n_lost = 0

    def _read(self) -> None:
        while True:
            try:
                packet = os.read(self._source, PACKET_BYTES)
            except BlockingIOError:
                return
            delay_ms = self._plan.delay_ms + self._random.uniform(0, self._plan.jitter_ms)
            if self._random.random() < self._plan.loss:
                self.n_lost += 1
            else:
                self._loop.call_later(delay_ms / 1_000, self._write, packet)

    def _write(self, packet: bytes) -> None:
        self.n_passed += 1
        try:
            os.write(self._target, packet)
        except OSError:
            self.n_lost += 1  # the namespace is gone

    def close(self) -> None:
        self._loop.remove_reader(self._source)


@asynccontextmanager
async def joined(one: int, other: int, plan: LinkPlan) -> AsyncIterator[None]:
    """Pass packets between two devices while the block runs."""
    directions = (_Direction(one, other, plan, "there"), _Direction(other, one, plan, "back"))
    try:
        yield
    finally:
        for direction in directions:
            direction.close()
