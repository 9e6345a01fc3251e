"""Build one session's LLM requests, and keep the LLM connection warm."""

from __future__ import annotations

import asyncio
from typing import Final

from voicepipe.clock import SessionClock
from voicepipe.errors import Overload, StageError
from voicepipe.pii.redact import Redactor
from voicepipe.ports.model import Model, ModelRequest
from voicepipe.session.grant import SessionGrant
from voicepipe.session.messages import redacted_request, request_of
from voicepipe.telemetry.log import log_crash
from voicepipe.turn.commands import StartReply
from voicepipe.turn.core import Core
from voicepipe.turn.model_input import read_by_model
from voicepipe.values import replace

COLD_MS: Final = 20_000
"""Milliseconds since the last LLM request. Most providers keep connections longer, but not all providers and proxies
do. A user who begins to speak leaves a second or more to open a new connection."""


class PromptBuilder:
    """The LLM of one session."""

    def __init__(
        self, model: Model, name: str, grant: SessionGrant, core: Core, clock: SessionClock, redact: Redactor
    ) -> None:
        """`redact` is applied to all that the LLM reads of the conversation."""
        self._redact = redact
        self._model, self._name, self._grant = model, name, grant
        self._core, self._clock = core, clock
        self._requested_ms = clock.now_ms()
        self._sent: tuple[object, ...] | None = None
        """What the latest `keep_warm` sent that does not change from turn to turn."""

        self._sending: asyncio.Task[None] | None = None

    def use(self, model: Model, name: str, redact: Redactor) -> None:
        """Send requests to another LLM from now on, as in `__init__`."""
        self._model, self._name, self._redact = model, name, redact

    def question(self, command: StartReply) -> ModelRequest:
        """Return the request for this reply."""
        self._requested_ms = self._clock.now_ms()
        settings = self._core.context.settings
        spoken = command.reply.language or settings.language
        language = (("language", spoken),) if spoken else ()
        return replace(
            request_of(command, model=self._name, session=self._grant.session_id),
            user=self._grant.identity or "",
            metadata=(
                *command.reply.metadata,
                *language,
                *settings.metadata,
            ),  # later ones win: a token may lock its own
            deadline_ms=command.first_output_ms,
            is_spoken=command.reply.audible,
        )

    async def redacted(self, command: StartReply, request: ModelRequest) -> ModelRequest:
        """Return the request for this reply without personal data in its conversation; instructions stay as they are.

        A thread searches the texts: those of a long conversation would block the event loop for up to a second.
        """
        if not self._redact.kinds:
            return request
        first = 1 if command.reply.instructions else 0
        return await asyncio.to_thread(redacted_request, request, self._redact, first=first)

    def keep_warm(self, group: asyncio.TaskGroup | None) -> None:
        """Open the LLM's connection, and send the prompt to its cache, in a task of this group; None does nothing.

        Nothing is sent again while instructions and functions stay the same and the LLM had a request within `COLD_MS`.
        When they change while they are being sent, only the new ones are.
        """
        context = self._core.context
        reply = context.settings.reply
        stable = (self._model, self._name, reply.instructions, reply.tools, reply.server_tools)
        if group is None or (stable == self._sent and self._clock.now_ms() - self._requested_ms < COLD_MS):
            return
        if self._sending is not None:
            self._sending.cancel()
        command = StartReply(0, 0, "", reply, read_by_model(context, reply))
        self._sent = stable
        self._sending = group.create_task(self._warm(command), name="warm")

    async def _warm(self, command: StartReply) -> None:
        try:
            await self._model.warm(await self.redacted(command, self.question(command)))
        except (StageError, Overload):
            pass  # the turn itself will report the failure
        except Exception as bug:
            log_crash(f"llm by {self._model.name}", bug)

    def queued_ms(self, turn: int, revision: int) -> int:
        """Return how much audio of a reply is still to be played, in ms."""
        running = self._core.context.replies.find(turn, revision)
        return 0 if running is None else running.audio.queued_ms(self._clock.now_ms())
