"""A server on a real port, made of real parts, with a session that does what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.attempts import AttemptOptions, FailedAttempts
from voicepipe.auth.key_store import KeyStore
from voicepipe.cluster.memory import MemoryCluster
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.doorway import Doorway
from voicepipe.server.listening import listening
from voicepipe.server.lobby import Lobby
from voicepipe.server.options import ServerSettings
from voicepipe.server.parts import Parts
from voicepipe.session.grant import SessionGrant
from voicepipe.session.socket import ClientSocket
from voicepipe.telemetry.sqlite import SqliteTurnStore

Talk = Callable[[ClientSocket], Awaitable[None]]


async def echo(socket: ClientSocket) -> None:
    """Send back what comes until the line is closed."""
    while (message := await socket.receive()) is not None:
        await socket.send(message if isinstance(message, bytes) else message.encode())


@dataclass
class FakeSession:
    """Runs a test's own talk on the socket."""

    talk: Talk

    async def run(self, socket: ClientSocket) -> None:
        await self.talk(socket)


@dataclass
class House:
    """A running server and what a test may look at or change."""

    parts: Parts
    api_keys: ApiKeys
    base: str
    http: aiohttp.ClientSession
    grants: list[SessionGrant]
    talks: list[Talk]
    missing: list[str]
    broken: list[Exception]
    """The first is raised instead of opening a session."""

    def new_key(self, project: str = "acme", **more: Any) -> dict[str, str]:
        """Make an API key and return the header that shows it."""
        return bearer(self.api_keys.create(project, now_s=1, **more).text)

    async def get(self, path: str, **more: Any) -> tuple[int, Any]:
        async with self.http.get(self.base + path, **more) as answer:
            return answer.status, await answer.json()

    async def mint(self, body: Any = None, **more: Any) -> tuple[int, Any]:
        async with self.http.post(f"{self.base}/v1/realtime/client_secrets", json=body, **more) as answer:
            return answer.status, await answer.json()

    def connect(self, path: str = "/v1/realtime", **more: Any) -> Any:
        return self.http.ws_connect(self.base + path, **more)

    async def refused(self, path: str = "/v1/realtime", **more: Any) -> tuple[int, Any]:
        """The status and the error of a handshake that must fail."""
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            **more.pop("headers", {}),
        }
        async with self.http.get(self.base + path, headers=headers, **more) as answer:
            assert answer.status != 101, "the handshake should have been refused"
            return answer.status, (await answer.json())["error"]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


Serve = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve(max_sessions=1, ...) as house:`; on_loopback=False stands for a public address."""

    @asynccontextmanager
    async def serving(*, on_loopback: bool = True, burst: int = 10, **options: Any) -> AsyncIterator[House]:
        settings = ServerSettings(**{"port": 0, "data_dir": str(tmp_path), "drain_ms": 0, **options})
        api_keys, key_store, cluster = ApiKeys(tmp_path), KeyStore(tmp_path), MemoryCluster()
        grants: list[SessionGrant] = []
        talks: list[Talk] = [echo]
        missing: list[str] = []
        broken: list[Exception] = []

        def open_session(grant: SessionGrant) -> FakeSession:
            if broken:
                raise broken[0]
            grants.append(grant)
            return FakeSession(talks[-1])

        turns = await SqliteTurnStore.open(tmp_path / "turns.sqlite3")
        parts = Parts(
            options=settings,
            doorway=Doorway(
                key_store=key_store,
                api_keys=api_keys,
                cluster=cluster,
                attempts=FailedAttempts(AttemptOptions(burst=burst)),
                on_loopback=on_loopback,
                allow_query=settings.query_token,
                allowed_origins=settings.allowed_origins,
            ),
            lobby=Lobby(settings.max_sessions),
            key_store=key_store,
            cluster=cluster,
            turns=turns,
            agent_named={"default": "default", "support": "support", "helper": "support"}.get,
            start_config=lambda grant: SessionConfig.start(
                session_id=grant.session_id,
                model=grant.model,
                voice="heart",
                instructions=f"I am {grant.agent}.",
                expires_at=grant.expires_at,
            ),
            open_session=open_session,
            missing=lambda: tuple(missing),
        )
        try:
            async with listening(parts) as base, aiohttp.ClientSession() as http:
                yield House(parts, api_keys, base, http, grants, talks, missing, broken)
        finally:
            await turns.close()

    return serving


@dataclass
class Gate:
    """A talk that tells when it began, and ends when it is let go."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, socket: ClientSocket) -> None:
        self.began.set()
        await self.go.wait()


@pytest.fixture
def gate() -> Gate:
    return Gate()
