"""`POST /v1/chat/completions`: any model of this server, by OpenAI's published request.

The response headers are sent with the first text. So a refusal has its own status, and the headers can name the
provider and its latency. A client that disconnects cancels the request: aiohttp cancels the handler, and leaving the
model's context closes the connection to the provider.
"""

from __future__ import annotations

import secrets
from typing import Final

from aiohttp import web

from voicepipe.auth.scopes import CHAT
from voicepipe.clock import unix_s
from voicepipe.protocol.chat_request import ChatRequest, read_chat_request
from voicepipe.protocol.chat_response import Completion
from voicepipe.server.authenticate import Principal
from voicepipe.server.context import CONTEXT, ServerContext
from voicepipe.server.gateway.chat_answer import ChatAnswer
from voicepipe.server.gateway.chat_request import RoutedRequest, answer_request_of_chat, route_request
from voicepipe.server.gateway.chat_usage import ChatUsage
from voicepipe.server.gateway.exchange import AnswerResult, Exchange
from voicepipe.server.realtime import check_ready
from voicepipe.server.request_bodies import read_body

MAX_BODY_BYTES: Final = 4 << 20
"""Maximum size of the body, which may have images. Reading JSON blocks all other users, in a thread too: some 5 ms for
this size."""


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Validate the request, then run it and send the answer."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(CHAT)
    check_ready(context)
    requested = await _read_request(request)
    handshake = context.authenticator.handshake(request)
    routed = await route_request(principal, answer_request_of_chat(requested), handshake, context)
    async with context.chat_slots.slot(principal) as slot:
        id_ = f"chatcmpl-{secrets.token_hex(16)}"
        responder = _ChatResponder(id_, request, requested, routed, principal, context)
        return await Exchange("chat", id_, requested.model, slot, context).run(responder)


async def _read_request(request: web.Request) -> ChatRequest:
    return read_chat_request(await read_body(request, MAX_BODY_BYTES))


class _ChatResponder:
    """Answers a chat completion."""

    def __init__(
        self,
        id_: str,
        request: web.Request,
        requested: ChatRequest,
        routed: RoutedRequest,
        principal: Principal,
        context: ServerContext,
    ) -> None:
        self._requested, self._routed, self._models = requested, routed, context.chat_models
        self._principal, self._response_cache = principal, context.response_cache
        self._usage = ChatUsage(routed.request, routed.route.specs[0], requested.ignored, to_page=routed.to_page)
        about = Completion(id_, unix_s(), requested.model)
        self._answer = ChatAnswer(request, about, self._usage, self._models, requested.stops)

    @property
    def spec(self) -> str:
        return self._usage.spec

    @property
    def sent_response(self) -> web.StreamResponse | None:
        return self._answer.sent_response

    async def answer(self) -> web.StreamResponse:
        options = self._requested.stream_options
        routed = self._routed
        async with self._response_cache.open(self._principal, routed.route, routed.request, self._usage) as events:
            if not self._requested.stream:
                return await self._answer.complete(events)
            return await self._answer.stream(events, with_usage=options is not None and options.include_usage)

    async def fail(self, error: bytes) -> web.StreamResponse:
        return await self._answer.fail(error)

    def result(self, *, failed: bool) -> AnswerResult:
        return self._usage.result(self._models, failed=failed)
