"""Where the server listens, and how much it takes on."""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.errors import ConfigError

BOUNDS = {
    "port": (0, 65_535),
    "max_sessions": (1, 100_000),
    "max_session_s": (1, 86_400),
    "ping_ms": (1_000, 600_000),
    "drain_ms": (0, 600_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where the server listens, and how much it takes on."""

    host: str = "127.0.0.1"
    """The address to listen on. On any but a loopback address every caller needs an API key or a token."""

    port: int = 8080
    """The one port for everything; 0 takes a free one and prints it."""

    data_dir: str = ""
    """The folder for all that is written at run time. Empty: `$XDG_DATA_HOME/voicepipe`, usually
    `~/.local/share/voicepipe`."""

    max_sessions: int = 100
    """How many callers may be connected at once; the next one is answered 503 with `Retry-After`."""

    max_session_s: int = 3_600
    """How long one session may last, in seconds."""

    ping_ms: int = 20_000
    """How long a client may send nothing before it is pinged; it has half as long again to answer."""

    drain_ms: int = 5_000
    """How long running sessions may go on after the server was told to stop."""

    strict_models: bool = False
    """Refuse a `model` that names no agent and no alias (404). Off: such a session gets the default agent."""

    query_token: bool = False
    """Take a credential from `?token=` too. Off by default: addresses end up in logs."""

    allowed_origins: tuple[str, ...] = ()
    """Origins of pages that may connect without a credential when the server has no API keys and is on loopback; its
    own pages always may."""

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"server.{name}: expected a whole number from {low} to {high}, got {value}")
