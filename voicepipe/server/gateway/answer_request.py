"""A request for an LLM's answer, in the form that chat completions and responses share."""

from __future__ import annotations

from msgspec import Struct

from voicepipe.ports.model import Function, Message


class AnswerRequest(Struct, frozen=True, kw_only=True):
    """A validated request in the form of the model's port. It has the fields that both endpoints have."""

    model: str
    """The requested name: an agent, a pool or a spec."""

    messages: tuple[Message, ...]
    functions: tuple[Function, ...] = ()
    tool_choice: str | None = None
    """As in `ModelRequest`; None: the request names none."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    passed: tuple[tuple[str, str], ...] = ()
    """Parameters for the provider, each value as JSON."""

    prompt_cache_key: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    models: tuple[str, ...] = ()
    """Names of the other LLMs that may answer, best first."""

    deadline_ms: int | None = None
    instruction_field: str | None = None
    """Path of the first field with instructions; None: the request has no instructions."""

    output_limit_field: str
    """Name of the field that limits the answer's length."""
