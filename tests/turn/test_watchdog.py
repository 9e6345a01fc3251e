"""The last resort: it never has to step in (the property tests see to that), and if it had to, it would."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.testing.story import Story
from voicepipe.turn.commands import NoteStuck
from voicepipe.turn.states import Agent, Caller


def speaking(story: Story) -> None:
    story.speaks()


def asked(story: Story) -> None:
    story.says()


def talking(story: Story) -> None:
    story.creates()
    story.begins_to_answer()


def aside(story: Story) -> None:
    story.creates(in_conversation=False)


@pytest.mark.parametrize("plot", [speaking, asked, talking, aside])
def test_what_nothing_would_end_is_ended(plot: Callable[[Story], None]) -> None:
    """Whatever lost the deadlines: the turn ends with a reason, it is counted, and the call goes on."""
    story = Story()
    plot(story)
    story.book.core.floor.timers.clear_all()
    story.truncates("nothing", 0)  # any fact: it looks behind each
    story.passes(60_000)
    assert story.book.core.n_stuck >= 1
    assert any(isinstance(order, NoteStuck) for order in story.book.orders)
    assert story.book.core.agent.state is Agent.IDLE
    assert story.book.core.caller.state is Caller.QUIET
    assert story.book.core.unlawful == []
    assert all(outcome is not None for outcome, _ in story.outcomes())
    story.says("And now?")
    story.answers()
    story.passes(5_000)
    assert story.outcomes()[-1] == ("completed", "")


def test_it_does_not_step_in_before_a_deadline() -> None:
    """A reply that makes no progress ends by its own."""
    story = Story()
    talking(story)
    story.passes(60_000)
    assert story.book.core.n_stuck == 0
    assert story.outcomes()[0][0] == "failed"
