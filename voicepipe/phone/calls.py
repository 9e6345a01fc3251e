"""The phone calls of this process, for the tools of their agents."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from voicepipe.ports.server_tool import ToolError, ToolSession
from voicepipe.telemetry.log import log_event

LABEL: Final = "voicepipe"
"""The `server_label` of built-in tools on the wire."""


class PhoneCall(Struct, frozen=True, kw_only=True):
    """A call that an agent talks to."""

    transfer_to: Mapping[str, str]
    """Name -> number."""

    transfer: Callable[[str], Awaitable[None]]
    """Have the carrier connect the call with this number once its session has ended."""

    send_dtmf: Callable[[str], Awaitable[None]]
    """Send DTMF; raises `ToolError` if the carrier refuses it."""


class PhoneCalls:
    """The calls that run here, by their session's ID."""

    def __init__(self) -> None:
        self._calls: dict[str, PhoneCall] = {}  # bounded by `server.max_sessions`
        self._logged_lines: set[str] = set()  # bounded: the lines of the settings
        self.n_answered = 0
        """Number of calls that got a session since the server started."""

        self.n_refused = 0
        """Number of calls that were rejected: the server was full, or the agent could not be used."""

        self.n_unsigned = 0
        """Number of webhook requests whose signature was wrong."""

        self.n_invalid = 0
        """Number of carrier messages that could not be read, or are not documented."""

        self.n_dialed = 0
        """Number of calls that the server has dialed and the carrier accepted."""

        self.n_voicemail = 0
        """Number of dialed calls that a machine has answered."""

        self.n_transferred = 0
        """Number of calls that were connected with another number."""

        self.n_failed = 0
        """Number of commands to a call that the carrier's API has refused."""

    @property
    def results(self) -> Mapping[str, int]:
        """Return the number of calls by result."""
        return {
            "answered": self.n_answered,
            "refused": self.n_refused,
            "dialed": self.n_dialed,
            "voicemail": self.n_voicemail,
            "transferred": self.n_transferred,
            "unsigned": self.n_unsigned,
            "failed": self.n_failed,
        }

    def count_invalid(self) -> None:
        """Count a message of a carrier that can't be read."""
        self.n_invalid += 1

    def log_unsigned(self, line: str, url: str) -> None:
        """Count a webhook request with a wrong signature. Log the first one of each line only: anyone can send them."""
        self.n_unsigned += 1
        if line not in self._logged_lines:
            self._logged_lines.add(line)
            log_event("phone_signature_wrong", level=logging.WARNING, line=line, url=url)

    def call_of(self, session: ToolSession) -> PhoneCall:
        """Return the call of a session.

        Raises:
            ToolError: the session is no phone call.
        """
        call = self._calls.get(session.session_id)
        if call is None:
            raise ToolError("This is no phone call.")
        return call

    @contextmanager
    def running(self, session_id: str, call: PhoneCall) -> Iterator[None]:
        """Register a call while the block runs."""
        self._calls[session_id] = call
        self.n_answered += 1
        try:
            yield
        finally:
            del self._calls[session_id]
