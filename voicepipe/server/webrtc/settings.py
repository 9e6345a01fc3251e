"""Settings of calls over WebRTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from voicepipe.errors import ConfigError

SCHEMES: Final = ("stun:", "turn:", "turns:")


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
        for server in self.ice_servers:
            if not server.startswith(SCHEMES) or not server.partition(":")[2]:
                raise ConfigError(f"webrtc.ice_servers: expected an address such as stun:HOST:3478, got {server!r}")
        if not 100 <= self.connect_ms <= 60_000:
            raise ConfigError(f"webrtc.connect_ms: expected a whole number from 100 to 60000, got {self.connect_ms}")
