"""The parts of the app, built by the wiring."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from aiohttp import web
from msgspec import Struct, field

from voicepipe.auth.key_store import KeyStore
from voicepipe.cluster.port import Cluster, LeftSnapshots, NodeEvents, NodePresence, SessionSnapshots
from voicepipe.cluster.response_store import ResponseStore
from voicepipe.phone.calls import PhoneCalls
from voicepipe.phone.options import PhoneLine
from voicepipe.router.health import Health
from voicepipe.server.audio_ports import AudioModels
from voicepipe.server.authenticate import Authenticator
from voicepipe.server.chat_ports import ChatModels
from voicepipe.server.embedding_ports import EmbeddingModels
from voicepipe.server.gateway.request_slots import RequestSlots
from voicepipe.server.gateway.response_cache import ResponseCache
from voicepipe.server.options import ServerSettings
from voicepipe.server.quotas import Quotas
from voicepipe.server.reference_figures import ReferenceFigures
from voicepipe.server.revocations import EndsRevoked
from voicepipe.server.sessions.live_sessions import LiveSessions
from voicepipe.server.sessions.resume import OtherSessions, Resumptions
from voicepipe.server.sessions.running_session import RunningSession
from voicepipe.server.token_issuer import TokenIssuer
from voicepipe.server.webrtc.calls import OtherRtcCalls, RtcCalls
from voicepipe.server.workers.peers import Workers
from voicepipe.session.grant import SessionGrant
from voicepipe.storage import StorageHealth
from voicepipe.telemetry.event_loop import EventLoopMonitor
from voicepipe.telemetry.journal.recordings import SideRecording
from voicepipe.telemetry.live_feed import Feed
from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.telemetry.metrics.prometheus import Metrics
from voicepipe.telemetry.recording.folder import StoredRecording
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import TurnStore
from voicepipe.telemetry.tracing.port import NoTracing, Tracing
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.telemetry.webhooks.session_events import SessionEvents
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetLimits


class CallRecordings(Protocol):
    """The recordings of calls. Each method may wait for a disk: for a worker thread."""

    def find(self, project: str | None, session: str) -> StoredRecording | None:
        """Return the recording of a project's session, or of any project's."""
        ...

    def delete_session(self, project: str, session: str) -> int:
        """Delete the recording of a session; return how many files that were."""
        ...

    def delete_user(self, project: str, user: str) -> int:
        """Delete all recordings of a user, likewise."""
        ...


class NoCallRecordings:
    """Nothing is recorded."""

    def find(self, project: str | None, session: str) -> StoredRecording | None:
        """Return nothing."""
        return None

    def delete_session(self, project: str, session: str) -> int:
        """Delete nothing."""
        return 0

    def delete_user(self, project: str, user: str) -> int:
        """Delete nothing."""
        return 0


OnRecord = Callable[[TurnRecord], None]
"""Takes a turn's record, new or renewed; returns at once."""


Charge = Callable[[float], None]
"""Records a session's cost outside turns, in USD; returns at once."""


async def _do_nothing(session_id: str) -> None:
    """Do nothing."""


def _ignore(record: TurnRecord) -> None:
    """Store nothing."""


class AgentChoice(Struct, frozen=True):
    """An agent that a user may choose."""

    name: str
    voices: tuple[str, ...] | None
    """The voices that the agent can use; None where any name is allowed."""


class ServerContext(Struct, frozen=True, kw_only=True):
    """The parts that the routes use."""

    options: ServerSettings
    authenticator: Authenticator
    live_sessions: LiveSessions
    token_issuer: TokenIssuer
    key_store: KeyStore
    cluster: Cluster
    turns: TurnStore

    tls: ssl.SSLContext | None
    """The TLS context; None: the port serves plain `http` and `ws`."""

    pages: Path
    """The folder of the pages and their files."""

    agent_named: Callable[[str], str | None]
    """Return the agent of that name or alias."""

    agent_for: Callable[[tuple[tuple[str, str], ...]], str | None]
    """Return the agent that the metadata of a token chooses, or None."""

    session_limit_s: Callable[[str], int]
    """Return how long a session of an agent may last, in seconds."""

    agent_choices: Callable[[], tuple[AgentChoice, ...]]
    """The agents that a user may choose from."""

    open_session: Callable[[SessionGrant, OnRecord, Charge], RunningSession]
    """Opens a session. It may raise Overload or StageError, which are answered with 503 before the upgrade."""

    chat_models: ChatModels
    """The models that chat completions may use."""

    chat_slots: RequestSlots

    response_cache: ResponseCache
    """The answers of chat completions and responses that are given again."""

    embedding_models: EmbeddingModels
    """The embedding models over REST."""

    responses: ResponseStore
    """The responses over REST that later requests go on from."""

    audio_models: AudioModels
    """The TTS and STT routes over REST."""

    audio_slots: RequestSlots

    stream_slots: RequestSlots
    """Those of live streams of turns."""

    healths: Callable[[], tuple[Health, ...]]
    """The status of each provider."""

    missing: Callable[[], tuple[str, ...]]
    """The parts that are not ready, as text; empty when all are."""

    local_loads: Callable[[], Mapping[str, float]] = dict
    """Stage -> the share of its time that its local model worked lately, 0 to 1."""

    phone_lines: Mapping[str, PhoneLine] = field(default_factory=lambda: MappingProxyType({}))
    """The phone lines of the settings, by name."""

    phone_calls: PhoneCalls = field(default_factory=PhoneCalls)

    metrics: Metrics = field(default_factory=lambda: Metrics(BudgetLimits(), agents=frozenset(), providers=frozenset()))

    quotas: Quotas = field(default_factory=Quotas)

    counts: Callable[[], Iterable[Sample]] = tuple
    """Metrics of the other packages, for `/metrics`."""

    tracing: Tracing = field(default_factory=NoTracing)

    loop: EventLoopMonitor | None = None
    """The event loop's lag; None: it is not measured."""

    resumptions: Resumptions = field(default_factory=Resumptions)
    workers: Workers | None = None
    """All workers of the server; None: this process serves alone."""

    session_snapshots: SessionSnapshots | None = None
    """The snapshots of sessions that nodes share; None: this machine shares nothing."""

    left_snapshots: LeftSnapshots | None = None
    """The snapshots that no process has any more; None: this machine shares nothing."""

    presence: NodePresence | None = None
    """The announcements of the nodes that share a store; None: this machine shares nothing."""

    node_events: NodeEvents | None = None
    """The way of the live feed's events between them; None: this machine shares nothing."""

    node: str = ""
    """This machine's name among them."""

    region: str = ""
    """This machine's region."""

    regions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The address of each region, by its name."""

    other_sessions: OtherSessions | None = None
    """The sessions of the other workers, to resume them."""

    rtc_calls: RtcCalls = field(default_factory=RtcCalls)
    """The calls over WebRTC."""

    other_rtc_calls: OtherRtcCalls | None = None
    """Those of the other workers."""

    feed: Feed = field(default_factory=Feed)
    webhooks: Webhooks = field(default_factory=Webhooks)
    session_events: SessionEvents = field(default_factory=lambda: SessionEvents(Webhooks()))
    """The webhooks of whole sessions."""

    storage: StorageHealth = field(default_factory=new_health)
    """The stores that fail."""

    records_lost: Callable[[], int] = int
    """Number of turns that could not be stored since the server started."""

    records_written: Callable[[str], Awaitable[None]] = _do_nothing
    """Waits until the records of a session are stored; without end while their store is away."""

    records_of: Callable[[SessionGrant, str, int], Callable[[TurnRecord], None]] = lambda grant, agent, began: _ignore
    """Returns what stores the records of an agent's turns: by session, agent, and when its clock was 0 (unix ms)."""

    delete_journal: Callable[[str, str], int] = lambda project, session: 0
    """Delete the journal of a project's session, by project and ID; may wait for a disk: for a worker thread."""

    recordings: Callable[[str | None, str], tuple[SideRecording, ...]] = lambda project, session: ()
    """Return the audio of a project's session, or of any project's; may wait for a disk likewise."""

    call_recordings: CallRecordings = field(default_factory=NoCallRecordings)
    """The recordings of calls."""

    benches: Callable[[], Mapping[str, Any]] = lambda: {"object": "list", "data": []}
    """Return the state of the scheduled benches, for JSON; may wait for a disk: for a worker thread."""

    reload: Callable[[], Awaitable[tuple[str, ...]]] | None = None
    """Puts the settings as they are written now in force, and returns the agents' names. Raises ConfigError."""

    reference_figures: ReferenceFigures = field(default_factory=ReferenceFigures)

    @property
    def registries(self) -> tuple[EndsRevoked, ...]:
        """All that runs here and may run with a client secret."""
        return self.live_sessions, self.chat_slots, self.audio_slots


CONTEXT: web.AppKey[ServerContext] = web.AppKey("context", ServerContext)
