"""The options of an agent: an `[agents.NAME]` section."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from voicepipe.audio.classifier import Vad
from voicepipe.config.convert import (
    LANGUAGE_TAG,
    MAY_BE_EMPTY,
    METADATA_OPTIONS,
    ONE_OR_MORE,
    SECTIONS,
    STRATEGY_NAME,
    TABLE,
    between,
    check_language_tag,
)
from voicepipe.config.languages import LanguageEntry
from voicepipe.config.routing import specs_of
from voicepipe.errors import ConfigError
from voicepipe.pii.redact import kinds_of
from voicepipe.protocol.prompt import check_placeholders
from voicepipe.protocol.session_update import MAX_SPEED, MIN_SPEED
from voicepipe.registry import Spec, Stage
from voicepipe.turn.settings import BudgetLimits, Deadlines


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """An `[agents.NAME]`: an agent. Options that a section leaves out are taken from `[agents.default]`.

    Not inherited are `aliases`, `chosen_by`, `hand_over`, `interpret`, and, by an agent that names another `tts`,
    `voice` and `languages`. An agent that interprets inherits no `instructions`, `language`, `tools`, `mcp` and
    `knowledge`.
    """

    instructions: str = (
        "You are a friendly voice assistant. Your words are spoken aloud: answer in one or two short, plain "
        "sentences, without lists or markup."
    )
    """The system prompt. `{{name}}` is replaced by the variable of that name."""

    variables: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """The variables of the instructions, and the value that each has unless the metadata of the client's token or
    `prompt.variables` sets another."""

    first_speaker: Literal["user", "agent"] = "user"
    """The side that speaks first. The agent does so after the client's first settings or audio, or after 1 s, unless
    the client has requested a response."""

    greeting: str = ""
    """The first words of an agent that speaks first; `{{name}}` as in the instructions. Empty: the LLM decides."""

    greeting_interruptible: bool = True
    """Whether the user may interrupt the greeting."""

    stt: Annotated[tuple[str, ...], ONE_OR_MORE] = ("local/moonshine-tiny",)
    """The STT, as `provider/model`; or several, best first: where one breaks, or returns its text later than
    `router.fallback_after_ms`, the next transcribes the utterance again; or `pool/NAME`."""

    llm: Annotated[tuple[str, ...], ONE_OR_MORE] = ("local/smollm2-135m",)
    """The LLM, as `provider/model`; or several as fallbacks of one another, best first; or `pool/NAME`."""

    tts: Annotated[tuple[str, ...], ONE_OR_MORE] = ("local/hibari",)
    """The TTS, as `provider/model`; or several, best first, for which `router.policy`, `fallback_after_ms` and
    `attempt_timeout_ms` apply too: where one breaks, another goes on with the next word; or `pool/NAME`."""

    model: str = ""
    """A [speech-to-speech model](speech-models.md), as `provider/model`, that takes the user's audio and answers in
    place of `llm` and `tts`; these answer whenever it fails. `stt` goes on: its text ends the user's turns, and is the
    conversation. Empty: none."""

    model_voice: str = ""
    """The voice of `model`. Empty: the client's or the agent's `voice` where the model has it, or else its own."""

    model_timeout_ms: Annotated[int, between(100, 60_000)] = 3_000
    """How long `model` may take to the first audio of an answer, and from one piece of it to the next, before `llm` and
    `tts` answer in its place."""

    voice: str | None = None
    """The voice's name at the TTS provider. Unset: the provider's own choice."""

    speed: Annotated[float, between(MIN_SPEED, MAX_SPEED)] = 1.0
    """The speed of speech, unless the client sets it; 1 is the voice's own."""

    pronunciations: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """Words as the LLM writes them, and the spelling that the TTS gets (`Nguyen = "Win"`): whole words, with their
    case. Transcript and history keep the word."""

    language: Annotated[str | None, LANGUAGE_TAG] = None
    """BCP-47, such as `en` or `pt-BR`. Unset: the transcriber detects it."""

    languages: Annotated[tuple[tuple[str, LanguageEntry], ...], SECTIONS] = ()
    """How the agent speaks the languages that its users may speak, by their tags."""

    interpret: Annotated[tuple[str, ...], ONE_OR_MORE] = ()
    """Two languages, such as `["en", "de"]`, that the agent [interprets](agents.md#interpreting) between: it speaks in
    the one what users say in the other, and answers nothing. `instructions` then stand behind its own. Empty: it talks.
    """

    end_of_turn: Annotated[str, STRATEGY_NAME] = "soft"
    """The endpoint strategy, unless the client sets `turn_detection`. With `soft` the answer begins when the end is
    likely, after 0.7 to 1.4 times `silence_ms` (350 to 700 ms), and is taken back if the user goes on within its first
    second; function calls wait for `adaptive`. `adaptive` takes nothing back: it waits for `silence_ms` where the
    end is likely, for twice that where it is not, 2.6 times after words that break off, 1.44 times without evidence.
    `silence` waits for exactly `silence_ms`. Any other name is a strategy of an installed package."""

    smart_turn: str = ""
    """The ONNX file of [smart-turn](turns.md#smart-turn) v3.2, a model that predicts 100 ms after the user's last
    word whether more will come; the strategies but `silence` use its score. You bring the file along, and the extra
    `smart-turn` has what runs it. Empty: none."""

    vad: Vad = "silero"
    """The VAD. `silero` is a model. `webrtc` has none and takes less CPU, but more noises start a turn: its
    [figures](measured.md#the-light-vad)."""

    silence_ms: Annotated[int, between(20, 10_000)] = 500
    """The user's silence at the end of a turn, unless the client sets it: `silence` waits for exactly that, `adaptive`
    for that or more, `soft` for 0.7 times that or more."""

    idle_timeout_ms: Annotated[int | None, between(1_000, 600_000)] = None
    """How long both sides may be silent after the agent has spoken until the agent speaks up, unless the client sets
    it. Unset: forever."""

    idle_ends: bool = False
    """End the session when the user stays silent after that for as long again."""

    speculate: bool = True
    """Start the reply during the user's silence and hold it until the turn is over. The answer comes sooner; a user who
    goes on speaking costs the tokens of an unused reply. Once the session has measured its answers, the reply starts
    just early enough to be ready in time. It does not start where it does not pay."""

    speculate_max_starts: Annotated[int, between(0, 10)] = 3
    """Limit of speculative replies per turn."""

    speculate_max_wasted_tokens: Annotated[int | None, between(0, 1_000_000_000)] = None
    """Limit of tokens that a session may spend on unused speculative replies. Unset: no limit."""

    speculate_max_wasted_share: Annotated[float | None, between(0, 1)] = None
    """Limit of the share of unused speculative replies in all reply tokens of a session, from 2000 tokens on. Unset: no
    limit.
    """

    speculate_ms_per_1000_tokens: Annotated[float, between(0, 10_000)] = 50.0
    """The ms by which an answer must be sooner per 1000 wasted tokens, both as expected from the session so far.
    Otherwise no speculative reply starts. 0: tokens are ignored."""

    interruption: Literal["confirmed", "immediate"] = "confirmed"
    """The event by which a client learns that the user speaks over the agent. `confirmed`: once it is an interruption,
    so that "mhm" stops nothing. `immediate`: at once, so that the agent stops at every voice, as with hosted
    services."""

    unserved_fields: Literal["error", "log"] = "error"
    """What names the published fields that this server accepts and does not serve. `error`: an `error` event, once a
    session for each. `log`: the log (`field_not_served`), for clients that end at every error, such as pipecat."""

    filler: str = ""
    """A filler ("One moment.") to speak while an answer is expected more than 1.2 s after the user's last word,
    never in two consecutive turns. It is synthesized when a session begins, once for each voice. Empty: none."""

    apology: Annotated[str | None, MAY_BE_EMPTY] = None
    """The apology after a failed turn. Unset: a sentence in the session's language (English, German, French, Spanish,
    Italian, Portuguese, Dutch; English if unknown). Empty: none."""

    max_output_tokens: Annotated[int | None, between(1, 1_000_000)] = None
    """Limit of an answer, in tokens. Unset: the provider's own limit."""

    temperature: Annotated[float | None, between(0, 2)] = None
    """Unset: the provider's own choice."""

    tools: tuple[str, ...] = ()
    """The tools that the server runs for this agent: names of `[tools.NAME]`, `end_call`, with which the agent ends
    the session, and for a [phone call](phone.md) `transfer_call` and `send_dtmf`, with which it presses keys."""

    client_tool_rounds: Annotated[int, between(1, 1_000)] = 32
    """How often a turn may call functions of the client, one after another. Beyond that the LLM must answer without,
    and an `error` event (`too_many_tool_rounds`) is sent. The server's own tools have 8 rounds."""

    mcp: tuple[str, ...] = ()
    """The MCP servers whose tools this agent has: names of `[mcp.NAME]`."""

    hand_over: tuple[str, ...] = ()
    """The agents that this one may hand a call over to, with the tool `hand_over`."""

    max_session_s: Annotated[int | None, between(1, 86_400)] = None
    """Limit of a session, in seconds. Unset, or above `server.max_session_s`: as that."""

    budget: BudgetLimits = field(default_factory=BudgetLimits)
    """Limits of this agent's stages that differ from `[budget]`."""

    deadlines: Deadlines = field(default_factory=Deadlines)
    """Deadlines of this agent's turns that differ from `[deadlines]`."""

    from_metadata: Annotated[tuple[str, ...], METADATA_OPTIONS] = ()
    """The options of this agent that the metadata of the client's token may set, by its own names: `language`, `speed`,
    `voice`."""

    chosen_by: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """A client that names no agent gets this one if the metadata of its token has all of these names and values."""

    context_tokens: Annotated[int | None, between(500, 10_000_000)] = None
    """Limit of what the LLM reads for an answer: instructions, tools and conversation, in tokens estimated from the
    text. Beyond it the oldest items leave the LLM's history in blocks. Unset: the smallest window that the catalog
    has for the agent's LLMs, less `max_output_tokens` or 4096 for the answer, at most half of it."""

    summary_llm: str = ""
    """An LLM, as `provider/model`, that summarizes the oldest items before they leave the history of the answering LLM.
    It works beside the turns, and its cost is the session's. It also summarizes a call that is over, for the webhook
    `session.ended`. Empty: there are no summaries."""

    summarize_calls: bool = False
    """Have `summary_llm` summarize each call that is over, for its transcript. Without this it does so only where a
    webhook gets `session.ended`."""

    redact_for_llm: tuple[str, ...] = ()
    """Kinds of personal data that are replaced by their names in what the LLM reads, as in `records.redact`. The agent
    can then not repeat them, nor pass them to a function."""

    record_calls: bool = False
    """Record the audio of calls: both sides on one time line, in one file with the user on the left and the agent on
    the right. Kept for `records.keep_days`, within the limits of `[recordings]`."""

    record_announcement: str = ""
    """What the agent says before a call is recorded, such as "This call is recorded."; `{{name}}` as in the
    instructions. Nothing is recorded until it has been played to its end, and the user can't interrupt it. Empty: the
    recording begins with the call, without an announcement."""

    knowledge: str = ""
    """A folder of documents (`.md`, `.txt`, `.html`) that are searched for what the user says; the passages that match
    best are given to the LLM. They are read when the server starts. Empty: none."""

    knowledge_tokens: Annotated[int, between(50, 100_000)] = 600
    """Limit of the passages for one answer, in tokens estimated from the text."""

    knowledge_embedding: str = ""
    """An embedding model, as `provider/model`, at a provider with OpenAI's API (`/v1/embeddings`): the documents are
    then searched by meaning too. Empty: by their words only."""

    knowledge_embedding_ms: Annotated[int, between(10, 5_000)] = 150
    """How long an answer waits for the vector of the user's words; after that it is searched for by its words only."""

    aliases: tuple[str, ...] = ()
    """Other names by which a client's `model` may select this agent."""

    def __post_init__(self) -> None:
        check_placeholders(self.instructions, dict(self.variables), "instructions")
        kinds_of(self.redact_for_llm, key="redact_for_llm")
        if self.model and self.redact_for_llm:
            raise ConfigError(f"redact_for_llm: expected nothing beside `model`, got {', '.join(self.redact_for_llm)}")
        check_placeholders(self.greeting, dict(self.variables), "greeting")
        for tag, language in self.languages:
            check_language_tag(tag, "languages")
            check_placeholders(language.instructions, dict(self.variables), f"languages.{tag}.instructions")
        check_placeholders(self.record_announcement, dict(self.variables), "record_announcement")
        if self.interpret:
            self._check_interpreter()

    def _check_interpreter(self) -> None:
        for tag in self.interpret:
            check_language_tag(tag, "interpret")
        primary = {tag.partition("-")[0].lower() for tag in self.interpret}
        if len(self.interpret) != 2 or len(primary) != 2:
            raise ConfigError(f'interpret: expected two languages, such as ["en", "de"], got {list(self.interpret)}')
        if self.language is not None:
            raise ConfigError(f"language: expected none for an agent that interprets, got {self.language!r}")
        for name in ("tools", "mcp", "hand_over", "knowledge"):
            if getattr(self, name):
                raise ConfigError(f"{name}: expected none for an agent that interprets, which answers nothing")

    @property
    def written(self) -> dict[Stage, tuple[str, ...]]:
        """Return what is written for each stage: specs, or a pool's name as long as it is not resolved."""
        return {"stt": self.stt, "llm": self.llm, "tts": self.tts}

    def spec(self, stage: Stage, *, key: str = "spec") -> Spec:
        """Return the parsed spec of `stage`; of several models the first.

        Raises:
            ConfigError: naming `key`, when it is not `provider/model`.
        """
        return self.specs(stage, key=key)[0]

    def specs(self, stage: Stage, *, key: str = "spec") -> tuple[Spec, ...]:
        """Return all specs that may serve `stage`, best first.

        Raises:
            ConfigError: as `spec`.
        """
        return specs_of(self.written[stage], key=key)
