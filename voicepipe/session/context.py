"""The values that a session is made with: providers, the agents that may follow, the greeting, the recording."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct, field

from voicepipe.pii.redact import Kind
from voicepipe.ports.endpoint_scorer import AudioScorer, EndpointScorer
from voicepipe.ports.model import Model, ModelRequest
from voicepipe.ports.server_tool import ServerTool
from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.ports.transcriber import Transcriber
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.knowledge import Knowledge
from voicepipe.session.phrases import PhraseCache
from voicepipe.session.speech_model import SpeechStage
from voicepipe.session.summaries import SummaryModel
from voicepipe.telemetry.recording.port import CallRecorder
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import Strategies


class SessionStages(Struct, frozen=True, kw_only=True):
    """The providers of one session, and the model's name at each."""

    transcriber: Transcriber
    model: Model
    synthesizer: Synthesizer
    stt_model: str
    llm_model: str
    tts_model: str
    strategies: Strategies = field(default_factory=lambda: BUILT_IN)
    """The end-of-turn strategies that the session's settings may name."""

    endpoint_scorer: EndpointScorer | None = None
    """The local model that judges whether the user's words are a whole sentence; None: none runs here."""

    audio_scorer: AudioScorer | None = None
    """The model that judges from the audio whether the user has finished; None: none runs."""

    redact_for_llm: frozenset[Kind] = frozenset()
    """Kinds of personal data that are replaced in what the LLM reads."""

    knowledge: Knowledge | None = None
    """The agent's documents; None: it has none."""

    summary_model: SummaryModel | None = None
    """The LLM that summarizes what is about to leave the conversation; None: it leaves without a summary."""

    pronunciations: tuple[tuple[str, str], ...] = ()
    """Written words, and their spelling for the TTS."""

    speech: SpeechStage | None = None
    """The speech-to-speech model that answers in place of LLM and TTS; None: there is none."""

    tools: tuple[ServerTool, ...] = ()
    """The functions that the server runs."""

    phrases: PhraseCache | None = None
    """Phrases spoken earlier in that voice; None: the session has a cache of its own."""


class NextAgent(Struct, frozen=True, kw_only=True):
    """The agent that goes on with a session."""

    name: str
    config: SessionConfig
    """The session as it would begin with this agent."""

    stages: SessionStages
    before_reply: Callable[[ModelRequest], Awaitable[ModelRequest]] | None = None
    """Its hook, as in `SessionHooks`."""


class Greeting(Struct, frozen=True, kw_only=True):
    """The agent's first words."""

    text: str = ""
    """The text, with the names of variables; empty: the LLM decides."""

    interruptible: bool = True
    """Whether the user's speech may stop it."""

    at_any_time: bool = False
    """Whether it may come after another turn."""


class CallRecording(Struct, frozen=True, kw_only=True):
    """The recorder of a call, and its announcement."""

    open_recorder: Callable[[], CallRecorder]
    announcement: str = ""
    """What the agent says before anything is recorded, with the names of variables; empty: nothing."""


StartTask = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]
"""Starts a task of that name."""
