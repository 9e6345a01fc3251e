"""Convert a model's events to the response of one request: streamed, or in one piece."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from voicepipe.clock import monotonic_ms
from voicepipe.errors import StageBroken
from voicepipe.ports.model import CallDelta, Finished, ModelEvent, TextDelta
from voicepipe.protocol.chat_response import DONE, ChunkWriter, Completion, MadeCall, failed, whole_answer
from voicepipe.protocol.chat_stop import StopCutter
from voicepipe.server.chat_ports import ChatModels
from voicepipe.server.gateway.chat_usage import ChatUsage
from voicepipe.server.streaming import EVENTS, StreamedResponse

MAX_CHARS: Final = 4 << 20
"""Maximum size of an answer, which is collected in memory: some million tokens."""

ModelEvents = AsyncIterator[ModelEvent]


class ChatAnswer:
    """Sends an answer. Nothing is sent before the model's first event, so that a failure has its own status."""

    def __init__(
        self, request: web.Request, about: Completion, usage: ChatUsage, models: ChatModels, stops: tuple[str, ...]
    ) -> None:
        """`stops`: the answer ends before the first of these sequences."""
        self._cutter = StopCutter(stops)
        self._about, self._usage, self._models = about, usage, models
        self._began_ms = monotonic_ms()
        self._out = StreamedResponse(request, EVENTS, self._headers)

    @property
    def sent_response(self) -> web.StreamResponse | None:
        """The streamed response, once its headers were sent."""
        return self._out.sent_response

    async def complete(self, events: ModelEvents) -> web.Response:
        """Collect the answer, and return the response.

        Raises:
            StageError: the model failed, or the answer did not end.
        """
        texts, calls, n_chars = list[str](), dict[int, list[str]](), 0
        async for event in self._recorded(events):
            match event:
                case TextDelta(text):
                    texts.append(text)
                    n_chars += len(text)
                case CallDelta(index, call_id, name, arguments):
                    calls.setdefault(index, [call_id, name]).append(arguments)
                    n_chars += len(arguments)
            if n_chars > MAX_CHARS:
                why = f"expected an answer of at most {MAX_CHARS} characters, got more"
                raise StageBroken("llm", provider=self._usage.spec, why=why, retryable=False)
        made = [MadeCall(id_, name, "".join(arguments)) for id_, name, *arguments in calls.values()]
        body = whole_answer(
            self._about,
            text="".join(texts),
            calls=made,
            reason=self._reason(),
            used=self._usage.tokens(),
            extension=self._usage.voicepipe_field(self._models),
        )
        return web.Response(body=body, content_type="application/json", headers=self._headers())

    async def stream(self, events: ModelEvents, *, with_usage: bool) -> web.StreamResponse:
        """Send each piece as it arrives.

        Raises:
            StageError: the model failed; pieces sent until then cannot be taken back.
            ConnectionError: the client has disconnected, or reads nothing.
        """
        chunks = ChunkWriter(self._about, with_usage=with_usage)
        async for event in self._recorded(events):
            match event:
                case TextDelta(text):
                    await self._out.send(chunks.text(text))
                case CallDelta(index, call_id, name, arguments):
                    await self._out.send(chunks.call(index, call_id, name, arguments))
                case Finished(reason):
                    await self._out.send(chunks.finish(reason, self._usage.voicepipe_field()))
        last = chunks.usage(self._usage.tokens(), self._usage.voicepipe_field(self._models)) if with_usage else b""
        return await self._out.end(last + DONE)

    async def fail(self, error: bytes) -> web.StreamResponse:
        """End a streamed answer with an error, in the published JSON; without `[DONE]`, which means success."""
        return await self._out.end(failed(error))

    async def _recorded(self, events: ModelEvents) -> ModelEvents:
        """Record and yield the events up to a stop sequence. The calling code closes the stream."""
        async for event in events:
            self._usage.record(event, monotonic_ms() - self._began_ms)
            match event:
                case TextDelta(text):
                    if piece := self._cutter.push(text):
                        yield TextDelta(piece)
                    if self._cutter.found:
                        yield self._stopped()
                        return
                case Finished():
                    if rest := self._cutter.finish():
                        yield TextDelta(rest)
                    yield event
                case _:
                    yield event

    def _stopped(self) -> Finished:
        finished = Finished("stop")
        self._usage.record(finished, monotonic_ms() - self._began_ms)
        return finished

    def _headers(self) -> dict[str, str]:
        return {"X-Request-Id": self._about.id} | self._usage.headers()

    def _reason(self) -> str:
        assert self._usage.finished is not None  # an iterator ends after it, or raises
        return self._usage.finished.reason
