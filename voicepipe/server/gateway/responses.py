"""`POST /v1/responses`: any model of this server behind OpenAI's newer request, which can go on from a stored one.

Routes, limits, usage and headers are those of chat completions. The response headers are sent with the first event of
the model, so that a refusal has its own status. A client that disconnects cancels its request.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec
from aiohttp import web

from voicepipe.auth.scopes import CHAT
from voicepipe.clock import monotonic_ms, unix_s
from voicepipe.cluster.response_store import StoredResponse
from voicepipe.errors import StageBroken, StoreUnavailable
from voicepipe.ports.model import CallDelta, Finished, TextDelta
from voicepipe.protocol.response_rest_answer import ResponseWriter, item_id
from voicepipe.protocol.response_rest_items import to_wire
from voicepipe.protocol.response_rest_request import ResponseRequest, read_response_request
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.gateway.chat import MAX_BODY_BYTES
from voicepipe.server.gateway.chat_answer import MAX_CHARS
from voicepipe.server.gateway.chat_request import Question, question_for
from voicepipe.server.gateway.chat_usage import ChatUsage
from voicepipe.server.gateway.exchange import Exchange, Settled
from voicepipe.server.gateway.response_conversation import Conversation, conversation_of, owner_of
from voicepipe.server.gateway.response_question import response_question
from voicepipe.server.realtime import check_ready
from voicepipe.server.request_bodies import read_body
from voicepipe.server.streaming import EVENTS, StreamedResponse

_encode: Final = msgspec.json.Encoder().encode


async def create_response(request: web.Request) -> web.StreamResponse:
    """Validate the request, then run it, store the response and send it."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(CHAT)
    check_ready(context)
    requested = read_response_request(await read_body(request, MAX_BODY_BYTES))
    conversation = await conversation_of(requested, owner_of(principal), context.responses)
    answer = response_question(requested, conversation)
    question = await question_for(principal, answer, context.authenticator.handshake(request), context)
    async with context.chat_slots.slot(principal) as slot:
        work = _ResponseWork(request, requested, conversation, question, principal, context)
        return await Exchange("chat", work.id, requested.model, slot, context).run(work)


class _ResponseWork:
    """A response: its request and its answer."""

    def __init__(
        self,
        request: web.Request,
        requested: ResponseRequest,
        conversation: Conversation,
        question: Question,
        principal: Principal,
        context: ServerContext,
    ) -> None:
        self.id = f"resp_{secrets.token_hex(16)}"
        self._requested, self._conversation, self._question = requested, conversation, question
        self._principal, self._store, self._models = principal, context.responses, context.chat_models
        self._response_cache = context.response_cache
        self._usage = ChatUsage(question.request, question.route.specs[0], requested.ignored, to_page=question.to_page)
        stores = requested.store is not False and context.responses.is_on
        echo = requested.echo() | {"store": stores}
        self._writer = ResponseWriter(self.id, requested.model, unix_s(), echo)
        self._out = StreamedResponse(request, EVENTS, self._headers)
        self._began_ms = monotonic_ms()
        self._n_chars = 0

    @property
    def spec(self) -> str:
        return self._usage.spec

    @property
    def line(self) -> web.StreamResponse | None:
        return self._out.line

    async def answer(self) -> web.StreamResponse:
        question = self._question
        async with self._response_cache.open(self._principal, question.route, question.request, self._usage) as events:
            async for event in events:
                self._usage.see(event, monotonic_ms() - self._began_ms)
                if isinstance(event, TextDelta | CallDelta | Finished):
                    begun = self._writer.begin() if self.line is None else b""
                    written = begun + self._written(event)
                    if self._requested.stream:
                        await self._out.send(written)
        self._writer.finish(self._usage.used(), self._usage.ours(self._models), unix_s())
        await self._store_response()
        if self._requested.stream:
            return await self._out.end(self._writer.end())
        body = _encode(self._writer.body)
        return web.Response(body=body, content_type="application/json", headers=self._headers())

    async def fail(self, error: bytes) -> web.StreamResponse:
        self._writer.body["store"] = False
        return await self._out.end(self._writer.fail(msgspec.json.decode(error)["error"]))

    def settled(self, *, failed: bool) -> Settled:
        return self._usage.settled(self._models, failed=failed)

    def _written(self, event: TextDelta | CallDelta | Finished) -> bytes:
        match event:
            case TextDelta(text):
                self._count(len(text))
                return self._writer.text(text)
            case CallDelta(index, call_id, name, arguments):
                self._count(len(arguments))
                return self._writer.call(index, call_id, name, arguments)
            case Finished(reason):
                return self._writer.end_items(reason)

    def _count(self, n_chars: int) -> None:
        self._n_chars += n_chars
        if self._n_chars > MAX_CHARS:
            why = f"expected an answer of at most {MAX_CHARS} characters, got more"
            raise StageBroken("llm", provider=self.spec, why=why, retryable=False)

    async def _store_response(self) -> None:
        """Store the response before its end is sent, since the next request may follow at once."""
        if not self._writer.body["store"]:
            return
        claims = self._principal.claims
        named = self._requested.user or self._requested.safety_identifier or ""
        stored = StoredResponse(
            id=self.id,
            owner=owner_of(self._principal),
            project=self._principal.project,
            user=named if claims is None else claims.subject,
            previous=self._requested.previous_response_id,
            body=_encode(self._writer.body),
            input=_encode(
                [to_wire(each, item_id(self.id, "input", n)) for n, each in enumerate(self._conversation.items)]
            ),
        )
        try:
            self._writer.body["store"] = await self._store.store(stored, now_s=unix_s())
        except StoreUnavailable:  # its health reports it; the answer is good without
            self._writer.body["store"] = False

    def _headers(self) -> dict[str, str]:
        return {"X-Request-Id": self.id} | self._usage.headers()
