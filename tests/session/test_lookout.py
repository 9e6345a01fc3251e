"""The lookout: who watches hears of each mark once, also who came in mid-turn; the core is never asked to do more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.session.lookout import Lookout
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn import ledger


class Watcher:
    """Somebody who watches a story, or doesn't; it looks after every verb."""

    def __init__(self, story: Story, *, watches: bool = True) -> None:
        self.story, self.watches = story, watches
        self.told: list[a.Announcement] = []
        self._lookout = Lookout(story.book.core, is_watched=lambda: self.watches, tell=self.told.append)

    def see(self, *verbs: Callable[[], object]) -> None:
        """Let these happen, each looked at."""
        for verb in verbs:
            verb()
            self._lookout.follow(self.story.book.now_ms)

    def marks(self) -> dict[str, int]:
        """Each mark as it was told last."""
        return {what.mark: what.at_ms for what in self.told if isinstance(what, a.TurnMarked)}


def whole_turn(story: Story) -> tuple[Callable[[], object], ...]:
    return story.says, story.answers, lambda: story.passes(5_000)


def test_a_watcher_hears_of_each_thing_once() -> None:
    """What the core tells a client that asked for turn events, mark for mark."""
    watcher = Watcher(Story())
    watcher.see(*whole_turn(watcher.story))
    (record,) = watcher.story.book.records.values()
    assert watcher.marks() == dict(record.marks)
    told = [(what.mark, what.at_ms) for what in watcher.told if isinstance(what, a.TurnMarked)]
    assert len(told) == len(set(told))
    judged = {what.span.stage: what.span for what in watcher.told if isinstance(what, a.StageJudged)}
    assert set(judged.values()) == set(record.stages)


def test_who_comes_in_mid_turn_hears_of_all_of_it_so_far() -> None:
    """And one who leaves and comes back as well."""
    watcher = Watcher(Story(), watches=False)
    says, answers, passes = whole_turn(watcher.story)
    watcher.see(says)
    assert watcher.told == []
    watcher.watches = True
    watcher.see(answers)
    before = watcher.marks()
    watcher.watches = False
    watcher.see(lambda: watcher.story.passes(10))
    watcher.told.clear()
    watcher.watches = True
    watcher.see(lambda: watcher.story.passes(10))
    assert watcher.marks().items() >= before.items()
    watcher.see(passes)
    (record,) = watcher.story.book.records.values()
    assert watcher.marks() == dict(record.marks)


def test_a_turn_that_is_over_is_told_of_no_more() -> None:
    """The next one is."""
    watcher = Watcher(Story())
    watcher.see(*whole_turn(watcher.story))
    first = len(watcher.told)
    watcher.see(lambda: watcher.story.passes(5_000))
    assert len(watcher.told) == first
    watcher.see(watcher.story.says)
    assert {what.turn_id for what in watcher.told[first:] if isinstance(what, a.TurnMarked)} == {"turn_s_0002"}


def test_while_nobody_watches_no_record_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a look is a question."""
    watcher = Watcher(Story(), watches=False)
    verbs = whole_turn(watcher.story)
    for verb in verbs:
        verb()
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "record_of", lambda *_: pytest.fail("nobody wants it"))
            watcher.see(lambda: None)
    assert watcher.told == []


def test_the_core_does_the_same_whoever_watches() -> None:
    """So a journal replays."""
    stories = Story(), Story()
    for story, watches in zip(stories, (True, False), strict=True):
        watcher = Watcher(story, watches=watches)
        watcher.see(*whole_turn(story))
    watched, unwatched = (story.book.orders for story in stories)
    assert watched == unwatched
