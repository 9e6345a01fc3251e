"""What a request passes on beside the port's own fields, by a provider's names for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from voicepipe.errors import StageRefused
from voicepipe.providers.net.peer import Peer
from voicepipe.stages.model import ModelRequest


def passed_on(
    peer: Peer,
    request: ModelRequest,
    *,
    names: Mapping[str, str] | None,
    left_out: frozenset[str] = frozenset(),
    seen: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The parameters that were passed on, by the provider's own names, each value still as JSON.

    Args:
        peer: whom it is for.
        request: the question.
        names: OpenAI's name -> the provider's; None: the same names, and the provider knows them all.
        left_out: names that the provider refuses.
        seen: OpenAI's names of those that somebody else has seen to.

    Raises:
        StageRefused: 400: the provider has no such parameter. An answer that is drawn otherwise than was asked for
            would be worse than none; another provider may have it.
    """
    made: dict[str, Any] = {}
    for name, value in request.passed:
        if name in seen:
            continue
        own = name if names is None else names.get(name)
        if own is None or own in left_out:
            raise refused(peer, f"it has no parameter {name!r}")
        made[own] = msgspec.Raw(value.encode())
    return made


def refused(peer: Peer, why: str) -> StageRefused:
    """The provider can't answer so; another one may."""
    return StageRefused(peer.stage, provider=peer.name, why=why, retryable=True, status=400)
