"""The requests that a real vendor refuses, for its fake.

Written from the sources that each row names, not from the package's catalog: where the two differ, a test fails.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aiohttp import web

from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.script import ReceivedRequest

RuleViolation = tuple[int, str]
"""The HTTP status and the text of the refusal."""

BodyRule = Callable[["RequestRules", Mapping[str, Any]], str | None]
"""Return what is wrong with a request's body, or None."""

CachedAt = Literal["details", "deepseek", "flat", "nowhere"]

LlmAnswerHandler = Callable[[web.Request, ReceivedRequest, LlmCue], Awaitable[web.StreamResponse]]
"""Answer one request as its cue requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorDialect:
    """An LLM vendor's own API, beside OpenAI's chat completions."""

    path: str
    """The path of its requests."""

    answer: LlmAnswerHandler
    body_rules: tuple[BodyRule, ...]
    refusals: tuple[str, ...]
    """What it refuses beside a wrong key and an unknown field, for documentation."""

    listed: Callable[[Iterable[str]], object] = field(default=lambda names: {"data": [{"id": name} for name in names]})
    """Return its list of models, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRules:
    """One vendor's requirements of a request."""

    model: str
    """A model of the vendor."""

    dialect: VendorDialect | None = None
    """Its own API; None: OpenAI's chat completions."""

    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    key: str = "sk-test-0123456789"
    """Empty: no key is required."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Further required headers."""

    refuses: frozenset[str] = frozenset()
    """Fields that the vendor recognises and refuses."""

    needs: frozenset[str] = frozenset()
    max_tokens_field: str = "max_tokens"
    max_tokens: int = 1_000_000
    temperatures: tuple[float, float] | None = (0.0, 2.0)
    """None: the field is refused."""

    tool_choices: frozenset[str] = frozenset({"auto", "none", "required", "named"})
    text_only: bool = False
    nine: bool = False
    """Call IDs have nine letters and digits, and roles follow Mistral's order."""

    cached_at: CachedAt = "details"
    usage: Literal["requested", "always", "never"] = "requested"
    """When a stream has token counts: if `stream_options` requests them, always, or never."""

    affinity: tuple[Literal["header", "body"], str] | None = None
    """The place for the session's name."""

    quiet: Mapping[str, Any] = field(default_factory=dict)
    """The fields that a request needs to disable the model's thinking."""

    def broken(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> RuleViolation | None:
        """Return the fault of a request, or None."""
        if self.key and headers.get(self.key_header) != self.key_prefix + self.key:
            return 401, f"expected {self.key_header}: {self.key_prefix}KEY"
        missing = next((name for name, value in self.headers.items() if headers.get(name) != value), None)
        if missing is not None:
            return 400, f"missing header {missing}"
        for rule in _CHAT_COMPLETIONS if self.dialect is None else self.dialect.body_rules:
            if wrong := rule(self, body):
                return 400, wrong
        return None

    def summary(self) -> str:
        """Return further refusals beside a wrong key and an unknown field, for documentation; names in backticks."""
        kinds = ("required", "named", "any")
        words = [
            *(self.dialect.refusals if self.dialect is not None else ()),
            *(f"`{name}`" for name in sorted(self.refuses)),
            *(["`max_tokens`"] if self.max_tokens_field == "max_completion_tokens" else []),
            *([f"more than {self.max_tokens} tokens"] if self.max_tokens < 1_000_000 else []),
            *(["any `temperature`"] if self.temperatures is None and "temperature" not in self.refuses else []),
            *(["`temperature` 0 or above 1"] if self.temperatures not in (None, (0.0, 2.0)) else []),
            *(f"`tool_choice` {kind}" for kind in kinds[:2] if kind not in self.tool_choices),
            *(["other ids than nine letters and digits", "roles in another order"] if self.nine else []),
            *(["messages in parts"] if self.text_only else []),
        ]
        return ", ".join(words)


_KNOWN = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stop",
        "seed",
        "user",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "presence_penalty",
        "frequency_penalty",
        "parallel_tool_calls",
        "response_format",
        "service_tier",
        "n",
        "reasoning_effort",
    }
)
"""The fields of OpenAI's chat completions that this package recognises."""


def check_fields(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    """Return which field of `body` is refused or missing, or None."""
    if refused := rules.refuses & body.keys():
        return f"{min(refused)} is not supported"
    if missing := rules.needs - body.keys():
        return f"{min(missing)} is required"
    return None


def _unknown(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    affinity = {rules.affinity[1]} if rules.affinity and rules.affinity[0] == "body" else set()
    unknown = body.keys() - _KNOWN - rules.quiet.keys() - affinity
    return f"unknown parameter {min(unknown)}" if unknown else None


def _limits(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    other = {"max_tokens", "max_completion_tokens"} - {rules.max_tokens_field}
    if rules.max_tokens_field == "max_completion_tokens" and other & body.keys():
        return f"use {rules.max_tokens_field}"
    if body.get(rules.max_tokens_field, 1) > rules.max_tokens:
        return f"{rules.max_tokens_field} above {rules.max_tokens}"
    temperature = body.get("temperature")
    if temperature is not None and (
        rules.temperatures is None or not rules.temperatures[0] <= temperature <= rules.temperatures[1]
    ):
        return "temperature out of range"
    return None


def _tools(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    choice = body.get("tool_choice")
    if choice is None:
        return None
    kind = choice if isinstance(choice, str) else "named"
    return None if kind in rules.tool_choices else f"tool_choice {kind} is not supported"


def _messages(rules: RequestRules, body: Mapping[str, Any]) -> str | None:
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if role not in ("system", "user", "assistant", "tool"):
            return f"unknown role {role}"
        if rules.text_only and not isinstance(message["content"], str | None):
            return "content must be a string"
        if rules.nine and (wrong := _mistral(message, before)):
            return wrong
        before = role
    if rules.nine and before == "assistant" and not body["messages"][-1].get("prefix"):
        return "Expected last role User or Tool (or Assistant with prefix True)"
    return None


def _mistral(message: Mapping[str, Any], before: str) -> str | None:
    if before == "tool" and message["role"] == "user":
        return "Unexpected role 'user' after role 'tool'"
    if message["role"] == "system" and before not in ("", "system"):
        return f"Unexpected role 'system' after role '{before}'"
    ids = [call["id"] for call in message.get("tool_calls", ())] + [message.get("tool_call_id", "a" * 9)]
    wrong = next((each for each in ids if not re.fullmatch("[A-Za-z0-9]{9}", each)), None)
    return f"Tool call id was {wrong} but must be a-z, A-Z, 0-9, with a length of 9." if wrong is not None else None


_CHAT_COMPLETIONS: Final[tuple[BodyRule, ...]] = (check_fields, _unknown, _limits, _tools, _messages)
