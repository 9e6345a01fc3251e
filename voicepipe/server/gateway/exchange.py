"""Run one REST request: apply its time and spending limits, end it on revocation, and charge its cost."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Literal, Protocol, runtime_checkable

from aiohttp import web
from msgspec import Struct

from voicepipe.clock import loop_s, monotonic_ms
from voicepipe.errors import AuthError, StageError, StageTimeout
from voicepipe.server.context import ServerContext
from voicepipe.server.errors import redacted_error, refused
from voicepipe.server.gateway.request_slots import RequestSlot
from voicepipe.server.usage_limits import UsageLimits, micro_usd
from voicepipe.session.shutdown import Ending
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.tracing.port import Answered

Kind = Literal["chat", "speech", "transcription", "translation", "embedding"]
"""The kind of a request, as the log names it."""

STAGES: Final[dict[Kind, str]] = {
    "chat": "llm",
    "speech": "tts",
    "transcription": "stt",
    "translation": "stt",
    "embedding": "embedding",
}
"""The stage that a timeout of the request names."""


class RunningAnswer:
    """A running answer, which ends at its time limit, or when its client secret is revoked."""

    def __init__(self, stage: str, max_s: int) -> None:
        self._stage, self._max_s = stage, max_s
        self.timeout = asyncio.timeout(max_s)
        """The timeout of the answer: it ends with a TimeoutError."""

        self._ending: Ending | None = None

    def end_now(self, ending: Ending) -> None:
        """End the answer at once."""
        if self._ending is None:
            self._ending = ending
            if not self.timeout.expired():  # the answer is ending at this instant
                self.timeout.reschedule(loop_s())

    def end_after_turn(self, ending: Ending) -> None:
        """Do nothing: the answer is the turn, and the last one."""

    def error(self, spec: str) -> Exception:
        """Return the error that the TimeoutError stands for."""
        if self._ending is not None:
            return AuthError(self._ending.why, code=self._ending.code)
        return StageTimeout(self._stage, provider=spec, why=f"no end within {self._max_s} s", retryable=False)


class AnswerResult(Struct, frozen=True):
    """The result of an answer, for the log and the limits."""

    cost_usd: float | None
    """The cost in USD; None: unknown."""

    figures: dict[str, Any]
    """Further fields of the log event."""

    is_unanswered: bool = False
    """The provider failed before its first output: do not count a turn."""


class Responder(Protocol):
    """Answers one kind of request."""

    @property
    def spec(self) -> str:
        """The spec of the provider that answers."""
        ...

    async def answer(self) -> web.StreamResponse:
        """Call the provider, and send the answer."""
        ...

    def result(self, *, failed: bool) -> AnswerResult:
        """Return the result; `failed`: the answer failed."""
        ...


@runtime_checkable
class StreamingResponder(Responder, Protocol):
    """A responder whose answer may be streamed."""

    @property
    def sent_response(self) -> web.StreamResponse | None:
        """The streamed response, once its headers were sent."""
        ...

    async def fail(self, error: bytes) -> web.StreamResponse:
        """End a streamed response with an error. `error` is the published JSON."""
        ...


class Exchange:
    """One request of a principal, and its answer."""

    def __init__(self, kind: Kind, id_: str, model: str, slot: RequestSlot, context: ServerContext) -> None:
        """`model`: the requested name. `id_`: the ID of the answer in the log."""
        self._kind, self._id, self._model = kind, id_, model
        self._slot, self._principal, self._context = slot, slot.principal, context
        claims = self._principal.claims
        self._usage_limits = UsageLimits(self._principal, context.quotas, context.cluster)
        max_s = context.options.max_session_s
        self._answer = RunningAnswer(STAGES[kind], min(max_s, (claims and claims.limits.session_seconds) or max_s))
        self._began_ms = monotonic_ms()

    async def run(self, responder: Responder) -> web.StreamResponse:
        """Run the request, and charge its cost, whether it succeeds or fails."""
        await self._usage_limits.take_turn()
        tracing, labels = self._context.tracing, {"project": self._principal.project, "model": self._model}
        with tracing.answer(self._kind, self._id, **labels) as answered:
            return await self._run(responder, answered)

    async def _run(self, responder: Responder, answered: Answered) -> web.StreamResponse:
        outcome = "abandoned"  # unless it is set below: the request was cancelled
        try:
            answer = await self._within_limits(responder)
            outcome = "completed"
            return answer
        except ConnectionError:
            response = responder.sent_response if isinstance(responder, StreamingResponder) else None
            if response is None:
                raise
            return response  # the client has disconnected: no error is sent
        except Exception as error:
            outcome = "failed"
            client_error = self._error_for_client(error)
            if isinstance(responder, StreamingResponder) and responder.sent_response is not None:
                return await responder.fail(_json(client_error))
            raise client_error from None
        finally:
            answered.outcome, answered.provider = outcome, responder.spec
            await self._charge(outcome, responder)

    async def _within_limits(self, responder: Responder) -> web.StreamResponse:
        claims = self._principal.claims
        try:
            async with self._answer.timeout:
                with self._slot.revocable(self._answer):
                    if claims is not None:
                        # Check again: a later revocation ends this request.
                        await self._context.authenticator.check_not_revoked(claims)
                    return await responder.answer()
        except TimeoutError:
            raise self._answer.error(responder.spec) from None

    async def _charge(self, outcome: str, responder: Responder) -> None:
        result = responder.result(failed=outcome == "failed")
        lasted_ms = monotonic_ms() - self._began_ms
        self._context.metrics.count_answer(self._kind, outcome, lasted_ms)
        log_event(
            f"{self._kind}_closed",
            id=self._id,
            project=self._principal.project,
            model=self._model,
            route=responder.spec,
            outcome=outcome,
            lasted_ms=lasted_ms,
            **result.figures,
        )
        if result.is_unanswered:
            await self._usage_limits.add_or_log("turns", -1)  # no provider answered
        if result.cost_usd:
            await self._usage_limits.add_or_log("spend", micro_usd(result.cost_usd))

    def _error_for_client(self, error: Exception) -> Exception:
        """Return the error as the client may read it; log its full text."""
        if not isinstance(error, StageError):
            return error
        log_event(
            f"{self._kind}_failed",
            level=logging.WARNING,
            id=self._id,
            project=self._principal.project,
            provider=error.provider,
            kind=type(error).__name__,
            why=error.why,
        )
        return error if self._principal.claims is None else redacted_error(error)


def _json(error: Exception) -> bytes:
    body = refused(error).body
    assert isinstance(body, bytes)
    return body
