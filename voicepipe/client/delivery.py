"""Deliver each item and each request for a response exactly once, also if the connection breaks.

After a resumption the server repeats the events that the client missed, and so confirms what it received. Then the
client repeats what is not confirmed. If another node continues a session, the resumption has the client's latest
events, and the node applies those that it does not have.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from voicepipe.client import events as e

ANSWERING: Final = "conversation_already_has_active_response"
"""The error code of a server that is making another response."""

MAX_ITEMS: Final = 64
"""Maximum number of unconfirmed items. Beyond it the oldest is not sent again."""

MAX_RECENT: Final = 8
"""Maximum number of latest events that are sent to another node. A node stores each within some ms: a client does not
send more in that time."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
"""Sends an event once. `Delivery` repeats events that a lost connection has lost."""


@dataclass(slots=True)
class _Request:
    """A request whose response is not complete."""

    event: dict[str, Any]
    is_accepted: bool = False
    waits: bool = False
    """The server is making another response, and gets the request again after it."""

    response_id: str = ""

    @property
    def name(self) -> str:
        return str(self.event["event_id"])


class Delivery:
    """Sends items and requests, and stores those that the server has not confirmed."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._token, self._number = secrets.token_hex(4), 0
        self._items: dict[str, dict[str, Any]] = {}  # full: the oldest is dropped, and not sent again
        self._requests: list[_Request] = []  # full: the oldest is dropped
        self._recent: list[dict[str, Any]] = []  # full: the oldest is dropped
        """The latest items, and the requests in `_requests`, in the order in which they were sent first."""

        self._probe = ""

    async def add(self, item: dict[str, Any]) -> None:
        """Add an item to the conversation.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        name = self._name("item")
        event = {"type": "conversation.item.create", "event_id": name, "item": {"id": name, **item}}
        self._items[name] = event
        if len(self._items) > MAX_ITEMS:
            del self._items[next(iter(self._items))]
        self._record(event)
        await self._send(event)

    async def request(self, metadata: Mapping[str, str] | None = None) -> None:
        """Request a response; if another one is running, request it again after that.

        Args:
            metadata: metadata of the response.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        response = {"response": {"metadata": dict(metadata)}} if metadata else {}
        event = {"type": "response.create", "event_id": self._name("request"), **response}
        # The response to the new request answers the waiting ones, too.
        self._drop([each for each in self._requests if each.waits])
        self._requests = [*self._requests[1 - MAX_RECENT :], _Request(event)]
        self._record(event)
        await self._send(event)

    def _record(self, event: dict[str, Any]) -> None:
        self._recent = [*self._recent[1 - MAX_RECENT :], event]

    async def handle(self, event: e.ServerEvent) -> bool:
        """Record what the server confirms or refuses, and repeat what is due.

        Returns:
            Whether the event needs no further handling: an error that this class handles.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        match event:
            case e.ItemAdded(item_id):
                self._items.pop(item_id, None)
            case e.ReplyStarted(response_id) if not self._items:
                self._set_response(response_id)
            case e.ItemDone() | e.FunctionCalled():
                self._drop_until(self._latest_response)
            case e.ReplyEnded(response_id):
                self._drop_until(response_id)
                if (waiting := next((each for each in self._requests if each.waits), None)) is not None:
                    waiting.waits = False
                    await self._send(waiting.event)
            case e.ServerError(code, _, event_id) if event_id:
                return await self._refused(event_id, code)
        return False

    def _set_response(self, response_id: str) -> None:
        """Record the response to the first request without one."""
        request = next((each for each in self._requests if not each.response_id and not each.waits), None)
        if request is not None:
            request.is_accepted, request.response_id = True, response_id

    @property
    def _latest_response(self) -> str:
        return next((each.response_id for each in reversed(self._requests) if each.response_id), "")

    def _drop_until(self, response_id: str) -> None:
        """Drop the request of this response, and the requests before it."""
        index = next(
            (n for n, each in enumerate(self._requests) if response_id and each.response_id == response_id), -1
        )
        self._drop(self._requests[: index + 1])

    def _drop(self, requests: list[_Request]) -> None:
        names = {each.name for each in requests}
        self._requests = [each for each in self._requests if each.name not in names]
        self._recent = [event for event in self._recent if event["event_id"] not in names]

    def recent_events(self) -> list[dict[str, Any]]:
        """Return the events that another node may not have, in order; see `voicepipe.resume`."""
        return self._recent

    def moved(self, n_answers: int) -> None:
        """Record that another node continues the session with `recent_events`, and that it answers the latest
        `n_answers` requests. The requests before them are answered."""
        self._items.clear()
        self._drop(self._requests[: max(0, len(self._requests) - n_answers)])
        for request in self._requests:
            request.is_accepted, request.waits, request.response_id = True, False, ""

    def probe(self) -> list[dict[str, Any]]:
        """Return events for a resumed connection: a request whose error is received after the missed events."""
        if not self._items and all(each.is_accepted for each in self._requests):
            return []
        self._probe = self._name("probe")
        return [{"type": "conversation.item.retrieve", "event_id": self._probe, "item_id": self._probe}]

    async def _refused(self, event_id: str, code: str) -> bool:
        if event_id == self._probe:  # the missed events were received
            for event in (*self._items.values(), *self._unanswered()):
                await self._send(event)
            return True
        refused = next((each for each in self._requests if each.name == event_id), None)
        if refused is not None and code == ANSWERING:
            self._drop([each for each in self._requests if each.waits])
            refused.is_accepted, refused.waits, refused.response_id = False, True, ""
            return True
        self._drop([refused] if refused is not None else [])
        self._items.pop(event_id, None)
        return False

    def _unanswered(self) -> list[dict[str, Any]]:
        return [each.event for each in self._requests if not each.is_accepted and not each.waits]

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}_{self._token}_{self._number}"
