"""What is sent to Gemini, and how its chunks are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from voicepipe.errors import ConfigError, StageBroken
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
from voicepipe.providers.built_in import factory
from voicepipe.providers.google.model import open_model
from voicepipe.providers.google.thought_signatures import REMEMBERED, UNKNOWN_SIGNATURE, ThoughtSignatures
from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.model import answer, text_of
from voicepipe.testing.fakes.cues import CallCue, LlmCue
from voicepipe.testing.fakes.request_rules import RequestRules
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.fakes.vendor_gemini import DIALECT, SIGNATURE

SPEC = Spec("gemini", "gemini-2.5-flash")
USER = Content("user", (Text("Hi"),))
HI = ModelRequest(model="gemini-2.5-flash", messages=(USER,))
Settings = Callable[..., ProviderSettings]


@pytest.fixture
def model(settings: Settings) -> Model:
    return open_model(SPEC, settings())


def test_registry_finds_it() -> None:
    assert factory("gemini", "llm", key="agents.default.llm") is open_model


WHOLE_REQUEST: Any = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "Where?"},
                {"inlineData": {"mimeType": "image/jpeg", "data": "QUJD"}},
                {"fileData": {"fileUri": "https://x.example/p.png"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "look_up", "args": {"x": 1}}},
                {"functionCall": {"name": "stop", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look_up", "response": {"city": "Oslo"}}},
                {"functionResponse": {"name": "stop", "response": {"result": "stopped"}}},
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "look_up",
                    "description": "Looks up.",
                    "parametersJsonSchema": {"type": "object", "additionalProperties": False},
                }
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look_up"]}},
    "generationConfig": {
        "maxOutputTokens": 50,
        "temperature": 0.5,
        "thinkingConfig": {"thinkingBudget": 0},
        "topP": 0.9,
    },
}
"""The body of the request below."""


async def test_request_as_a_whole(vendor: FakeVendor, settings: Settings) -> None:
    extra = '{"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}'
    model = open_model(SPEC, settings(model_extra=extra, llm_extra='{"generationConfig": {"topP": 0.9}}'))
    await answer(
        model,
        ModelRequest(
            model="gemini-2.5-flash",
            messages=(
                Content("system", (Text("Be brief."),)),
                Content(
                    "user", (Text("Where?"), Image("data:image/jpeg;base64,QUJD"), Image("https://x.example/p.png"))
                ),
                Called("c1", "look_up", '{"x": 1}'),
                Called("c2", "stop", ""),
                Returned("c2", "stopped"),
                Returned("c1", '{"city": "Oslo"}'),
            ),
            functions=(Function("look_up", "Looks up.", '{"type": "object", "additionalProperties": false}'),),
            tool_choice="look_up",
            max_output_tokens=50,
            temperature=0.5,
        ),
    )
    received = await vendor.llm.nth(0)
    assert received.question == WHOLE_REQUEST
    assert received.headers["x-goog-api-key"] == "sk-test-0123456789"
    assert "Authorization" not in received.headers


async def test_a_signature_goes_back_with_its_call(vendor: FakeVendor, settings: Settings) -> None:
    """Of calls that were made together the first has one; a call that another vendor made gets the stand-in."""
    vendor.rules = RequestRules(
        model="gemini-3-flash-preview", dialect=DIALECT, key_header="x-goog-api-key", key_prefix=""
    )
    model = open_model(Spec("gemini", "gemini-3-flash-preview"), settings())
    vendor.llm.cue(LlmCue(calls=(CallCue("f", call_id="g1"), CallCue("g", call_id="g2"))))
    request = ModelRequest(model="gemini-3-flash-preview", messages=(USER,))
    assert [e.call_id for e in await answer(model, request) if isinstance(e, CallDelta)] == ["g1", "g2"]
    history = (
        USER,
        Called("elsewhere", "f", "{}"),
        Returned("elsewhere", "1"),
        Called("g1", "f", "{}"),
        Called("g2", "g", "{}"),
        Returned("g1", "1"),
        Returned("g2", "2"),
    )
    await answer(model, ModelRequest(model="gemini-3-flash-preview", messages=history))
    contents = (await vendor.llm.nth(1)).question["contents"]
    signed = [[part.get("thoughtSignature") for part in each["parts"]] for each in contents if each["role"] == "model"]
    assert signed == [[UNKNOWN_SIGNATURE], [SIGNATURE, None]]


def test_oldest_signatures_are_dropped() -> None:
    signatures = ThoughtSignatures()
    for number in range(REMEMBERED + 1):
        signatures.keep(f"c{number}", str(number))
    assert signatures.of("c0") is None
    assert signatures.of("c1") == "1"


@pytest.mark.parametrize("options", [{"cache": "true"}, {"llm_extra": "[]"}])
def test_wrong_options_are_named(settings: Settings, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"providers\.gemini\."):
        open_model(SPEC, settings(**options))


# How answers are read


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}} | ({"finishReason": finish} if finish else {})
    return {"candidates": [candidate], **more}


@pytest.mark.parametrize(
    ("name", "strict", "choice", "mode"),
    [
        ("gemini-2.5-flash", True, "auto", "VALIDATED"),
        ("gemini-2.5-flash", None, "auto", "AUTO"),
        ("gemini-2.5-flash", True, "required", "ANY"),
        ("gemini-2.0-flash", True, "auto", "AUTO"),
    ],
)
async def test_a_strict_function_is_called_by_its_schema(
    vendor: FakeVendor, model: Model, name: str, strict: bool | None, choice: str, mode: str
) -> None:
    """The mode is that of all functions; `ANY` keeps to the schema anyway."""
    functions = (Function("look", "", "{}", strict), Function("stop", "", ""))
    await answer(model, ModelRequest(model=name, messages=(USER,), functions=functions, tool_choice=choice))
    config = (await vendor.llm.nth(0)).question["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": mode}


async def read(vendor: FakeVendor, model: Model, *chunks: dict[str, Any]) -> list[ModelEvent]:
    raw = "".join(f"data: {json.dumps(each)}\r\n\r\n" for each in chunks).encode()
    vendor.llm.cue(LlmCue(raw=(raw,)))
    return await answer(model, HI)


async def test_thoughts_are_not_spoken_and_are_paid(vendor: FakeVendor, model: Model) -> None:
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 30, "cachedContentTokenCount": 4}
    made = await read(
        vendor,
        model,
        chunk({"text": "I wonder", "thought": True}),
        chunk({"text": "Well."}, {"text": "", "thoughtSignature": "x"}),
        chunk(finish="STOP", usageMetadata=counts),
    )
    assert text_of(made) == "Well."
    assert made[-1] == Usage(input_tokens=9, output_tokens=32, cached_tokens=4)


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        ("STOP", "stop"),
        ("OTHER", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
    ],
)
async def test_reasons(vendor: FakeVendor, model: Model, reason: str, meant: str) -> None:
    assert Finished(meant) in await read(vendor, model, chunk({"text": "Hi"}, finish=reason))  # type: ignore[arg-type]


async def test_a_question_that_was_blocked_has_no_candidate(vendor: FakeVendor, model: Model) -> None:
    made = await read(vendor, model, {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}})
    assert made[0] == Finished("content_filter")


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
async def test_an_answer_that_cannot_be_used_is_broken(vendor: FakeVendor, model: Model, reason: str) -> None:
    with pytest.raises(StageBroken, match=reason) as raised:
        await read(vendor, model, chunk(finish=reason))
    assert raised.value.retryable


async def test_an_answer_in_one_piece(vendor: FakeVendor, model: Model) -> None:
    """Without alt=sse it is a list; some proxies answer so."""
    whole = json.dumps([chunk({"text": "On"}), chunk({"text": "e."}, finish="STOP")]).encode()
    vendor.llm.cue(LlmCue(raw=(whole,), content_type="application/json"))
    assert text_of(await answer(model, HI)) == "One."


async def test_an_error_in_one_piece_is_one(vendor: FakeVendor, model: Model) -> None:
    vendor.llm.cue(LlmCue(raw=(b'[{"error": {"message": "Out to lunch"}}]',), content_type="application/json"))
    with pytest.raises(StageBroken, match="Out to lunch"):
        await answer(model, HI)


async def test_call_without_a_name(vendor: FakeVendor, model: Model) -> None:
    with pytest.raises(StageBroken, match="without"):
        await read(vendor, model, chunk({"functionCall": {"args": {}}}))


def test_its_refusals_name_keys_and_retry_times(settings: Settings) -> None:
    """A wrong key is a 400 there, and the time to wait stands in the body."""
    address = ProviderAddress.of("llm", SPEC, settings())
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    wrong = failures.refused(
        address, 400, json.dumps({"error": {"code": 400, "message": "m", "details": details}}).encode()
    )
    assert (wrong.status, wrong.retryable) == (401, False)
    later = {"error": {"code": 429, "message": "m", "details": [{"retryDelay": "37s"}]}}
    busy = failures.refused(address, 429, json.dumps(later).encode())
    assert (busy.status, busy.retry_after_ms) == (429, 37_000)
