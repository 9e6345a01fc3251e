"""Choose a port for a server that can't choose it by itself, or that starts again on the same one."""

from __future__ import annotations

import itertools
import random
import socket
from typing import Final

PORTS: Final = range(20_000, 32_000)
"""Ports below those that the kernel gives to connections (Linux: from 32,768): none gets one while a server starts
again."""

_order = itertools.cycle(random.sample(PORTS, len(PORTS)))
"""Random: processes that choose at once choose others. No port comes twice before all others came."""


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """Return a port of loopback that is free now."""
    while True:
        port = next(_order)
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
