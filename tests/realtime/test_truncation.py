"""`truncation` of the session: read, shown as it is in force, and applied to what the LLM reads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from voicepipe.testing.fakes.cues import LlmCue, Status, tokens
from voicepipe.testing.user import User, calling
from voicepipe.turn.conversation_limits import SUMMARY_HEAD

Event = dict[str, Any]

HALF = {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": 400}}


def text(words: str, role: str = "user") -> Event:
    """An item with a message."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": words}]}


async def response(user: User) -> Event:
    """Request a response; return it once it is over."""
    await user.send("response.create", response={"output_modalities": ["text"]})
    done: Event = (await user.until("response.done"))["response"]
    return done


@pytest.mark.parametrize("truncation", ["auto", "disabled", {"type": "retention_ratio", "retention_ratio": 0.8}, HALF])
async def test_what_is_in_force_is_displayed(server: Any, truncation: object) -> None:
    """As it was sent; null is `auto`, and an update without it changes nothing."""
    async with calling(server.url, session={"truncation": truncation}) as user:
        assert user.events[-1]["session"]["truncation"] == truncation
        await user.send("session.update", session={"type": "realtime", "instructions": "Be brief."})
        assert (await user.until("session.updated"))["session"]["truncation"] == truncation
        await user.send("session.update", session={"type": "realtime", "truncation": None})
        assert (await user.until("session.updated"))["session"]["truncation"] == "auto"


async def test_a_limit_above_the_agents_is_displayed_as_the_agents(fake_server: Any) -> None:
    """No more is in force than the agent's window has."""
    async with fake_server({"agents.default.context_tokens": 3_000}) as server:
        requested = HALF | {"token_limits": {"post_instructions": 9_000}}
        async with calling(server.url, session={"truncation": requested}) as user:
            assert user.events[-1]["session"]["truncation"] == HALF | {"token_limits": {"post_instructions": 3_000}}


@pytest.mark.parametrize(
    ("truncation", "param"),
    [
        ("sometimes", ""),
        (3, ""),
        ({"retention_ratio": 0.5}, ".type"),
        ({"type": "auto", "retention_ratio": 0.5}, ".type"),
        ({"type": "retention_ratio"}, ".retention_ratio"),
        ({"type": "retention_ratio", "retention_ratio": 1.5}, ".retention_ratio"),
        ({"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": 5}, ".token_limits"),
        (HALF | {"token_limits": {"post_instructions": 0}}, ".token_limits.post_instructions"),
    ],
)
async def test_a_wrong_value_is_refused_by_its_path(server: Any, truncation: object, param: str) -> None:
    """And the session stays as it was."""
    async with calling(server.url, session={"truncation": "disabled"}) as user:
        await user.send("session.update", session={"type": "realtime", "truncation": truncation})
        assert (await user.until("error"))["error"]["param"] == f"session.truncation{param}"
        await user.send("session.update", session={"type": "realtime"})
        assert (await user.until("session.updated"))["session"]["truncation"] == "disabled"


async def test_a_retention_ratio_is_applied_to_what_the_llm_reads(server: Any) -> None:
    """About 400 tokens at most, and half of them after a truncation; the beginning stays as it is between two."""
    async with calling(server.url, session={"truncation": HALF, "instructions": "Be brief."}) as user:
        for n in range(24):
            await user.send("conversation.item.create", item=text(f"{n} " + "word " * 40))
            assert (await response(user))["status"] == "completed"
    requests = [received.question["messages"] for received in server.vendor.llm.received]
    sizes = [sum(len(message["content"]) for message in messages) for messages in requests]
    assert max(sizes) <= 1_600 + len("Be brief.")
    firsts = [next(each["content"] for each in messages if each["role"] == "user") for messages in requests]
    changes = sum(before != after for before, after in pairwise(firsts))
    assert 3 <= changes <= 8
    assert {messages[0]["content"] for messages in requests} == {"Be brief."}


async def test_disabled_fails_the_response_when_the_window_is_full(fake_server: Any) -> None:
    """With the code for that; no LLM gets a request, and the session goes on."""
    small = {"agents.default.context_tokens": 600}
    requested = {"truncation": "disabled", "instructions": "Be brief."}
    async with fake_server(small) as server, calling(server.url, session=requested) as user:
        await user.send("conversation.item.create", item=text("x" * 4_000) | {"id": "long"})
        failed = await response(user)
        assert failed["status"] == "failed"
        assert failed["status_details"]["error"]["code"] == "context_length_exceeded"
        assert server.vendor.llm.received == []
        await user.send("conversation.item.delete", item_id="long")
        await user.send("conversation.item.create", item=text("hello"))
        assert (await response(user))["status"] == "completed"


SUMMARIZED = {"agents.default.context_tokens": 600, "agents.default.summary_llm": "fake/summary"}


async def talk_until(user: User, is_over: Callable[[], bool]) -> None:
    """Turns until then, at most 40."""
    for n in range(40):
        await user.send("conversation.item.create", item=text(f"{n} " + "word " * 40))
        assert (await response(user))["status"] == "completed"
        if is_over():
            return
    raise AssertionError("40 turns have not been enough")


async def test_old_turns_are_summarized_beside_the_turns(fake_server: Any) -> None:
    """By the LLM for that; the answering one reads the summary in their place."""
    async with fake_server(SUMMARIZED) as server:
        llm = server.vendor.llm
        llm.usual = lambda query: LlmCue(tokens=tokens("They agree." if query["model"] == "summary" else "Yes."))

        def sent(model: str) -> list[str]:
            messages = [each.question["messages"] for each in llm.received if each.question["model"] == model]
            return [message["content"] for read in messages for message in read]

        async with calling(server.url, session={"instructions": "Be brief."}) as user:
            await talk_until(user, lambda: f"{SUMMARY_HEAD}\nThey agree." in sent("llm"))
        query = sent("summary")[1]
        assert query.startswith("User: 0 word word")
        assert "Agent: Yes." in query


async def test_summaries_are_a_part_of_the_sessions_cost(fake_server: Any) -> None:
    """And of no turn's."""
    prices = {f"providers.fake.{name}_usd_per_million": 100.0 for name in ("input", "output")}
    async with fake_server(SUMMARIZED | prices) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Yes."))
        opted_in = {"providerData": {"voicepipe": {"turn_events": True}}}
        async with calling(server.url, session={"instructions": "Be brief."} | opted_in) as user:

            def records() -> list[Any]:
                return [event["record"] for event in user.events if event["type"] == "voicepipe.turn.record"]

            await talk_until(user, lambda: any(each["session_cost"]["summary_usd"] for each in records()))
            last = max(records(), key=lambda record: record["turn"])
    turns = {each["id"]: each["cost"]["usd"] for each in records()}
    cost = last["session_cost"]
    assert cost["usd"] == pytest.approx(sum(turns.values()) + cost["summary_usd"])


async def test_a_summary_that_fails_costs_no_turn(fake_server: Any) -> None:
    """The items leave by rule, and the log says why."""
    async with fake_server(SUMMARIZED) as server:
        llm = server.vendor.llm
        llm.usual = lambda query: LlmCue(
            tokens=tokens("Yes."), fault=Status(500) if query["model"] == "summary" else None
        )
        async with calling(server.url, session={"instructions": "Be brief."}) as user:
            n_failed = 0
            while n_failed < 2:
                await talk_until(user, lambda: True)
                n_failed = sum(each.question["model"] == "summary" for each in llm.received)
            await talk_until(user, lambda: True)
        answered = [each.question["messages"] for each in llm.received if each.question["model"] == "llm"]
        assert max(sum(len(message["content"]) for message in messages) for messages in answered) <= 2_400
