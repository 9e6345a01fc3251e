"""Start-up checks of the agents' LLMs. They only log, and nothing waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from voicepipe.auth.origin import is_loopback
from voicepipe.config.settings import LOCAL, Settings
from voicepipe.errors import VoicepipeError
from voicepipe.ports.transcriber import TranscriberCapabilities
from voicepipe.providers.llm import list_models
from voicepipe.registry import Spec, Stage
from voicepipe.telemetry.log import log_event
from voicepipe.turn.cost import estimated_tokens

LIST_TIMEOUT_S: Final = 20.0

WORTH_CACHING_TOKENS: Final = 500
"""A shorter prompt is processed quickly, cached or not."""


def log_language_limits(settings: Settings, stt_of: Callable[[str], TranscriberCapabilities]) -> None:
    """Log which of the agents' languages their STT or TTS can't serve. `stt_of` returns the STT's of an agent."""
    for agent, stage, why in language_limits(settings, stt_of):
        log_event("language_not_served", level=logging.WARNING, setting=f"agents.{agent}.{stage}", why=why)


def language_limits(
    settings: Settings, stt_of: Callable[[str], TranscriberCapabilities]
) -> Iterator[tuple[str, Stage, str]]:
    """Yield (agent, stage, why) for each stage that can't serve a language of the agent."""
    for name, agent in settings.agents.items():
        named = (agent.language or "", *(tag for tag, _ in agent.languages), *agent.interpret)
        others = ", ".join(dict.fromkeys(tag for tag in named if tag and tag.partition("-")[0].lower() != "en"))
        stt, follows = stt_of(name), bool(agent.languages or agent.interpret) and agent.language is None
        if others and stt.english_only:
            yield name, "stt", f"it transcribes English only, and the agent has {others}: choose a vendor's STT"
        elif follows and not stt.reports_language:
            yield name, "stt", "it does not report the language that it detects: the agent can't follow it"
        if others and any(settings.providers[spec.provider].kind in LOCAL for spec in agent.specs("tts")):
            yield name, "tts", f"it speaks English only, and the agent has {others}: choose a vendor's TTS"


async def check_models(settings: Settings) -> None:
    """Log problems before the first user meets them: model names that the vendor does not have, and prompts that are
    too short to be cached."""
    for agent, spec, tokens, least in never_cached(settings):
        log_event(
            "prompt_never_cached",
            level=logging.WARNING,
            setting=f"agents.{agent}.instructions",
            provider=str(spec),
            about_tokens=tokens,
            min_tokens=least,
        )
    async with asyncio.TaskGroup() as group:
        for spec in checkable(settings):
            group.create_task(_check_name(settings, spec), name=f"model-name-{spec}")


def never_cached(settings: Settings) -> Iterator[tuple[str, Spec, int, int]]:
    """Yield (agent, model, tokens of its prompt, least tokens that are cached) for long prompts that are never
    cached.
    """
    for name, agent in settings.agents.items():
        # Other languages than English need more tokens: the check warns too often rather than too seldom.
        tokens = int(estimated_tokens(len(agent.instructions)))
        for spec in settings.llm_specs(name):
            least = settings.facts(spec).cache_min_tokens or 0
            if WORTH_CACHING_TOKENS <= tokens < least:
                yield name, spec, tokens, least


def checkable(settings: Settings) -> list[Spec]:
    """Return the agents' models whose vendors list their models; none on this machine, and none without a key."""
    specs = dict.fromkeys(spec for name in settings.agents for spec in settings.llm_specs(name))
    return [spec for spec in specs if _can_check(settings, spec)]


def _can_check(settings: Settings, spec: Spec) -> bool:
    vendor, entry = settings.vendor(spec.provider), settings.providers[spec.provider]
    host = urlsplit(entry.base_url).hostname or ""
    here = host == "localhost" or is_loopback(host)
    return (
        vendor is not None
        and vendor.lists_models
        and list_models.can_list(entry.kind)
        and bool(entry.api_key)
        and not here
    )


async def _check_name(settings: Settings, spec: Spec) -> None:
    try:
        async with asyncio.timeout(LIST_TIMEOUT_S):
            known = await list_models.listed(spec, settings.connection(spec, key="llm"))
    except (VoicepipeError, TimeoutError) as error:
        why = str(error) or f"no list within {LIST_TIMEOUT_S:.0f} s"
        log_event("model_list_failed", level=logging.WARNING, provider=str(spec), why=why)
        return
    if known and not list_models.has(spec.model, known):
        near = ", ".join(list_models.nearest(spec.model, known))
        log_event("model_unknown", level=logging.WARNING, provider=str(spec), near=near or None)
