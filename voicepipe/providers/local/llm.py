"""The local LLM: the adapter of SmolLM2-135M-Instruct."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from voicepipe.errors import StageError
from voicepipe.ports.model import Finished, Message, Model, ModelEvent, ModelRequest, Said, Text, TextDelta, Usage
from voicepipe.ports.provider_events import ModelConnected
from voicepipe.providers.local import wire
from voicepipe.providers.local.connection import Exchange, Link, link, new_session
from voicepipe.registry import ProviderSettings, Spec

MODEL: Final = "smollm2-135m"

CONTEXT_TOKENS: Final = 2048
"""Context of the engine in tokens: prompt and answer together."""

BYTES_PER_TOKEN: Final = 3
"""Characters per token, a low estimate: English speech has 4 to 5 with this model's vocabulary. The engine cuts denser
text again."""

MESSAGE_TOKENS: Final = 8
"""Tokens that the chat template adds to each message."""

DEFAULT_OUTPUT_TOKENS: Final = 120
"""Maximum answer, half a minute of speech: a spoken answer is shorter, and this model often does not stop."""

DEFAULT_TEMPERATURE: Final = 0.3


def open_model(spec: Spec, settings: ProviderSettings) -> Model:
    """Make the adapter; `registry` names this function.

    Raises:
        ConfigError: another model, no socket, or missing packages.
    """
    return LocalModel(link("llm", spec, settings, model=MODEL))


class LocalModel:
    """SmolLM2 in the engine process. It cannot call functions: those of a request, and the calls and results in its
    messages, are left out. So are images."""

    def __init__(self, link: Link) -> None:
        self.name = link.provider
        self._link = link

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Ask the model. When the conversation does not fit the context, its oldest messages are left out.

        Raises:
            StageError: another model was requested; the engine refused, stalled or broke.
        """
        if request.model != MODEL:
            raise self._link.refused(f"expected the model {MODEL!r}, got {request.model!r}")
        if request.passed:
            raise self._link.refused(f"the API has no parameter {request.passed[0][0]!r}", status=400)
        exchange = Exchange(self._link)
        try:
            await exchange.send(self._job(request))
            yield self._events(exchange)
        finally:
            exchange.close()

    async def warm(self, request: ModelRequest) -> None:
        """Have the engine read the messages before they are needed: into the session's cache, or into all free ones
        without a session. Failures are not reported."""
        job = wire.Warm(request.session, fitting(_plain(request.messages), CONTEXT_TOKENS))
        exchange = Exchange(self._link)
        try:
            await exchange.send(job)
            while isinstance(await exchange.next(), wire.Reading):
                pass
        except StageError:
            pass  # the turn itself will report it
        finally:
            exchange.close()

    def _job(self, request: ModelRequest) -> wire.Generate:
        output_tokens = min(request.max_output_tokens or DEFAULT_OUTPUT_TOKENS, CONTEXT_TOKENS // 2)
        temperature = DEFAULT_TEMPERATURE if request.temperature is None else request.temperature
        messages = fitting(_plain(request.messages), CONTEXT_TOKENS - output_tokens)
        return wire.Generate(request.session or new_session(), messages, output_tokens, temperature)

    async def _events(self, exchange: Exchange) -> AsyncIterator[ModelEvent]:
        yield ModelConnected()
        while True:
            match await exchange.next():
                case wire.Reading():
                    pass
                case wire.Delta(text):
                    yield TextDelta(text)
                case wire.Answered(reason, input_tokens, output_tokens, cached_tokens):
                    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cached_tokens=cached_tokens)
                    if usage.is_possible:
                        yield usage
                    yield Finished(reason)
                    return
                case _:
                    raise self._link.broken("the engine ended without an answer")


def fitting(messages: tuple[tuple[str, str], ...], n_tokens: int) -> tuple[tuple[str, str], ...]:
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


def _plain(messages: tuple[Message, ...]) -> tuple[tuple[str, str], ...]:
    """Return (role, text) pairs of the messages. A user's text cannot contain the marks that separate roles."""
    said = ((m.role, "".join(p.text for p in m.parts if isinstance(p, Text))) for m in messages if isinstance(m, Said))
    return tuple((role, _speakable(text)) for role, text in said if text)


def _speakable(text: str) -> str:
    return text.replace("<|", "< |").encode("utf-8", "replace").decode()
