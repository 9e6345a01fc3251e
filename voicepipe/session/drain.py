"""Have a session's client resume at another node, before this one stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.clock import monotonic_ms
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.session.resumption import Resumption
from voicepipe.session.shutdown import MOVED, EndingRequests
from voicepipe.session.snapshot_writer import SnapshotWriter
from voicepipe.turn.core import Core

CHECK_S: Final = 0.25
"""Longest time between two writes of the text meanwhile: a write finds that another node has the session."""


class SessionDrain:
    """The drain of one session. The client gets `voicepipe.going_away` once the store has the latest snapshot."""

    def __init__(
        self,
        text: SnapshotWriter,
        resumption: Resumption,
        wire: EventRenderer,
        put: Callable[[Frames], None],
        core: Core,
        requests: EndingRequests,
    ) -> None:
        self._writer, self._resumption, self._wire = text, resumption, wire
        self._put, self._core, self._ending_requests = put, core, requests
        self._ends_ms: int | None = None
        self._at_once = self._is_notified = False

    def begin(self, within_ms: int, *, at_once: bool) -> bool:
        """Send `voicepipe.going_away` when no turn runs, or `at_once`. Call again to send it sooner.

        Returns:
            False: no other node could go on with the session.
        """
        if self._writer.store is None or self._resumption.digests is None:
            return False
        self._ends_ms = monotonic_ms() + within_ms
        self._at_once = self._at_once or at_once
        self._writer.on_written = self._notify
        self._writer.renew_s = CHECK_S
        self._writer.schedule()
        return True

    def moved(self) -> None:
        """End the session here: the client has resumed it at another node."""
        self._resumption.forbid()
        self._ending_requests.now(MOVED)

    def _notify(self) -> None:
        if self._ends_ms is not None and not self._is_notified and (self._at_once or self._core.is_silent):
            self._is_notified = True
            self._put(self._wire.going_away(max(0, self._ends_ms - monotonic_ms())))
