"""Settings of the server: its address and its limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from voicepipe.auth.networks import Networks
from voicepipe.auth.proxies import ProxyHeader, TrustedProxies
from voicepipe.cluster.port import Unavailable
from voicepipe.errors import ConfigError
from voicepipe.server.connection_limits import ConnectionLimits

_FRAME_ANCESTOR: Final = re.compile(
    r"https?://(\*\.)?[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?"
)
"""A host source of a content policy (CSP Level 3, 2.3.1): without path or spaces, which would name others."""

TalkPageTokens = Literal["auto", "always", "never"]

BOUNDS = {
    "port": (0, 65_535),
    "workers": (0, 256),
    "max_sessions": (1, 100_000),
    "max_session_s": (1, 86_400),
    "max_chats": (1, 100_000),
    "max_project_chats": (0, 100_000),
    "item_audio_s": (0, 120),
    "responses_max_mb": (0, 1_000_000),
    "responses_keep_h": (0, 8_760),
    "audio_cache_mb": (0, 1_000_000),
    "max_audio": (1, 100_000),
    "max_project_audio": (0, 100_000),
    "header_ms": (100, 600_000),
    "idle_ms": (100, 3_600_000),
    "address_connections": (1, 100_000),
    "ping_ms": (1_000, 600_000),
    "drain_ms": (0, 600_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the server: its address and its limits."""

    host: str = "127.0.0.1"
    """The address to listen on. On any but a loopback address every client needs an API key or a token."""

    port: int = 8080
    """The one port for everything; 0 takes a free one and prints it."""

    data_dir: str = ""
    """The folder for all files written at run time. Empty: `$XDG_DATA_HOME/voicepipe`, usually
    `~/.local/share/voicepipe`."""

    audio_cache_mb: int = 0
    """Disk space below `data_dir` for the audio of clauses that were played to their end twice, stored for a week each.
    Played again, such a clause comes from disk at once and costs nothing. 0: none."""

    workers: int = 0
    """Processes that serve the port together. 0: one for each core, less one core where local models run."""

    max_sessions: int = 100
    """Maximum number of sessions at once, of all workers together; the next one is answered 503 with `Retry-After`."""

    head_room: bool = True
    """Refuse a session (503) when one more would make the others wait: by the CPU time, the local models, the event
    loop's delay, or a stage's p95. The first 10 sessions are always admitted, with local models the first 2."""

    max_session_s: int = 3_600
    """Maximum length of one session, in seconds; and of one answer over REST."""

    max_chats: int = 200
    """Maximum number of chat completions, responses and embeddings at once; the next one is answered 503 with
    `Retry-After`."""

    max_project_chats: int = 0
    """Maximum number of chat completions of one project (429 beyond that); 0: the server's maximum."""

    item_audio_s: int = 0
    """Seconds of audio of either side that an open session holds in memory, for `conversation.item.retrieve` and
    `GET /v1/sessions/{id}/items/{item}/audio`: up to 96 kB a second and session. 0: none."""

    responses_max_mb: int = 100
    """Disk space below `data_dir` for the texts of responses (`/v1/responses`), which later requests go on from. Above
    it the client with the most of them loses those that were not used for the longest time. 0: none are stored."""

    responses_keep_h: int = 24
    """Time after its last use when a stored response is deleted, in hours. 0: none are stored."""

    chat_models: tuple[str, ...] = ()
    """Models, as `provider/model`, that chat completions may use beside the agents and their own models."""

    embedding_models: tuple[str, ...] = ()
    """Embedding models, as `provider/model` at a provider with OpenAI's API, that `/v1/embeddings` may use beside those
    of the agents' documents (`knowledge_embedding`)."""

    max_audio: int = 16
    """Maximum number of REST requests for speech, transcription or audio of items at once; the next one is answered 503
    with `Retry-After`. A recording takes up to 30 MB of memory meanwhile."""

    max_project_audio: int = 0
    """Maximum number of these requests of one project (429 beyond that); 0: the server's maximum."""

    speech_models: tuple[str, ...] = ()
    """TTS models, as `provider/model`, that `/v1/audio/speech` may use beside the agents and their own TTS."""

    transcription_models: tuple[str, ...] = ()
    """STT models, as `provider/model`, that `/v1/audio/transcriptions` may use beside the agents and their own STT."""

    header_ms: int = 10_000
    """Time limit for a client's TLS handshake and the headers of a request."""

    idle_ms: int = 20_000
    """Idle timeout of a connection between two requests. Connections of trusted proxies may be idle for an hour.
    """

    address_connections: int = 100
    """Maximum number of connections of one address without a request; beyond that the oldest is closed. Trusted proxies
    have no such limit."""

    ping_ms: int = 20_000
    """Time without a message after which the server pings a client; the client has half that time to answer."""

    drain_ms: int = 5_000
    """Time that running sessions have after the server got the signal to stop. In the second half they end with their
    turn, or move to another node."""

    strict_models: bool = False
    """Refuse a `model` that names no agent and no alias (404). Off: such a session gets the default agent."""

    query_token: bool = False
    """Accept a credential from `?token=` too. Off by default: URLs end up in logs."""

    websocket_auth_errors: bool = False
    """Accept a page's WebSocket whose credential is refused, to send the reason in an `error` event before closing it
    (4001, 1008). Off: 401 or 403 instead of the upgrade, whose text a browser hides from its page."""

    allowed_origins: tuple[str, ...] = ()
    """Origins of pages of other servers, as browsers send them (`https://shop.example`). Their scripts may read REST
    responses (CORS). While the server is open, these pages may connect without a credential."""

    mcp_origins: tuple[str, ...] = ()
    """Origins of MCP servers that a session may request as tools (`https://mcp.example`, with the port if it is not the
    usual one). The server sends requests there for its clients. Empty: sessions may request none; those of
    `[mcp.NAME]` need no origin here."""

    frame_ancestors: tuple[str, ...] = ()
    """Origins of pages that may show the talk page in a frame: `https://shop.example`, or `https://*.shop.example` for
    all its subdomains. Empty: none may. No page may frame the dashboard."""

    tls_cert: str = ""
    """A certificate chain in PEM: the server then speaks `https` and `wss`, with `tls_key`."""

    tls_key: str = ""
    """The certificate's private key in PEM, without a password."""

    tls_dev: bool = False
    """Make a certificate for this machine and use it for `https`. Browsers warn once; for trying out only."""

    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose headers are trusted for a client's address and scheme. With any of them
    set, every client needs a key, also on loopback."""

    proxy_header: ProxyHeader = "x-forwarded"
    """The headers that those proxies write: `X-Forwarded-For` and `-Proto`, or `Forwarded` (RFC 7239). The other is not
    read."""

    token_keys: tuple[str, ...] = ()
    """PEM files with Ed25519 or RSA keys for client secrets. The first private key signs; all keys verify, and are
    published at `/.well-known/jwks.json`. Empty: a generated secret signs."""

    metrics_allow: tuple[str, ...] = ()
    """Addresses or networks that may read `/metrics` without a key, such as that of your Prometheus. Others need an API
    key with the scope `operate_all`."""

    store_unavailable: Unavailable = "admit"
    """Treatment of a client secret that only the store can check, while the store fails: `admit` or `refuse` (503).
    Such a check covers revocation by another process, the number of uses, and its session config. An admitted secret
    may be used once more than it should, or with the agent's own settings."""

    talk_page_tokens: TalkPageTokens = "auto"
    """Condition under which the talk page of this machine gets a token automatically: `auto` until there is an API key
    or a trusted proxy, `always`, or `never`."""

    def __post_init__(self) -> None:
        TrustedProxies(self.trusted_proxies)
        Networks(self.metrics_allow, key="server.metrics_allow")
        for origin in self.frame_ancestors:
            if not _FRAME_ANCESTOR.fullmatch(origin):
                raise ConfigError(
                    f"server.frame_ancestors: expected an origin such as https://shop.example, got {origin!r}"
                )
        if bool(self.tls_cert) != bool(self.tls_key):
            here, there = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise ConfigError(f"server.{there}: expected a PEM file, since server.{here} is set, got none")
        if self.tls_dev and self.tls_cert:
            raise ConfigError("server.tls_dev: expected false, since server.tls_cert is set, got true")
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"server.{name}: expected a whole number from {low} to {high}, got {value}")

    @property
    def has_tls(self) -> bool:
        """Whether the port itself serves `https`."""
        return self.tls_dev or bool(self.tls_cert)

    @property
    def connection_limits(self) -> ConnectionLimits:
        """The limits of a connection without a request."""
        return ConnectionLimits(
            header_ms=self.header_ms, idle_ms=self.idle_ms, address_connections=self.address_connections
        )

    @property
    def proxies(self) -> TrustedProxies:
        """The proxies that are trusted."""
        return TrustedProxies(self.trusted_proxies, header=self.proxy_header)
