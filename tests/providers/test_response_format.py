"""An answer in JSON, requested from vendors that have another name for it than OpenAI."""

from __future__ import annotations

import json
from typing import Any

import pytest

from voicepipe.errors import StageRefused
from voicepipe.ports.model import Content, Function, ModelRequest, Text
from voicepipe.providers.anthropic.options import AnthropicOptions
from voicepipe.providers.anthropic.request import request_body as anthropic_body
from voicepipe.providers.catalog import load
from voicepipe.providers.google.options import GeminiOptions
from voicepipe.providers.google.request import request_body as gemini_body
from voicepipe.providers.google.thought_signatures import ThoughtSignatures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec

ADDRESS = ProviderAddress.of("llm", Spec("p", "m"), ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1"))
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
JSON = {"type": "json_object"}
FITTING = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": SCHEMA}}
LOOK_UP = Function("look_up", "Looks up.", "{}")


def request_with(form: Any, model: str = "m", *functions: Function) -> ModelRequest:
    hi = (Content("user", (Text("Where?"),)),)
    passed = (("response_format", json.dumps(form)),)
    return ModelRequest(model=model, messages=hi, functions=functions, passed=passed)


def claude(form: Any, model: str = "claude-haiku-4-5", **options: Any) -> Any:
    return json.loads(anthropic_body(ADDRESS, request_with(form, model), AnthropicOptions(**options)))


def gemini(form: Any, model: str = "gemini-2.5-flash", *functions: Function, **options: Any) -> Any:
    body = gemini_body(ADDRESS, request_with(form, model, *functions), GeminiOptions(**options), ThoughtSignatures())
    return json.loads(body)["generationConfig"]


def test_claude_gets_the_schema() -> None:
    """The schema stands beside the output settings that the request has already."""
    assert claude(FITTING)["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    both = claude(FITTING, llm_extra='{"output_config": {"effort": "low"}}')["output_config"]
    assert both == {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}


def test_gemini_gets_the_schema_or_only_json() -> None:
    assert gemini(FITTING) == {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
    for form in (JSON, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": None}}):
        assert gemini(form) == {"responseMimeType": "application/json"}


def test_text_format_is_not_sent() -> None:
    assert "output_config" not in claude({"type": "text"})
    assert gemini({"type": "text"}) == {}


@pytest.mark.parametrize(
    "send",
    [
        lambda: claude(JSON),  # it knows JSON by a schema only
        lambda: claude(FITTING, model_refuses=frozenset({"response_format"})),
        lambda: gemini(FITTING, "gemini-2.5-flash", LOOK_UP),
        lambda: gemini(JSON, refuses=frozenset({"responseMimeType"})),
        lambda: gemini(FITTING, refuses=frozenset({"responseJsonSchema"})),
        lambda: gemini({"type": "xml"}),
    ],
)
def test_who_can_not_answer_so_leaves_it_to_another(send: Any) -> None:
    """An answer that does not fit would be worse than one of another model."""
    with pytest.raises(StageRefused, match="response_format") as refused:
        send()
    assert (refused.value.status, refused.value.retryable) == (400, True)


def test_newer_models_take_it_beside_functions() -> None:
    assert gemini(JSON, "gemini-3.5-flash", LOOK_UP) == {"responseMimeType": "application/json"}


@pytest.mark.parametrize(
    ("model", "takes"),
    [("claude-3-5-haiku-20241022", False), ("claude-sonnet-4-20250514", False), ("claude-haiku-4-5", True)],
)
def test_the_catalog_knows_whose_models_are_too_old(model: str, takes: bool) -> None:
    refused = dict(load().providers["anthropic"].options_for(model)).get("model_refuses", "")
    assert ("response_format" not in refused.split()) is takes
