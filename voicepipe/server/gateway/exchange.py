"""Run one REST request: apply limits of time and money, end it on revocation, and charge its cost."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, runtime_checkable

from aiohttp import web

from voicepipe.clock import loop_s, monotonic_ms
from voicepipe.errors import AuthError, StageError, StageTimeout
from voicepipe.server.context import ServerContext
from voicepipe.server.errors import refused, veiled
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
"""The stage that is late when a request has no end."""


class RestCall:
    """An answer, as far as it can be ended from outside: at its time limit, or when its client secret is revoked."""

    def __init__(self, stage: str, length_s: int) -> None:
        self._stage, self._length_s = stage, length_s
        self.limit = asyncio.timeout(length_s)
        """The timeout that the work runs in; ends the work with a TimeoutError."""

        self._ending: Ending | None = None

    def end_now(self, ending: Ending) -> None:
        """Cut the answer."""
        if self._ending is None:
            self._ending = ending
            if not self.limit.expired():  # the answer is ending at this instant
                self.limit.reschedule(loop_s())

    def end_after_turn(self, ending: Ending) -> None:
        """Do nothing: the answer is the turn, and nothing comes after it."""

    def why(self, spec: str) -> Exception:
        """The reason for the TimeoutError."""
        if self._ending is not None:
            return AuthError(self._ending.why, code=self._ending.code)
        return StageTimeout(self._stage, provider=spec, why=f"no end within {self._length_s} s", retryable=False)


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of an answer."""

    cost_usd: float | None
    """The cost in USD; None: unknown."""

    figures: dict[str, Any]
    """Further fields of the log event."""

    in_vain: bool = False
    """The provider failed: do not count a turn."""


class Work(Protocol):
    """The parts that answer one kind of request."""

    @property
    def spec(self) -> str:
        """The specs that may answer."""
        ...

    async def answer(self) -> web.StreamResponse:
        """Call the provider, and send the answer."""
        ...

    def settled(self, *, failed: bool) -> Settled:
        """Return the outcome, whether the answer succeeded or failed."""
        ...


@runtime_checkable
class StreamedWork(Work, Protocol):
    """Work whose answer may be streamed."""

    @property
    def line(self) -> web.StreamResponse | None:
        """A streamed answer whose headers were sent."""
        ...

    async def fail(self, error: bytes) -> web.StreamResponse:
        """End a streamed answer in the middle. `error` is the published JSON."""
        ...


class Exchange:
    """A principal's request."""

    def __init__(self, kind: Kind, id_: str, model: str, slot: RequestSlot, context: ServerContext) -> None:
        """`model` is the requested name; `id_` identifies the answer in the log."""
        self._kind, self._id, self._model = kind, id_, model
        self._slot, self._principal, self._context = slot, slot.principal, context
        claims = self._principal.claims
        self._usage_limits = UsageLimits(self._principal, context.quotas, context.cluster)
        length_s = context.options.max_session_s
        self._call = RestCall(STAGES[kind], min(length_s, (claims and claims.limits.session_seconds) or length_s))
        self._began_ms = monotonic_ms()

    async def run(self, work: Work) -> web.StreamResponse:
        """Run the request, and charge its cost, whether it succeeds or fails."""
        await self._usage_limits.take_turn()
        tracing, labels = self._context.tracing, {"project": self._principal.project, "model": self._model}
        with tracing.answer(self._kind, self._id, **labels) as answered:
            return await self._run(work, answered)

    async def _run(self, work: Work, answered: Answered) -> web.StreamResponse:
        outcome = "abandoned"  # the outcome of an exchange that was cancelled
        try:
            answer = await self._within_limits(work)
            outcome = "completed"
            return answer
        except ConnectionError:
            line = work.line if isinstance(work, StreamedWork) else None
            if line is None:
                raise
            return line  # the client has disconnected: no error is sent
        except Exception as error:
            outcome = "failed"
            client_error = self._error_for_client(error)
            if isinstance(work, StreamedWork) and work.line is not None:
                return await work.fail(_json(client_error))
            raise client_error from None
        finally:
            answered.outcome, answered.provider = outcome, work.spec
            await self._settle(outcome, work)

    async def _within_limits(self, work: Work) -> web.StreamResponse:
        claims = self._principal.claims
        try:
            async with self._call.limit:
                with self._slot.revocable(self._call):
                    if claims is not None:
                        # Check again: any later revocation finds this request.
                        await self._context.authenticator.check_not_revoked(claims)
                    return await work.answer()
        except TimeoutError:
            raise self._call.why(work.spec) from None

    async def _settle(self, outcome: str, work: Work) -> None:
        settled = work.settled(failed=outcome == "failed")
        lasted_ms = monotonic_ms() - self._began_ms
        self._context.metrics.count_answer(self._kind, outcome, lasted_ms)
        log_event(
            f"{self._kind}_closed",
            id=self._id,
            project=self._principal.project,
            model=self._model,
            route=work.spec,
            outcome=outcome,
            lasted_ms=lasted_ms,
            **settled.figures,
        )
        if settled.in_vain:
            await self._usage_limits.settle("turns", -1)  # no provider answered
        if settled.cost_usd:
            await self._usage_limits.settle("spend", micro_usd(settled.cost_usd))

    def _error_for_client(self, error: Exception) -> Exception:
        """Return the error as the client may read it; the log has its full text."""
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
        return error if self._principal.claims is None else veiled(error)


def _json(error: Exception) -> bytes:
    body = refused(error).body
    assert isinstance(body, bytes)
    return body
