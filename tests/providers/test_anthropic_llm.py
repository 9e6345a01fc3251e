"""What is sent to Anthropic's Messages, and how their many events are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused
from voicepipe.ports.model import (
    CallDelta,
    Called,
    Content,
    Finished,
    Function,
    Image,
    Model,
    ModelEvent,
    ModelRequest,
    Returned,
    Text,
    Usage,
)
from voicepipe.providers.anthropic.model import open_model
from voicepipe.providers.built_in import factory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.model import answer, text_of
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.vendor import FakeVendor

SPEC = Spec("anthropic", "claude-haiku-4-5")
HI = ModelRequest(model="claude-haiku-4-5", messages=(Content("user", (Text("Hi"),)),))
Settings = Callable[..., ProviderSettings]


@pytest.fixture
def model(settings: Settings) -> Model:
    return open_model(SPEC, settings())


def test_registry_finds_it() -> None:
    assert factory("anthropic", "llm", key="agents.default.llm") is open_model


async def test_request_as_a_whole(vendor: FakeVendor, model: Model) -> None:
    """Instructions and the latest question are marked for the cache; results come first in the user's message."""
    await answer(
        model,
        ModelRequest(
            model="claude-haiku-4-5",
            messages=(
                Content("system", (Text("Be brief."),)),
                Content("assistant", (Text("Hello!"),)),
                Content("user", (Text("Where?"), Image("https://x.example/p.png"))),
                Called("c 1", "look_up", '{"x": 1}'),
                Returned("c 1", "Oslo"),
                Content("user", (Text("Quick!"),)),
            ),
            functions=(Function("look_up", "Looks up.", '{"type": "object"}'), Function("stop", "", "")),
            tool_choice="look_up",
            max_output_tokens=50,
            temperature=1.5,
            session="s1",
        ),
    )
    received = await vendor.llm.nth(0)
    cached = {"cache_control": {"type": "ephemeral"}}
    assert received.question == {
        "model": "claude-haiku-4-5",
        "max_tokens": 50,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", **cached}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "(The user is on the line.)"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello!"}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Where?"},
                    {"type": "image", "source": {"type": "url", "url": "https://x.example/p.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c_1", "name": "look_up", "input": {"x": 1}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c_1", "content": "Oslo"},
                    {"type": "text", "text": "Quick!", **cached},
                ],
            },
        ],
        "tools": [
            {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}},
            {"name": "stop", "description": "", "input_schema": {"type": "object", "properties": {}}},
        ],
        "tool_choice": {"type": "tool", "name": "look_up"},
        "temperature": 1.0,
    }
    assert received.headers["x-api-key"] == "sk-test-0123456789"
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in received.headers


@pytest.mark.parametrize(
    ("strict", "refuses", "sent"),
    [(True, "", {"strict": True}), (False, "", {}), (None, "", {}), (True, "response_format", {})],
)
async def test_a_strict_function_is_strict_at_the_vendor(
    vendor: FakeVendor, settings: Settings, strict: bool | None, refuses: str, sent: dict[str, bool]
) -> None:
    """Except for the models without structured outputs."""
    schema = {"type": "object", "additionalProperties": False}
    look = Function("look", "", json.dumps(schema), strict)
    model = open_model(SPEC, settings(**({"model_refuses": refuses} if refuses else {})))
    await answer(model, ModelRequest(model="m", messages=HI.messages, functions=(look,)))
    (tool,) = (await vendor.llm.nth(0)).question["tools"]
    assert tool == {"name": "look", "description": "", "input_schema": schema, **sent}


async def test_options_change_what_is_sent(vendor: FakeVendor, settings: Settings) -> None:
    """No caching, another kind of key, thinking switched off; what the agent leaves open gets a limit."""
    options = {
        "auth": "Bearer",
        "cache": "false",
        "max_output_tokens": "99",
        "model_extra": '{"thinking": {"type": "disabled"}}',
        "model_refuses": "temperature",
    }
    request = ModelRequest(model="m", messages=HI.messages, temperature=0.5)
    await answer(open_model(SPEC, settings(**options)), request)
    received = await vendor.llm.nth(0)
    assert received.question == {
        "model": "m",
        "max_tokens": 99,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "thinking": {"type": "disabled"},
    }
    assert received.headers["Authorization"] == "Bearer sk-test-0123456789"


async def test_the_cache_ttl_may_be_longer(vendor: FakeVendor, settings: Settings) -> None:
    await answer(open_model(SPEC, settings(cache_ttl="1h")), HI)
    block = (await vendor.llm.nth(0)).question["messages"][0]["content"][0]
    assert block["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cash": "true"}, r"providers\.anthropic\.cash: unknown for kind anthropic"),
        ({"cache": "perhaps"}, "expected true or false"),
        ({"cache_ttl": "2h"}, "expected 5m or 1h"),
        ({"max_output_tokens": "none"}, "expected tokens from 1"),
        ({"llm_extra": "3"}, "expected a JSON object"),
    ],
)
def test_wrong_options_are_named(settings: Settings, options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_model(SPEC, settings(**options))


async def test_models_without_prefill_get_an_instruction_to_continue(vendor: FakeVendor, settings: Settings) -> None:
    """A greeting without a user's answer, or an answer that another model has to finish."""
    ends = (*HI.messages, Content("assistant", (Text("The answer is "),)))
    await answer(open_model(SPEC, settings()), ModelRequest(model="m", messages=ends))
    assert (await vendor.llm.nth(0)).question["messages"][-1]["content"][0]["text"] == "The answer is"
    await answer(open_model(SPEC, settings(model_refuses="prefill")), ModelRequest(model="m", messages=ends))
    last = (await vendor.llm.nth(1)).question["messages"][-1]
    assert (last["role"], last["content"][0]["text"]) == ("user", "(Go on from where you stopped.)")


async def test_the_newer_version_knows_no_temperature(vendor: FakeVendor, settings: Settings) -> None:
    """Since 2026-10-21 it is refused, whatever the model."""
    model = open_model(SPEC, settings(version="2026-10-21"))
    await answer(model, ModelRequest(model="m", messages=HI.messages, temperature=1.0))
    received = await vendor.llm.nth(0)
    assert "temperature" not in received.question
    assert received.headers["anthropic-version"] == "2026-10-21"


# How answers are read


def events(*sent_events: dict[str, Any]) -> bytes:
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in sent_events).encode()


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "m", "usage": usage}}


def text(words: str, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": words}}


def stop(reason: str, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


END = {"type": "message_stop"}


async def read(vendor: FakeVendor, model: Model, *sent_events: dict[str, Any]) -> list[ModelEvent]:
    vendor.llm.cue(LlmCue(raw=(events(*sent_events),)))
    return await answer(model, HI)


async def test_what_was_read_is_counted_whole(vendor: FakeVendor, model: Model) -> None:
    """Their input_tokens leave out what the cache gave and got; later counts replace earlier ones."""
    first = start(input_tokens=40, cache_read_input_tokens=4_000, cache_creation_input_tokens=300, output_tokens=1)
    made = await read(vendor, model, first, text("Hi"), stop("end_turn", output_tokens=12), END)
    assert made[-1] == Usage(input_tokens=4_340, output_tokens=12, cached_tokens=4_000, cache_write_tokens=300)


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("a reason of tomorrow", "stop"),
    ],
)
async def test_reasons(vendor: FakeVendor, model: Model, reason: str, meant: str) -> None:
    assert Finished(meant) in await read(vendor, model, start(), text("Hi"), stop(reason), END)  # type: ignore[arg-type]


async def test_only_text_and_calls_are_spoken_of(vendor: FakeVendor, model: Model) -> None:
    """Thoughts, signatures, tools of the server and events that are not known yet are nothing."""
    made = await read(
        vendor,
        model,
        start(),
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "no"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "x"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "server_tool_use", "id": "s", "name": "w"},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": "Well"}},
        text(", yes.", 3),
        {"type": "news", "data": 1},
        stop("end_turn"),
        END,
    )
    assert text_of(made) == "Well, yes."
    assert not any(isinstance(event, CallDelta) for event in made)


async def test_a_function_without_arguments_gets_an_empty_object(vendor: FakeVendor, model: Model) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "hang_up", "input": {}}
    made = await read(
        vendor,
        model,
        start(),
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ""}},
        {"type": "content_block_stop", "index": 0},
        stop("tool_use"),
        END,
    )
    assert made[:3] == [CallDelta(0, "toolu_1", "hang_up", ""), CallDelta(0, "", "", "{}"), Finished("tool_calls")]


@pytest.mark.parametrize(
    ("kind", "error", "status", "retryable"),
    [
        ("overloaded_error", StageRefused, 529, True),
        ("rate_limit_error", StageRefused, 429, True),
        ("authentication_error", StageRefused, 401, False),
        ("api_error", StageBroken, None, True),
        ("an error of tomorrow", StageBroken, None, True),
    ],
)
async def test_errors_inside_an_answer(
    vendor: FakeVendor, model: Model, kind: str, error: type[StageError], status: int | None, retryable: bool
) -> None:
    """After a 200 each kind has the status that it would have had."""
    sent_events = {"type": "error", "error": {"type": kind, "message": "Busy"}}
    with pytest.raises(error) as raised:
        await read(vendor, model, start(), text("Hi"), sent_events)
    assert raised.value.retryable is retryable
    assert getattr(raised.value, "status", None) == status


async def test_an_answer_in_one_piece(vendor: FakeVendor, model: Model) -> None:
    """Some gateways don't stream."""
    whole = {
        "content": [
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    vendor.llm.cue(LlmCue(raw=(json.dumps(whole).encode(),), content_type="application/json"))
    made = await answer(model, HI)
    assert text_of(made) == "One moment."
    assert CallDelta(0, "", "", '{"x":1}') in made
    assert made[-2:] == [Finished("tool_calls"), Usage(input_tokens=3, output_tokens=4)]


async def test_an_error_in_one_piece_is_one(vendor: FakeVendor, model: Model) -> None:
    body = b'{"type": "error", "error": {"type": "api_error", "message": "Out to lunch"}}'
    vendor.llm.cue(LlmCue(raw=(body,), content_type="application/json"))
    with pytest.raises(StageBroken, match="Out to lunch"):
        await answer(model, HI)


async def test_call_without_a_name(vendor: FakeVendor, model: Model) -> None:
    """Without a name the client can't know which function to call."""
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t"}}
    with pytest.raises(StageBroken, match="without"):
        await read(vendor, model, start(), block)
