"""A turn's subscriber receives each mark once, also one that came in mid-turn; the core does no extra work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from voicepipe.session.live_updates import TurnObserver
from voicepipe.session.ports import LiveTurns
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn import record_builder


class Watcher(LiveTurns):
    """A subscriber of a scenario's turns, or a client without subscription; it looks after every verb."""

    def __init__(self, scenario: Scenario, *, is_watched: bool = True) -> None:
        super().__init__(self)
        self.scenario, self.is_watched = scenario, is_watched
        self.sent: list[a.Notification] = []
        self._turn_observer = TurnObserver(scenario.driver.core, self)

    def publish(self, what: a.Notification) -> None:
        self.sent.append(what)

    def see(self, *verbs: Callable[[], object]) -> None:
        """Let these happen, each looked at."""
        for verb in verbs:
            verb()
            self._turn_observer.update(self.scenario.driver.now_ms)

    def marks(self) -> dict[str, int]:
        """Return each mark's time as it was sent last."""
        return {what.mark: what.at_ms for what in self.sent if isinstance(what, a.TurnMarked)}


def whole_turn(scenario: Scenario) -> tuple[Callable[[], object], ...]:
    return scenario.utters, scenario.answers, lambda: scenario.passes(5_000)


def test_subscriber_gets_each_update_once() -> None:
    """The core sends a client that requested turn events every mark once."""
    watcher = Watcher(Scenario())
    watcher.see(*whole_turn(watcher.scenario))
    (record,) = watcher.scenario.driver.records.values()
    assert watcher.marks() == dict(record.marks)
    sent = [(what.mark, what.at_ms) for what in watcher.sent if isinstance(what, a.TurnMarked)]
    assert len(sent) == len(set(sent))
    judged = {what.span.stage: what.span for what in watcher.sent if isinstance(what, a.StageJudged)}
    assert set(judged.values()) == set(record.stages)


def test_late_subscriber_gets_the_turn_so_far() -> None:
    """And one who leaves and comes back as well."""
    watcher = Watcher(Scenario(), is_watched=False)
    says, answers, passes = whole_turn(watcher.scenario)
    watcher.see(says)
    assert watcher.sent == []
    watcher.is_watched = True
    watcher.see(answers)
    before = watcher.marks()
    watcher.is_watched = False
    watcher.see(lambda: watcher.scenario.passes(10))
    watcher.sent.clear()
    watcher.is_watched = True
    watcher.see(lambda: watcher.scenario.passes(10))
    assert watcher.marks().items() >= before.items()
    watcher.see(passes)
    (record,) = watcher.scenario.driver.records.values()
    assert watcher.marks() == dict(record.marks)


def test_ended_turn_gets_no_updates() -> None:
    """The next one is."""
    watcher = Watcher(Scenario())
    watcher.see(*whole_turn(watcher.scenario))
    first = len(watcher.sent)
    watcher.see(lambda: watcher.scenario.passes(5_000))
    assert len(watcher.sent) == first
    watcher.see(watcher.scenario.utters)
    assert {what.turn_id for what in watcher.sent[first:] if isinstance(what, a.TurnMarked)} == {"turn_s_0002"}


def test_no_record_is_made_without_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a look is a question."""
    watcher = Watcher(Scenario(), is_watched=False)
    verbs = whole_turn(watcher.scenario)
    for verb in verbs:
        verb()
        with monkeypatch.context() as patch:
            patch.setattr(record_builder, "record_of", lambda *_: pytest.fail("nobody wants it"))
            watcher.see(lambda: None)
    assert watcher.sent == []


def test_subscribers_do_not_change_the_core() -> None:
    """So a journal replays."""
    stories = Scenario(), Scenario()
    for scenario, watches in zip(stories, (True, False), strict=True):
        watcher = Watcher(scenario, is_watched=watches)
        watcher.see(*whole_turn(scenario))
    watched, unwatched = (scenario.driver.commands for scenario in stories)
    assert watched == unwatched
