"""Convert a request of `/v1/responses` to the form that both endpoints share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from voicepipe.ports.model import Called, Content, Function, Image, Message, Returned, Text
from voicepipe.protocol.response_rest_items import (
    CallItem,
    InputImage,
    InputText,
    Item,
    MessageItem,
    OutputItem,
    OutputText,
    Part,
    Refusal,
    instruction_position,
    parts_of,
)
from voicepipe.protocol.response_rest_request import FunctionTool, ResponseRequest
from voicepipe.server.gateway.answer_request import AnswerRequest
from voicepipe.server.gateway.response_conversation import RequestConversation


def answer_request_of_response(requested: ResponseRequest, conversation: RequestConversation) -> AnswerRequest:
    """Return a request of `/v1/responses` in the form that both endpoints share."""
    instructions = (Content("system", (Text(requested.instructions),)),) if requested.instructions else ()
    extension = requested.voicepipe
    return AnswerRequest(
        model=requested.model,
        messages=(*instructions, *messages_of((*conversation.earlier, *conversation.items))),
        functions=tuple(functions_of(requested.callable_tools)),
        tool_choice=requested.function_choice,
        max_output_tokens=requested.max_output_tokens,
        temperature=requested.temperature,
        passed=requested.passed,
        prompt_cache_key=requested.prompt_cache_key,
        user=requested.user,
        safety_identifier=requested.safety_identifier,
        metadata=tuple((requested.metadata or {}).items()),
        models=tuple(requested.models or ()),
        deadline_ms=extension.deadline_ms if extension is not None else None,
        instruction_field=_instruction_field(requested, conversation),
        output_limit_field="max_output_tokens",
    )


def _instruction_field(requested: ResponseRequest, conversation: RequestConversation) -> str | None:
    if requested.instructions:
        return "instructions"
    if instruction_position(conversation.earlier) is not None:
        return "previous_response_id"
    position = instruction_position(conversation.items)
    return None if position is None else f"input[{position}]"


def messages_of(items: Iterable[Item]) -> Iterator[Message]:
    """Return items in the form of the model's port."""
    for item in items:
        match item:
            case MessageItem("user", content):
                yield Content("user", tuple(map(_part, parts_of(content))))
            case MessageItem("assistant", content):
                if texts := _texts(content):
                    yield Content("assistant", texts)
            case MessageItem(content=content):
                yield Content("system", _texts(content))
            case CallItem(call_id, name, arguments):
                yield Called(call_id, name, arguments)
            case OutputItem(call_id, output):
                yield Returned(call_id, output if isinstance(output, str) else "".join(each.text for each in output))


def functions_of(tools: Iterable[FunctionTool]) -> Iterator[Function]:
    """Return tools in the form of the model's port."""
    for tool in tools:
        yield Function(tool.name, tool.description or "", tool.schema.decode(), tool.strict)


def _part(part: Part) -> Text | Image:
    match part:
        case InputImage(url, detail):
            return Image(url, "high" if detail == "original" else detail)
        case Refusal(text) | InputText(text) | OutputText(text):
            return Text(text)


def _texts(content: str | Sequence[Part]) -> tuple[Text, ...]:
    parts = map(_part, parts_of(content))
    return tuple(part for part in parts if isinstance(part, Text) and part.text)
