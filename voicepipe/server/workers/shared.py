"""State that all workers share at once: bad credentials, and the events of the live feed."""

from __future__ import annotations

from typing import cast

from msgspec import Struct

from voicepipe.auth.rate_limit import FailedAttempts
from voicepipe.clock import monotonic_ms
from voicepipe.server.workers.link import WorkerLink
from voicepipe.server.workers.messages import (
    CountFailure,
    FeedMessage,
    PublishEvent,
    Watching,
)
from voicepipe.telemetry.live_feed import Feed, Kind


class SharedAttempts(FailedAttempts):
    """Counts the unknown credentials of an address in all workers.

    Another worker counts one before it gets a connection that came later. On connections that are open already, an
    address may try a few more within the same millisecond.
    """

    def __init__(self, link: WorkerLink) -> None:
        super().__init__()
        self._link = link
        link.on_failure = self._failed_elsewhere

    def failed(self, address: str, now_ms: int) -> None:
        """Count one failure of `address`, here and in the other workers."""
        super().failed(address, now_ms)
        self._link.send(CountFailure(address))

    def _failed_elsewhere(self, address: str) -> None:
        super().failed(address, monotonic_ms())


class SharedFeed(Struct, frozen=True):
    """Implements `FeedHub`: the supervisor numbers the events."""

    link: WorkerLink
    epoch: str
    number: int

    def publish(self, kind: Kind, project: str, session: str, data: bytes, redacted_data: bytes) -> bool:
        """Send an event to all workers; False: it is dropped. Never waits."""
        return self.link.send(PublishEvent(kind, project, session, data, redacted_data))

    def watch(self, watching: bool) -> None:
        """Report whether this worker has readers."""
        self.link.send(Watching(watching))


def deliver_to(feed: Feed, link: WorkerLink) -> None:
    """Have the feed's readers get the events of all workers."""

    def deliver(message: FeedMessage) -> None:
        event = message.event
        kind = cast(Kind, event.kind)
        feed.deliver(message.number, kind, event.project, event.session, event.data, event.redacted_data)

    link.on_feed, link.on_watched = deliver, feed.watch_elsewhere
    feed.watch_elsewhere(link.watched)
