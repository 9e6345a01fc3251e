"""The local LLMs: the adapter of SmolLM2-135M-Instruct and of an operator's GGUF file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from voicepipe.errors import StageError
from voicepipe.ports.model import (
    Content,
    Finished,
    Image,
    Message,
    Model,
    ModelEvent,
    ModelRequest,
    Text,
    TextDelta,
    Usage,
)
from voicepipe.ports.provider_events import ModelConnected
from voicepipe.providers.local import wire
from voicepipe.providers.local.connection import Exchange, Link, gguf_link, link, new_session, scored
from voicepipe.providers.local.gguf_header import profile_of
from voicepipe.providers.local.llm_models import SMOLLM2, LlmProfile, Messages
from voicepipe.providers.local.whole_sentences import WholeSentences
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.turn.endpointing.probability import SENTENCE_END

MODEL: Final = "smollm2-135m"

BYTES_PER_TOKEN: Final = 3
"""Characters per token, a low estimate: English speech has 4 to 5 with this model's vocabulary. The engine cuts denser
text again."""

MESSAGE_TOKENS: Final = 8
"""Tokens that the chat template adds to each message."""

DEFAULT_TEMPERATURE: Final = 0.0
"""A small model's likeliest answer is its best one."""


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """Make the adapter; `registry` names this function.

    Raises:
        ConfigError: another model, no socket, or missing packages.
    """
    return LocalModel(link("llm", spec, settings, model=MODEL), spec.model, SMOLLM2)


def open_gguf(spec: Spec, settings: ProviderSettings) -> Model:
    """Make the adapter of a GGUF file, the spec's model; `registry` names this function.

    Raises:
        ConfigError: no such file, another format, no socket, or missing packages.
    """
    return LocalModel(gguf_link(spec, settings), spec.model, profile_of(Path(spec.model)))


class LocalModel:
    """An LLM in the engine process. It cannot call functions: those that it may call, and the calls and results in its
    messages, are left out. A request that forces a call, or shows a picture, is refused: it would invent the result."""

    score_name = SENTENCE_END

    def __init__(self, link: Link, model: str, profile: LlmProfile) -> None:
        self.name = link.provider
        self._link, self._model, self._profile = link, model, profile

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Send the request. When the conversation does not fit the context, its oldest messages are left out.

        Raises:
            StageError: another model was requested, a forced call or a picture; the engine refused, stalled or broke.
        """
        self._check(request)
        exchange = Exchange(self._link)
        try:
            await exchange.send(self._job(request))
            yield self._events(exchange, has_limit=request.max_output_tokens is not None)
        finally:
            exchange.close()

    async def warm(self, request: ModelRequest) -> None:
        """Have the engine read the messages before they are needed: into the session's cache, or into all free ones
        without a session. Failures are not reported."""
        job = wire.Warm(request.session, self._messages(request, output_tokens=0))
        exchange = Exchange(self._link)
        try:
            await exchange.send(job)
            while isinstance(await exchange.next(), wire.Reading):
                pass
        except StageError:
            pass  # the turn itself will report it
        finally:
            exchange.close()

    async def score(self, session: str, text: str) -> float:
        """Return how likely a user's sentence ends after `text`, 0 to 1; the port `EndpointScorer`.

        Raises:
            StageError: this model has no scores; the engine refused, stalled or broke.
        """
        return await scored(self._link, wire.Score(session, text))

    def _check(self, request: ModelRequest) -> None:
        if request.model != self._model:
            raise self._link.refused(f"expected the model {self._model!r}, got {request.model!r}")
        if request.passed:
            raise self._link.refused(f"the API has no parameter {request.passed[0][0]!r}", status=400)
        if request.functions and request.tool_choice not in ("auto", "none"):
            why = f"expected tool_choice auto or none, got {request.tool_choice!r}: a local LLM cannot call functions"
            raise self._link.refused(why, status=400)
        if any(
            isinstance(part, Image)
            for message in request.messages
            if isinstance(message, Content)
            for part in message.parts
        ):
            raise self._link.refused("expected text alone, got a picture: a local LLM sees none", status=400)

    def _job(self, request: ModelRequest) -> wire.Generate:
        most = request.max_output_tokens or self._profile.output_tokens
        output_tokens = min(most, self._profile.context_tokens // 2)
        temperature = DEFAULT_TEMPERATURE if request.temperature is None else request.temperature
        messages = self._messages(request, output_tokens)
        return wire.Generate(request.session or new_session(), messages, output_tokens, temperature)

    def _messages(self, request: ModelRequest, output_tokens: int) -> Messages:
        """Return the conversation behind the examples, as long as the context allows."""
        examples = self._profile.examples
        n_tokens = self._profile.context_tokens - output_tokens - sum(map(_tokens, examples))
        messages = fitting(_plain(request.messages), n_tokens)
        n_first = next((i for i, (role, _) in enumerate(messages) if role != "system"), len(messages))
        return (*messages[:n_first], *examples, *messages[n_first:])

    async def _events(self, exchange: Exchange, *, has_limit: bool) -> AsyncIterator[ModelEvent]:
        """Yield the answer. Our own limit ends it at a sentence; one of the request, wherever it is reached."""
        yield ModelConnected()
        sentences = WholeSentences()
        while True:
            match await exchange.next():
                case wire.Reading():
                    pass
                case wire.Delta(text):
                    if text := text if has_limit else sentences.push(text):
                        yield TextDelta(text)
                case wire.Answered(reason, input_tokens, output_tokens, cached_tokens):
                    if reason == "length" and sentences.has_ended_one:
                        reason = "stop"
                    elif text := sentences.rest():
                        yield TextDelta(text)
                    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens)
                    if usage.is_possible:
                        yield usage
                    yield Finished(reason)
                    return
                case _:
                    raise self._link.broken("the engine ended without an answer")


def fitting(messages: Messages, n_tokens: int) -> Messages:
    """Remove the oldest messages, except instructions and the last, until the rest should fit."""
    remaining = list(messages)
    spare = n_tokens - sum(map(_tokens, remaining))
    for message in messages[:-1]:
        if spare >= 0:
            break
        if message[0] != "system":
            remaining.remove(message)
            spare += _tokens(message)
    return tuple(remaining)


def _tokens(message: tuple[str, str]) -> int:
    return MESSAGE_TOKENS + len(message[1].encode("utf-8", "replace")) // BYTES_PER_TOKEN


def _plain(messages: tuple[Message, ...]) -> Messages:
    """Return (role, text) pairs of the messages. A user's text cannot contain the marks that separate roles."""
    message = (
        (m.role, "".join(p.text for p in m.parts if isinstance(p, Text))) for m in messages if isinstance(m, Content)
    )
    return tuple((role, _speakable(text)) for role, text in message if text)


def _speakable(text: str) -> str:
    return text.replace("<|", "< |").encode("utf-8", "replace").decode()
