"""The profile of a vendor with an API of its own: `VENDOR` in `vendor.py` of its package.

Registry, settings, prices and documentation are derived from the profiles (`built_in`). A profile is plain data: its
adapters are named as text, and imported when they are used.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, Literal

from msgspec import Struct

from voicepipe.ports.speech_price import SpeechPrice
from voicepipe.registry import Spec

Evidence = Literal["documented", "from_code", "unverified"]


class Api(Struct, frozen=True, kw_only=True):
    """One API, and its adapters: each is `module:factory`, or empty for a stage that the API does not serve."""

    kind: str
    """Its name in the settings, `providers.NAME.kind`."""

    title: str
    """Its name for people."""

    stt: str = ""
    llm: str = ""
    tts: str = ""

    speech: str = ""
    """The speech-to-speech models of the API: an agent's `model`."""

    llm_address: str = ""
    """`module:function` that makes the `ProviderAddress` of an LLM from spec and settings. Empty: the API does not list
    its models."""

    models_path: str = "/models"
    """Where it lists its models."""


class KnownProvider(Struct, frozen=True, kw_only=True):
    """A provider that needs no section of the settings."""

    name: str
    kind: str
    base_url: str = ""
    speech_only: bool = False
    """Whether only STT and TTS are reached so, since the catalog has an LLM vendor of the same name."""


class SpeechFacts(Struct, frozen=True, kw_only=True):
    """One STT or TTS of one vendor."""

    spec: str
    """The spec: a provider and one of its models. `NAME` is any name that the user chooses."""

    stage: Literal["stt", "tts"]
    kind: str
    """The API's kind."""

    streams: str
    """The streaming of input and output."""

    turn_events: str = "-"
    """The turn events that it sends."""

    word_times: str = "-"
    """Whether it sends word times, and their use."""

    cancel: str
    """How pending words are requested, or how unwanted speech is stopped."""

    formats: str
    """The format of audio input or output."""

    evidence: Evidence
    """Source of its protocol; facts without a source are marked in the adapter."""

    usd: float | None = None
    """List price of a minute of STT audio, or of a million TTS characters; None: not known. All are unverified: prices
    change, and none has been checked against a bill."""

    priced: str = ""
    """A shell pattern of the models with this price; empty: the model of `spec`."""

    price_source: str = ""
    """Source and date of `usd`."""

    def prices(self, spec: Spec) -> bool:
        """Return whether `usd` is the price of `spec`."""
        own = Spec.parse(self.spec)
        return spec.provider == own.provider and fnmatchcase(spec.model, self.priced or own.model)


class SpeechModelFacts(Struct, frozen=True, kw_only=True):
    """A speech-to-speech model of one vendor, or several of one price."""

    spec: str
    """The spec: a provider and one of its models."""

    models: str
    """A shell pattern of the models that this row is about."""

    kind: str
    """The API's kind."""

    input_format: str
    """The format of the audio that it gets."""

    interrupted: str
    """What becomes of the part of an answer that the user has not heard."""

    price: SpeechPrice | None = None
    """List price; None: not known. Unverified: none has been checked against a bill."""

    source: str = ""
    """Source and date of `price`."""


class Option(Struct, frozen=True):
    """One entry of `providers.NAME.options`, for the documentation."""

    name: str
    of: str
    """The vendor or the API that has it, for people."""

    meaning: str
    """With its default in brackets."""


ADDED_TO_ADDRESS: Final = "a JSON object of texts that is added to the address"
MERGED_INTO_REQUEST: Final = "a JSON object that is merged into the TTS request of a turn"
DEFAULT_VOICE: Final = "the voice if neither agent nor client names one that the provider has"
"""Meanings of options that several vendors have."""


class Vendor(Struct, frozen=True, kw_only=True):
    """A vendor whose adapters are in a package of their own. Its LLMs are in `catalog.toml` in that package."""

    apis: tuple[Api, ...]
    providers: tuple[KnownProvider, ...] = ()
    key_env: str = ""
    """The environment variable that holds its key; empty if it needs none."""

    domain: str = ""
    """The domain of its servers: its prices do not apply at other addresses. Empty: it has none."""

    speech: tuple[SpeechFacts, ...] = ()
    """Its STTs and TTSs."""

    speech_models: tuple[SpeechModelFacts, ...] = ()
    """Its speech-to-speech models."""

    options: tuple[Option, ...] = ()
    """Options of its STTs and TTSs."""
