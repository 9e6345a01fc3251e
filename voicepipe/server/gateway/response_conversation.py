"""Read the items of earlier responses and of item references from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from voicepipe.clock import unix_s
from voicepipe.cluster.response_store import ResponseStore, StoredResponse
from voicepipe.errors import ProtocolError
from voicepipe.protocol.chat_messages import MAX_MESSAGES
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.response_rest_answer import response_of
from voicepipe.protocol.response_rest_items import (
    InputItem,
    Item,
    ReasoningItem,
    ReferenceItem,
    check_calls,
    read_items,
    stored_items,
)
from voicepipe.protocol.response_rest_request import ResponseRequest
from voicepipe.server.authenticate import Principal

MAX_BYTES: Final = 4 << 20
"""Maximum size of the earlier responses that one request reads, as of a body."""


class RequestConversation(msgspec.Struct, frozen=True):
    """The items of a request."""

    earlier: tuple[Item, ...]
    """The items of the previous responses."""

    items: tuple[Item, ...]
    """The items of the request itself."""


def owner_of(principal: Principal) -> str:
    """Return the owner of a response, who may read it: all API keys of a project, or one user's client secrets.

    A client secret without a user owns the responses that it has stored itself.
    """
    claims = principal.claims
    names = (
        [principal.project]
        if claims is None
        else [principal.project, claims.subject, claims.subject or claims.token_id]
    )
    return msgspec.json.encode(names).decode()


async def conversation_of(requested: ResponseRequest, owner: str, store: ResponseStore) -> RequestConversation:
    """Return all items for the model.

    Raises:
        ProtocolError: the previous response or a referenced item is not stored, or a call has no result.
        StoreUnavailable: the store fails.
    """
    written = read_items(requested.input)
    earlier = await _earlier(requested.previous_response_id, owner, store)
    items = await _resolved(written, owner, store)
    if not items and not earlier:
        raise ProtocolError("Expected at least one item, got none.", field="input", code="missing_required_parameter")
    if len(earlier) + len(items) > MAX_MESSAGES:
        why = f"The conversation has over {MAX_MESSAGES} items. Start a new one."
        raise ProtocolError(why, field="previous_response_id", code="conversation_too_long")
    check_calls(earlier, items)
    return RequestConversation(tuple(earlier), tuple(items))


def written_items(conversation: Sequence[StoredResponse]) -> Iterator[JsonObject]:
    """Yield the input items of the last response of a conversation, as stored."""
    for position, each in enumerate(conversation, 1):
        yield from msgspec.json.decode(each.input)
        if position < len(conversation):
            yield from msgspec.json.decode(each.body)["output"]


async def _earlier(previous: str | None, owner: str, store: ResponseStore) -> list[Item]:
    if previous is None:
        return []
    found = await store.conversation(previous, owner, now_s=unix_s(), max_bytes=MAX_BYTES)
    if not found:
        raise ProtocolError(
            f"Previous response with id {previous[:64]!r} not found.",
            field="previous_response_id",
            code="previous_response_not_found",
        )
    return stored_items([*written_items(found), *msgspec.json.decode(found[-1].body)["output"]])


async def _resolved(written: Sequence[InputItem], owner: str, store: ResponseStore) -> list[Item]:
    known, items, n_bytes = dict[str, dict[str, Any]](), list[Item](), 0
    for position, item in enumerate(written):
        match item:
            case ReasoningItem():
                continue
            case ReferenceItem(id_):
                response = response_of(id_) or ""
                if response not in known and n_bytes <= MAX_BYTES:
                    found = await store.find(response, owner, now_s=unix_s())
                    n_bytes += found.n_bytes if found is not None else 0
                    known[response] = {} if found is None else _by_id(found)
                if id_ not in known.get(response, ()):
                    why = f"Item with id {id_[:64]!r} not found. Send the item itself."
                    raise ProtocolError(why, field=f"input[{position}].id", code="item_not_found")
                items += stored_items([known[response][id_]])
            case _:
                items.append(item)
    return items


def _by_id(response: StoredResponse) -> dict[str, Any]:
    written = [*msgspec.json.decode(response.input), *msgspec.json.decode(response.body)["output"]]
    return {each["id"]: each for each in written}
