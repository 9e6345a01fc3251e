"""What the app is made of: ready parts, built by whoever wires the house."""

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
from voicepipe.server.audio_route import AudioModels
from voicepipe.server.calls import Call, Calls
from voicepipe.server.chat_route import ChatModels
from voicepipe.server.desk import Desk
from voicepipe.server.doorway import Doorway
from voicepipe.server.lobby import Lobby
from voicepipe.server.open_sessions import OpenSessions
from voicepipe.server.options import ServerSettings
from voicepipe.server.rest_places import Places
from voicepipe.server.resume import Resumable, Resumptions
from voicepipe.server.slots import Slots
from voicepipe.server.yardstick import Yardstick
from voicepipe.session.grant import SessionGrant
from voicepipe.session.socket import ClientSocket
from voicepipe.storage import StorageHealth
from voicepipe.telemetry.families import Sample
from voicepipe.telemetry.feed import Feed
from voicepipe.telemetry.loop_health import LoopHealth
from voicepipe.telemetry.prometheus import Metrics
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store import TurnStore
from voicepipe.telemetry.tracing import NoTracing, Tracing
from voicepipe.telemetry.webhook_sender import Webhooks
from voicepipe.turn.record import TurnRecord
from voicepipe.turn.settings import BudgetLimits

NoteTurn = Callable[[TurnRecord], None]
"""Takes a turn's record, new or renewed; returns at once."""


Charge = Callable[[float], None]
"""Takes what a session has cost that no turn bears, in USD; returns at once."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An agent as a person may choose it."""

    name: str
    voices: tuple[str, ...] | None
    """The voices that it can speak with; None where any name may do."""


class RunsOnSocket(Call, Resumable, Protocol):
    """A session, as the server sees it."""

    async def run(self, socket: ClientSocket) -> None:
        """Talk until either side hangs up. The caller closes what is left of the line."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that the routes use."""

    options: ServerSettings
    doorway: Doorway
    lobby: Lobby
    slots: Slots
    calls: Calls
    desk: Desk
    key_store: KeyStore
    cluster: Cluster
    turns: TurnStore

    tls: ssl.SSLContext | None
    """None: the port speaks plain `http` and `ws`."""

    pages: Path
    """The folder of the pages and of what they load."""

    agent_named: Callable[[str], str | None]
    """The agent of that name or alias."""

    offered: Callable[[], tuple[Offer, ...]]
    """The agents that a caller may choose from."""

    open_session: Callable[[SessionGrant, NoteTurn, Charge], RunsOnSocket]
    """May raise Overload or StageError, which answer 503 before the upgrade."""

    cost_usd: Callable[[str, TurnRecord], float]
    """What a turn of an agent cost, at the prices in the settings."""

    chat_models: ChatModels
    """What chat completions may be asked of."""

    chat_places: Places

    audio_models: AudioModels
    """Who speaks and hears over REST."""

    audio_places: Places

    healths: Callable[[], tuple[Health, ...]]
    """How each provider is doing."""

    missing: Callable[[], tuple[str, ...]]
    """What is not ready yet, in words; empty when everything is."""

    metrics: Metrics = field(default_factory=lambda: Metrics(BudgetLimits(), agents=frozenset(), providers=frozenset()))

    counts: Callable[[], Iterable[Sample]] = tuple
    """What the rest of the house counts, for `/metrics`."""

    tracing: Tracing = field(default_factory=NoTracing)

    loop: LoopHealth | None = None
    """How the event loop does; None: nobody watches it."""

    resumptions: Resumptions = field(default_factory=Resumptions)
    open_sessions: OpenSessions = field(default_factory=OpenSessions)
    feed: Feed = field(default_factory=Feed)
    webhooks: Webhooks = field(default_factory=Webhooks)

    storage: StorageHealth = field(default_factory=new_health)
    """Which stores are in trouble."""

    records_lost: Callable[[], int] = int
    """How many turns could not be kept since the server began."""

    forget_journal: Callable[[str, str], int] = lambda project, session: 0
    """Delete the journal of a project's session, by project and id; may wait for a disk: for a worker thread."""

    yardstick: Yardstick = field(default_factory=Yardstick)


PARTS: web.AppKey[Parts] = web.AppKey("parts", Parts)
