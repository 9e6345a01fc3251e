"""Read a function's parameters, which a client wrote, and a call's arguments, which a model wrote."""

from __future__ import annotations

from typing import Any

import msgspec

from voicepipe.errors import StageRefused
from voicepipe.ports.model import Function
from voicepipe.providers.net.address import ProviderAddress


def parameters(address: ProviderAddress, function: Function) -> Any:
    """Return a function's parameters as plain values.

    Raises:
        StageRefused: they are not JSON.
    """
    try:
        return msgspec.json.decode(function.parameters_json)
    except msgspec.DecodeError as error:
        why = f"the parameters of function {function.name!r} are not JSON: {error}"
        raise StageRefused(address.stage, provider=address.name, why=why, retryable=False) from None


def arguments_of(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object; arguments that are not an object, a model's error, become an empty
    one."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
