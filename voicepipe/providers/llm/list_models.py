"""List the names of the models that a vendor offers now."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

import msgspec

from voicepipe.providers.built_in import APIS, imported
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec

MAX_LIST_BYTES: Final = 8 << 20
"""Maximum size of the list. OpenRouter's, with hundreds of models and their descriptions, is about 1 MB."""


class _Named(msgspec.Struct):
    id: str = ""
    name: str = ""  # in some APIs instead of `id`, and with a prefix: `models/NAME`


class _Listed(msgspec.Struct):
    data: list[_Named] | None = None
    models: list[_Named] | None = None


def can_list(kind: str) -> bool:
    """Return whether providers of this kind can list models."""
    return kind in APIS and bool(APIS[kind].llm_address)


async def listed(spec: Spec, settings: ProviderSettings) -> frozenset[str]:
    """Return the names of all models at the server of `settings`.

    Args:
        spec: for its provider's name, which errors show.
        settings: of a kind for which `can_list` is true.

    Raises:
        ConfigError: a setting is wrong.
        StageError: the vendor refused, stalled, broke, or sent no list.
    """
    api = APIS[settings.kind]
    address: ProviderAddress = imported(api.llm_address)(spec, settings)
    async with http.get(address, api.models_path) as answer:
        body = await answer.body(limit_bytes=MAX_LIST_BYTES)
    try:
        if body.lstrip().startswith(b"["):  # Together's is a bare list
            named = msgspec.json.decode(body, type=list[_Named])
        else:
            page = msgspec.json.decode(body, type=_Listed)
            named = [*(page.data or ()), *(page.models or ())]
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise failures.broken(address, "expected a list of models, got something else") from None
    return frozenset(each.id or each.name.removeprefix("models/") for each in named)


def nearest(model: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return at most 3 of `names` similar to `model`, the likeliest first."""
    known = list(names)
    inside = sorted((name for name in known if model.lower() in name.lower()), key=len)
    near = difflib.get_close_matches(model, known, n=3, cutoff=0.6)
    return tuple(dict.fromkeys((*inside, *near)))[:3]


def has(model: str, names: Iterable[str]) -> bool:
    """Return whether a vendor that lists `names` has `model`; a variant after a colon (`:nitro`) is ignored."""
    known = set(names)
    return bool({model, model.partition(":")[0], f"{model}:latest"} & known)
