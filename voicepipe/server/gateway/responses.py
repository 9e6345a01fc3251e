"""`POST /v1/responses`: any model of this server, by OpenAI's newer request, which can continue a stored response.

Routes, limits, usage and headers are those of chat completions. The response headers are sent with the first event of
the model, so that a refusal has its own status. A client that disconnects cancels the request.
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
from voicepipe.server.gateway.chat_request import RoutedRequest, route_request
from voicepipe.server.gateway.chat_usage import ChatUsage
from voicepipe.server.gateway.exchange import AnswerResult, Exchange
from voicepipe.server.gateway.response_conversation import RequestConversation, conversation_of, owner_of
from voicepipe.server.gateway.response_request import answer_request_of_response
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
    answer_request = answer_request_of_response(requested, conversation)
    routed = await route_request(principal, answer_request, context.authenticator.handshake(request), context)
    async with context.chat_slots.slot(principal) as slot:
        responder = _ResponsesResponder(request, requested, conversation, routed, principal, context)
        return await Exchange("chat", responder.id, requested.model, slot, context).run(responder)


class _ResponsesResponder:
    """Answers a request with a response, and stores it."""

    def __init__(
        self,
        request: web.Request,
        requested: ResponseRequest,
        conversation: RequestConversation,
        routed: RoutedRequest,
        principal: Principal,
        context: ServerContext,
    ) -> None:
        self.id = f"resp_{secrets.token_hex(16)}"
        self._requested, self._conversation, self._routed = requested, conversation, routed
        self._principal, self._store, self._models = principal, context.responses, context.chat_models
        self._response_cache = context.response_cache
        self._usage = ChatUsage(routed.request, routed.route.specs[0], requested.ignored, to_page=routed.to_page)
        is_stored = requested.store is not False and context.responses.is_on
        echo = requested.echo() | {"store": is_stored}
        self._writer = ResponseWriter(self.id, requested.model, unix_s(), echo)
        self._out = StreamedResponse(request, EVENTS, self._headers)
        self._began_ms = monotonic_ms()
        self._n_chars = 0

    @property
    def spec(self) -> str:
        return self._usage.spec

    @property
    def sent_response(self) -> web.StreamResponse | None:
        return self._out.sent_response

    async def answer(self) -> web.StreamResponse:
        routed = self._routed
        async with self._response_cache.open(self._principal, routed.route, routed.request, self._usage) as events:
            async for event in events:
                self._usage.record(event, monotonic_ms() - self._began_ms)
                if isinstance(event, TextDelta | CallDelta | Finished):
                    begun = self._writer.begin() if self.sent_response is None else b""
                    written = begun + self._write(event)
                    if self._requested.stream:
                        await self._out.send(written)
        self._writer.finish(self._usage.tokens(), self._usage.voicepipe_field(self._models), unix_s())
        await self._store_response()
        if self._requested.stream:
            return await self._out.end(self._writer.end())
        body = _encode(self._writer.body)
        return web.Response(body=body, content_type="application/json", headers=self._headers())

    async def fail(self, error: bytes) -> web.StreamResponse:
        self._writer.body["store"] = False
        return await self._out.end(self._writer.fail(msgspec.json.decode(error)["error"]))

    def result(self, *, failed: bool) -> AnswerResult:
        return self._usage.result(self._models, failed=failed)

    def _write(self, event: TextDelta | CallDelta | Finished) -> bytes:
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
        """Store the response before its end is sent: the next request may follow at once."""
        if not self._writer.body["store"]:
            return
        claims = self._principal.claims
        user = self._requested.user or self._requested.safety_identifier or ""
        stored = StoredResponse(
            id=self.id,
            owner=owner_of(self._principal),
            project=self._principal.project,
            user=user if claims is None else claims.subject,
            previous=self._requested.previous_response_id,
            body=_encode(self._writer.body),
            input=_encode(
                [to_wire(each, item_id(self.id, "input", n)) for n, each in enumerate(self._conversation.items)]
            ),
        )
        try:
            self._writer.body["store"] = await self._store.store(stored, now_s=unix_s())
        except StoreUnavailable:  # the store's health reports it; the response is valid without
            self._writer.body["store"] = False

    def _headers(self) -> dict[str, str]:
        return {"X-Request-Id": self.id} | self._usage.headers()
