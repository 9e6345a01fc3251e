"""What the app is made of: ready parts, built by whoever wires the house."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from voicepipe.auth.key_store import KeyStore
from voicepipe.cluster.port import Cluster
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.doorway import Doorway
from voicepipe.server.lobby import Lobby
from voicepipe.server.options import ServerSettings
from voicepipe.session.grant import SessionGrant
from voicepipe.session.socket import ClientSocket
from voicepipe.telemetry.store import TurnStore


class RunsOnSocket(Protocol):
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
    key_store: KeyStore
    cluster: Cluster
    turns: TurnStore

    agent_named: Callable[[str], str | None]
    """The agent of that name or alias."""

    start_config: Callable[[SessionGrant], SessionConfig]
    """The session that a grant starts with, before the token's own config."""

    open_session: Callable[[SessionGrant], RunsOnSocket]
    """May raise Overload or StageError, which answer 503 before the upgrade."""

    missing: Callable[[], tuple[str, ...]]
    """What is not ready yet, in words; empty when everything is."""


PARTS: web.AppKey[Parts] = web.AppKey("parts", Parts)
