"""Deliver each item and each request for an answer once, also when the connection breaks right after it.

The server sends again what the client missed, and so confirms what arrived. What it has not confirmed by then is sent
again. Another node, which goes on after the death of the first one, gets with the resumption what the client has sent
lately, and takes over what it does not know.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from voicepipe.client import events as e

ANSWERING: Final = "conversation_already_has_active_response"
"""The error code of a server that is at another answer."""

MAX_ITEMS: Final = 64
"""Items that are remembered. A server confirms or refuses each; one that does not, loses only those of a break."""

MAX_RECENT: Final = 8
"""Latest events that are named to another node. A node writes each within some ms; more of them are not sent in that
time."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
"""Sends an event once: what a break loses is sent again here."""


@dataclass(slots=True)
class _Request:
    """A request whose answer has not come as a whole."""

    event: dict[str, Any]
    is_accepted: bool = False
    waits: bool = False
    """The server is at another answer, and gets the request again after that."""

    response_id: str = ""

    @property
    def name(self) -> str:
        return str(self.event["event_id"])


class Delivery:
    """Sends items and requests, and remembers those that the server has not confirmed."""

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
        """Request an answer; if another one is running, request it again after that.

        Args:
            metadata: of the response, with which its events come.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        response = {"response": {"metadata": dict(metadata)}} if metadata else {}
        event = {"type": "response.create", "event_id": self._name("request"), **response}
        self._drop([each for each in self._requests if each.waits])  # this one's answer is theirs too
        self._requests = [*self._requests[1 - MAX_RECENT :], _Request(event)]
        self._record(event)
        await self._send(event)

    def _record(self, event: dict[str, Any]) -> None:
        self._recent = [*self._recent[1 - MAX_RECENT :], event]

    async def follow(self, event: e.ServerEvent) -> bool:
        """Note what the server confirms or refuses, and send again what is due.

        Returns:
            Whether the event concerns nothing else: an error that this class handles.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        match event:
            case e.ItemAdded(item_id):
                self._items.pop(item_id, None)
            case e.ReplyStarted(response_id) if not self._items:
                self._begun(response_id)
            case e.ItemDone() | e.FunctionCalled():
                self._over(self._latest_response)
            case e.ReplyEnded(response_id):
                self._over(response_id)
                if (waiting := next((each for each in self._requests if each.waits), None)) is not None:
                    waiting.waits = False
                    await self._send(waiting.event)
            case e.ServerError(code, _, event_id) if event_id:
                return await self._refused(event_id, code)
        return False

    def _begun(self, response_id: str) -> None:
        """Note the response to the first request that has none."""
        its = next((each for each in self._requests if not each.response_id and not each.waits), None)
        if its is not None:
            its.is_accepted, its.response_id = True, response_id

    @property
    def _latest_response(self) -> str:
        return next((each.response_id for each in reversed(self._requests) if each.response_id), "")

    def _over(self, response_id: str) -> None:
        """Drop the request that this response answers, and those before it."""
        place = next(
            (n for n, each in enumerate(self._requests) if response_id and each.response_id == response_id), -1
        )
        self._drop(self._requests[: place + 1])

    def _drop(self, requests: list[_Request]) -> None:
        names = {each.name for each in requests}
        self._requests = [each for each in self._requests if each.name not in names]
        self._recent = [event for event in self._recent if event["event_id"] not in names]

    def named(self) -> list[dict[str, Any]]:
        """Return the events that another node may not know, in order; see `voicepipe.resume`."""
        return self._recent

    def moved(self, n_answers: int) -> None:
        """Note that another node goes on: it has taken over what was named to it, and gives this number of answers by
        itself, to the latest requests. Those before them are answered."""
        self._items.clear()
        self._drop(self._requests[: max(0, len(self._requests) - n_answers)])
        for request in self._requests:
            request.is_accepted, request.waits, request.response_id = True, False, ""

    def probe(self) -> list[dict[str, Any]]:
        """Return what to send on a resumed connection: a request whose error comes after the missed events."""
        if not self._items and all(each.is_accepted for each in self._requests):
            return []
        self._probe = self._name("probe")
        return [{"type": "conversation.item.retrieve", "event_id": self._probe, "item_id": self._probe}]

    async def _refused(self, event_id: str, code: str) -> bool:
        if event_id == self._probe:  # all that was missed has come
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
