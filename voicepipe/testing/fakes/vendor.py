"""A vendor on a local socket, driven by cues: OpenAI's transcriptions, chat completions, speech and
embeddings, and LLM vendors' own APIs (`vendor_rules`).

async with FakeVendor() as vendor:
    vendor.llm.cue(LlmCue(tokens=("Hi",), fault=Stall(after=1)))
    ...  # send requests to vendor.base_url
    await soon((await vendor.llm.nth(0)).gone)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from aiohttp import web

from voicepipe.testing.fakes import vendor_embeddings, vendor_llm, vendor_stt, vendor_tts
from voicepipe.testing.fakes.cues import Cue, EmbeddingCue, Hang, HangUp, LlmCue, Status, SttCue, TtsCue
from voicepipe.testing.fakes.request_rules import RequestRules
from voicepipe.testing.fakes.script import ReceivedRequest, Script
from voicepipe.testing.fakes.vendor_rules import VENDOR_RULES

C = TypeVar("C", LlmCue, SttCue, TtsCue, EmbeddingCue)
Read = Callable[[web.Request], Awaitable[ReceivedRequest]]
AnswerHandler = Callable[[web.Request, ReceivedRequest, C], Awaitable[web.StreamResponse]]

MAX_UPLOAD_BYTES = 64 << 20


class FakeVendor:
    """A server that answers on cue. The kernel picks its port, which it keeps while unplugged."""

    def __init__(self) -> None:
        self.stt: Script[SttCue, ReceivedRequest] = Script(SttCue())
        self.llm: Script[LlmCue, ReceivedRequest] = Script(LlmCue())
        self.tts: Script[TtsCue, ReceivedRequest] = Script(TtsCue())
        self.embeddings: Script[EmbeddingCue, ReceivedRequest] = Script(EmbeddingCue())
        self.rules: RequestRules | None = None
        """The vendor whose rules requests to the model must meet; None accepts every readable request."""
        self.models: tuple[str, ...] = ()
        """The models that it lists."""
        self.port = 0
        self.connections_made = 0
        """TCP connections accepted so far; keep-alive keeps it low."""
        app = web.Application(client_max_size=MAX_UPLOAD_BYTES)
        for task in ("transcriptions", "translations"):
            app.router.add_post(f"/v1/audio/{task}", self._route(self.stt, vendor_stt.read, vendor_stt.answer))
        app.router.add_post(
            "/v1/chat/completions", self._route(self.llm, _read_json, self._checked(self._answer_openai))
        )
        for path, dialect in {
            rules.dialect.path: rules.dialect for rules in VENDOR_RULES.values() if rules.dialect
        }.items():
            app.router.add_post(path, self._route(self.llm, _read_json, self._checked(dialect.answer)))
        app.router.add_post("/v1/audio/speech", self._route(self.tts, _read_json, vendor_tts.answer))
        app.router.add_post("/v1/embeddings", self._route(self.embeddings, _read_json, vendor_embeddings.answer))
        app.router.add_get("/v1/models", self._list_models)
        # handler_cancellation: an answer's task is cancelled as soon as its client disconnects.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        self._listener: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """Return the `base_url` of a provider for this fake."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> FakeVendor:
        await self._runner.setup()
        await self.plug_in()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unplug()
        await self._runner.cleanup()

    async def plug_in(self) -> None:
        """Listen, on the earlier port if there was one."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    def unplug(self) -> None:
        """Cut every connection, and refuse new ones."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        server = self._runner.server
        for connection in list(server.connections) if server is not None else ():
            if connection.transport is not None:
                connection.transport.abort()

    def _checked(self, answer: AnswerHandler[LlmCue]) -> AnswerHandler[LlmCue]:
        async def answer_checked(request: web.Request, received: ReceivedRequest, cue: LlmCue) -> web.StreamResponse:
            broken = self.rules.broken(request.headers, received.question) if self.rules is not None else None
            return await answer(request, received, cue) if broken is None else _refusal(Status(*broken))

        return answer_checked

    async def _answer_openai(self, request: web.Request, received: ReceivedRequest, cue: LlmCue) -> web.StreamResponse:
        return await vendor_llm.answer(request, received, cue, self.rules)

    async def _list_models(self, request: web.Request) -> web.Response:
        if self.rules is not None and self.rules.dialect is not None:
            return web.json_response(self.rules.dialect.listed(self.models))
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]})

    def _accept(self) -> asyncio.Protocol:
        self.connections_made += 1
        server = self._runner.server
        assert server is not None
        return server()

    def _route(
        self, script: Script[C, ReceivedRequest], read: Read, answer: AnswerHandler[C]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            received = await read(request)
            full = script.max_concurrent is not None and script.busy() >= script.max_concurrent
            script.arrive(received)
            try:
                if full:
                    return _refusal(Status(503, "too many questions at once"))
                cue = script.take(received.question)
                return await _before(request, cue) or await answer(request, received, cue)
            except (asyncio.CancelledError, ConnectionError):
                received.gone.set()
                raise
            finally:
                received.ended.set()

        return handle


async def _before(request: web.Request, cue: Cue) -> web.Response | None:
    """Apply the faults that come before an answer."""
    match cue.fault:
        case Status():
            return _refusal(cue.fault)
        case HangUp():
            assert request.transport is not None
            request.transport.abort()
            await asyncio.Event().wait()
        case Hang():
            await asyncio.Event().wait()
    return None


def _refusal(refusal: Status) -> web.Response:
    headers: Mapping[str, str] = {"Retry-After": refusal.retry_after} if refusal.retry_after is not None else {}
    error = {"message": refusal.message, "type": "fake_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=refusal.status, headers=headers)


async def _read_json(request: web.Request) -> ReceivedRequest:
    body: dict[str, Any] = json.loads(await request.read())
    return ReceivedRequest(body, headers=request.headers)
