"""Find an LLM server that already runs on this machine, to offer it instead of the small local model."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import TYPE_CHECKING, Final

import msgspec

from voicepipe.config.settings import Settings

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S: Final = 0.5
"""A server on this machine lists its models in a few ms."""

MAX_BYTES: Final = 1 << 20
"""Limit of a list of models that is read."""

_OK: Final = 200
_NOT_FOR_CHAT: Final = re.compile(
    r"embed|rerank|whisper|\btts\b|\bbge\b|\bgte\b|\be5\b|minilm|paraphrase|\bclip\b", re.IGNORECASE
)
"""Names of models that cannot hold a conversation."""


class UsualAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address at which a kind of server listens by default, from its own documentation."""

    title: str
    provider: str
    """The provider's name in the offered spec."""

    base_url: str
    owner: str = ""
    """What its list of models has under `owned_by`; empty where the port alone identifies the server."""

    is_known: bool = False
    """Whether the catalog has the provider with this address, so that the spec is enough."""


USUAL: Final = (
    UsualAddress(title="Ollama", provider="ollama", base_url="http://127.0.0.1:11434/v1", is_known=True),
    UsualAddress(title="LM Studio", provider="lmstudio", base_url="http://127.0.0.1:1234/v1"),
    UsualAddress(title="llama.cpp", provider="llamacpp", base_url="http://127.0.0.1:8080/v1", owner="llamacpp"),
    UsualAddress(title="vLLM", provider="vllm", base_url="http://127.0.0.1:8000/v1", owner="vllm", is_known=True),
)
"""Many programs listen on 8000 and 8080, this server too: there the list of models shows whose it is."""


class _Model(msgspec.Struct):
    id: str
    owned_by: str = ""


class _Models(msgspec.Struct):
    data: list[_Model]


def leaves_llm_open(settings: Settings) -> bool:
    """Return whether no LLM is chosen: none is set for an agent, and no provider's key is there."""
    chosen = (key for key in settings.origins if key.startswith(("agents.", "providers.")))
    return not any(key.endswith((".llm", ".api_key")) for key in chosen)


async def offer(settings: Settings, addresses: tuple[UsualAddress, ...] = USUAL) -> str | None:
    """Return the line that offers the first server that answers, with its first model.

    Only these addresses of this machine get a request, once, for their list of models. None if no server answers, or if
    the operator has chosen an LLM already; then none gets one.
    """
    if not leaves_llm_open(settings):
        return None
    # Imported late: the supervisor of workers has no other use for an HTTP client.
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
        tasks = [group.create_task(_model_at(http, at), name=f"look for {at.title}") for at in addresses]
    for at, task in zip(addresses, tasks, strict=True):
        if model := task.result():
            address = "" if at.is_known else f"--set providers.{at.provider}.base_url={at.base_url} "
            return (
                f"{at.title} runs here: to answer with it, add {address}--llm {shlex.quote(f'{at.provider}/{model}')}"
            )
    return None


async def _model_at(http: aiohttp.ClientSession, at: UsualAddress) -> str | None:
    """Return the first model at an address that can hold a conversation; None when no such server answers there."""
    import aiohttp

    try:
        async with http.get(f"{at.base_url}/models", allow_redirects=False) as got:
            if got.status != _OK:
                return None
            body = bytearray()
            async for piece in got.content.iter_any():
                body += piece
                if len(body) > MAX_BYTES:
                    return None
            listed = msgspec.json.decode(body, type=_Models)
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
        return None
    names = (each.id for each in listed.data if not at.owner or each.owned_by == at.owner)
    return next((name for name in names if name.isprintable() and not _NOT_FOR_CHAT.search(name)), None)
