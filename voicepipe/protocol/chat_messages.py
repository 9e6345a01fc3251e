"""The messages and tools of a chat completions request, as they stand on the wire.

Source: OpenAI API reference, "Create chat completion". Fields that carry nothing for another model (`name`,
`refusal`, `annotations`) are skipped, as is what other servers add to a message that is sent back to them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

MOST_MESSAGES = 4_096
MOST_PARTS = 256
MOST_CALLS = 128
"""Of one message. The published limit of a request's tools is the same."""

CallId = Annotated[str, Meta(min_length=1, max_length=256)]
FunctionName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
"""The published shape."""


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of a message that is text."""

    text: str


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    """What a model said when it would not answer; it goes on as text."""

    refusal: str


class ImageUrl(Struct, frozen=True):
    """Where a picture is."""

    url: Annotated[str, Meta(pattern=r"^(?:https://|data:image/)")]
    detail: Literal["auto", "low", "high"] = "auto"


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """A piece of a message that is a picture."""

    image_url: ImageUrl


class FunctionCall(Struct, frozen=True):
    """The function that was called. `arguments` is JSON as text, as the model wrote it."""

    name: FunctionName
    arguments: str = ""


class ToolCall(Struct, frozen=True):
    """A call that an earlier answer made."""

    id: CallId
    function: FunctionCall
    type: Literal["function"] = "function"


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    """What the model is told to be."""

    content: str | Annotated[list[TextPart], Meta(max_length=MOST_PARTS)]


class DeveloperMessage(Struct, frozen=True, tag_field="role", tag="developer"):
    """The same under its newer name."""

    content: str | Annotated[list[TextPart], Meta(max_length=MOST_PARTS)]


class UserMessage(Struct, frozen=True, tag_field="role", tag="user"):
    """What the user said or showed."""

    content: str | Annotated[list[TextPart | ImagePart], Meta(max_length=MOST_PARTS)]


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant"):
    """What the model said, and which functions it called."""

    content: str | Annotated[list[TextPart | RefusalPart], Meta(max_length=MOST_PARTS)] | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MOST_CALLS)] | None = None


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool"):
    """What a called function gave back."""

    content: str | Annotated[list[TextPart], Meta(max_length=MOST_PARTS)]
    tool_call_id: CallId


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionDefinition(Struct, frozen=True):
    """A function that the model may call."""

    name: FunctionName
    description: str | None = None
    parameters: Raw = Raw(b"")
    """Its JSON Schema, as it came."""


class ToolDefinition(Struct, frozen=True):
    """A tool that the model may use: of functions only."""

    function: FunctionDefinition
    type: Literal["function"] = "function"


class NamedFunction(Struct, frozen=True):
    """A function by its name."""

    name: FunctionName


class NamedTool(Struct, frozen=True):
    """The one function to call."""

    function: NamedFunction
    type: Literal["function"] = "function"


ToolChoice = Literal["auto", "none", "required"] | NamedTool
