"""Convert the conversation's items to the LLM's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.ports.model import Called, Content, Function, Image, Message, ModelRequest, Returned, Text
from voicepipe.turn import conversation as c
from voicepipe.turn.commands import StartReply
from voicepipe.turn.settings import ReplySettings, Tool
from voicepipe.values import replace

PENDING: Final = "Still running. The result will follow."
"""What the LLM reads in place of a result that has not come."""

UNAPPROVED: Final = "Not started: the user has not approved it yet."
"""What the LLM reads of a call that waits for its approval."""


def request_of(command: StartReply, *, model: str, session: str) -> ModelRequest:
    """Return the LLM request for this reply: its instructions, then the conversation."""
    reply = command.reply
    functions, choice = _functions_of(reply)
    system = (Content("system", (Text(reply.instructions),)),) if reply.instructions else ()
    return ModelRequest(
        model=model,
        messages=(*system, *messages_of(command.items)),
        functions=tuple(Function(t.name, t.description, t.parameters_json, t.strict) for t in functions),
        tool_choice=choice,
        max_output_tokens=reply.max_output_tokens,
        temperature=reply.temperature,
        session=session,
        may_be_empty=reply.may_be_empty,
    )


def _functions_of(reply: ReplySettings) -> tuple[tuple[Tool, ...], str]:
    """Return the functions that the LLM may call, and which of them it must.

    A choice of an MCP server's tools has no effect before the server has listed them.
    """
    everything = (*(each.tool for each in reply.server_tools), *reply.tools)
    if not reply.tool_server:
        return everything, reply.tool_choice
    of_server = tuple(each.tool for each in reply.server_tools if each.label == reply.tool_server)
    if reply.tool_choice in ("required", *(tool.name for tool in of_server)) and of_server:
        return of_server, reply.tool_choice
    return everything, "auto"


def redacted_request(request: ModelRequest, redact: Callable[[str], str], *, first: int) -> ModelRequest:
    """Return the request with the texts of its messages redacted, from message number `first` on."""
    conversation = (_redacted(each, redact) for each in request.messages[first:])
    return replace(request, messages=(*request.messages[:first], *conversation))


def _redacted(message: Message, redact: Callable[[str], str]) -> Message:
    """Return the message with its texts redacted. Speech in several pieces is redacted as the one message it is."""
    match message:
        case Content(parts=parts):
            texts = (Text(redact(part.text)) if isinstance(part, Text) else part for part in parts)
            return replace(message, parts=tuple(texts))
        case Called(arguments=arguments):
            return replace(message, arguments=redact(arguments))
        case Returned(output=output):
            return replace(message, output=redact(output))


def messages_of(items: tuple[c.Item, ...]) -> tuple[Message, ...]:
    """Return the items as messages. Speech without words is left out; speech in several pieces is one message.

    A user who continues speaking creates several items for one thought; the LLM reads them as one.
    """
    messages: list[Message] = []
    spoken_before = False
    for item in items:
        if isinstance(item, c.FunctionCall) and item.server_label:
            messages += _server_call(item)
            spoken_before = False
            continue
        message, spoken = _message(item), is_speech(item)
        if message is None:
            continue
        last = messages[-1] if messages else None
        if spoken and spoken_before and isinstance(message, Content) and isinstance(last, Content):
            messages[-1] = Content("user", (Text(f"{_text(last)} {_text(message)}"),))
        else:
            messages.append(message)
        spoken_before = spoken
    return tuple(messages)


def _server_call(call: c.FunctionCall) -> tuple[Message, ...]:
    """Return a call that the server ran, with its result at once: an LLM takes no call without one."""
    if call.approval == "given":
        return ()  # another item is the call
    if call.approval == "awaited":
        return Called(call.call_id, call.name, call.arguments or "{}"), Returned(call.call_id, UNAPPROVED)
    output = PENDING if call.late or call.output is None else call.output
    return Called(call.call_id, call.name, call.arguments or "{}"), Returned(call.call_id, output)


def _message(item: c.Item) -> Message | None:
    match item:
        case c.FunctionCall():
            return Called(item.call_id, item.name, item.arguments)
        case c.FunctionOutput():
            return Returned(item.call_id, item.output)
        case c.ToolList() | c.ApprovalAnswer() | c.Message(hidden_from_llm=True):
            return None
        case c.Message():
            parts = tuple(part for old in item.parts if (part := _part(old)) is not None)
            return Content(item.role, parts) if parts else None


def _part(part: c.Part) -> Text | Image | None:
    match part:
        case c.InputImage():
            return Image(part.url, part.detail)
        case c.InputText() | c.OutputText():
            words = part.text
        case c.InputAudio() | c.OutputAudio():
            words = part.transcript or ""
    return Text(words) if words.strip() else None


def is_speech(item: c.Item) -> bool:
    """Return whether the user has said this item, and has not typed it."""
    return isinstance(item, c.Message) and item.role == "user" and all(isinstance(p, c.InputAudio) for p in item.parts)


def _text(message: Content) -> str:
    return " ".join(part.text for part in message.parts if isinstance(part, Text))
