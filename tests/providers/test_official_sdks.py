"""Packages that others wrote agree with us: what we send has their types, and they can read what our fakes send.

So neither the native adapters nor the fakes that test them were made up. A test imports its package itself: the two
take 2.5 s of CPU, and each process of a run imports each module of the tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from voicepipe.ports.model import Called, Content, Function, Image, Message, ModelRequest, Returned, Text
from voicepipe.providers.anthropic import model as claude
from voicepipe.providers.google import model as gemini
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.model import answer
from voicepipe.testing.fakes.cues import CallCue, InBandError, LlmCue
from voicepipe.testing.fakes.vendor import FakeVendor

if TYPE_CHECKING:
    import anthropic

KEY = "sk-test-0123456789"
Settings = Callable[..., ProviderSettings]

CONVERSATION: tuple[Message, ...] = (
    Content("system", (Text("Be brief."),)),
    Content("assistant", (Text("Hello!"),)),
    Content("user", (Text("Where?"), Image("data:image/png;base64,QUJD"))),
    Called("c 1", "look_up", '{"x": 1}'),
    Returned("c 1", "Oslo"),
    Content("user", (Text("Quick!"),)),
)
TOOL = Function("look_up", "Looks up.", '{"type": "object", "properties": {}, "additionalProperties": false}')
CHOICES = ("auto", "none", "required", "look_up")


def question(model: str, choice: str) -> ModelRequest:
    return ModelRequest(
        model=model,
        messages=CONVERSATION,
        functions=(TOOL,),
        tool_choice=choice,
        max_output_tokens=50,
        temperature=0.5,
    )


@pytest.mark.parametrize(("version", "beside"), [("2023-06-01", {"temperature"}), ("2026-10-21", set())])
@pytest.mark.parametrize("choice", CHOICES)
async def test_questions_to_claude_have_the_types_of_its_own_package(
    vendor: FakeVendor, settings: Settings, choice: str, version: str, beside: set[str]
) -> None:
    """The package speaks the newer version, which has no temperature."""
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    thinking = '{"thinking": {"type": "disabled"}}'
    options = settings(model_extra=thinking, cache_ttl="1h", version=version)
    model = claude.open_model(Spec("anthropic", "m"), options)
    await answer(model, question("claude-haiku-4-5", choice))
    sent = (await vendor.llm.nth(0)).question
    TypeAdapter(MessageCreateParamsStreaming).validate_python(sent)
    assert sent.keys() - get_type_hints(MessageCreateParamsStreaming).keys() == beside


@pytest.mark.parametrize("choice", CHOICES)
async def test_questions_to_gemini_have_the_types_of_its_own_package(
    vendor: FakeVendor, settings: Settings, choice: str
) -> None:
    from google.genai import types

    thinking = '{"generationConfig": {"thinkingConfig": {"thinkingLevel": "minimal"}}}'
    model = gemini.open_model(Spec("gemini", "m"), settings(model_extra=thinking))
    await answer(model, question("gemini-3-flash-preview", choice))
    sent = (await vendor.llm.nth(0)).question
    assert types.Content.model_config["extra"] == "forbid"
    for content in (*sent.pop("contents"), sent.pop("systemInstruction")):
        types.Content.model_validate(content)
    for tool in sent.pop("tools"):
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(sent.pop("toolConfig"))
    types.GenerationConfig.model_validate(sent.pop("generationConfig"))
    assert sent == {}


@pytest.fixture
async def claude_client(vendor: FakeVendor) -> AsyncIterator[anthropic.AsyncAnthropic]:
    import anthropic

    address = vendor.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=address, max_retries=0) as client:
        yield client


QUESTION_TEXT: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}


async def test_the_fake_claude_is_read_by_its_own_package(
    vendor: FakeVendor, claude_client: anthropic.AsyncAnthropic
) -> None:
    """Thinking, pings, a call in pieces, and the counts."""
    call = CallCue("look_up", ('{"city":', '"Oslo"}'), "toolu_1")
    vendor.llm.cue(LlmCue(calls=(call,), input_tokens=10, cached_tokens=4, keep_alives=3))
    async with claude_client.messages.stream(**QUESTION_TEXT) as stream:
        message = await stream.get_final_message()
    thought, used = message.content
    assert (thought.type, used.type, message.stop_reason) == ("thinking", "tool_use", "tool_use")
    assert used.input == {"city": "Oslo"}  # type: ignore[union-attr]
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (6, 4)


async def test_the_fake_claudes_error_is_one_to_its_own_package(
    vendor: FakeVendor, claude_client: anthropic.AsyncAnthropic
) -> None:
    import anthropic

    vendor.llm.cue(LlmCue(fault=InBandError(after=1, code=529)))
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        async with claude_client.messages.stream(**QUESTION_TEXT) as stream:
            await stream.get_final_message()


@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")  # its own, about aiohttp
async def test_the_fake_gemini_is_read_by_its_own_package(vendor: FakeVendor) -> None:
    """Thoughts apart from text, a call with its signature, and the counts."""
    from google import genai
    from google.genai import types

    options = types.HttpOptions(base_url=vendor.base_url.removesuffix("/v1"), api_version="v1")
    client = genai.Client(api_key=KEY, http_options=options)
    vendor.llm.cue(LlmCue(calls=(CallCue("look_up", ('{"city": "Oslo"}',)),), input_tokens=10, cached_tokens=4))
    try:
        stream = await client.aio.models.generate_content_stream(model="gemini-3-flash-preview", contents="Hi")
        chunks = [chunk async for chunk in stream]
    finally:
        await client.aio.aclose()
        client.close()
    parts = [part for chunk in chunks for part in chunk.parts or ()]
    assert parts[0].thought
    assert parts[1].function_call is not None
    assert (parts[1].function_call.args, bool(parts[1].thought_signature)) == ({"city": "Oslo"}, True)
    assert chunks[-1].usage_metadata is not None
    assert chunks[-1].usage_metadata.cached_content_token_count == 4
