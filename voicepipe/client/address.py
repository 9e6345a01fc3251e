"""Parse the address of a server from any usual spelling."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlencode, urlsplit

from voicepipe.errors import ConfigError

REALTIME_PATH = "/v1/realtime"
DEFAULT_URL = f"ws://127.0.0.1:8080{REALTIME_PATH}"

_SCHEMES = {"ws": False, "http": False, "wss": True, "https": True}


@dataclass(frozen=True, slots=True)
class Address:
    """The two addresses of one server: the WebSocket's and, for everything else, HTTP's."""

    websocket: str
    """`ws://` or `wss://`, with path and query."""

    http: str
    """`http://` or `https://`, up to but without `/v1`, without a slash at its end."""

    on_loopback: bool

    @classmethod
    def parse(cls, url: str, *, agent: str | None = None) -> Address:
        """Parse `ws://HOST:PORT/v1/realtime`, or any part of it that names the server: `HOST:PORT` is enough.

        An address with `http://`, or one that ends at the host or at `/v1`, means the same. `agent` becomes a query
        parameter.

        Raises:
            ConfigError: the address has no host, or another scheme.
        """
        parts = urlsplit(url if "://" in url else f"ws://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in _SCHEMES or not parts.hostname or port == -1:
            raise ConfigError(f"--url: expected an address such as {DEFAULT_URL}, got {url!r}")
        path = parts.path.rstrip("/")
        path = REALTIME_PATH if path in ("", "/v1") else path
        query = parse_qsl(parts.query) + ([("agent", agent)] if agent else [])
        tls = "s" if _SCHEMES[parts.scheme] else ""
        return cls(
            websocket=f"ws{tls}://{parts.netloc}{path}{'?' + urlencode(query) if query else ''}",
            http=f"http{tls}://{parts.netloc}{path.removesuffix(REALTIME_PATH) if REALTIME_PATH in path else ''}",
            on_loopback=_is_loopback(parts.hostname),
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
