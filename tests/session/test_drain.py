"""A node that stops asks a session's client to resume at another one: when, and what ends the session here."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.drain import CHECK_S, SessionDrain
from voicepipe.session.shutdown import MOVED, EndingRequests
from voicepipe.session.snapshot import SessionSnapshot
from voicepipe.session.snapshot_writer import SnapshotWriter
from voicepipe.testing.waiting import WAIT_S


@dataclass
class Client:
    """What the drain asks of the session, and what its client gets."""

    text: SnapshotWriter = field(default_factory=SnapshotWriter)
    digests: tuple[str, str] | None = ("digest", "")
    is_silent: bool = True
    is_forbidden: bool = False
    requests: EndingRequests = field(default_factory=EndingRequests)
    got: list[dict[str, Any]] = field(default_factory=list)

    def forbid(self) -> None:
        """Refuse any further resumption."""
        self.is_forbidden = True

    def put(self, frames: Frames) -> None:
        """Take what is sent."""
        self.got += map(json.loads, frames)

    def drain(self) -> SessionDrain:
        """Return the drain of this session."""
        config = SessionConfig.start(session_id="sess_1", model="m", voice="v", instructions="", expires_at=0)
        session: Any = self
        return SessionDrain(self.text, session, EventRenderer(config), self.put, session, self.requests)


async def stored(state: SessionSnapshot, digest: str, previous_digest: str) -> bool:
    """Store a text."""
    return True


def client(**options: Any) -> Client:
    """Return a client whose session's snapshot is written."""
    made = Client(**options)
    made.text.store = stored
    return made


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_session_that_no_other_node_could_resume_gets_no_notice(is_shared: bool) -> None:
    """There is no store, or the client did not enable resumption."""
    made = client(digests=None) if is_shared else Client()
    assert made.drain().begin(5_000, at_once=True) is False
    assert made.text.on_written is None


def written(drained: Client) -> None:
    """Have the latest text be in the store."""
    assert drained.text.on_written is not None
    drained.text.on_written()


def test_the_client_gets_one_notice_when_the_store_has_its_text() -> None:
    made = client()
    assert made.drain().begin(5_000, at_once=False) is True
    assert made.got == [], "it is sent before the text is written"
    written(made)
    written(made)
    (notice,) = made.got
    assert notice["type"] == "voicepipe.going_away"
    assert 0 < notice["within_ms"] <= 5_000
    assert made.text.renew_s == CHECK_S


def test_a_turn_ends_first_unless_time_is_short() -> None:
    made = client(is_silent=False)
    drain = made.drain()
    drain.begin(5_000, at_once=False)
    written(made)
    assert made.got == []
    drain.begin(0, at_once=True)
    drain.begin(0, at_once=False)
    written(made)
    assert [event["within_ms"] for event in made.got] == [0]


async def test_the_session_ends_here_once_another_node_has_it() -> None:
    made = client()
    made.drain().moved()
    async with asyncio.timeout(WAIT_S):
        assert await made.requests.due() is MOVED
    assert made.is_forbidden
