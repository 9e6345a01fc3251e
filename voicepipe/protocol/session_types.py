"""The parts of a session that a client replaces as a whole: formats, detection, transcription, tools.

Each `read_*` takes a value of a `session.update` and its path; a null or (where clients send it) `false` turns off.
"""

from __future__ import annotations

import json
from typing import Final, Literal

from msgspec import Struct

from voicepipe.audio.formats import G711_HZ, FormatName, TelephoneFormat
from voicepipe.errors import ProtocolError
from voicepipe.protocol.json_fields import (
    flag,
    listing,
    missing,
    number,
    one_of,
    record,
    refuse_length,
    required,
    text,
    whole,
    wrong_value,
)
from voicepipe.protocol.mcp import MAX_SERVERS, McpRequest, ToolChoice, read_mcp
from voicepipe.protocol.published_fields import is_unserved_tool
from voicepipe.turn.endpointing.strategies import SILENCE
from voicepipe.turn.settings import SilenceSetBy, Tool
from voicepipe.turn.truncation import Truncation

Eagerness = Literal["low", "medium", "high", "auto"]
SessionKind = Literal["realtime", "transcription"]

PCM_HZ: Final = 24_000

DEFAULT_PADDING_MS: Final = 300
DEFAULT_SILENCE_MS: Final = 500
DEFAULT_THRESHOLD: Final = 0.5
"""The hosted service's default when a client leaves these out."""

MAX_SILENCE_MS: Final = 30_000
MAX_PADDING_MS: Final = 5_000
MAX_IDLE_MS: Final = 600_000
MAX_CONTEXT_TOKENS: Final = 10_000_000
"""A setting beyond these limits is a wrong unit (microseconds, samples), not intended."""

EAGERNESS_SILENCE_MS: Final[dict[Eagerness, int]] = {"low": 1_000, "medium": 720, "auto": 720, "high": 500}
"""The silence, in ms, around which the wait varies under `semantic_vad`: the wait without evidence that the user has
finished. Speculation hides 500 ms of it. With medium the bench cuts one read turn in nine, with 500 ms one in four.
"""

ADAPTIVE_MIDDLE: Final = 1.44
"""The wait of a `ServerVad` without evidence, as a multiple of its shortest silence, where the strategy is not
`silence`: 720 ms for the usual 500, as in `semantic_vad`. The shortest wait that `adaptive` makes of that is 500 ms.
"""

KINDS: Final[tuple[SessionKind, ...]] = ("realtime", "transcription")
_FORMATS: Final[tuple[FormatName, ...]] = ("audio/pcm", "audio/pcmu", "audio/pcma")
FLAT_FORMATS: Final[dict[str, FormatName]] = {
    "pcm16": "audio/pcm",
    "g711_ulaw": "audio/pcmu",
    "g711_alaw": "audio/pcma",
}
"""The format names of old clients."""

_ANY_ARGUMENTS: Final = '{"type":"object","properties":{}}'
_MODES: Final = ("auto", "none", "required")


class AudioFormat(Struct, frozen=True):
    """The encoding of audio in one direction: little-endian int16 at 24 kHz, or G.711 at 8 kHz, one channel."""

    name: FormatName = "audio/pcm"

    @property
    def rate_hz(self) -> int:
        return G711_HZ if self.is_g711 else PCM_HZ

    @property
    def is_g711(self) -> bool:
        """Return whether it is a telephone's."""
        return self.telephone is not None

    @property
    def telephone(self) -> TelephoneFormat | None:
        """Return the name of a telephone's encoding; None: it is another."""
        return None if self.name == "audio/pcm" else self.name

    @property
    def sample_bytes(self) -> int:
        """Return the length of a sample."""
        return 1 if self.is_g711 else 2


class ServerVad(Struct, frozen=True, kw_only=True):
    """The turn ends after a fixed silence that a client sets; or as the agent's strategy decides, around that."""

    threshold: float = DEFAULT_THRESHOLD
    """The VAD's threshold, 0 to 1."""

    prefix_padding_ms: int = DEFAULT_PADDING_MS
    """How much audio from before the detected start of speech is kept, in ms."""

    silence_duration_ms: int = DEFAULT_SILENCE_MS
    end_of_turn: str = SILENCE
    """The strategy. Another than `silence` is set by the agent's settings, never by the client: the silence is about
    the minimum, and more follows how finished the user sounds. The wire does not show this.
    """

    silence_set_by: SilenceSetBy = "client_silence"
    """What set the silence: the client, or the agent if the client sets none."""

    idle_timeout_ms: int | None = None
    """How long the user may be silent before the agent speaks; None: forever."""

    create_response: bool = True
    interrupt_response: bool = True


class SemanticVad(Struct, frozen=True, kw_only=True):
    """The turn ends when the user seems to have finished; `eagerness` sets how soon that is assumed."""

    eagerness: Eagerness = "auto"
    create_response: bool = True
    interrupt_response: bool = True


TurnDetection = ServerVad | SemanticVad


class Transcription(Struct, frozen=True, kw_only=True):
    """The client requests the user's transcript. None leaves the choice to the agent's settings."""

    model: str | None = None
    language: str | None = None
    """BCP-47, `de` or `de-CH`."""

    prompt: str | None = None


def read_format(value: object, path: str) -> AudioFormat:
    """Read a `format` object; a null means pcm at 24 kHz."""
    if value is None:
        return AudioFormat()
    given = record(value, path)
    kind = given.get("type")
    form = AudioFormat() if kind is None else AudioFormat(one_of(kind, f"{path}.type", _FORMATS))
    _see_rate(given.get("rate"), form.rate_hz, f"{path}.rate")
    return form


def _see_rate(value: object, rate_hz: int, path: str) -> None:
    """Check the rate: clients compute playback from the rate that the server echoes, and only 24000 is published."""
    if value is not None and whole(value, path, low=1, high=1_000_000) != rate_hz:
        raise wrong_value(path, str(rate_hz), value)


def read_flat_format(value: object, path: str) -> AudioFormat:
    """Read a format's name from an old client; a null means pcm at 24 kHz."""
    return AudioFormat() if value is None else AudioFormat(FLAT_FORMATS[one_of(value, path, tuple(FLAT_FORMATS))])


def read_turn_detection(value: object, path: str) -> TurnDetection | None:
    """Read a `turn_detection` object; a null, or the `false` that some clients send, turns it off."""
    if value is None or value is False:
        return None
    given = record(value, path)
    kind = one_of(
        required(given, "type", path, '"server_vad" or "semantic_vad"'), f"{path}.type", ("server_vad", "semantic_vad")
    )
    creates, interrupts = (
        given.get(name) is None or flag(given[name], f"{path}.{name}")
        for name in ("create_response", "interrupt_response")
    )
    if kind == "semantic_vad":
        eagerness = given.get("eagerness")
        return SemanticVad(
            eagerness=one_of(
                "auto" if eagerness is None else eagerness, f"{path}.eagerness", tuple(EAGERNESS_SILENCE_MS)
            ),
            create_response=creates,
            interrupt_response=interrupts,
        )
    threshold = given.get("threshold")
    return ServerVad(
        threshold=DEFAULT_THRESHOLD if threshold is None else number(threshold, f"{path}.threshold", low=0.0, high=1.0),
        prefix_padding_ms=_ms(given, "prefix_padding_ms", path, MAX_PADDING_MS, DEFAULT_PADDING_MS),
        silence_duration_ms=_ms(given, "silence_duration_ms", path, MAX_SILENCE_MS, DEFAULT_SILENCE_MS),
        idle_timeout_ms=_ms(given, "idle_timeout_ms", path, MAX_IDLE_MS, 0) or None,
        create_response=creates,
        interrupt_response=interrupts,
    )


def _ms(given: dict[str, object], key: str, path: str, high: int, default: int) -> int:
    value = given.get(key)
    return default if value is None else whole(value, f"{path}.{key}", low=0, high=high)


def read_transcription(value: object, path: str) -> Transcription | None:
    """Read a `transcription` object; a null turns it off."""
    if value is None or value is False:
        return None
    given = dict(record(value, path))
    delay = given.get("delay")
    if delay is not None:
        one_of(delay, f"{path}.delay", ("minimal", "low", "medium", "high", "xhigh"))
    keywords, languages = (_read_texts(given.get(key), f"{path}.{key}") for key in ("keywords", "languages"))
    refuse_length(sum(map(len, keywords)), f"{path}.keywords")
    if given.get("language") is None and len(languages) == 1:
        given["language"] = languages[0]
    read = {
        key: text(given[key], f"{path}.{key}") for key in ("model", "language", "prompt") if given.get(key) is not None
    }
    return Transcription(**{key: words or None for key, words in read.items()})


def _read_texts(value: object, path: str) -> list[str]:
    return [] if value is None else [text(each, f"{path}[{i}]") for i, each in enumerate(listing(value, path))]


def read_audible(value: object, path: str) -> bool:
    """Read `output_modalities` or `modalities`: whether the answer is audio. `["audio","text"]` is."""
    if value is None:
        return True
    modalities = [one_of(item, f"{path}[{i}]", ("text", "audio")) for i, item in enumerate(listing(value, path))]
    if not modalities:
        raise wrong_value(path, '["audio"] or ["text"]', value)
    return "audio" in modalities


def read_voice(value: object, path: str) -> str:
    """Read a voice's name, or an object with its `id`."""
    if isinstance(value, dict):
        return text(required(value, "id", path, "a string"), f"{path}.id")
    return text(value, path)


def read_max_tokens(value: object, path: str) -> int | None:
    """Read a number of tokens, or `"inf"`, which is None as a null is."""
    if value is None or value == "inf":
        return None
    return whole(value, path, low=1, high=1_000_000)


def read_truncation(value: object, path: str) -> Truncation:
    """Read `auto`, `disabled`, or an object with a `retention_ratio`; a null means `auto`."""
    if value is None:
        return Truncation()
    if not isinstance(value, dict):
        return Truncation(kind=one_of(value, path, ("auto", "disabled")))
    one_of(required(value, "type", path, '"retention_ratio"'), f"{path}.type", ("retention_ratio",))
    ratio = number(required(value, "retention_ratio", path, "0 to 1"), f"{path}.retention_ratio", low=0.0, high=1.0)
    given, at = value.get("token_limits"), f"{path}.token_limits"
    limit = None if given is None else record(given, at).get("post_instructions")
    if limit is not None:
        limit = whole(limit, f"{at}.post_instructions", low=1, high=MAX_CONTEXT_TOKENS)
    return Truncation(kind="retention_ratio", retention_ratio=ratio, post_instructions=limit)


def read_tools(value: object, path: str) -> tuple[Tool, ...]:
    """Read the functions that the agent may call."""
    tools = tuple(_read_tool(tool, f"{path}[{i}]") for i, tool in enumerate(listing(value, path)))
    refuse_length(sum(len(tool.description) + len(tool.parameters_json) for tool in tools), path)
    return tools


def read_session_tools(value: object, path: str) -> tuple[Tool | McpRequest, ...]:
    """Read the tools of a session: functions of the client, and MCP servers. Tools of other types are left out."""
    tools, servers = list[object](), list[Tool | McpRequest]()
    for position, each in enumerate(() if value is None else listing(value, path)):
        kind = each.get("type") if isinstance(each, dict) else None
        if isinstance(each, dict) and kind == "mcp":
            servers.append(read_mcp(each, f"{path}[{position}]"))
        elif not is_unserved_tool(kind):
            tools.append(each)
    labels = [each.label for each in servers if isinstance(each, McpRequest)]
    if len(set(labels)) < len(labels) or len(labels) > MAX_SERVERS:
        raise ProtocolError(f"{path}: expected at most {MAX_SERVERS} MCP servers, each with its own label", field=path)
    return (*read_tools(tools, path), *servers)


def _read_tool(value: object, path: str) -> Tool:
    given = record(value, path)
    one_of(given.get("type") or "function", f"{path}.type", ("function",))
    name = text(required(given, "name", path, "a string"), f"{path}.name")
    if not name:
        raise missing(f"{path}.name", "a name")
    description, parameters = given.get("description"), given.get("parameters")
    return Tool(
        name=name,
        description="" if description is None else text(description, f"{path}.description"),
        parameters_json=_ANY_ARGUMENTS if parameters is None else _schema(parameters, f"{path}.parameters"),
        strict=None if given.get("strict") is None else flag(given["strict"], f"{path}.strict"),
    )


def _schema(value: object, path: str) -> str:
    try:
        return json.dumps(record(value, path), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError as why:
        raise ProtocolError(f"{path}: expected finite numbers", field=path) from why


def read_tool_choice(value: object, path: str) -> ToolChoice:
    """Read `auto`, `none`, `required`, the name of one function, or tools of an MCP server."""
    if value is None:
        return ToolChoice("auto")
    if not isinstance(value, dict):
        return ToolChoice(one_of(value, path, _MODES))
    if one_of(required(value, "type", path, '"function"'), f"{path}.type", ("function", "mcp")) == "mcp":
        label = text(required(value, "server_label", path, "a server's label"), f"{path}.server_label")
        named = value.get("name") is not None
        return ToolChoice(text(value["name"], f"{path}.name") if named else "required", label)
    return ToolChoice(text(required(value, "name", path, "a function's name"), f"{path}.name"))
