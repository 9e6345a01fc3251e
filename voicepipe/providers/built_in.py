"""The vendors with adapters of their own, and what follows from their profiles."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from voicepipe.errors import ConfigError
from voicepipe.ports.speech_price import SpeechPrice
from voicepipe.providers.vendor import Api, SpeechFacts, Vendor
from voicepipe.registry import ENTRY_POINT_GROUP, ProviderSettings, Spec, Stage

PACKAGES: Final = (
    "anthropic",
    "assemblyai",
    "cartesia",
    "deepgram",
    "elevenlabs",
    "google",
    "inworld",
    "local",
    "openai",
    "rime",
    "together",
    "wyoming",
)
"""The vendors' packages below `voicepipe.providers`. Each has its profile in a module `vendor`."""

VENDORS: Final[Mapping[str, Vendor]] = MappingProxyType(
    {name: importlib.import_module(f"voicepipe.providers.{name}.vendor").VENDOR for name in PACKAGES}
)
"""Package -> its profile."""

APIS: Final[Mapping[str, Api]] = MappingProxyType({api.kind: api for vendor in VENDORS.values() for api in vendor.apis})
"""Kind -> its API."""


def _speech(stage: Literal["stt", "tts"]) -> tuple[SpeechFacts, ...]:
    return tuple(facts for vendor in VENDORS.values() for facts in vendor.speech if facts.stage == stage)


TRANSCRIBERS: Final = _speech("stt")
VOICES: Final = _speech("tts")

Factory = Callable[[Spec, ProviderSettings], Any]
"""(spec, settings) -> a Transcriber, Model, Synthesizer or SpeechModel. Called once; the result serves all sessions."""


def adapter(kind: str, stage: Stage) -> str:
    """Return the `module:factory` of a built-in adapter; empty if there is none."""
    api = APIS.get(kind)
    return "" if api is None else {"stt": api.stt, "llm": api.llm, "tts": api.tts}[stage]


def factory(kind: str, stage: Stage, *, key: str) -> Factory:
    """Import and return the factory that makes `kind`'s adapter for `stage`.

    Raises:
        ConfigError: naming `key`, when no such adapter is built in or installed.
    """
    if target := adapter(kind, stage):
        found: Factory = imported(target)
        return found
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=f"{kind}.{stage}"):
        loaded: Factory = entry.load()
        return loaded
    known = sorted(name for name in APIS if adapter(name, stage))
    raise ConfigError(f"{key}: no {stage} adapter of kind {kind!r}; built in are {', '.join(known)}")


def speech_factory(kind: str, *, key: str) -> Factory:
    """Import and return the factory that makes the speech-to-speech models of `kind`.

    Raises:
        ConfigError: naming `key`, when there is no such adapter.
    """
    api = APIS.get(kind)
    if api is None or not api.speech:
        known = sorted(name for name, entry in APIS.items() if entry.speech)
        raise ConfigError(f"{key}: no speech-to-speech adapter of kind {kind!r}; built in are {', '.join(known)}")
    found: Factory = imported(api.speech)
    return found


def imported(target: str) -> Any:
    """Import and return what `module:name` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def key_env_of(facts: SpeechFacts) -> str:
    """Return the environment variable that holds the key of an STT or TTS; empty if it needs none."""
    vendor = next(each for each in VENDORS.values() if facts in each.speech)
    return "" if Spec.parse(facts.spec).provider == "NAME" else vendor.key_env


def published_usd(stage: Literal["stt", "tts"], spec: Spec, base_url: str) -> float | None:
    """Return the price of STT per minute, or of TTS per million characters, as in `SpeechFacts.usd`.

    None when it is not known, or when `base_url` is not the vendor's own.
    """
    return next((facts.usd for facts in _at_home(base_url) if facts.stage == stage and facts.prices(spec)), None)


def published_speech_price(spec: Spec, base_url: str) -> SpeechPrice | None:
    """Return the price of a speech-to-speech model; None when it is not known, or when `base_url` is not the vendor's
    own.
    """
    rows = (row for vendor in _vendors_at(base_url) for row in vendor.speech_models)
    return next((row.price for row in rows if fnmatchcase(spec.model, row.models)), None)


def _at_home(base_url: str) -> Iterator[SpeechFacts]:
    for vendor in _vendors_at(base_url):
        yield from vendor.speech


def _vendors_at(base_url: str) -> Iterator[Vendor]:
    host = urlsplit(base_url).hostname or ""
    for vendor in VENDORS.values():
        if vendor.domain and f".{host}".endswith(f".{vendor.domain}"):
            yield vendor
