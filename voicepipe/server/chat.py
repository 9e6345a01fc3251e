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
from voicepipe.server.bodies import read_body
from voicepipe.server.chat_answer import ChatAnswer
from voicepipe.server.chat_question import Question, question_for
from voicepipe.server.chat_tally import ChatTally
from voicepipe.server.parts import PARTS, Parts
from voicepipe.server.realtime import check_ready
from voicepipe.server.rest_exchange import Exchange, Settled

MAX_BODY_BYTES: Final = 4 << 20
"""Maximum size of the body, which may hold images. JSON is read and written without a pause, in a thread too, and other
users wait: some 5 ms for this size."""


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Validate the request, then run it and send the answer."""
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(CHAT)
    check_ready(parts)
    asked = await _asked(request)
    question = await question_for(visitor, asked, parts.doorway.shown(request), parts)
    with parts.chat_places.place(visitor):
        id_ = f"chatcmpl-{secrets.token_hex(16)}"
        work = _ChatWork(id_, request, asked, question, parts)
        return await Exchange("llm", id_, asked.model, visitor, parts).run(work)


async def _asked(request: web.Request) -> ChatRequest:
    return read_chat_request(await read_body(request, MAX_BODY_BYTES))


class _ChatWork:
    """One question and its answer."""

    def __init__(self, id_: str, request: web.Request, asked: ChatRequest, question: Question, parts: Parts) -> None:
        self._asked, self._question, self._models = asked, question, parts.chat_models
        self._tally = ChatTally(
            question.request, question.route.specs[0], asked.ignored, to_stranger=question.to_stranger
        )
        about = Completion(id_, unix_s(), asked.model)
        self._answer = ChatAnswer(request, about, self._tally, self._models, asked.stops)

    @property
    def spec(self) -> str:
        return self._tally.spec

    @property
    def line(self) -> web.StreamResponse | None:
        return self._answer.line

    async def answer(self) -> web.StreamResponse:
        options = self._asked.stream_options
        async with self._question.route.model.open(self._question.request) as events:
            if not self._asked.stream:
                return await self._answer.whole(events)
            return await self._answer.stream(events, with_usage=options is not None and options.include_usage)

    async def fail(self, error: bytes) -> web.StreamResponse:
        return await self._answer.fail(error)

    def settled(self, *, failed: bool) -> Settled:
        tally = self._tally
        in_vain = failed and tally.ttft_ms is None
        cost_usd = tally.lost_usd if in_vain else tally.cost_usd(self._models)
        figures = {"ttft_ms": tally.ttft_ms} | ({} if in_vain else {"cost_usd": cost_usd, **_tokens(tally)})
        return Settled(cost_usd, figures, in_vain)


def _tokens(tally: ChatTally) -> dict[str, int | bool]:
    used = tally.used()
    return {
        "input_tokens": used.input,
        "output_tokens": used.output,
        "cached_tokens": used.cached,
        "estimated": tally.estimated,
    }
