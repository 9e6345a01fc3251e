"""The parts of the app, built by the wiring."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aiohttp import web

from voicepipe.auth.key_store import KeyStore
from voicepipe.cluster.port import Cluster
from voicepipe.router.health import Health
from voicepipe.server.audio_ports import AudioModels
from voicepipe.server.authenticate import Authenticator
from voicepipe.server.chat_ports import ChatModels
from voicepipe.server.gateway.capacity import Places
from voicepipe.server.options import ServerSettings
from voicepipe.server.reference_figures import ReferenceFigures
from voicepipe.server.sessions.capacity import SessionCapacity
from voicepipe.server.sessions.live_sessions import OpenSessions
from voicepipe.server.sessions.resume import Resumable, Resumptions
from voicepipe.server.sessions.revocations import Revocable, RevocableSessions
from voicepipe.server.sessions.slots import Slots
from voicepipe.server.token_issuer import TokenIssuer
from voicepipe.session.grant import SessionGrant
from voicepipe.session.socket import ClientSocket
from voicepipe.storage import StorageHealth
from voicepipe.telemetry.event_loop import EventLoopMonitor
from voicepipe.telemetry.live_feed import Feed
from voicepipe.telemetry.metrics.catalog import Sample
from voicepipe.telemetry.metrics.prometheus import Metrics
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import TurnStore
from voicepipe.telemetry.tracing.port import NoTracing, Tracing
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetLimits

NoteTurn = Callable[[TurnRecord], None]
"""Takes a turn's record, new or renewed; returns at once."""


Charge = Callable[[float], None]
"""Records a session's cost outside turns, in USD; returns at once."""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """An agent that a user may choose."""

    name: str
    voices: tuple[str, ...] | None
    """The voices that the agent can use; None where any name is allowed."""


class RunsOnSocket(Revocable, Resumable, Protocol):
    """A session, as the server uses it."""

    async def run(self, socket: ClientSocket) -> None:
        """Run until either side closes the connection. The calling code closes the rest of the connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The parts that the routes use."""

    options: ServerSettings
    authenticator: Authenticator
    capacity: SessionCapacity
    slots: Slots
    revocable: RevocableSessions
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

    agent_choices: Callable[[], tuple[AgentChoice, ...]]
    """The agents that a user may choose from."""

    open_session: Callable[[SessionGrant, NoteTurn, Charge], RunsOnSocket]
    """Opens a session. It may raise Overload or StageError, which are answered with 503 before the upgrade."""

    cost_usd: Callable[[str, TurnRecord], float]
    """The cost of an agent's turn, at the prices in the settings."""

    chat_models: ChatModels
    """The models that chat completions may use."""

    chat_places: Places

    audio_models: AudioModels
    """The TTS and STT routes over REST."""

    audio_places: Places

    healths: Callable[[], tuple[Health, ...]]
    """The status of each provider."""

    missing: Callable[[], tuple[str, ...]]
    """The parts that are not ready, as text; empty when all are."""

    metrics: Metrics = field(default_factory=lambda: Metrics(BudgetLimits(), agents=frozenset(), providers=frozenset()))

    counts: Callable[[], Iterable[Sample]] = tuple
    """Metrics of the other packages, for `/metrics`."""

    tracing: Tracing = field(default_factory=NoTracing)

    loop: EventLoopMonitor | None = None
    """The event loop's lag; None: it is not measured."""

    resumptions: Resumptions = field(default_factory=Resumptions)
    open_sessions: OpenSessions = field(default_factory=OpenSessions)
    feed: Feed = field(default_factory=Feed)
    webhooks: Webhooks = field(default_factory=Webhooks)

    storage: StorageHealth = field(default_factory=new_health)
    """The stores that fail."""

    records_lost: Callable[[], int] = int
    """Number of turns that could not be stored since the server started."""

    delete_journal: Callable[[str, str], int] = lambda project, session: 0
    """Delete the journal of a project's session, by project and ID; may wait for a disk: for a worker thread."""

    reference_figures: ReferenceFigures = field(default_factory=ReferenceFigures)


CONTEXT: web.AppKey[ServerContext] = web.AppKey("context", ServerContext)
