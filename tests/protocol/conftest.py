"""A session's wire with both checkers on it: every event that a test makes is checked, alone and with the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.testing.strict_events import problems as shape_problems
from voicepipe.testing.wire_checker import WireChecker
from voicepipe.turn.notifications import Notification

Event = dict[str, Any]


class SentEvents:
    """A wire, what it has said, and what was wrong with it."""

    def __init__(self, config: SessionConfig) -> None:
        self.wire = EventRenderer(config)
        self.checker = WireChecker()
        self.problems: list[str] = []
        self.events: list[Event] = []
        self.take(self.wire.hello())

    def take(self, frames: Frames) -> list[Event]:
        """Check and keep what the wire gave; returns it decoded."""
        events = [json.loads(frame) for frame in frames]
        for event in events:
            self.checker.see(event)
            self.problems += [f"{event['type']}: {problem}" for problem in shape_problems(event)]
        self.events += events
        return events

    def render(self, *announcements: Notification) -> list[Event]:
        """Notify; returns the events."""
        return [event for what in announcements for event in self.take(self.wire.render(what))]

    def types(self) -> list[str]:
        """The names of all events so far."""
        return [event["type"] for event in self.events]


def start(**changes: Any) -> SessionConfig:
    """A session as an agent starts it."""
    settings = {"session_id": "sess_7", "model": "default", "voice": "alba", "instructions": "Be brief."}
    return SessionConfig.start(**{**settings, "expires_at": 1_800_000_000, **changes})


@pytest.fixture
def config() -> SessionConfig:
    return start()


@pytest.fixture
def new_config() -> Callable[..., SessionConfig]:
    return start


@pytest.fixture
def new_sent() -> Iterator[Callable[..., SentEvents]]:
    """Makes a `SentEvents`; at the end of the test none may have had a problem."""
    made: list[SentEvents] = []

    def make(**changes: Any) -> SentEvents:
        made.append(SentEvents(start(**changes)))
        return made[-1]

    yield make
    for sent in made:
        assert sent.problems == []
        assert sent.checker.problems == []


@pytest.fixture
def sent(new_sent: Callable[..., SentEvents]) -> SentEvents:
    return new_sent()
