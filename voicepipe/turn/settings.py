"""What a session asks of its turns: how they end, how they are answered, how long anything may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from voicepipe.errors import ConfigError
from voicepipe.turn.conversation import Item
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.prices import PriceList
from voicepipe.turn.rescue import RescueSettings

Announce = Literal["verdict", "immediate"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the agent may call. `parameters_json` is its JSON Schema as text."""

    name: str
    description: str
    parameters_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySettings:
    """How one reply is made. A session's own, with what `response.create` overrides."""

    audible: bool = True
    """False: the reply is text only."""

    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one function to call."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    voice: str | None = None
    speed: float = 1.0
    metadata: tuple[tuple[str, str], ...] = ()
    """Free strings of the client; they come back on the wire."""

    in_conversation: bool = True
    """False: out of band; the reply joins no history and may run beside another."""

    context: tuple[Item, ...] | None = None
    """What the model reads instead of the conversation, or None for the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """How the caller's turns are found and what follows them."""

    detection: Literal["vad", "none"] = "vad"
    """`none`: the client says when a turn is over, with a commit."""

    silence_ms: int = 500
    """How long the caller must be silent before the turn is over."""

    silence_setting: str = "turn_detection.silence_duration_ms"
    """Where that was set, for whoever wants turns to end sooner."""

    adaptive: bool = False
    """The wait follows how finished the caller sounds, around `silence_ms` (`endpoint.wait_ms`). False: exactly that,
    for clients that asked for it."""

    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = None
    """How long everybody may be silent before the agent speaks up; None: for ever."""

    transcribe: bool = False
    """Whether the client wants to see what the caller said."""

    watched: bool = False
    """Whether the client wants to see its turns as they run."""

    announce: Announce = "verdict"
    """When the client hears of a voice over the agent's: once it has the floor, or at once. A client that hears of it
    silences the agent by itself, so `immediate` makes every voice an interruption."""

    ducks: bool = False
    """Whether the client lowers the agent's voice when it is told to."""

    language: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    """Names and values that rules about the model look at."""

    reply: ReplySettings = field(default_factory=ReplySettings)

    def __post_init__(self) -> None:
        if self.silence_ms < 0:
            raise ConfigError(f"silence_ms: expected 0 ms or more, got {self.silence_ms}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """The one-second budget: how long each stage may take before it counts as over, in ms."""

    endpoint_ms: int = 150
    """From the caller's last voiced sample to the question to the model."""

    llm_ttft_ms: int = 600
    """From the question to the model's first speakable text or tool call."""

    first_clause_ms: int = 100
    """From the model's first text to the first clause handed to the voice."""

    tts_ttfb_ms: int = 150
    """From the first clause to the voice's first audible sample."""

    playback_ms: int = 50
    """From the first sound written to the socket to the first audible sample at the client."""

    overhead_ms: int = 20
    """Our own queues and CPU."""

    total_ms: int = 1_000
    """From the caller's last voiced sample to the first audible sample at the client; judged by itself."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"budget.{name}: expected a positive number of ms, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a state may last before the turn moves on or ends with a reason, in ms."""

    utterance_ms: int = 120_000
    """Speech without a pause. Then the turn ends as if the caller had stopped: noise can't hold the floor."""

    verdict_ms: int = 280
    """The agent's lowered voice, while it is open whether the caller interrupts. Longer sounds like a broken line."""

    transcript_ms: int = 5_000
    """From the end of the turn to the transcriber's answer."""

    first_output_ms: int = 10_000
    """From the question to the model until there is something to say or show."""

    progress_ms: int = 10_000
    """From any step of a running reply to the next."""

    reply_ms: int = 300_000
    """A whole reply, from the question to the end of its generation."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"deadlines.{name}: expected a positive number of ms, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationLimits:
    """What replies that are started before the turn is over may cost."""

    max_starts: int = 3
    """How many of them a turn may have."""

    max_wasted_tokens: int | None = None
    """How many tokens of replies that nobody heard a session may spend; None: no limit."""

    max_wasted_share: float | None = None
    """Of all tokens that a session's replies cost, the share that may be such; None: no limit."""

    ms_per_1000_tokens: float = 50.0
    """How much sooner an answer must be for a thousand wasted tokens, both as expected, or a start does not pay.

    100 ms in each of six turns may well be worth a tenth of a minute's price, about half a cent of five; that
    buys some ten thousand tokens of a small model, and two thousand of a large one. With 50 ms a prompt of 1000
    tokens is worth a start while the caller ends one pause in seven, one of 10 000 while they end two in three.
    """

    def __post_init__(self) -> None:
        if self.max_starts < 0:
            raise ConfigError(f"max_starts: expected 0 or more, got {self.max_starts}")
        if self.max_wasted_tokens is not None and self.max_wasted_tokens < 0:
            raise ConfigError(f"max_wasted_tokens: expected 0 or more, got {self.max_wasted_tokens}")
        if self.max_wasted_share is not None and not 0 <= self.max_wasted_share <= 1:
            raise ConfigError(f"max_wasted_share: expected 0 to 1, got {self.max_wasted_share}")
        if self.ms_per_1000_tokens < 0:
            raise ConfigError(f"ms_per_1000_tokens: expected 0 or more, got {self.ms_per_1000_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """What the operator sets for every turn of a session."""

    budget: BudgetLimits = field(default_factory=BudgetLimits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    speculate: bool = False
    """Start the reply in the caller's silence, and hold it until the turn is really over."""

    speculation: SpeculationLimits = field(default_factory=SpeculationLimits)
    max_flushes: int = 3
    """How often a turn may ask its transcriber for the text before the turn is over."""

    rescue: RescueSettings = field(default_factory=RescueSettings)
    """What is done when the caller would wait for too long."""

    prices: PriceList = field(default_factory=PriceList)
    """What the models and the voice cost."""

    conversation: ConversationLimits = field(default_factory=ConversationLimits)
    """How large the conversation may grow."""

    believes_short: bool = True
    """Whether the transcriber's text of less than a second of speech can be believed."""

    def __post_init__(self) -> None:
        if self.max_flushes < 1:
            raise ConfigError(f"max_flushes: expected 1 or more, got {self.max_flushes}")
