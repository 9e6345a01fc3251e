"""A server on a real port, made of real parts, with a session that runs a test's own talk."""

from __future__ import annotations

import asyncio
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.server.broker_members import Members
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.keys import SigningKey, read_pem
from voicepipe.auth.rate_limit import AttemptOptions, FailedAttempts
from voicepipe.auth.tokens import AUDIENCE, ISSUER
from voicepipe.clock import unix_s
from voicepipe.cluster.memory import MemoryCluster
from voicepipe.cluster.port import LeftSnapshots, NodePresence, SessionSnapshots
from voicepipe.cluster.response_store import FILE_NAME, ResponseStore
from voicepipe.ports.model import Usage
from voicepipe.protocol.extensions import Resume
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.router.health import Health
from voicepipe.server.app import listening
from voicepipe.server.audio_ports import SpeechRoute, TranscriptionRoute
from voicepipe.server.authenticate import Authenticator
from voicepipe.server.chat_ports import ChatRoute
from voicepipe.server.context import AgentChoice, ServerContext
from voicepipe.server.embedding_ports import EmbeddingRoute
from voicepipe.server.gateway.request_slots import RequestSlots
from voicepipe.server.gateway.response_cache import ResponseCache
from voicepipe.server.gateway.response_cache_settings import ResponseCacheSettings
from voicepipe.server.gateway.slot_counts import STREAM_CAPS, STREAM_SLOTS, SlotCaps
from voicepipe.server.head_room import HeadRoom
from voicepipe.server.options import ServerSettings
from voicepipe.server.quotas import Quotas
from voicepipe.server.revocations import watch_revocations
from voicepipe.server.sessions.live_sessions import LiveSessions
from voicepipe.server.sessions.resume import OtherSessions
from voicepipe.server.tls import tls_context
from voicepipe.server.token_issuer import TokenIssuer
from voicepipe.server.webrtc.calls import OtherRtcCalls
from voicepipe.server.workers import broker as broker_module
from voicepipe.server.workers import link as link_module
from voicepipe.session.grant import SessionGrant
from voicepipe.session.shutdown import Ending
from voicepipe.session.snapshot import SessionSnapshot, read_items
from voicepipe.session.snapshot_writer import StoreSnapshot
from voicepipe.session.socket import ClientSocket
from voicepipe.tasks import background_tasks
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.telemetry.webhooks.payload import Webhook
from voicepipe.telemetry.webhooks.queue import WebhookQueue
from voicepipe.telemetry.webhooks.queue_file import QueueFile
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.telemetry.webhooks.session_events import SessionEvents
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.record.values import TurnRecord

Talk = Callable[[ClientSocket], Awaitable[None]]

NO_QUOTAS = Quotas()


async def echo(socket: ClientSocket) -> None:
    """Send back what comes until the line is closed."""
    while (message := await socket.receive()) is not None:
        await socket.send(message if isinstance(message, bytes) else message.encode())


WELL = Health(
    stage="llm",
    spec="groq/fast",
    state="closed",
    retry_in_ms=0,
    n_opened=0,
    alert="",
    in_flight=1,
    errors=(),
    ttft_p50_ms=180,
    ttft_p95_ms=420,
    itl_ms=10.04,
    tokens_per_s=99.6,
)
REFUSED = Health(
    stage="llm",
    spec="openai/small",
    state="open",
    retry_in_ms=41_000,
    n_opened=2,
    alert="401: no such key",
    in_flight=0,
    errors=(("rate_limit", 2), ("refused", 1)),
    ttft_p50_ms=None,
    ttft_p95_ms=None,
    itl_ms=None,
    tokens_per_s=None,
)


class NoModels:
    """Offer no model; `test_chat.py` has a server with models."""

    def find(self, name: str) -> ChatRoute | None:
        return None

    def listed(self) -> tuple[ChatRoute, ...]:
        return ()

    def cost_usd(self, spec: str, usage: Usage) -> float | None:
        return None


class NoEmbeddings:
    """Offer no embedding model; `test_embeddings.py` has a server with some."""

    def find(self, name: str) -> EmbeddingRoute | None:
        return None

    def cost_usd(self, spec: str, n_tokens: int) -> float | None:
        return None


class NoSound:
    """Offer no TTS and no STT; `test_speech.py` has a server with both."""

    def speech(self, name: str) -> SpeechRoute | None:
        return None

    def transcription(self, name: str) -> TranscriptionRoute | None:
        return None

    def transcriptions(self) -> Sequence[TranscriptionRoute]:
        return ()

    def tts_usd(self, spec: str, n_chars: int) -> float | None:
        return None

    def stt_usd(self, spec: str, duration_s: float) -> float | None:
        return None


@dataclass(eq=False)
class FakeSession:
    """Run a test's own talk on the socket, and close the socket when the session must end."""

    talk: Talk
    on_record: Callable[[TurnRecord], None]
    ending: Ending | None = None
    notified: asyncio.Event = field(default_factory=asyncio.Event)
    is_recorded: bool = False
    items: None = None

    async def run(self, socket: ClientSocket) -> None:
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(self._execute(socket))
            await self.talk(socket)
            ended.cancel()

    @property
    def resumption(self) -> FakeSession:
        return self

    @property
    def takeover(self) -> FakeSession:
        return self

    async def resume(self, request: Resume, socket: ClientSocket) -> bool:
        return False

    def drain(self, within_ms: int, *, at_once: bool) -> bool:
        return False

    def forbid(self) -> None:
        """Do nothing: no client of these tests resumes."""

    def share_snapshot(self, keep: StoreSnapshot) -> None:
        """Do nothing: the servers of these tests share no store."""

    def restore(self, state: SessionSnapshot, request: Resume, secret: str) -> None:
        """Do nothing likewise, if the items can be read."""
        read_items(state)

    def end_now(self, ending: Ending) -> None:
        self.ending = ending
        self.notified.set()

    def end_after_turn(self, ending: Ending) -> None:
        self.end_now(ending)

    async def _execute(self, socket: ClientSocket) -> None:
        await self.notified.wait()
        assert self.ending is not None
        await socket.close(self.ending.close_code, self.ending.why)


@dataclass
class Server:
    """A running server and what a test may look at or change."""

    context: ServerContext
    api_keys: ApiKeys
    base: str
    http: aiohttp.ClientSession
    grants: list[SessionGrant]
    sessions: list[FakeSession]
    talks: list[Talk]
    missing: list[str]
    broken: list[Exception]
    """The first is raised instead of opening a session."""

    def new_key(self, project: str = "acme", **more: Any) -> dict[str, str]:
        """Make an API key and return the header that shows it."""
        return bearer(self.api_keys.create(project, now_s=1, **more).text)

    def forge(self, *, header: dict[str, Any] | None = None, key: bytes | None = None, **claims: Any) -> str:
        """An HS256 token with whatever claims and header, signed with the server's own secret or another one.

        By hand, since libraries refuse some of what an attacker does.
        """
        now_s = unix_s()
        signer = self.context.key_store.keyring(now_s).signer
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "iat": now_s, "nbf": now_s, "exp": now_s + 600}
        payload = {**good, "jti": "t1", "project": "acme", **claims}
        head = {"kid": signer.kid, "alg": "HS256", **(header or {})}
        signed = b".".join(base64url(json.dumps(part).encode()) for part in (head, payload))
        secret = signer.secret if key is None else key
        assert isinstance(secret, bytes)
        return f"ek_{(signed + b'.' + base64url(hmac.digest(secret, signed, 'sha256'))).decode()}"

    async def get(self, path: str, **more: Any) -> tuple[int, Any]:
        async with self.http.get(self.base + path, **more) as answer:
            return answer.status, await answer.json()

    async def delete(self, path: str, **more: Any) -> tuple[int, Any]:
        async with self.http.delete(self.base + path, **more) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        async with self.http.post(self.base + path, json=body, **more) as answer:
            return answer.status, await answer.json()

    async def mint(self, body: Any = None, **more: Any) -> tuple[int, Any]:
        return await self.post("/v1/realtime/client_secrets", body, **more)

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


def base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


PAGES = {
    "talk.html": "<!doctype html>",
    "talk.js": "export {};",
    "talk.css": "",
    "dashboard.html": "<!doctype html>",
    ".secret": "",
    "notes.py": "",
}

Serve = Callable[..., AbstractAsyncContextManager[Server]]


async def at_once(session_id: str) -> None:
    """The records of each session are stored."""


AGENTS: Final = {"default": "default", "support": "support", "helper": "support"}
"""Names and aliases of agents -> agents."""


@dataclass
class Opened:
    """The sessions that a server opens, and what the test has them do."""

    grants: list[SessionGrant] = field(default_factory=list)
    sessions: list[FakeSession] = field(default_factory=list)
    talks: list[Talk] = field(default_factory=lambda: [echo])
    missing: list[str] = field(default_factory=list)
    broken: list[Exception] = field(default_factory=list)

    def open(
        self, grant: SessionGrant, on_record: Callable[[TurnRecord], None], charge: Callable[[float], None]
    ) -> FakeSession:
        """Open a session that talks as the latest of `talks`, or fail with the first of `broken`."""
        if self.broken:
            raise self.broken[0]
        self.grants.append(grant)
        self.sessions.append(FakeSession(self.talks[-1], on_record))
        return self.sessions[-1]


@dataclass(frozen=True)
class Stores:
    """What a server stores."""

    turns: SqliteTurnStore
    responses: ResponseStore
    webhook_queue: WebhookQueue | None


@asynccontextmanager
async def stores_in(folder: Path, *, with_webhooks: bool) -> AsyncIterator[Stores]:
    turns = await SqliteTurnStore.open(folder / "turns.sqlite3")
    responses = ResponseStore(folder / FILE_NAME, max_bytes=0, keep_s=0, health=new_health())
    queue = WebhookQueue(await QueueFile.open(folder / "webhooks.sqlite3")) if with_webhooks else None
    try:
        yield Stores(turns, responses, queue)
    finally:
        await turns.close()
        await responses.close()
        if queue is not None:
            await queue.close()


def pages_in(folder: Path) -> Path:
    pages = folder / "pages"
    pages.mkdir()
    for name, text in PAGES.items():
        (pages / name).write_text(text)
    return pages


def token_issuer_of(key_store: KeyStore, cluster: MemoryCluster, unpriced: str | None) -> TokenIssuer:
    return TokenIssuer(
        key_store=key_store,
        cluster=cluster,
        agent_named=AGENTS.get,
        start_config=lambda grant: SessionConfig.start(
            session_id=grant.session_id,
            model=grant.model,
            voice="heart",
            instructions=f"I am {grant.agent}.",
            expires_at=grant.expires_at,
        ),
        unpriced=lambda agent: unpriced,
    )


def authenticator_of(
    settings: ServerSettings,
    key_store: KeyStore,
    api_keys: ApiKeys,
    cluster: MemoryCluster,
    *,
    burst: int,
    on_loopback: bool,
) -> Authenticator:
    return Authenticator(
        key_store=key_store,
        api_keys=api_keys,
        cluster=cluster,
        attempts=FailedAttempts(AttemptOptions(burst=burst)),
        on_loopback=on_loopback,
        proxies=settings.proxies,
        allow_query=settings.query_token,
        allowed_origins=settings.allowed_origins,
        talk_page_tokens=settings.talk_page_tokens,
    )


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    on_loopback: bool = True,
    burst: int = 10,
    unpriced: str | None = None,
    key_files: tuple[Path, ...] = (),
    webhooks: Sequence[Webhook] = (),
    head_room: HeadRoom | None = None,
    parts: Mapping[str, Any],
    **options: Any,
) -> AsyncIterator[Server]:
    """`parts`: of the context."""
    settings = ServerSettings(**{"port": 0, "data_dir": str(folder), "drain_ms": 0, **options})
    keys = [read_pem(path) for path in key_files]
    api_keys, cluster, opened = ApiKeys(folder), MemoryCluster(), Opened()
    key_store = KeyStore(folder, signing=[key for key in keys if isinstance(key, SigningKey)])
    async with stores_in(folder, with_webhooks=bool(webhooks)) as stores:
        sender = Webhooks(webhooks, stores.webhook_queue)
        context = ServerContext(
            options=settings,
            authenticator=authenticator_of(
                settings, key_store, api_keys, cluster, burst=burst, on_loopback=on_loopback
            ),
            live_sessions=LiveSessions(cluster, max_sessions=settings.max_sessions, head_room=head_room),
            token_issuer=token_issuer_of(key_store, cluster, unpriced),
            key_store=key_store,
            cluster=cluster,
            turns=stores.turns,
            tls=await asyncio.to_thread(tls_context, settings, folder),
            pages=pages_in(folder),
            agent_named=AGENTS.get,
            agent_for=lambda metadata: "support" if ("desk", "support") in metadata else None,
            session_limit_s=lambda agent: settings.max_session_s,
            agent_choices=lambda: (AgentChoice("default", ("heart",)), AgentChoice("support", None)),
            open_session=opened.open,
            chat_models=NoModels(),
            response_cache=ResponseCache(ResponseCacheSettings(), NoModels()),
            chat_slots=RequestSlots("chats", SlotCaps(settings.max_chats, settings.max_project_chats)),
            embedding_models=NoEmbeddings(),
            responses=stores.responses,
            audio_models=NoSound(),
            audio_slots=RequestSlots("sounds", SlotCaps(settings.max_audio, settings.max_project_audio)),
            stream_slots=RequestSlots(STREAM_SLOTS, STREAM_CAPS),
            healths=lambda: (WELL, REFUSED),
            missing=lambda: tuple(opened.missing),
            webhooks=sender,
            session_events=SessionEvents(sender),
            **parts,
        )
        async with listening(context) as base, aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            watch = group.create_task(watch_revocations(cluster, context.registries))
            yield Server(context, api_keys, base, http, **vars(opened))
            watch.cancel()


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve(max_sessions=1, ...) as server:`; on_loopback=False stands for a public address."""

    def serve(
        *,
        quotas: Quotas = NO_QUOTAS,
        other_sessions: OtherSessions | None = None,
        other_rtc_calls: OtherRtcCalls | None = None,
        session_snapshots: SessionSnapshots | None = None,
        left_snapshots: LeftSnapshots | None = None,
        presence: NodePresence | None = None,
        records_written: Callable[[str], Awaitable[None]] = at_once,
        **options: Any,
    ) -> AbstractAsyncContextManager[Server]:
        parts = {
            "quotas": quotas,
            "other_sessions": other_sessions,
            "other_rtc_calls": other_rtc_calls,
            "session_snapshots": session_snapshots,
            "left_snapshots": left_snapshots,
            "presence": presence,
            "records_written": records_written,
        }
        return serving(tmp_path, parts=parts, **options)

    return serve


@dataclass
class Gate:
    """A talk that signals its start, and ends when the test releases it."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, socket: ClientSocket) -> None:
        self.began.set()
        await self.go.wait()


@pytest.fixture
async def broker_members(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Members]:
    """A broker and the workers that join it. No answer is too late, unless the test says so."""
    monkeypatch.setattr(broker_module, "QUERY_S", 600.0)
    monkeypatch.setattr(link_module, "ANSWER_S", 600.0)
    async with background_tasks() as tasks, asyncio.timeout(WAIT_S):
        members = Members(tasks)
        yield members
        members.close()


@pytest.fixture
def gate() -> Gate:
    return Gate()
