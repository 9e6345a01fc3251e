"""The whole effective session: what it starts with, and what a client's `session.update` makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from voicepipe.protocol.extensions import Extensions
from voicepipe.protocol.fields import JsonObject
from voicepipe.protocol.session_parts import (
    ADAPTIVE_MIDDLE,
    DEFAULT_PADDING_MS,
    DEFAULT_SILENCE_MS,
    DEFAULT_THRESHOLD,
    EAGERNESS_SILENCE_MS,
    AudioFormat,
    NoiseReduction,
    SemanticVad,
    ServerVad,
    SessionKind,
    Transcription,
    TurnDetection,
)
from voicepipe.protocol.session_update import asked_changes
from voicepipe.protocol.session_wire import (
    format_object,
    max_tokens,
    modalities,
    noise_reduction_object,
    tool_choice_object,
    tool_object,
    transcription_object,
    turn_detection_object,
)
from voicepipe.turn.settings import Announce, ReplySettings, Tool, TurnSettings

DEFAULT_VOICE = "default"
"""What a session shows as its voice when the choice is left to the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """Everything that a session is set to at an instant. Immutable: an update makes another one."""

    session_id: str
    model: str
    """The name that the client knows its agent by. It can't change while the session lives."""

    expires_at: int
    """When the session ends, in Unix seconds."""

    kind: SessionKind = "realtime"
    audible: bool = True
    """False: answers are text only."""

    instructions: str = ""
    input_format: AudioFormat = field(default_factory=AudioFormat)
    output_format: AudioFormat = field(default_factory=AudioFormat)
    turn_detection: TurnDetection | None = field(default_factory=ServerVad)
    """None: the client says with a commit when a turn is over."""

    transcription: Transcription | None = None
    """None: the client does not want to see the caller's words."""

    noise_reduction: NoiseReduction | None = None
    """Accepted and shown; it changes nothing yet."""

    voice: str = DEFAULT_VOICE
    speed: float = 1.0
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one function to call."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    language: str | None = None
    """The agent's own, BCP-47; `transcription.language` goes before it."""

    tracing: str | tuple[tuple[str, str], ...] | None = None
    """Accepted and shown; we trace for the operator, not for clients."""

    announce: Announce = "verdict"
    """The agent's own; `extensions.announce` goes before it."""

    extensions: Extensions | None = None
    """`providerData.voicepipe`: the client takes fields and events beyond the published ones. None: it does not."""

    @classmethod
    def start(
        cls, *, session_id: str, model: str, voice: str, instructions: str, expires_at: int, **defaults: Any
    ) -> SessionConfig:
        """The session before its client has said anything: an agent's settings, any other field by name."""
        session = cls(
            session_id=session_id,
            model=model,
            voice=voice,
            instructions=instructions,
            expires_at=expires_at,
            **defaults,
        )
        return session.listening_only() if session.kind == "transcription" else session

    def listening_only(self) -> SessionConfig:
        """This session as one that only writes down what the caller says, which it shows unless told otherwise."""
        return replace(self, kind="transcription", transcription=self.transcription or Transcription())

    def merged(self, update: object) -> SessionConfig:
        """This session with the `session` of a `session.update` laid over it.

        Objects merge by key; `format`, `turn_detection`, `transcription`, `noise_reduction` and `tools` are replaced as
        a whole; null turns off; what is absent or unknown changes nothing. Both the published and the older, flat
        shape are read, each by its own keys.

        Raises:
            ProtocolError: a value has the wrong type or is out of range; `field` is its dotted path.
        """
        found = asked_changes(update)
        if (changed := found.get("extensions")) is not None:
            if changed.get("announce", self.announce) is None:
                changed = {**changed, "announce": self.announce}
            found["extensions"] = replace(self.extensions or Extensions(announce=self.announce), **changed)
        before = self.listening_only() if found.get("kind", self.kind) != self.kind == "realtime" else self
        return replace(before, **found)

    def to_wire(self) -> JsonObject:
        """The complete `session` object of the published events.

        Every key is there, null where nothing is set: clients compute from this echo.
        """
        heard = {
            "format": format_object(self.input_format),
            "transcription": transcription_object(self.transcription),
            "noise_reduction": noise_reduction_object(self.noise_reduction),
            "turn_detection": turn_detection_object(self.turn_detection),
        }
        if self.kind == "transcription":
            return self._named("realtime.transcription_session", {"audio": {"input": heard}})
        spoken = {"format": format_object(self.output_format), "voice": self.voice, "speed": self.speed}
        shown = {
            "model": self.model,
            "output_modalities": modalities(self.audible),
            "instructions": self.instructions,
            "audio": {"input": heard, "output": spoken},
            "tools": [tool_object(tool) for tool in self.tools],
            "tool_choice": tool_choice_object(self.tool_choice),
            "max_output_tokens": max_tokens(self.max_output_tokens),
            "tracing": dict(self.tracing) if isinstance(self.tracing, tuple) else self.tracing,
            "truncation": "auto",
            "prompt": None,
        }
        return self._named("realtime.session", shown)

    def _named(self, kind: str, shown: JsonObject) -> JsonObject:
        head = {"type": self.kind, "object": kind, "id": self.session_id}
        return {**head, **shown, "include": None, "expires_at": self.expires_at}

    def reply_settings(self) -> ReplySettings:
        """How a reply is made when nobody overrides anything."""
        return ReplySettings(
            audible=self.audible,
            instructions=self.instructions,
            tools=self.tools,
            tool_choice=self.tool_choice,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            voice=self.voice,
            speed=self.speed,
        )

    def turn_settings(self) -> TurnSettings:
        """What the turn core needs to know of this session. A transcription session never answers."""
        detection = self.turn_detection
        return TurnSettings(
            detection="none" if detection is None else "vad",
            silence_ms=_silence_ms(detection),
            silence_setting=_silence_setting(detection),
            adaptive=isinstance(detection, SemanticVad) or (detection is not None and detection.adaptive),
            create_response=self.kind == "realtime" and (detection is None or detection.create_response),
            interrupt_response=detection is None or detection.interrupt_response,
            idle_timeout_ms=self.idle_timeout_ms,
            transcribe=self.transcription is not None,
            announce=self.announce if self.extensions is None else self.extensions.announce,
            ducks=self.extensions is not None and self.extensions.ducking,
            watched=self.extensions is not None and self.extensions.turn_events,
            language=(self.transcription and self.transcription.language) or self.language,
            metadata=() if self.extensions is None else self.extensions.metadata,
            reply=self.reply_settings(),
        )

    @property
    def vad_threshold(self) -> float:
        """How sure the voice detector must be, 0 to 1."""
        return self.turn_detection.threshold if isinstance(self.turn_detection, ServerVad) else DEFAULT_THRESHOLD

    @property
    def prefix_padding_ms(self) -> int:
        """Audio kept from before the speech was noticed."""
        detection = self.turn_detection
        return detection.prefix_padding_ms if isinstance(detection, ServerVad) else DEFAULT_PADDING_MS

    @property
    def idle_timeout_ms(self) -> int | None:
        """How long the caller may say nothing before the agent speaks up; None: for ever."""
        return self.turn_detection.idle_timeout_ms if isinstance(self.turn_detection, ServerVad) else None


def _silence_ms(detection: TurnDetection | None) -> int:
    match detection:
        case ServerVad(silence_duration_ms=silence_ms, adaptive=adaptive):
            return round(ADAPTIVE_MIDDLE * silence_ms) if adaptive else silence_ms
        case SemanticVad():
            return EAGERNESS_SILENCE_MS[detection.eagerness]
        case None:
            return DEFAULT_SILENCE_MS


def _silence_setting(detection: TurnDetection | None) -> str:
    match detection:
        case ServerVad():
            return detection.setting
        case SemanticVad():
            return "turn_detection.eagerness"
        case None:
            return "turn_detection.type"
