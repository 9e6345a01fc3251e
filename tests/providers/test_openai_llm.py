"""The options of the OpenAI-shaped model, and how it reads the many ways in which servers answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from tests.providers.openai_llm import HI, SPEC, Settings
from voicepipe.errors import ConfigError, StageBroken, StageRefused
from voicepipe.ports.model import (
    CallDelta,
    Called,
    Finished,
    Message,
    Model,
    ModelEvent,
    ModelRequest,
    Returned,
    TextDelta,
    Usage,
)
from voicepipe.providers.built_in import factory
from voicepipe.providers.llm.thinking import ThinkingFilter
from voicepipe.providers.openai.model import open_model
from voicepipe.testing.conformance.model import answer, text_of
from voicepipe.testing.conformance.waits import short_timeout
from voicepipe.testing.fakes.cues import Cut, Fault, LlmCue, Stall
from voicepipe.testing.fakes.vendor import FakeVendor


@pytest.fixture
def model(settings: Settings) -> Model:
    return open_model(SPEC, settings())


def test_registry_finds_it() -> None:
    """The built-in name leads here."""
    assert factory("openai", "llm", key="agents.default.llm") is open_model


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_tokens": "5"}, r"providers\.groq\.max_tokens: unknown"),
        ({"stream_usage": "maybe"}, "expected true or false"),
        ({"max_tokens_field": "tokens"}, "expected max_tokens or max_completion_tokens"),
        ({"speech_rate_hz": "24k"}, "expected a rate"),
        ({"llm_extra": "[1]"}, "expected a JSON object"),
        ({"stt_extra": '{"temperature": 0}'}, "expected a JSON object"),
    ],
)
def test_wrong_options_are_named(settings: Settings, options: dict[str, str], words: str) -> None:
    """Unknown or wrong: it refuses to start, and says what was expected."""
    with pytest.raises(ConfigError, match=words):
        open_model(SPEC, settings(**options))


# How answers are read


def sse(*chunks: dict[str, Any] | str) -> bytes:
    return "".join(f"data: {c if isinstance(c, str) else json.dumps(c)}\n\n" for c in chunks).encode()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(**fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[fields])


def fn(name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}


async def read(vendor: FakeVendor, model: Model, *chunks: dict[str, Any] | str) -> list[ModelEvent]:
    vendor.llm.cue(LlmCue(raw=(sse(*chunks),)))
    return await answer(model, HI)


def calls_of(events: list[ModelEvent]) -> dict[int, tuple[str, str]]:
    """By index, the name and the whole arguments; checks that ids and names come once, first."""
    found: dict[int, tuple[str, str]] = {}
    for event in events:
        if isinstance(event, CallDelta):
            assert (event.index in found) == (not event.name) == (not event.call_id)
            name, arguments = found.get(event.index, (event.name, ""))
            found[event.index] = (name, arguments + event.arguments)
    return found


@pytest.mark.parametrize("done", [True, False])
async def test_finish_reason_is_enough(vendor: FakeVendor, model: Model, done: bool) -> None:
    """Some servers never send [DONE]; usage may come before or after the reason, and on every chunk."""
    usage = {"usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    last = {"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}, "choices": []}
    tail = ["[DONE]"] if done else []
    events = await read(vendor, model, delta(content="Hi") | usage, delta("stop") | usage, last, *tail)
    assert events == [TextDelta("Hi"), Finished("stop"), Usage(input_tokens=9, output_tokens=2, cached_tokens=4)]


async def test_done_is_enough(vendor: FakeVendor, model: Model) -> None:
    """A server that gives no reason but says [DONE] has finished."""
    assert await read(vendor, model, delta(content="Hi"), "[DONE]") == [TextDelta("Hi"), Finished("stop")]


@short_timeout
@pytest.mark.parametrize("fault", [Cut(after=2), Stall(after=2)], ids=["cut", "stall"])
async def test_failure_after_the_reason_is_none(vendor: FakeVendor, model: Model, fault: Fault) -> None:
    """The answer was complete; only its token counts are lost."""
    vendor.llm.cue(LlmCue(raw=(sse(delta(content="Hi")), sse(delta("stop"))), fault=fault))
    assert await answer(model, HI) == [TextDelta("Hi"), Finished("stop")]


@pytest.mark.parametrize(
    ("reason", "meant"),
    [("length", "length"), ("max_tokens", "length"), ("content_filter", "content_filter"), ("end_turn", "stop")],
)
async def test_reasons(vendor: FakeVendor, model: Model, reason: str, meant: Any) -> None:
    """Vendors' words for why it ends."""
    assert (await read(vendor, model, delta(content="Hi"), delta(reason)))[-1] == Finished(meant)


@pytest.mark.parametrize("whole", [False, True])
async def test_a_refusal_is_a_filtered_answer(vendor: FakeVendor, model: Model, whole: bool) -> None:
    """The words of a refusal have a field of their own, and the finish reason is `stop`."""
    if not whole:
        made = await read(
            vendor, model, delta(content=None, refusal="I'm sorry,"), delta(refusal=" no."), delta("stop")
        )
        assert made == [Finished("content_filter")]
        return
    message = {"role": "assistant", "content": None, "refusal": "I'm sorry, no."}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    vendor.llm.cue(LlmCue(raw=(body,), content_type="application/json"))
    assert await answer(model, HI) == [Finished("content_filter")]


@pytest.mark.parametrize("reason", ["error", "abort"])
async def test_reason_that_is_a_failure(vendor: FakeVendor, model: Model, reason: str) -> None:
    """An answer that ends with an error is not complete."""
    with pytest.raises(StageBroken, match=reason):
        await read(vendor, model, delta(content="Hi"), delta(reason), "[DONE]")


async def test_nothing_but_text_is_text(vendor: FakeVendor, model: Model) -> None:
    """Roles, empty deltas, nulls, reasoning of either name, other choices and unknown members say nothing."""
    events = await read(
        vendor,
        model,
        {"choices": []},
        {"choices": None, "usage": None, "error": None},
        delta(role="assistant", content=""),
        delta(content=None, reasoning_content="hm"),
        delta(reasoning="hm"),
        delta(
            content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "A"}]
        ),
        {"choices": [{"index": 1, "delta": {"content": "other"}}]},
        delta(content="B", refusal=None, annotations=[]),
        delta("stop"),
        "[DONE]",
    )
    assert events == [TextDelta("A"), TextDelta("B"), Finished("stop")]


async def test_server_that_does_not_stream(vendor: FakeVendor, model: Model) -> None:
    """A whole answer in JSON is read like one."""
    message = {"role": "assistant", "content": "Hi", "tool_calls": [{"id": "x", "function": fn("f", "{}")}]}
    whole = {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    vendor.llm.cue(LlmCue(raw=(json.dumps(whole).encode(),), content_type="application/json"))
    assert await answer(model, HI) == [
        TextDelta("Hi"),
        CallDelta(0, "x", "f", "{}"),
        Finished("tool_calls"),
        Usage(input_tokens=3, output_tokens=1),
    ]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"error": {"message": "no such model", "code": 404}}', StageRefused),
        ('{"error": {"message": "busy"}}', StageBroken),
        ('{"detail": "busy"}', StageBroken),
        ("{", StageBroken),
        ("[]", StageBroken),
    ],
)
async def test_error_under_200(vendor: FakeVendor, model: Model, body: str, kind: type[Exception]) -> None:
    """JSON that holds no answer is an error, whatever the status was."""
    vendor.llm.cue(LlmCue(raw=(body.encode(),), content_type="application/json; charset=utf-8"))
    with pytest.raises(kind):
        await answer(model, HI)


@pytest.mark.parametrize("chunk", ['"text"', "[1]", '{"choices": 3}', '{"choices": [{"delta": {"content": 5}}]}', "\\"])
async def test_chunk_of_another_shape(vendor: FakeVendor, model: Model, chunk: str) -> None:
    """What is not a chunk of an answer is broken, and quoted shortly."""
    with pytest.raises(StageBroken, match="expected a chunk"):
        await read(vendor, model, chunk)


# Function calls, as servers really send them


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(
            [
                call(index=0, id="a", function=fn("f", "")),
                call(index=0, function=fn(arguments='{"x"')),
                call(index=1, id="b", function=fn("g", "{}")),
                call(index=0, function=fn(arguments=":1}")),
            ],
            id="interleaved by index",
        ),
        pytest.param(
            [
                call(index=0, id="a", function=fn("f", '{"x":1}')),
                call(index=0, id="b", function=fn("g", "{}")),
            ],
            id="whole, always index 0",
        ),
        pytest.param(
            [
                call(index=0, id="a", function=fn("f", '{"x"')),
                call(index=0, id="a", function=fn("f", ":1}")),
                call(index=1, id="b", function=fn("g", "{}")),
            ],
            id="id and name repeated",
        ),
        pytest.param(
            [delta(tool_calls=[{"function": fn("f", '{"x":1}')}, {"function": fn("g", "{}")}])],
            id="whole, no ids, no index",
        ),
        pytest.param(
            [
                call(id="a", function=fn("f", '{"x"')),
                call(function=fn(arguments=":1}")),
                call(id="b", function=fn("g", "{}")),
            ],
            id="no index",
        ),
        pytest.param(
            [call(function=fn("f", {"x": 1})), call(function=fn("g", {}))],
            id="arguments as an object",
        ),
        pytest.param(
            [call(index=0, id="a", function=fn("f", '{"x":1}')), call(index=1, id="b", function=fn("g", ""))],
            id="no arguments",
        ),
        pytest.param(
            [
                call(index=0, id="a"),
                call(index=0, function=fn("f")),
                call(index=0, function=fn(arguments='{"x":1}')),
                call(index=5, id="b", function=fn(arguments="{")),
                call(index=5, function=fn("g", "}")),
            ],
            id="name after id",
        ),
    ],
)
async def test_calls(vendor: FakeVendor, model: Model, chunks: list[dict[str, Any]]) -> None:
    """Two calls come out, each with an id and a name first, however the server cut them."""
    events = await read(vendor, model, *chunks, delta("stop"), "[DONE]")
    assert {i: (name, json.loads(arguments)) for i, (name, arguments) in calls_of(events).items()} == {
        0: ("f", {"x": 1}),
        1: ("g", {}),
    }
    assert events[-1] == Finished("tool_calls")
    ids = [event.call_id for event in events if isinstance(event, CallDelta) and event.call_id]
    assert len(set(ids)) == 2


async def test_call_without_a_name(vendor: FakeVendor, model: Model) -> None:
    """Without a name the client can't know which function to call."""
    with pytest.raises(StageBroken, match="without"):
        await read(vendor, model, call(index=0, id="a", function=fn(arguments="{}")), delta("tool_calls"))


async def test_calls_without_end(vendor: FakeVendor, model: Model) -> None:
    """A model that has lost its way is stopped."""
    with pytest.raises(StageBroken, match="at most 64"):
        await read(vendor, model, *(call(index=i, id=f"c{i}", function=fn("f", "{}")) for i in range(65)))


async def test_calls_that_stand_in_the_question_are_not_made_again(vendor: FakeVendor, settings: Settings) -> None:
    """Mistral repeats them in its answer."""
    model = open_model(SPEC, settings(call_ids="nine", strict_order="true"))
    request = ModelRequest(model="m", messages=(*HI.messages, Called("call_1", "f", "{}"), Returned("call_1", "1")))
    await answer(model, request)
    sent = (await vendor.llm.nth(0)).question["messages"][1]["tool_calls"][0]["id"]
    old, new = call(index=0, id=sent, function=fn("f", "{}")), call(index=1, id="b" * 9, function=fn("g", "{}"))
    vendor.llm.cue(LlmCue(raw=(sse(old, new, delta("tool_calls"), "[DONE]"),)))
    assert calls_of(await answer(model, request)) == {0: ("g", "{}")}
    vendor.llm.cue(LlmCue(raw=(sse(old, delta(content="Done."), delta("stop"), "[DONE]"),)))
    assert await answer(model, request) == [TextDelta("Done."), Finished("stop")]


async def test_an_id_that_a_server_uses_again_is_that_of_another_call(vendor: FakeVendor, settings: Settings) -> None:
    """A simple server counts from `call_1` in each answer, or gives it to both calls of one. Each gets its own ID,
    which goes back to that server with the call and with its result.
    """
    model = open_model(SPEC, settings())
    again = call(index=0, id="call_1", function=fn("f", "{}")), call(index=1, id="call_1", function=fn("g", "{}"))
    messages: tuple[Message, ...] = HI.messages
    for _ in range(3):
        vendor.llm.cue(LlmCue(raw=(sse(*again, delta("tool_calls"), "[DONE]"),)))
        events = await answer(model, ModelRequest(model="m", messages=messages))
        assert calls_of(events) == {0: ("f", "{}"), 1: ("g", "{}")}
        for each in events:
            if isinstance(each, CallDelta) and each.call_id:
                messages = (*messages, Called(each.call_id, each.name, "{}"), Returned(each.call_id, each.name))
    await answer(model, ModelRequest(model="m", messages=messages))
    sent = (await vendor.llm.nth(3)).question["messages"]
    ids = [each["id"] for message in sent for each in message.get("tool_calls", ())]
    assert len(set(ids)) == 6
    assert ids == [message["tool_call_id"] for message in sent if message["role"] == "tool"]


# Bytes and tags, cut anywhere

STREAM = sse(
    delta(content="Grüße"), delta(content=" 林檎"), delta(content=" <think>no</think>yes"), delta("stop"), "[DONE]"
)


@example_settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(size=st.integers(1, 60))
async def test_any_cut_of_the_bytes(vendor: FakeVendor, model: Model, size: int) -> None:
    """Wherever the network cuts the bytes, the text is the same."""
    vendor.llm.cue(LlmCue(raw=(STREAM,), chunk_bytes=size))
    assert text_of(await answer(model, HI)) == "Grüße 林檎 yes"


async def test_keep_alives_are_nothing(vendor: FakeVendor, model: Model) -> None:
    """A storm of comments neither is text nor hides it."""
    vendor.llm.cue(LlmCue(tokens=("Hi", "!"), keep_alives=3_000, role_only=20))
    assert text_of(await answer(model, HI)) == "Hi!"


@pytest.mark.parametrize(
    ("whole", "spoken"),
    [
        ("plain", "plain"),
        ("<think>a</think>\n\nHello", "Hello"),
        ("Well <think>a < b </thin</think> then", "Well then"),
        ("1 < 2, <thinking> and </think>", "1 < 2, <thinking> and </think>"),
        ("<think>never closed", ""),
        ("ends with <thi", "ends with <thi"),
        ("<think></think><think>b</think>  c", "c"),
        ("<<think>a</think>b", "<b"),
    ],
)
def test_thinking_is_not_spoken(whole: str, spoken: str) -> None:
    """However the deltas are cut, what stands between the tags is dropped, and nothing else."""
    for size in range(1, len(whole) + 1):
        thinking_filter = ThinkingFilter()
        pieces = [thinking_filter.push(whole[at : at + size]) for at in range(0, len(whole), size)]
        assert "".join(pieces) + thinking_filter.finish() == spoken
