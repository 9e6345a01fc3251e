"""Convert a chat completions request to a question to a model, as far as the client's credential allows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voicepipe.auth.claims import Claims
from voicepipe.auth.handshake import Handshake
from voicepipe.protocol.chat_messages import (
    AssistantMessage,
    ChatMessage,
    DeveloperMessage,
    ImagePart,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from voicepipe.protocol.chat_request import ChatRequest
from voicepipe.server.chat_held import check_may_ask, held
from voicepipe.server.chat_route import ChatRoute
from voicepipe.server.doorway import Visitor
from voicepipe.server.parts import Parts
from voicepipe.server.refusals import Missing
from voicepipe.stages.model import Called, Function, Image, Message, ModelRequest, Returned, Said, Text


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its route."""

    route: ChatRoute
    request: ModelRequest
    to_stranger: bool
    """The answer goes to a page."""


async def question_for(visitor: Visitor, asked: ChatRequest, shown: Handshake, parts: Parts) -> Question:
    """Find the model, apply the client secret's locks and limits, and build the question.

    Raises:
        AuthError: 403, when the client secret does not allow this page, model or agent.
        Missing: 404, for a model that does not exist.
        ProtocolError: a field is locked.
    """
    claims = visitor.claims
    route = _route(asked.model, "model", claims, shown, parts)
    others = [_route(name, f"models[{n}]", claims, shown, parts) for n, name in enumerate(asked.models or ())]
    request = ModelRequest(
        model=route.model_name,
        messages=tuple(messages(asked.messages)),
        functions=tuple(functions(asked)),
        tool_choice=asked.function_choice,
        max_output_tokens=asked.output_limit,
        temperature=asked.temperature,
        passed=asked.passed,
        session=_session(visitor.project, asked),
        user=asked.user or asked.safety_identifier or "",
        models=tuple(dict.fromkeys(spec for other in others for spec in other.specs)),
        metadata=tuple((asked.metadata or {}).items()),
        deadline_ms=asked.voicepipe.deadline_ms if asked.voicepipe is not None else None,
    )
    if claims is None:
        return Question(route, request, to_stranger=False)
    return Question(route, await held(request, asked, claims, route, parts), to_stranger=True)


def messages(written: Iterable[ChatMessage]) -> Iterator[Message]:
    """Return the conversation in the form of the model's port."""
    for message in written:
        match message:
            case SystemMessage(content) | DeveloperMessage(content):
                yield Said("system", _texts(content))
            case UserMessage(content):
                parts = (TextPart(content),) if isinstance(content, str) else content
                yield Said("user", tuple(_image(p) if isinstance(p, ImagePart) else Text(p.text) for p in parts))
            case AssistantMessage(content, calls):
                if content:
                    yield Said("assistant", _texts(content))
                for call in calls or ():
                    yield Called(call.id, call.function.name, call.function.arguments)
            case ToolMessage(content, call_id):
                yield Returned(call_id, "".join(text.text for text in _texts(content)))


def functions(asked: ChatRequest) -> Iterator[Function]:
    """Return the tools that the model may call."""
    for tool in asked.tools or ():
        its = tool.function
        yield Function(its.name, its.description or "", bytes(its.parameters).decode())


def _texts(content: str | Iterable[TextPart | RefusalPart]) -> tuple[Text, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(Text(part.refusal if isinstance(part, RefusalPart) else part.text) for part in content)


def _image(part: ImagePart) -> Image:
    return Image(part.image_url.url, part.image_url.detail)


def _session(project: str, asked: ChatRequest) -> str:
    """Return one name for requests that share a prompt. A provider uses it for its cache and learns nothing from it."""
    shared = asked.prompt_cache_key or asked.user or asked.safety_identifier
    return hashlib.sha256(f"{project}/{shared}".encode()).hexdigest()[:32] if shared else ""


def _route(name: str, field: str, claims: Claims | None, shown: Handshake, parts: Parts) -> ChatRoute:
    route = parts.chat_models.find(name)
    if route is None:
        why = f"There is no model {name[:64]!r} here. GET /v1/models lists what can be asked for."
        raise Missing(why, param=field, code="model_not_found")
    if claims is not None:
        check_may_ask(claims, route, shown, parts)
    return route
