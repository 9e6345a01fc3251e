"""Every session that the core's tests play is journalled and replayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from voicepipe.testing.journal_check import JournalCheck

BY_HAND = (
    "test_what_nothing_would_end_is_ended",
    "test_no_filler_while_the_user_may_go_on",
    "test_a_question_makes_a_short_answer_whole",
    "test_a_row_that_leaves_out_too_much_is_found",
)
"""These tests change the core by other means than events, which no journal can hold."""


@pytest.fixture(autouse=True)
def replayed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Replay the test's events in a second core, which must do the same."""
    sessions = JournalCheck()
    with sessions.watching():
        yield
    if not request.node.name.startswith(BY_HAND):
        assert sessions.problems() == []
