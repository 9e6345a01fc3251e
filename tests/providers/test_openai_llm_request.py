"""What the OpenAI-shaped model sends: fields, headers, and the messages of a conversation with their calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.providers.openai_llm import HI, SPEC, Settings
from voicepipe.errors import StageRefused
from voicepipe.ports.model import Called, Content, Function, Image, Message, ModelRequest, Returned, Text, Usage
from voicepipe.providers.llm.call_ids import nine
from voicepipe.providers.openai.model import open_model
from voicepipe.providers.openai.request import messages
from voicepipe.testing.conformance.model import answer
from voicepipe.testing.fakes.vendor import FakeVendor


async def test_request_as_a_whole(vendor: FakeVendor, settings: Settings) -> None:
    """Everything that the port can say reaches the vendor, and what it does not say is not sent."""
    model = open_model(SPEC, settings(session_field="user", session_header="X-Session-Affinity"))
    tool = Function("look_up", "Looks up.", '{"type": "object", "properties": {}}')
    await answer(
        model,
        ModelRequest(
            model="meta/llama",
            messages=(
                Content("system", (Text("Be brief."),)),
                Content("user", (Text("Hi"), Text("there"))),
            ),
            functions=(tool,),
            tool_choice="look_up",
            max_output_tokens=50,
            temperature=0.5,
            session="s1",
        ),
    )
    received = await vendor.llm.nth(0)
    assert received.question == {
        "model": "meta/llama",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi there"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look_up",
                    "description": "Looks up.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
        "max_tokens": 50,
        "temperature": 0.5,
        "user": "s1",
    }
    assert received.headers["Authorization"] == "Bearer sk-test-0123456789"
    assert received.headers["X-Session-Affinity"] == "s1"
    assert received.headers["Content-Type"] == "application/json"


async def test_request_says_no_more_than_it_must(vendor: FakeVendor, settings: Settings) -> None:
    """Options leave fields out, rename them and add to them; without a key nothing is said of one."""
    model = open_model(
        SPEC,
        settings(
            api_key="",
            stream_usage="false",
            max_tokens_field="max_completion_tokens",
            llm_extra='{"reasoning_effort": "none", "temperature": 1}',
        ),
    )
    events = await answer(model, ModelRequest(model="m", messages=HI.messages, max_output_tokens=5))
    received = await vendor.llm.nth(0)
    assert received.question == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "max_completion_tokens": 5,
        "reasoning_effort": "none",
        "temperature": 1,
    }
    assert "Authorization" not in received.headers
    assert not any(isinstance(event, Usage) for event in events)


def test_images() -> None:
    """A picture makes the content a list of parts."""
    parts = (Text("What is this?"), Image("data:image/png;base64,AA==", "low"))
    assert messages([Content("user", parts)]) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
            ],
        }
    ]


def said(role: str, text: str) -> Content:
    return Content(role, (Text(text),))  # type: ignore[arg-type]


def shape(written: list[dict[str, Any]]) -> list[tuple[str, str | None, list[str]]]:
    """Role, content or result's id, and the ids of calls."""
    return [
        (m["role"], m.get("tool_call_id", m["content"]), [c["id"] for c in m.get("tool_calls", [])]) for m in written
    ]


def test_calls_and_results_stand_together() -> None:
    """Parallel calls are one message with the text before them, and results follow even if the user cut in."""
    conversation: list[Message] = [
        said("user", "q"),
        said("assistant", "One moment."),
        Called("a", "f", ""),
        Called("b", "g", '{"x":1}'),
        said("user", "Hurry!"),
        Returned("b", "2"),
        Returned("a", "1"),
        Called("c", "f", "{}"),
        Returned("c", "3"),
        said("assistant", "Done."),
    ]
    written = messages(conversation)
    assert shape(written) == [
        ("user", "q", []),
        ("assistant", "One moment.", ["a", "b"]),
        ("tool", "a", []),
        ("tool", "b", []),
        ("user", "Hurry!", []),
        ("assistant", None, ["c"]),
        ("tool", "c", []),
        ("assistant", "Done.", []),
    ]
    assert written[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_half_of_a_pair_is_left_out() -> None:
    """A call without a result, and a result without a call, would break every later request of the conversation."""
    conversation: list[Message] = [said("user", "q"), Called("a", "f", "{}"), Returned("z", "1"), said("user", "again")]
    assert shape(messages(conversation)) == [("user", "q", []), ("user", "again", [])]


MESSAGES = st.lists(
    st.one_of(
        st.sampled_from([said("user", "u"), said("assistant", "a"), said("system", "s")]),
        st.builds(Called, st.sampled_from("abcd"), st.just("f"), st.just("{}")),
        st.builds(Returned, st.sampled_from("abcd"), st.just("out")),
    ),
    max_size=12,
    unique_by=lambda m: m if isinstance(m, Content) else (type(m), m.call_id),
)


@given(MESSAGES)
def test_every_call_is_followed_by_its_result(conversation: list[Message]) -> None:
    """Whatever happened in the conversation, no vendor has reason to refuse its form."""
    written = messages(conversation)
    due: list[str] = []
    for message in written:
        if message["role"] == "tool":
            assert message["tool_call_id"] == due.pop(0)
            continue
        assert not due
        due = [call["id"] for call in message.get("tool_calls", [])]
    assert not due


async def test_parameters_must_be_json(settings: Settings) -> None:
    """A function that can't be described is refused here, and named."""
    broken = ModelRequest(model="m", messages=HI.messages, functions=(Function("f", "", "{"),))
    with pytest.raises(StageRefused, match="function 'f' are not JSON") as raised:
        await answer(open_model(SPEC, settings()), broken)
    assert not raised.value.retryable


async def test_headers_of_ones_own_are_sent(vendor: FakeVendor, settings: Settings) -> None:
    """Modal's proxy keys, OpenRouter's title."""
    await answer(open_model(SPEC, settings(headers='{"Modal-Key": "wk-1", "X-Title": "Shop"}')), HI)
    headers = (await vendor.llm.nth(0)).headers
    assert (headers["Modal-Key"], headers["X-Title"]) == ("wk-1", "Shop")


@pytest.mark.parametrize(
    ("options", "mark"),
    [
        ({}, None),
        ({"prefill": "partial"}, "partial"),
        ({"prefill": "prefix"}, "prefix"),
        ({"strict_order": "true"}, "prefix"),
    ],
)
async def test_an_answer_to_go_on_with_bears_the_servers_mark(
    vendor: FakeVendor, settings: Settings, options: dict[str, str], mark: str | None
) -> None:
    """Only at the end of a question."""
    begun = ModelRequest(model="m", messages=(said("assistant", "Hello."), *HI.messages, said("assistant", "It is")))
    await answer(open_model(SPEC, settings(**options)), begun)
    sent = (await vendor.llm.nth(0)).question["messages"]
    marks = [sorted(message.keys() - {"role", "content"}) for message in sent]
    assert marks == [[], [], [] if mark is None else [mark]]


@given(st.text(max_size=40))
def test_any_id_becomes_nine_letters_and_digits(call_id: str) -> None:
    """Always the same for the same id, so that a call and its result still meet."""
    made = nine(call_id)
    assert len(made) == 9
    assert made.isascii()
    assert made.isalnum()
    assert nine(made) == made == nine(call_id)


def test_steps_stay_apart() -> None:
    """A call that was made because of an earlier one's result stands in a message of its own, after it."""
    conversation: list[Message] = [
        said("user", "q"),
        Called("a", "f", ""),
        Returned("a", "1"),
        Called("b", "g", ""),
        Returned("b", "2"),
    ]
    assert shape(messages(conversation)) == [
        ("user", "q", []),
        ("assistant", None, ["a"]),
        ("tool", "a", []),
        ("assistant", None, ["b"]),
        ("tool", "b", []),
    ]
