"""A vendor's counts of tokens, however odd, break no answer; what is no count is ignored."""

from __future__ import annotations

import json
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.ports.model import MAX_TOKENS, Finished, ModelEvent, TextDelta, Usage
from voicepipe.providers.anthropic import answer as anthropic_answer
from voicepipe.providers.google import answer as google_answer
from voicepipe.providers.google.thought_signatures import ThoughtSignatures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai import answer as openai_answer

ADDRESS = ProviderAddress(
    stage="llm", name="v/m", base_url="http://127.0.0.1", connect_timeout_ms=1_000, idle_timeout_ms=1_000
)
ODD: tuple[object, ...] = (
    *(-5, -5_000_000, 10**20, 10**400, MAX_TOKENS + 1, 1.5, 1e300, "many"),
    *(True, [], {"n": 1}, float("nan")),
)


class Dialect(Protocol):
    """A vendor's answer of one word, with two counts."""

    def __call__(self, read: Any, wrote: Any) -> list[ModelEvent]: ...


def openai(read: Any, wrote: Any) -> list[ModelEvent]:
    reader = openai_answer.AnswerReader(ADDRESS)
    usage = {"prompt_tokens": read, "completion_tokens": wrote}
    reader.data(json.dumps({"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}).encode())
    reader.data(json.dumps({"choices": [], "usage": usage}).encode())
    reader.end()
    return list(reader.take())


def openai_whole(read: Any, wrote: Any) -> list[ModelEvent]:
    reader = openai_answer.AnswerReader(ADDRESS)
    choices = [{"message": {"content": "Hi."}, "finish_reason": "stop"}]
    usage = {"prompt_tokens": read, "completion_tokens": wrote}
    reader.whole(json.dumps({"choices": choices, "usage": usage}).encode())
    return list(reader.take())


def anthropic(read: Any, wrote: Any) -> list[ModelEvent]:
    reader = anthropic_answer.AnswerReader(ADDRESS)
    delta = {"type": "text_delta", "text": "Hi."}
    for event in (
        {"type": "message_start", "message": {"usage": {"input_tokens": read}}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": wrote}},
    ):
        reader.data(json.dumps(event).encode())
    reader.end()
    return list(reader.take())


def gemini(read: Any, wrote: Any) -> list[ModelEvent]:
    reader = google_answer.AnswerReader(ADDRESS, ThoughtSignatures())
    candidate = {"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": read, "candidatesTokenCount": wrote}
    reader.data(json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode())
    reader.end()
    return list(reader.take())


every_dialect = pytest.mark.parametrize("dialect", [openai, openai_whole, anthropic, gemini])


@every_dialect
def test_possible_counts_are_reported(dialect: Dialect) -> None:
    """A whole number that was written as a fraction is one."""
    said = [TextDelta("Hi."), Finished("stop")]
    assert dialect(12, 3) == [*said, Usage(input_tokens=12, output_tokens=3)]
    assert dialect(12.0, 3) == [*said, Usage(input_tokens=12, output_tokens=3)]


@every_dialect
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{odd!r:.12}")
def test_a_count_that_can_not_be_makes_the_usage_untold(dialect: Dialect, odd: Any) -> None:
    """All of it: half of a usage would make the other half free. The answer stands."""
    said = [TextDelta("Hi."), Finished("stop")]
    for counts in ((odd, 3), (12, odd), (odd, odd)):
        events = dialect(*counts)
        # NaN is no JSON: it is read as null, which says nothing of that count.
        usage = [event for event in events if isinstance(event, Usage)]
        assert [event for event in events if not isinstance(event, Usage)] == said
        assert all(each.is_possible for each in usage)
        assert usage == [] or odd != odd


@pytest.mark.slow
@every_dialect
@given(
    read=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists),
    wrote=st.integers() | st.floats() | st.none(),
)
def test_no_json_breaks_an_answer(dialect: Dialect, read: Any, wrote: Any) -> None:
    events = dialect(read, wrote)
    assert events[:2] == [TextDelta("Hi."), Finished("stop")]
    assert all(isinstance(event, Usage) and event.is_possible for event in events[2:])


@pytest.mark.parametrize("usage", [[1], "none", 7, True, None, {"prompt_tokens_details": [1], "prompt_tokens": 2}])
def test_a_usage_of_another_shape_breaks_none(usage: Any) -> None:
    reader = openai_answer.AnswerReader(ADDRESS)
    chunk = {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}], "usage": usage}
    reader.data(json.dumps(chunk).encode())
    reader.end()
    assert reader.take()[:2] == [TextDelta("Hi."), Finished("stop")]


def test_the_caches_part_is_never_more_than_the_input() -> None:
    """Else it would be paid back."""
    reader = openai_answer.AnswerReader(ADDRESS)
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9_000}}
    reader.data(json.dumps({"choices": [{"finish_reason": "stop"}], "usage": usage}).encode())
    reader.end()
    assert reader.take()[-1] == Usage(input_tokens=5, output_tokens=1, cached_tokens=5)
