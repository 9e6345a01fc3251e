"""A long conversation stays inside the LLM's window, and its beginning stays as it was between two truncations."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import ConfigError
from voicepipe.ports.model import ModelRequest, text_chars
from voicepipe.session.messages import request_of
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.commands import StartReply, SummarizeHistory
from voicepipe.turn.conversation import InputText, Message
from voicepipe.turn.conversation_limits import SUMMARY_HEAD
from voicepipe.turn.cost import estimated_tokens
from voicepipe.turn.record.values import ContextUse, TurnRecord
from voicepipe.turn.settings import ReplySettings, Tool
from voicepipe.turn.truncation import CONTEXT_FULL, Truncation

WINDOW = 2_000
PROMPT = ReplySettings(instructions="You are brief. " * 40, tools=(Tool("look", "Look it up.", '{"type":"object"}'),))
WORDS = "I would like to know how long it takes to get from here to the station by bicycle, please"
ANSWER = "It takes about twelve minutes by bicycle, and a little more if you stop at the bakery."


def talks(scenario: Scenario, n_turns: int) -> list[StartReply]:
    """That many turns; what was sent to the LLM for each."""
    for n in range(n_turns):
        scenario.utters(f"{WORDS} number {n}")
        scenario.answers(ANSWER)
        scenario.passes(5_000)
    return scenario.started()[-n_turns:]


def request(command: StartReply) -> ModelRequest:
    """The LLM's request."""
    return request_of(command, model="m", session="s")


def tokens(command: StartReply) -> float:
    """How many tokens the LLM reads, by the estimate."""
    return estimated_tokens(text_chars(request(command)))


def digest(command: StartReply, n_messages: int) -> str:
    """The hash of the first messages of a request, and of its tools."""
    sent = request(command)
    return sha256(repr((sent.functions, sent.messages[:n_messages])).encode()).hexdigest()


def records(scenario: Scenario) -> list[TurnRecord]:
    """The last record of each turn."""
    return list(scenario.driver.records.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truncation", "ratio"),
    [
        (Truncation(), 0.75),
        (Truncation(kind="retention_ratio", retention_ratio=0.5), 0.5),
        (Truncation(kind="retention_ratio", retention_ratio=0.8, post_instructions=900), 0.8),
    ],
    ids=["auto", "half", "limited"],
)
def test_two_hundred_turns_stay_in_the_window_and_keep_the_cache_warm(truncation: Truncation, ratio: float) -> None:
    """Each request begins with all of the one before it, except at a truncation, which drops a block of items."""
    scenario = Scenario(context_tokens=WINDOW, reply=PROMPT, truncation=truncation)
    started = talks(scenario, 200)
    limit = WINDOW - tokens(StartReply(0, 0, "", PROMPT, ()))
    limit = min(limit, truncation.post_instructions or limit)
    prompt = WINDOW - limit if truncation.post_instructions is None else tokens(StartReply(0, 0, "", PROMPT, ()))
    drops = []
    for n, (before, after) in enumerate(pairwise(started), start=1):
        n_before = len(request(before).messages)
        if digest(before, n_before) != digest(after, n_before):
            drops.append(n)
            assert tokens(after) <= prompt + ratio * limit
    assert max(map(tokens, started)) <= prompt + limit
    per_turn = (len(WORDS) + len(ANSWER)) / 4
    assert 200 * per_turn / limit < len(drops) < 200 * per_turn / ((1 - ratio) * limit) * 1.5
    assert all(request(command).messages[0] == request(started[0]).messages[0] for command in started)


def test_the_record_says_how_much_was_left_out() -> None:
    """Nothing at first; then the tokens before and after, the number of items and the limit."""
    scenario = Scenario(context_tokens=WINDOW, reply=PROMPT)
    started = talks(scenario, 60)
    first, *_, last = [record.context for record in records(scenario)]
    assert first == ContextUse(
        tokens_before=first.tokens_before, tokens_after=first.tokens_before, items_dropped=0, limit_tokens=WINDOW
    )
    assert last.items_dropped == 119 - len(started[-1].items) > 0
    assert last.tokens_after < WINDOW < last.tokens_before
    assert last.tokens_after == pytest.approx(tokens(started[-1]), abs=1)


def test_a_conversation_without_a_limit_has_none_in_its_record() -> None:
    """The whole of it is sent."""
    scenario = Scenario(reply=PROMPT)
    assert len(talks(scenario, 60)[-1].items) == 119
    assert records(scenario)[-1].context.limit_tokens is None


def test_disabled_truncation_fails_the_response_once_the_window_is_full() -> None:
    """With the code for that. Nothing is sent to the LLM, and no apology is said: the client has chosen so."""
    scenario = Scenario(context_tokens=WINDOW, reply=PROMPT, truncation=Truncation(kind="disabled"), speculate=True)
    while not scenario.ended() or scenario.ended()[-1] == ("completed", ""):
        n_started = len(scenario.started())
        scenario.utters(WORDS)
        if len(scenario.started()) > n_started:
            scenario.answers(ANSWER)
        scenario.passes(5_000)
    assert scenario.ended()[-1] == ("failed", CONTEXT_FULL)
    assert tokens(scenario.started()[-1]) <= WINDOW
    failed = records(scenario)[-1]
    assert (failed.outcome, failed.failed_stage) == ("failed", "client")
    assert "truncation is disabled" in failed.reason


def test_disabled_truncation_goes_on_once_items_are_deleted() -> None:
    """The client makes room by itself."""
    scenario = Scenario(context_tokens=WINDOW, reply=PROMPT, truncation=Truncation(kind="disabled"))
    scenario.creates_item(Message("long", "user", (InputText("x" * 8_000),)))
    scenario.creates()
    assert scenario.ended() == [("failed", CONTEXT_FULL)]
    scenario.deletes_item("long")
    scenario.creates_item(Message("short", "user", (InputText("hello"),)))
    scenario.creates()
    scenario.answers()
    assert scenario.ended()[-1] == ("completed", "")


def test_a_longer_prompt_leaves_less_room_for_the_conversation() -> None:
    """The instructions and tools are part of the window."""
    short = Scenario(context_tokens=WINDOW)
    long = Scenario(context_tokens=WINDOW, reply=ReplySettings(instructions="y" * 6_000))
    assert len(talks(short, 60)[-1].items) > 2 * len(talks(long, 60)[-1].items)
    assert max(map(tokens, (*short.started(), *long.started()))) <= WINDOW


@given(ratio=st.floats(-1, 2))
def test_a_ratio_outside_0_to_1_is_refused(ratio: float) -> None:
    """Where it is made."""
    if 0 <= ratio <= 1:
        assert Truncation(retention_ratio=ratio).retention_ratio == ratio
    else:
        with pytest.raises(ConfigError):
            Truncation(retention_ratio=ratio)


# --- summaries ------------------------------------------------------------------------------------


def requested(scenario: Scenario) -> list[SummarizeHistory]:
    """The summaries that were requested."""
    return [command for command in scenario.driver.commands if isinstance(command, SummarizeHistory)]


def test_a_summary_takes_the_place_of_the_oldest_items() -> None:
    """It is requested before the window is full, and no turn waits for it; the next one continues it."""
    scenario = Scenario(context_tokens=WINDOW, reply=PROMPT, summarizes=True)
    while not requested(scenario):
        talks(scenario, 1)
    (first,) = requested(scenario)
    assert scenario.started()[-1].items[: len(first.items)] == first.items
    talks(scenario, 1)
    assert scenario.started()[-1].items[0] == first.items[0]
    scenario.is_summarized(1, "They talk of bicycles.")
    talks(scenario, 1)
    summary, *others = scenario.started()[-1].items
    assert isinstance(summary, Message)
    assert (summary.role, summary.text()) == ("system", f"{SUMMARY_HEAD}\nThey talk of bicycles.")
    assert not {item.id for item in others} & {item.id for item in first.items}
    assert records(scenario)[-1].context.items_dropped == len(first.items)
    while len(requested(scenario)) == 1:
        talks(scenario, 1)
    assert requested(scenario)[-1].items[0] == summary


@pytest.mark.slow
def test_a_summary_changes_the_beginning_only_once_for_each_block() -> None:
    """As a truncation does; and the window is never exceeded, whether summaries come or fail."""
    scenario = Scenario(context_tokens=WINDOW, reply=PROMPT, summarizes=True)
    for _ in range(200):
        n_before = len(requested(scenario))
        talks(scenario, 1)
        if len(requested(scenario)) > n_before:
            number = requested(scenario)[-1].number
            scenario.is_summarized(number, "" if number % 3 == 0 else "They talk of bicycles. " * 5)
    started = scenario.started()
    changes = [
        n
        for n, (before, after) in enumerate(pairwise(started))
        if digest(before, len(request(before).messages)) != digest(after, len(request(before).messages))
    ]
    assert max(map(tokens, started)) <= WINDOW
    assert len(changes) <= len(requested(scenario)) + 1


def test_a_summary_that_comes_late_or_unrequested_is_of_no_use() -> None:
    """Nor is one that comes twice."""
    scenario = Scenario(context_tokens=WINDOW, reply=PROMPT, summarizes=True)
    scenario.is_summarized(1, "Made up.")
    talks(scenario, 40)
    scenario.is_summarized(7, "Of another session.")
    assert len(requested(scenario)) == 1
    scenario.is_summarized(1, "The first.")
    scenario.is_summarized(1, "The second.")
    (command,) = talks(scenario, 1)
    first = command.items[0]
    assert isinstance(first, Message)
    assert first.text().endswith("The first.")


def test_no_summary_is_written_where_nothing_leaves() -> None:
    """Without the setting, or where the client has disabled truncation."""
    unset = Scenario(context_tokens=WINDOW, reply=PROMPT)
    talks(unset, 40)
    disabled = Scenario(context_tokens=WINDOW, reply=PROMPT, summarizes=True, truncation=Truncation(kind="disabled"))
    talks(disabled, 10)
    assert requested(unset) == requested(disabled) == []
