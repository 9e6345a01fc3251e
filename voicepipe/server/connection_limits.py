"""Limits of a connection before its request has arrived."""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.server.wait_limits import WaitCaps


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection, and of all connections of one address."""

    header_ms: int = 10_000
    """Time limit of a request's headers, from the connection or from the first byte of a later request. It includes the
    TLS handshake."""

    idle_ms: int = 20_000
    """Time from an answer to the next request."""

    address_connections: int = 100
    """Connections of one client's address without a request. HTTP clients usually keep at most this number of idle
    connections."""

    @property
    def wait_caps(self) -> WaitCaps:
        """The limit of connections without a request. All together are bounded by the process's descriptors."""
        return WaitCaps(per_address=self.address_connections)
