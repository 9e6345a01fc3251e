"""Which language a turn's record says that the caller spoke."""

from __future__ import annotations

import pytest

from voicepipe.testing.story import Story


@pytest.mark.parametrize(
    ("as_set", "heard", "told"), [(None, None, ""), ("de", None, "de"), (None, "fr", "fr"), ("de", "fr", "fr")]
)
def test_the_language_is_what_the_ear_heard_or_else_what_is_set(
    as_set: str | None, heard: str | None, told: str
) -> None:
    """Neither is asked for; where nobody says, the record doesn't either."""
    story = Story(language=as_set)
    story.speaks()
    story.pauses()
    story.hears(language=heard)
    story.stops()
    story.leaves()
    assert story.book.records["turn_s_0001"].language == told
