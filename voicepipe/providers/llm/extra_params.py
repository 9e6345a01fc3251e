"""Map parameters beside the port's own fields to a provider's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from voicepipe.errors import StageRefused
from voicepipe.ports.model import ModelRequest
from voicepipe.providers.net.address import ProviderAddress


def passed_on(
    address: ProviderAddress,
    request: ModelRequest,
    *,
    names: Mapping[str, str] | None,
    left_out: frozenset[str] = frozenset(),
    seen: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the passed-on parameters under the provider's own names, each value still as JSON.

    Args:
        address: the provider's address.
        request: the LLM request.
        names: OpenAI's name -> the provider's; None: the same names, and the provider has all of them.
        left_out: names that the provider refuses.
        seen: OpenAI's names of parameters that are handled elsewhere.

    Raises:
        StageRefused: 400: the provider has no such parameter. An answer sampled differently from the request would be
            worse than none; another provider may support it.
    """
    made: dict[str, Any] = {}
    for name, value in request.passed:
        if name in seen:
            continue
        own = name if names is None else names.get(name)
        if own is None or own in left_out:
            raise refused(address, f"the API has no parameter {name!r}")
        made[own] = msgspec.Raw(value.encode())
    return made


def refused(address: ProviderAddress, why: str) -> StageRefused:
    """Return the error for a provider that does not support a parameter; another one may."""
    return StageRefused(address.stage, provider=address.name, why=why, retryable=True, status=400)
