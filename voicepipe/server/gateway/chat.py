"""`POST /v1/chat/completions`: any model of this server behind OpenAI's published request.

The response headers are sent with the first text. So a refusal has its own status, and the headers can name the
provider and its latency. A client that disconnects cancels its request: the lost connection cancels the route, and
leaving the model's context closes the provider's side.
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
from voicepipe.server.gateway.chat_request import Question, of_chat, question_for
from voicepipe.server.gateway.chat_usage import ChatUsage
from voicepipe.server.gateway.exchange import Exchange, Settled
from voicepipe.server.realtime import check_ready
from voicepipe.server.request_bodies import read_body

MAX_BODY_BYTES: Final = 4 << 20
"""Maximum size of the body, which may hold images. JSON is read and written without a pause, in a thread too, and other
users wait: some 5 ms for this size."""


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Validate the request, then run it and send the answer."""
    context = request.app[CONTEXT]
    principal = await context.authenticator.admit(request)
    principal.check_scope(CHAT)
    check_ready(context)
    requested = await _read_request(request)
    question = await question_for(principal, of_chat(requested), context.authenticator.handshake(request), context)
    async with context.chat_slots.slot(principal) as slot:
        id_ = f"chatcmpl-{secrets.token_hex(16)}"
        work = _ChatWork(id_, request, requested, question, principal, context)
        return await Exchange("chat", id_, requested.model, slot, context).run(work)


async def _read_request(request: web.Request) -> ChatRequest:
    return read_chat_request(await read_body(request, MAX_BODY_BYTES))


class _ChatWork:
    """A chat completion: its request and its answer."""

    def __init__(
        self,
        id_: str,
        request: web.Request,
        requested: ChatRequest,
        question: Question,
        principal: Principal,
        context: ServerContext,
    ) -> None:
        self._requested, self._question, self._models = requested, question, context.chat_models
        self._principal, self._response_cache = principal, context.response_cache
        self._usage = ChatUsage(question.request, question.route.specs[0], requested.ignored, to_page=question.to_page)
        about = Completion(id_, unix_s(), requested.model)
        self._answer = ChatAnswer(request, about, self._usage, self._models, requested.stops)

    @property
    def spec(self) -> str:
        return self._usage.spec

    @property
    def line(self) -> web.StreamResponse | None:
        return self._answer.line

    async def answer(self) -> web.StreamResponse:
        options = self._requested.stream_options
        question = self._question
        async with self._response_cache.open(self._principal, question.route, question.request, self._usage) as events:
            if not self._requested.stream:
                return await self._answer.whole(events)
            return await self._answer.stream(events, with_usage=options is not None and options.include_usage)

    async def fail(self, error: bytes) -> web.StreamResponse:
        return await self._answer.fail(error)

    def settled(self, *, failed: bool) -> Settled:
        return self._usage.settled(self._models, failed=failed)
