"""Route a request for an answer: find its model, and apply the client secret."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from voicepipe.auth.claims import Claims
from voicepipe.auth.request_credentials import Handshake
from voicepipe.ports.model import Called, Content, Function, Image, Message, ModelRequest, Returned, Text
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
from voicepipe.server.authenticate import Principal
from voicepipe.server.chat_ports import ChatRoute
from voicepipe.server.context import ServerContext
from voicepipe.server.errors import NotFound
from voicepipe.server.gateway.answer_request import AnswerRequest
from voicepipe.server.gateway.chat_token_policy import apply_token_policy, check_may_request
from voicepipe.server.gateway.default_models import route_of


class RoutedRequest(Struct, frozen=True):
    """A request to a model, and its route."""

    route: ChatRoute
    request: ModelRequest
    to_page: bool
    """Whether the answer goes to a web page, which does not get the providers' own error texts."""


def answer_request_of_chat(requested: ChatRequest) -> AnswerRequest:
    """Return a request of chat completions in the form that both endpoints share."""
    extension = requested.voicepipe
    return AnswerRequest(
        model=requested.model,
        messages=tuple(messages(requested.messages)),
        functions=tuple(functions(requested)),
        tool_choice=requested.function_choice if requested.tool_choice else None,
        max_output_tokens=requested.output_limit,
        temperature=requested.temperature,
        passed=requested.passed,
        prompt_cache_key=requested.prompt_cache_key,
        user=requested.user,
        safety_identifier=requested.safety_identifier,
        metadata=tuple((requested.metadata or {}).items()),
        models=tuple(requested.models or ()),
        deadline_ms=extension.deadline_ms if extension is not None else None,
        instruction_field=_instruction_field(requested.messages),
        output_limit_field="max_completion_tokens",
    )


async def route_request(
    principal: Principal, requested: AnswerRequest, handshake: Handshake, context: ServerContext
) -> RoutedRequest:
    """Find the model, apply the client secret's locks and limits, and return the request to the model.

    Raises:
        AuthError: 403, when the client secret does not allow this page, model or agent.
        NotFound: 404, for a model that does not exist.
        ProtocolError: a field is locked.
    """
    claims = principal.claims
    route = _route(requested.model, "model", claims, handshake, context)
    alternatives = [_route(name, f"models[{n}]", claims, handshake, context) for n, name in enumerate(requested.models)]
    request = ModelRequest(
        model=route.model_name,
        messages=requested.messages,
        functions=requested.functions,
        tool_choice=requested.tool_choice or "auto",
        max_output_tokens=requested.max_output_tokens,
        temperature=requested.temperature,
        passed=requested.passed,
        session=_prompt_cache_name(principal.project, requested),
        user=requested.user or requested.safety_identifier or "",
        models=tuple(dict.fromkeys(spec for route in alternatives for spec in route.specs)),
        metadata=requested.metadata,
        deadline_ms=requested.deadline_ms,
    )
    if claims is None:
        return RoutedRequest(route, request, to_page=False)
    return RoutedRequest(route, await apply_token_policy(request, requested, claims, route, context), to_page=True)


def messages(written: Iterable[ChatMessage]) -> Iterator[Message]:
    """Return the conversation in the form of the model's port."""
    for message in written:
        match message:
            case SystemMessage(content) | DeveloperMessage(content):
                yield Content("system", _texts(content))
            case UserMessage(content):
                pieces = (TextPart(content),) if isinstance(content, str) else content
                yield Content("user", tuple(_image(p) if isinstance(p, ImagePart) else Text(p.text) for p in pieces))
            case AssistantMessage(content, calls):
                if content:
                    yield Content("assistant", _texts(content))
                for call in calls or ():
                    yield Called(call.id, call.function.name, call.function.arguments)
            case ToolMessage(content, call_id):
                yield Returned(call_id, "".join(text.text for text in _texts(content)))


def functions(requested: ChatRequest) -> Iterator[Function]:
    """Return the tools that the model may call."""
    for tool in requested.tools or ():
        function = tool.function
        parameters = bytes(function.parameters).decode()
        yield Function(function.name, function.description or "", parameters, function.strict)


def _texts(content: str | Iterable[TextPart | RefusalPart]) -> tuple[Text, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(Text(part.refusal if isinstance(part, RefusalPart) else part.text) for part in content)


def _image(part: ImagePart) -> Image:
    return Image(part.image_url.url, part.image_url.detail)


def _instruction_field(written: Iterable[ChatMessage]) -> str | None:
    roles = (SystemMessage, DeveloperMessage)
    return next((f"messages[{n}]" for n, message in enumerate(written) if isinstance(message, roles)), None)


def _prompt_cache_name(project: str, requested: AnswerRequest) -> str:
    """Return a name for requests that share a prompt, for the provider's cache. It is a digest of the client's key."""
    shared = requested.prompt_cache_key or requested.user or requested.safety_identifier
    return hashlib.sha256(f"{project}/{shared}".encode()).hexdigest()[:32] if shared else ""


def _route(name: str, field: str, claims: Claims | None, handshake: Handshake, context: ServerContext) -> ChatRoute:
    route = route_of(name, context.chat_models.find, claims, context)
    if route is None:
        why = f"There is no model {name[:64]!r} here. GET /v1/models lists the models."
        raise NotFound(why, param=field, code="model_not_found")
    if claims is not None:
        check_may_request(claims, route, handshake, context)
    return route
