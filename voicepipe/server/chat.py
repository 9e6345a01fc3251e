"""`POST /v1/chat/completions`: any model of this server behind OpenAI's published request.

The answer's headers leave with its first word, so that a refusal has its own status and the headers can tell who spoke
and how soon. A client that goes takes its question with it: the connection's loss cancels the route, and leaving the
model's context closes the provider's side.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any, Final

from aiohttp import web

from voicepipe.auth.scopes import CHAT
from voicepipe.clock import loop_s, monotonic_ms, unix_s
from voicepipe.errors import AuthError, StageError, StageTimeout
from voicepipe.protocol.chat_request import ChatRequest, read_chat_request
from voicepipe.protocol.chat_response import Completion
from voicepipe.server.chat_allowance import Allowance
from voicepipe.server.chat_answer import ChatAnswer
from voicepipe.server.chat_question import Question, question_for
from voicepipe.server.chat_tally import ChatTally
from voicepipe.server.doorway import Visitor
from voicepipe.server.parts import PARTS, Parts
from voicepipe.server.realtime import check_ready
from voicepipe.server.refusals import refused, veiled
from voicepipe.session.ending import Ending
from voicepipe.telemetry.log import log_event

MAX_BODY_BYTES: Final = 4 << 20
"""Pictures come inside it. JSON is read and written without a pause, in a thread too, and other callers wait: some 5 ms
for this much."""


class ChatCall:
    """A completion, as far as it can be ended from outside: when its time is over, or its client secret is revoked."""

    def __init__(self, length_s: int) -> None:
        self._length_s = length_s
        self.limit = asyncio.timeout(length_s)
        """What the work runs in; ends it with a TimeoutError."""

        self._ending: Ending | None = None

    def end_now(self, ending: Ending) -> None:
        """Cut the answer."""
        if self._ending is None:
            self._ending = ending
            self.limit.reschedule(loop_s())

    def end_after_turn(self, ending: Ending) -> None:
        """The answer is the turn: nothing comes after it."""

    def why(self, spec: str) -> Exception:
        """What the TimeoutError means."""
        if self._ending is not None:
            return AuthError(self._ending.why, code=self._ending.code)
        return StageTimeout("llm", provider=spec, why=f"no end within {self._length_s} s", retryable=False)


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Check everything, then ask and pass on."""
    parts = request.app[PARTS]
    visitor = await parts.doorway.admit(request)
    visitor.check_scope(CHAT)
    check_ready(parts)
    asked = await _asked(request)
    question = await question_for(visitor, asked, parts.doorway.shown(request), parts)
    with parts.chat_places.place(visitor):
        return await _Exchange(request, visitor, asked, question, parts).run()


async def _asked(request: web.Request) -> ChatRequest:
    return read_chat_request(await request.clone(client_max_size=MAX_BODY_BYTES).read())


class _Exchange:
    """One question and its answer."""

    def __init__(
        self, request: web.Request, visitor: Visitor, asked: ChatRequest, question: Question, parts: Parts
    ) -> None:
        self._request, self._visitor, self._asked, self._parts = request, visitor, asked, parts
        self._question = question
        claims = visitor.claims
        self._allowance = Allowance(claims, parts.cluster)
        length_s = parts.options.max_session_s
        self._call = ChatCall(min(length_s, (claims and claims.limits.session_seconds) or length_s))
        self._tally = ChatTally(
            question.request, question.route.specs[0], asked.ignored, to_stranger=claims is not None
        )
        self._id = f"chatcmpl-{secrets.token_hex(16)}"
        about = Completion(self._id, unix_s(), asked.model)
        self._answer = ChatAnswer(about, self._tally, parts.chat_models, asked.stops)
        self._began_ms = monotonic_ms()

    async def run(self) -> web.StreamResponse:
        """Ask, pass on, and settle what it cost, whatever became of it."""
        await self._allowance.take_turn()
        outcome = "abandoned"  # what is said of an exchange that was cancelled
        try:
            answer = await self._pass_on()
            outcome = "completed"
            return answer
        except ConnectionError:
            if self._answer.line is None:
                raise
            return self._answer.line  # nobody is there to be told anything
        except Exception as error:
            outcome = "failed"
            told = self._told(error)
            if self._answer.line is None:
                raise told from None
            return await self._answer.fail(self._request, _json(told))
        finally:
            await self._settle(outcome)

    async def _pass_on(self) -> web.StreamResponse:
        claims, options = self._visitor.claims, self._asked.stream_options
        route = self._question.route
        try:
            async with self._call.limit:
                with self._parts.calls.running(self._call, claims):
                    if claims is not None:
                        # Once more: whatever is revoked after this finds the call.
                        await self._parts.doorway.check_not_revoked(claims)
                    async with route.model.open(self._question.request) as events:
                        if not self._asked.stream:
                            return await self._answer.whole(events)
                        with_usage = options is not None and options.include_usage
                        return await self._answer.stream(events, self._request, with_usage=with_usage)
        except TimeoutError:
            raise self._call.why(self._tally.spec) from None

    async def _settle(self, outcome: str) -> None:
        tally, models = self._tally, self._parts.chat_models
        nothing = outcome == "failed" and tally.ttft_ms is None
        cost_usd = tally.lost_usd if nothing else tally.cost_usd(models)
        self._log(outcome, {} if nothing else {"cost_usd": cost_usd, **_tokens(tally)})
        if nothing:
            await self._allowance.give_back_turn()
        if cost_usd:
            await self._allowance.spend(cost_usd)

    def _log(self, outcome: str, more: dict[str, Any]) -> None:
        log_event(
            "chat_closed",
            id=self._id,
            project=self._visitor.project,
            model=self._asked.model,
            route=self._tally.spec,
            outcome=outcome,
            ttft_ms=self._tally.ttft_ms,
            lasted_ms=monotonic_ms() - self._began_ms,
            **more,
        )

    def _told(self, error: Exception) -> Exception:
        """The error as whoever asked may see it; the log has it whole."""
        if not isinstance(error, StageError):
            return error
        log_event(
            "chat_failed",
            level=logging.WARNING,
            id=self._id,
            project=self._visitor.project,
            provider=error.provider,
            kind=type(error).__name__,
            why=error.why,
        )
        return error if self._visitor.claims is None else veiled(error)


def _tokens(tally: ChatTally) -> dict[str, int | bool]:
    used = tally.used()
    return {
        "input_tokens": used.input,
        "output_tokens": used.output,
        "cached_tokens": used.cached,
        "estimated": tally.estimated,
    }


def _json(error: Exception) -> bytes:
    body = refused(error).body
    assert isinstance(body, bytes)
    return body
