"""After a silence that has lasted too long the agent speaks up."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn.commands import CommitSilence, StartReply

TIMEOUT_MS = 5_000
HEARD_MS = 30_000
"""How much audio the ear has had when it is asked."""


def idle(story: Story, for_ms: int = TIMEOUT_MS) -> list[Any]:
    """Nobody says anything; returns the orders, with those of the silence that was committed, if it was."""
    got = story.passes(for_ms)
    return got + (story.goes_silent(HEARD_MS) if CommitSilence() in got else [])


@pytest.fixture
def answered() -> Story:
    """The caller has asked something and has heard the answer."""
    story = Story(idle_timeout_ms=TIMEOUT_MS)
    story.says()
    story.answers(duration_ms=1_000)
    return story


def prompted(orders: list[Any]) -> bool:
    """Whether a reply was started."""
    return any(isinstance(order, StartReply) for order in orders)


def test_silence_is_committed_and_answered(answered: Story) -> None:
    """Told as the silence, the commit, the item and a response, in this order; the turn's cause is `idle`."""
    answered.passes(1_000)
    n_before = len(answered.book.announced)
    assert prompted(idle(answered))
    timed_out, committed, added, started = answered.book.announced[n_before:]
    assert isinstance(added, a.ItemAdded)
    assert timed_out == a.SilenceTimedOut(added.item.id, HEARD_MS - TIMEOUT_MS, HEARD_MS)
    assert isinstance(committed, a.AudioCommitted)
    assert (committed.item_id, committed.previous_item_id) == (added.item.id, added.previous_item_id)
    assert isinstance(started, a.ResponseStarted)
    answered.answers("Are you there?", 500)
    answered.passes(600)
    record = max(answered.book.records.values(), key=lambda record: record.turn)
    assert (record.cause, record.outcome) == ("idle", "completed")
    assert answered.book.core.unlawful == []


def test_the_time_counts_from_the_end_of_the_sound(answered: Story) -> None:
    """Not from when it was sent."""
    assert not prompted(idle(answered, 1_000 + TIMEOUT_MS - 200))
    assert prompted(idle(answered, 400))


def test_nobody_is_prompted_before_the_first_answer() -> None:
    """The caller may take their time to begin."""
    assert not prompted(idle(Story(idle_timeout_ms=TIMEOUT_MS), 10 * TIMEOUT_MS))


def test_each_answer_is_followed_by_one_prompt(answered: Story) -> None:
    """A caller who has gone is not asked again before the prompt was heard, and then once more."""
    answered.passes(1_000)
    assert prompted(idle(answered))
    assert not prompted(idle(answered, TIMEOUT_MS))  # the model is thinking
    answered.answers("Are you there?", 500)
    answered.passes(600)
    assert prompted(idle(answered))


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.speaks(for_ms=0),
        lambda s: s.creates(),
        lambda s: s.changes(idle_timeout_ms=None),
        lambda s: s.changes(detection="none"),
        lambda s: s.changes(create_response=False),
    ],
    ids=["speech", "a request", "switched off", "turns by hand", "no responses"],
)
def test_it_is_over_with_the_silence(answered: Story, act: Any) -> None:
    """Whoever speaks or asks needs no prompt, and neither does a session that wants none."""
    answered.passes(1_000 + TIMEOUT_MS - 100)
    act(answered)
    n_started = len(answered.started())
    assert CommitSilence() not in answered.passes(200)
    assert len(answered.started()) == n_started


def test_a_caller_who_speaks_at_the_last_moment_is_not_talked_over(answered: Story) -> None:
    """The silence was to be committed, and speech comes before it is."""
    assert CommitSilence() in answered.passes(1_000 + TIMEOUT_MS)
    answered.speaks(for_ms=0)
    assert not prompted(answered.goes_silent(HEARD_MS))
    assert answered.said(a.SilenceTimedOut) == []


def test_noise_that_was_nothing_starts_it_anew(answered: Story) -> None:
    """A turn without words leaves the silence to go on."""
    answered.passes(1_000 + TIMEOUT_MS - 500)
    answered.says("")
    assert not prompted(idle(answered, TIMEOUT_MS - 500))
    assert prompted(idle(answered, 1_000))


def test_a_silence_that_nobody_ordered_changes_nothing() -> None:
    """A fact that the state has no use for."""
    story = Story()
    assert story.goes_silent(100) == []
