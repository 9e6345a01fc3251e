"""The messages and tools of a chat completions request, in their wire shape.

Source: OpenAI API reference, "Create chat completion". Fields that mean nothing to another LLM (`name`, `refusal`,
`annotations`) are skipped, as are fields that other servers add to a message and clients send back.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

MAX_MESSAGES = 4_096
MAX_PARTS = 256
MAX_CALLS = 128
"""Maximum number of calls in one message. The published limit of a request's tools is the same."""

CallId = Annotated[str, Meta(min_length=1, max_length=256)]
FunctionName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
"""The published shape."""


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """A text part of a message."""

    text: str


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    """The text with which an LLM refused to answer; it is passed on as text."""

    refusal: str


class ImageUrl(Struct, frozen=True):
    """The URL of an image."""

    url: Annotated[str, Meta(pattern=r"^(?:https://|data:image/)")]
    detail: Literal["auto", "low", "high"] = "auto"


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image part of a message."""

    image_url: ImageUrl


class FunctionCall(Struct, frozen=True):
    """The function that was called. `arguments` is JSON as text, as the LLM wrote it."""

    name: FunctionName
    arguments: str = ""


class ToolCall(Struct, frozen=True):
    """A call of an earlier answer."""

    id: CallId
    function: FunctionCall
    type: Literal["function"] = "function"


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    """The system instructions for the LLM."""

    content: str | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)]


class DeveloperMessage(Struct, frozen=True, tag_field="role", tag="developer"):
    """The same under its newer name."""

    content: str | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)]


class UserMessage(Struct, frozen=True, tag_field="role", tag="user"):
    """A message of the user, with text and images."""

    content: str | Annotated[list[TextPart | ImagePart], Meta(max_length=MAX_PARTS)]


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant"):
    """A message of the LLM, with the functions it called."""

    content: str | Annotated[list[TextPart | RefusalPart], Meta(max_length=MAX_PARTS)] | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_CALLS)] | None = None


class ToolMessage(Struct, frozen=True, tag_field="role", tag="tool"):
    """The result of a called function."""

    content: str | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)]
    tool_call_id: CallId


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionDefinition(Struct, frozen=True):
    """A function that the LLM may call."""

    name: FunctionName
    description: str | None = None
    parameters: Raw = Raw(b"")
    """The JSON Schema of its parameters, as it came."""

    strict: bool | None = None
    """Whether the arguments must match the schema exactly; the provider's to honour."""


class ToolDefinition(Struct, frozen=True):
    """A tool that the LLM may use; only functions are supported."""

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
