"""Name providers, and hold the parts that their adapters are made from.

A spec is `provider/model`: `groq/llama-3.3-70b`, `local/moonshine-tiny`. The provider's part names
an entry of the settings or of the built-in list; the rest, slashes and all, is the model's name there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from voicepipe.errors import ConfigError

Stage = Literal["stt", "llm", "tts"]

ENTRY_POINT_GROUP = "voicepipe.providers"
"""Third parties add kinds here: name `KIND.STAGE`, value `module:factory`."""


class Spec(Struct, frozen=True):
    """A provider and a model at it."""

    provider: str
    model: str

    @classmethod
    def parse(cls, text: str, *, key: str = "spec") -> Spec:
        """Read `provider/model`.

        Raises:
            ConfigError: naming `key`, when there is no slash or a part is empty.
        """
        spec = cls.read(text)
        if not (spec.provider and spec.model):
            raise ConfigError(f'{key}: expected "provider/model", for example "local/smollm2-135m", got {text!r}')
        return spec

    @classmethod
    def read(cls, text: str) -> Spec:
        """Return the spec of a text that was checked before, or of a provider's name alone: it has an empty model."""
        provider, _, model = text.partition("/")
        return cls(provider, model)

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """One `[providers.NAME]` of the settings."""

    kind: str
    """The adapter that connects to it: `openai`, `local`, or one that an entry point adds."""

    base_url: str = ""
    """Where it is, up to and with `/v1` for OpenAI-shaped ones."""

    api_key: str = field(default="", repr=False)
    """Its key; empty when it needs none. Never logged."""

    connect_timeout_ms: int = 3_000
    idle_timeout_ms: int = 15_000
    """How long it may send nothing before we call it stalled."""

    telephone_audio: bool = True
    """Whether its STT gets a telephone's audio as it comes, where the adapter can send it so."""

    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What only this kind has, as (name, value) pairs. Never logged: a kind may keep a secret there."""
