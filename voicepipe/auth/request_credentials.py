"""The parts of a request before authentication."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Self

Pairs = Iterable[tuple[str, str]]
"""(name, value), a repeated name as often as it came: `request.headers.items()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """The parts of a request that the checks of this package read. Header names are lower case.

    Headers and query hold secrets, so neither is in the repr.
    """

    headers: tuple[tuple[str, str], ...] = field(repr=False)
    query: tuple[tuple[str, str], ...] = field(repr=False, default=())
    peer: str = ""
    """The address that the connection comes from, without port: `127.0.0.1`, `::1`. Empty when unknown."""

    scheme: Literal["http", "https"] = "http"
    """How the request reached this server, never the claim of a header."""

    @classmethod
    def of(cls, headers: Pairs, *, query: Pairs = (), peer: str = "", tls: bool = False) -> Self:
        """Return the handshake of a request's headers and query as they came."""
        return cls(
            headers=tuple((name.lower(), value.strip()) for name, value in headers),
            query=tuple(query),
            peer=peer,
            scheme="https" if tls else "http",
        )

    def values(self, name: str) -> tuple[str, ...]:
        """Return every value of the header `name` (lower case), in the order they came."""
        return tuple(value for key, value in self.headers if key == name)

    def subprotocols(self) -> tuple[str, ...]:
        """Return the WebSocket subprotocols on offer, in order, from one header or several (RFC 6455, 11.3.4)."""
        lines = self.values("sec-websocket-protocol")
        return tuple(name for line in lines for part in line.split(",") if (name := part.strip()))
