"""Settings of calls over WebRTC."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from voicepipe.errors import ConfigError

_HOST: Final = r"[\w.-]+(?::\d{1,5})?"
ADDRESS: Final = re.compile(
    rf"stun:({_HOST})|turn:({_HOST})(?:\?transport=(?:udp|tcp))?|turns:({_HOST})(?:\?transport=tcp)?"
)
"""RFC 7064 and 7065, without IPv6 addresses, which aiortc does not support."""

MAX_PORT: Final = 65_535

EXPECTED: Final = (
    "expected stun:HOST:PORT (UDP), turn:HOST:PORT (UDP), turn:HOST:PORT?transport=tcp or turns:HOST:PORT (TLS over "
    "TCP), with a name or an IPv4 address as HOST"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRtcSettings:
    """Settings of calls over WebRTC, which need the extra `webrtc`."""

    ice_servers: tuple[str, ...] = ()
    """At most one STUN and one TURN server, by which this server finds addresses beside those of its network
    interfaces: `stun:HOST:3478`, `turn:HOST:3478`, `turns:HOST:5349`, or `turn:HOST:443?transport=tcp`. Empty: only its
    own addresses."""

    turn_username: str = ""
    """The user name at the TURN server."""

    turn_credential: Annotated[str, msgspec.Meta(extra={"secret": True})] = field(default="", repr=False)
    """The password at the TURN server. Better set in the environment."""

    connect_ms: int = 15_000
    """Time that a client has from the answer of its request until audio and events can flow, in ms; from 100 to
    60000."""

    def __post_init__(self) -> None:
        kinds = [_kind_of(server) for server in self.ice_servers]
        for kind in ("STUN", "TURN"):
            if kinds.count(kind) > 1:
                raise ConfigError(f"webrtc.ice_servers: expected at most one {kind} server")
        if bool(self.turn_username) != bool(self.turn_credential):
            raise ConfigError("webrtc.turn_username and webrtc.turn_credential: expected both or none")
        if not 100 <= self.connect_ms <= 60_000:
            raise ConfigError(f"webrtc.connect_ms: expected a whole number from 100 to 60000, got {self.connect_ms}")


def _kind_of(server: str) -> str:
    """Return "STUN" or "TURN". An address with a password must not stand in the error's text."""
    if "@" in server:
        why = "expected an address without a user name: set webrtc.turn_username and webrtc.turn_credential"
        raise ConfigError(f"webrtc.ice_servers: {why}")
    found = ADDRESS.fullmatch(server)
    host = next(filter(None, found.groups())) if found is not None else ""
    if not host or int(host.partition(":")[2] or 0) > MAX_PORT:
        raise ConfigError(f"webrtc.ice_servers: {EXPECTED}, got {server!r}{_unsupported_part(server)}")
    return "STUN" if server.startswith("stun:") else "TURN"


def _unsupported_part(server: str) -> str:
    """Return the unsupported part of a valid address, for the error's text; empty: the address is not valid."""
    if server.startswith("stuns:"):
        return ": STUN over TLS (stuns) is not supported"
    if server.startswith("turns:") and server.endswith("?transport=udp"):
        return ": TURN over DTLS (turns over UDP) is not supported"
    return ": addresses of IPv6 are not supported" if "[" in server else ""
