"""Deliver each item and each request for an answer once, also when the connection breaks right after it.

The server sends again what the client missed, and so confirms what arrived. What it has not confirmed by then is sent
again.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from voicepipe.client import events as e

ANSWERING: Final = "conversation_already_has_active_response"
"""The error code of a server that is at another answer."""

MAX_ITEMS: Final = 64
"""Items that are remembered. A server confirms or refuses each; one that does not, loses only those of a break."""

MAX_RECENT: Final = 4
"""Confirmed items that are sent again to another node, which refuses those that it has. A node writes each within some
ms; more of them are not added in that time."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
"""Sends an event once: what a break loses is sent again here."""


class Delivery:
    """Sends items and requests, and remembers those that the server has not confirmed."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._token, self._number = secrets.token_hex(4), 0
        self._items: dict[str, dict[str, Any]] = {}  # full: the oldest is dropped, and not sent again
        self._recent: dict[str, dict[str, Any]] = {}  # full: the oldest is dropped
        """Items that a server has confirmed: the node that goes on after its death may not know the latest."""

        self._request = self._probe = self._response = ""
        self._is_moved = False
        self._metadata: Mapping[str, str] = {}
        self._waits = False

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
        await self._send(event)

    async def request(self, metadata: Mapping[str, str] | None = None) -> None:
        """Request an answer; if another one is running, request it again after that.

        Args:
            metadata: of the response, with which its events come.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        self._metadata = metadata or {}
        await self._send_request()

    async def _send_request(self) -> None:
        self._request, self._waits = self._name("request"), False
        response = {"response": {"metadata": dict(self._metadata)}} if self._metadata else {}
        await self._send({"type": "response.create", "event_id": self._request, **response})

    async def follow(self, event: e.ServerEvent) -> bool:
        """Note what the server confirms or refuses, and send again what is due.

        Returns:
            Whether the event concerns nothing else: an error that this class handles.

        Raises:
            CallEnded: the connection is closed and cannot be resumed.
        """
        match event:
            case e.ItemAdded(item_id) if item_id in self._items:
                self._recent[item_id] = self._items.pop(item_id)
                if len(self._recent) > MAX_RECENT:
                    del self._recent[next(iter(self._recent))]
            case e.ReplyStarted(response_id) if not self._items:
                self._response, self._request = (response_id if self._request else self._response), ""
            case e.ItemDone() | e.FunctionCalled():
                self._response = ""
            case e.ReplyEnded(response_id):
                self._response = "" if response_id == self._response else self._response
                if self._waits:
                    await self._send_request()
            case e.ServerError(code, _, event_id) if event_id:
                return await self._refused(event_id, code)
        return False

    def probe(self, *, moved: bool = False, answer_follows: bool = False) -> list[dict[str, Any]]:
        """Return what to send on a resumed connection: a request whose error comes after the missed events.

        `moved`: another node goes on. `answer_follows`: it answers what was requested, as far as it knows.
        """
        self._is_moved = moved
        if answer_follows:
            self._response = ""
        if not self._items and not self._request and not (moved and (self._recent or self._response)):
            return []
        self._probe = self._name("probe")
        return [{"type": "conversation.item.retrieve", "event_id": self._probe, "item_id": self._probe}]

    async def _refused(self, event_id: str, code: str) -> bool:
        if event_id == self._probe:  # all that was missed has come
            for item in (*(self._recent.values() if self._is_moved else ()), *self._items.values()):
                await self._send(item)
            if (self._request and not self._waits) or (self._is_moved and self._response):
                self._response = ""
                await self._send_request()
            return True
        if event_id in self._recent:
            return True  # the other node has it
        if code == ANSWERING and event_id.startswith(self._prefix_of("request")):
            if self._is_moved:  # the other node answers it by itself
                self._request, self._is_moved = "", False
                return True
            self._request, self._waits = event_id, True
            return True
        if event_id == self._request:
            self._request = ""
        self._items.pop(event_id, None)
        return False

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{self._prefix_of(kind)}{self._number}"

    def _prefix_of(self, kind: str) -> str:
        return f"{kind}_{self._token}_"
