"""How a provider is named, and where its code is found, without importing it.

A spec is `provider/model`: `groq/llama-3.3-70b`, `local/moonshine-tiny`. The provider's part names
an entry of the settings or of the built-in list; the rest, slashes and all, is the model's name there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Literal

from voicepipe.errors import ConfigError

Stage = Literal["stt", "llm", "tts"]

ENTRY_POINT_GROUP = "voicepipe.providers"
"""Third parties add kinds here: name `KIND.STAGE`, value `module:factory`."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A provider and a model at it."""

    provider: str
    model: str

    @classmethod
    def parse(cls, text: str, *, key: str = "spec") -> Spec:
        """Read `provider/model`.

        Raises:
            ConfigError: naming `key`, when there is no slash or a part is empty.
        """
        provider, slash, model = text.partition("/")
        if not (provider and slash and model):
            raise ConfigError(f'{key}: expected "provider/model", for example "local/smollm2-135m", got {text!r}')
        return cls(provider, model)

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One `[providers.NAME]` of the settings."""

    kind: str
    """Which adapter speaks to it: `openai`, `local`, or one that an entry point adds."""

    base_url: str = ""
    """Where it is, up to and with `/v1` for OpenAI-shaped ones."""

    api_key: str = field(default="", repr=False)
    """Its key; empty when it needs none. Never logged."""

    connect_timeout_ms: int = 3_000
    idle_timeout_ms: int = 15_000
    """How long it may send nothing before we call it stalled."""

    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What only this kind understands, as (name, value) pairs. Never logged: a kind may keep a secret there."""


Factory = Callable[[Spec, ProviderSettings], Any]
"""(spec, settings) -> a Transcriber, Model or Synthesizer. Called once; the result serves all sessions."""

BUILT_IN: dict[tuple[str, str], str] = {
    ("local", "stt"): "voicepipe.providers.local.stt:open_transcriber",
    ("local", "llm"): "voicepipe.providers.local.llm:open_model",
    ("local", "tts"): "voicepipe.providers.local.tts:open_synthesizer",
    ("deepgram", "stt"): "voicepipe.providers.deepgram.stt:open_transcriber",
    ("elevenlabs", "stt"): "voicepipe.providers.elevenlabs.stt:open_transcriber",
    ("flux", "stt"): "voicepipe.providers.deepgram.flux:open_transcriber",
    ("assemblyai", "stt"): "voicepipe.providers.assemblyai.stt:open_transcriber",
    ("cartesia", "stt"): "voicepipe.providers.cartesia.stt:open_transcriber",
    ("openai", "stt"): "voicepipe.providers.openai.stt:open_transcriber",
    ("openai_realtime", "stt"): "voicepipe.providers.openai.realtime_stt:open_transcriber",
    ("wyoming", "stt"): "voicepipe.providers.wyoming.stt:open_transcriber",
    ("wyoming", "tts"): "voicepipe.providers.wyoming.tts:open_synthesizer",
    ("openai", "llm"): "voicepipe.providers.openai.model:open_model",
    ("openai", "tts"): "voicepipe.providers.openai.tts:open_synthesizer",
    ("deepgram", "tts"): "voicepipe.providers.deepgram.tts:open_synthesizer",
    ("inworld", "stt"): "voicepipe.providers.inworld.stt:open_transcriber",
    ("inworld", "tts"): "voicepipe.providers.inworld.tts:open_synthesizer",
    ("cartesia", "tts"): "voicepipe.providers.cartesia.tts:open_synthesizer",
    ("elevenlabs", "tts"): "voicepipe.providers.elevenlabs.tts:open_synthesizer",
    ("rime", "tts"): "voicepipe.providers.rime.tts:open_synthesizer",
    ("anthropic", "llm"): "voicepipe.providers.anthropic.model:open_model",
    ("gemini", "llm"): "voicepipe.providers.google.model:open_model",
}
"""(kind, stage) -> where its factory lives."""


def factory(kind: str, stage: Stage, *, key: str) -> Factory:
    """Import and return the factory that makes `kind`'s adapter for `stage`.

    Raises:
        ConfigError: naming `key`, when no such adapter is built in or installed.
    """
    target = BUILT_IN.get((kind, stage))
    if target is not None:
        module, _, name = target.partition(":")
        found: Factory = getattr(importlib.import_module(module), name)
        return found
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=f"{kind}.{stage}"):
        loaded: Factory = entry.load()
        return loaded
    known = sorted(k for k, s in BUILT_IN if s == stage)
    raise ConfigError(f"{key}: no {stage} adapter of kind {kind!r}; built in are {', '.join(known)}")
