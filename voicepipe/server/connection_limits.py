"""What a connection may cost before its request is there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one connection, and of those of one address."""

    header_ms: int = 10_000
    """From the connection, or from the first byte of a later request, to the end of the request's headers. The TLS
    handshake is within."""

    idle_ms: int = 20_000
    """From an answer to the next request."""

    address_connections: int = 100
    """Connections of one client's address without a request. HTTP clients keep at most so many idle ones, usually."""
