"""Share the state of a phone call between its requests, in the shared store: any node may receive them."""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from voicepipe.clock import unix_s
from voicepipe.cluster.port import NO_CONFIG, Cluster
from voicepipe.errors import AuthError
from voicepipe.phone.carrier import AnnouncedCall
from voicepipe.phone.options import PhoneLine

STREAM_WAIT_S: Final = 60
"""Time from the webhook's answer to the media stream. Twilio opens the stream at once."""

TRANSFER_WAIT_S: Final = 300
"""How long a transfer waits for the end of the media stream: the session ends with the agent's next words."""

DIAL_WAIT_S: Final = 3_600
"""Time from a call of the server to its webhook, which comes when the user has answered."""


class PendingCall(msgspec.Struct, frozen=True):
    """A call between its webhook and its media stream."""

    call: AnnouncedCall
    agent: str
    """The agent of a dialed call; empty: the line's agent."""


async def store_pending_call(pending: PendingCall, line: PhoneLine, cluster: Cluster) -> str:
    """Store a call, and return the token of its media stream."""
    token = secrets.token_urlsafe(24)
    await _store(_call(token), msgspec.json.encode(pending), STREAM_WAIT_S, line, cluster)
    return token


async def take_pending_call(token: str, line: PhoneLine, cluster: Cluster) -> PendingCall:
    """Return the call of a stream's token. A token opens one stream.

    Raises:
        AuthError: 401: the token is unknown, expired or used.
    """
    name, now_s = _call(token), unix_s()
    stored = await _stored(name, line, cluster)
    if stored is not None:
        used = await cluster.count(name, 1, limit=1, until_s=now_s + STREAM_WAIT_S, now_s=now_s)
        if used.counted:
            return msgspec.json.decode(stored, type=PendingCall)
    raise AuthError("No call waits for this media stream.", code="phone_stream_unknown", status=401)


async def store_transfer(call_id: str, number: str, line: PhoneLine, cluster: Cluster) -> None:
    """Store the number to which a call is transferred once its media stream is over."""
    await _store(_transfer(call_id, line), number.encode(), TRANSFER_WAIT_S, line, cluster)


async def stored_transfer(call_id: str, line: PhoneLine, cluster: Cluster) -> str:
    """Return the number to which a call is transferred; empty: the call ends."""
    return (await _stored(_transfer(call_id, line), line, cluster) or b"").decode()


async def store_dial(agent: str, line: PhoneLine, cluster: Cluster) -> str:
    """Store the agent of a call that the server is about to make. Return the ID for the address of the webhook: not
    every carrier signs that address, so the address must not name an agent.
    """
    dial_id = secrets.token_urlsafe(24)
    await _store(_dial(dial_id), agent.encode(), DIAL_WAIT_S, line, cluster)
    return dial_id


async def dialed_agent(dial_id: str, line: PhoneLine, cluster: Cluster) -> str | None:
    """Return the agent of a dialed call, empty for the line's agent; None: the server dialed no such call."""
    stored = await _stored(_dial(dial_id), line, cluster)
    return None if stored is None else stored.decode()


async def _store(name: str, text: bytes, wait_s: int, line: PhoneLine, cluster: Cluster) -> None:
    now_s = unix_s()
    await cluster.store_config(name, text, project=line.project, until_s=now_s + wait_s, now_s=now_s)


async def _stored(name: str, line: PhoneLine, cluster: Cluster) -> bytes | None:
    """Return the text stored under a name; None: there is none, or the store that may have it is unavailable."""
    found = await cluster.config(name, project=line.project, now_s=unix_s())
    return None if found == NO_CONFIG else found


def _call(token: str) -> str:
    return f"phone_call_{token}"


def _transfer(call_id: str, line: PhoneLine) -> str:
    return f"phone_transfer_{line.name}_{call_id}"


def _dial(dial_id: str) -> str:
    return f"phone_dial_{dial_id}"
