"""The whole effective session: its initial values, and the result of a client's `session.update`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from voicepipe.audio.classifier import Vad
from voicepipe.errors import ProtocolError
from voicepipe.protocol.extensions import Extensions
from voicepipe.protocol.mcp import McpRequest, with_choice
from voicepipe.protocol.prompt import Prompt, filled, merged_variables
from voicepipe.protocol.session_types import (
    ADAPTIVE_MIDDLE,
    DEFAULT_PADDING_MS,
    DEFAULT_SILENCE_MS,
    DEFAULT_THRESHOLD,
    EAGERNESS_SILENCE_MS,
    AudioFormat,
    SemanticVad,
    ServerVad,
    SessionKind,
    Transcription,
    TurnDetection,
)
from voicepipe.protocol.session_update import requested_changes
from voicepipe.turn.endpointing.strategies import ADAPTIVE, SILENCE, SOFT
from voicepipe.turn.settings import (
    InterruptionMode,
    LanguageSettings,
    ReplySettings,
    ServerTool,
    SilenceSetBy,
    Tool,
    TurnSettings,
)
from voicepipe.turn.truncation import Truncation
from voicepipe.values import replace

DEFAULT_VOICE = "default"
"""The voice that a session shows when the choice is left to the provider."""


class SessionConfig(Struct, frozen=True, kw_only=True):
    """All settings of a session at an instant. Immutable: an update makes a new one."""

    session_id: str
    model: str
    """The client's name for its agent. It cannot change during the session."""

    expires_at: int
    """When the session ends, in Unix seconds."""

    kind: SessionKind = "realtime"
    audible: bool = True
    """False: answers are text only."""

    instructions: str = ""
    template: str = ""
    """The agent's own instructions, before the variables are filled in."""

    variables: tuple[tuple[str, str], ...] = ()
    """The variables of the agent's instructions, and their values now."""

    prompt: Prompt | None = None
    """The client's values of the variables; None: it has set none."""

    input_format: AudioFormat = field(default_factory=AudioFormat)
    output_format: AudioFormat = field(default_factory=AudioFormat)
    turn_detection: TurnDetection | None = field(default_factory=ServerVad)
    """None: the client ends a turn with a commit."""

    transcription: Transcription | None = None
    """None: the client does not request the user's transcript."""

    voice: str = DEFAULT_VOICE
    own_voice: str = DEFAULT_VOICE
    """The agent's own: languages have voices of theirs, unless the client has set one."""

    speed: float = 1.0
    tools: tuple[Tool, ...] = ()
    """The client's functions."""

    mcp: tuple[McpRequest, ...] = ()
    """The MCP servers that the client requests."""

    server_tools: tuple[ServerTool, ...] = ()
    """The functions of the agent that the server runs. The wire does not show them."""

    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one function to call."""

    tool_server: str = ""
    """The label of the MCP server whose tools `tool_choice` is about; empty: all functions."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    language: str | None = None
    """The agent's own, BCP-47; `transcription.language` takes precedence."""

    languages: tuple[LanguageSettings, ...] = ()
    """The agent's own, before variables are filled in; `language` and `transcription.language` take precedence."""

    truncation: Truncation = field(default_factory=Truncation)
    """What happens to a conversation that is longer than the LLM's window."""

    context_tokens: int | None = None
    """The agent's own: tokens that the LLM may read for an answer. None: unknown."""

    end_of_turn: str = SOFT
    """The agent's own strategy: for `semantic_vad`, unless it is `silence`, or `soft` and the client is in no hurry; a
    client's `server_vad` is always exact.
    """

    vad: Vad = "silero"
    """That of the agent which the session began with."""

    idle_ends: bool = False
    """The agent's own: as in `TurnSettings`."""

    interruption: InterruptionMode = "confirmed"
    """The agent's own; `extensions.interruption` takes precedence."""

    extensions: Extensions | None = None
    """`providerData.voicepipe`: the client accepts fields and events beyond the published ones. None: it does not."""

    @classmethod
    def start(
        cls, *, session_id: str, model: str, voice: str, instructions: str, expires_at: int, **defaults: Any
    ) -> SessionConfig:
        """Return the session before any update of its client: an agent's settings, any other field by name.

        `instructions` may name variables, which are filled in.
        """
        session = cls(
            session_id=session_id,
            model=model,
            voice=voice,
            own_voice=voice,
            template=instructions,
            expires_at=expires_at,
            **defaults,
        )
        session = replace(session, instructions=filled(instructions, dict(session.variables)))
        return session.listening_only() if session.kind == "transcription" else session

    def listening_only(self) -> SessionConfig:
        """Return this session as one that only transcribes the user's speech, and shows the transcript unless set
        otherwise.
        """
        return replace(self, kind="transcription", transcription=self.transcription or Transcription())

    def merged(self, update: object) -> SessionConfig:
        """Return this session with the `session` of a `session.update` merged in.

        Objects merge by key; `format`, `turn_detection`, `transcription` and `tools` are replaced as a whole. Null
        turns off; absent keys change nothing, and neither does what `published_fields.not_served` names. Both the
        published and the older, flat shape are read, each by its own keys.

        Raises:
            ProtocolError: a value has the wrong type or is out of range, or a field is not published; `field` is its
                dotted path.
        """
        found = with_choice(requested_changes(update))
        if (changed := found.get("extensions")) is not None:
            if changed.get("interruption", self.interruption) is None:
                changed = {**changed, "interruption": self.interruption}
            found["extensions"] = replace(self.extensions or Extensions(interruption=self.interruption), **changed)
        if (prompt := found.get("prompt")) is not None:
            found["variables"] = variables = merged_variables(self.variables, prompt)
            found = {"instructions": filled(self.template, dict(variables)), **found}
        if (tools := found.pop("tools", None)) is not None:
            found["mcp"] = tuple(each for each in tools if isinstance(each, McpRequest))
            found["tools"] = tuple(each for each in tools if isinstance(each, Tool))
            self._check_tool_names(found["tools"])
        before = self.listening_only() if found.get("kind", self.kind) != self.kind == "realtime" else self
        return replace(before, **found)

    def with_variables(self, values: Mapping[str, str]) -> SessionConfig:
        """Return this session with other values of its variables; names that it does not have are ignored.

        Instructions that the client has replaced stay.
        """
        own = self._has_own_instructions
        variables = tuple((name, values.get(name, value)) for name, value in self.variables)
        instructions = filled(self.template, dict(variables)) if own else self.instructions
        return replace(self, variables=variables, instructions=instructions)

    @property
    def _has_own_instructions(self) -> bool:
        return self.instructions == filled(self.template, dict(self.variables))

    def _languages(self) -> tuple[LanguageSettings, ...]:
        """Return how the agent follows the user's language: only in what the client has not set."""
        own_voice, own_words = self.voice == self.own_voice, self._has_own_instructions
        return tuple(
            replace(
                each,
                voice=each.voice if own_voice else None,
                instructions=filled(each.instructions, dict(self.variables)) if own_words else "",
            )
            for each in self.languages
        )

    def handed_over(self, to: SessionConfig) -> SessionConfig:
        """Return this session with another agent's instructions, tools of the server, voice and LLM options.

        What is the client's stays: formats, detection, transcription, its own tools. So do the values of variables that
        both agents have.
        """
        to = to.with_variables(dict(self.variables))
        taken = {tool.name for tool in self.tools}
        return replace(
            self,
            instructions=to.instructions,
            template=to.template,
            variables=to.variables,
            voice=to.voice,
            own_voice=to.own_voice,
            speed=to.speed,
            server_tools=tuple(each for each in to.server_tools if each.tool.name not in taken),
            tool_choice="auto",
            tool_server="",
            max_output_tokens=to.max_output_tokens,
            temperature=to.temperature,
            language=to.language,
            languages=to.languages,
        )

    def _check_tool_names(self, tools: tuple[Tool, ...]) -> None:
        names = {each.tool.name for each in self.server_tools}
        for position, tool in enumerate(tools):
            if tool.name in names:
                field_name = f"session.tools[{position}].name"
                why = f"{field_name}: expected another name than those of the server's tools, got {tool.name!r}"
                raise ProtocolError(why, field=field_name)

    def reply_settings(self) -> ReplySettings:
        """Return the settings of a reply without overrides."""
        return ReplySettings(
            audible=self.audible,
            instructions=self.instructions,
            tools=self.tools,
            server_tools=self.server_tools,
            tool_choice=self.tool_choice,
            tool_server=self.tool_server,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            voice=self.voice,
            speed=self.speed,
        )

    def turn_settings(self) -> TurnSettings:
        """Return the session's settings for the turn core. A transcription session never answers."""
        detection = self.turn_detection
        return TurnSettings(
            detection="none" if detection is None else "vad",
            silence_ms=_silence_ms(detection),
            silence_set_by=_silence_set_by(detection),
            end_of_turn=self._strategy(),
            create_response=self.kind == "realtime" and (detection is None or detection.create_response),
            interrupt_response=detection is None or detection.interrupt_response,
            idle_timeout_ms=self.idle_timeout_ms,
            idle_ends=self.idle_ends,
            transcribe=self.transcription is not None,
            interruption=self.interruption if self.extensions is None else self.extensions.interruption,
            ducks=self.extensions is not None and self.extensions.ducking,
            watched=self.extensions is not None and self.extensions.turn_events,
            telephone=self.input_format.is_g711,
            language=(self.transcription and self.transcription.language) or self.language,
            languages=self._languages(),
            metadata=() if self.extensions is None else self.extensions.metadata,
            truncation=self.truncation,
            reply=self.reply_settings(),
        )

    def _strategy(self) -> str:
        match self.turn_detection:
            case ServerVad(end_of_turn=strategy):
                return strategy
            case SemanticVad(eagerness=eagerness):
                waits = self.end_of_turn == SILENCE or (self.end_of_turn == SOFT and eagerness == "low")
                return ADAPTIVE if waits else self.end_of_turn
            case None:
                return SILENCE

    @property
    def vad_threshold(self) -> float:
        """Return the VAD's threshold, 0 to 1."""
        return self.turn_detection.threshold if isinstance(self.turn_detection, ServerVad) else DEFAULT_THRESHOLD

    @property
    def prefix_padding_ms(self) -> int:
        """Return how much audio from before the detected start of speech is kept, in ms."""
        detection = self.turn_detection
        return detection.prefix_padding_ms if isinstance(detection, ServerVad) else DEFAULT_PADDING_MS

    @property
    def idle_timeout_ms(self) -> int | None:
        """Return how long the user may be silent before the agent speaks, in ms; None: forever."""
        return self.turn_detection.idle_timeout_ms if isinstance(self.turn_detection, ServerVad) else None


def _silence_ms(detection: TurnDetection | None) -> int:
    match detection:
        case ServerVad(silence_duration_ms=silence_ms, end_of_turn=strategy):
            return silence_ms if strategy == SILENCE else round(ADAPTIVE_MIDDLE * silence_ms)
        case SemanticVad():
            return EAGERNESS_SILENCE_MS[detection.eagerness]
        case None:
            return DEFAULT_SILENCE_MS


def _silence_set_by(detection: TurnDetection | None) -> SilenceSetBy:
    match detection:
        case ServerVad():
            return detection.silence_set_by
        case SemanticVad():
            return "client_eagerness"
        case None:
            return "client_commit"
