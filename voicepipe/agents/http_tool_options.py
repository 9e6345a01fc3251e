"""The options of a tool over HTTP, for settings that load without an HTTP client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ParameterType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpToolOptions:
    """One tool, checked."""

    name: str
    description: str
    url: str = field(repr=False)
    """With `{{name}}` of parameters."""

    method: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)
    timeout_ms: int
    side_effects: bool
    cancellable: bool
    parameters: tuple[tuple[str, ParameterType, str, bool, tuple[str, ...], bool], ...]
    """Name, type, description, whether it is required, its allowed texts, and whether it is a list."""
