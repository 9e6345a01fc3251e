"""The session's configuration: what updates do to it, what they may not, and how it is echoed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import ProtocolError
from voicepipe.protocol.extensions import Extensions
from voicepipe.protocol.ga import session_object
from voicepipe.protocol.json_fields import MAX_ECHOED_CHARS
from voicepipe.protocol.mcp import MAX_SERVERS, read_mcp
from voicepipe.protocol.published_fields import not_served
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import AudioFormat, SemanticVad, ServerVad, Transcription
from voicepipe.testing.strict_events import problems as shape_problems

MCP_SERVER = {
    "type": "mcp",
    "server_label": "calendar",
    "server_url": "https://tools.example/mcp",
    "require_approval": "never",
}
NewConfig = Callable[..., SessionConfig]


def shaped(config: SessionConfig) -> list[str]:
    """What a strict reader of `session.updated` finds wrong."""
    return shape_problems({"type": "session.updated", "event_id": "e", "session": session_object(config)})


def audio_input(**changes: Any) -> dict[str, Any]:
    return {"type": "realtime", "audio": {"input": changes}}


# --- what is echoed ---------------------------------------------------------------------------


def test_session_carries_every_field_from_the_start(config: SessionConfig) -> None:
    """Section 6: the whole session, nulls included, with both flags of turn_detection at their effective values."""
    rendered = session_object(config)
    assert rendered == {
        "type": "realtime",
        "object": "realtime.session",
        "id": "sess_7",
        "model": "default",
        "output_modalities": ["audio"],
        "instructions": "Be brief.",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                    "idle_timeout_ms": None,
                    "create_response": True,
                    "interrupt_response": True,
                },
            },
            "output": {"format": {"type": "audio/pcm", "rate": 24_000}, "voice": "alba", "speed": 1.0},
        },
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "include": None,
        "expires_at": 1_800_000_000,
    }
    assert shaped(config) == []


def test_session_update_is_partial(config: SessionConfig) -> None:
    """What an update leaves out stays, down through the nested objects."""
    merged = config.merged({"type": "realtime", "audio": {"output": {"speed": 1.2}}})
    assert (merged.speed, merged.voice, merged.instructions) == (1.2, "alba", "Be brief.")
    assert merged.turn_detection == ServerVad()


def test_turn_detection_is_replaced_as_a_whole(new_config: NewConfig) -> None:
    config = new_config(turn_detection=ServerVad(silence_duration_ms=900, create_response=False))
    merged = config.merged(audio_input(turn_detection={"type": "server_vad", "threshold": 0.4}))
    assert merged.turn_detection == ServerVad(threshold=0.4)


@pytest.mark.parametrize("off", [None, False])
def test_turn_detection_null_or_false_turns_off(config: SessionConfig, off: object) -> None:
    """Section 5: pipecat writes `false`; the echo is null for both."""
    merged = config.merged(audio_input(turn_detection=off))
    assert session_object(merged)["audio"]["input"]["turn_detection"] is None
    assert merged.turn_settings().detection == "none"
    assert shaped(merged) == []


def test_transcription_is_replaced_and_turned_off(config: SessionConfig) -> None:
    on = config.merged(audio_input(transcription={"model": "whisper-1", "language": "de", "keywords": ["x"]}))
    assert on.transcription == Transcription(model="whisper-1", language="de")
    assert on.turn_settings().transcribe
    assert on.turn_settings().language == "de"
    assert shaped(on) == []
    again = on.merged(audio_input(transcription={"prompt": "names"}))
    assert again.transcription == Transcription(prompt="names")
    off = again.merged(audio_input(transcription=None))
    assert not off.turn_settings().transcribe


def test_agents_language_stands_behind_the_clients(new_config: NewConfig) -> None:
    config = new_config(language="fr")
    assert config.turn_settings().language == "fr"
    assert config.merged(audio_input(transcription={"language": "de"})).turn_settings().language == "de"


def test_noise_reduction_is_accepted_and_null(config: SessionConfig) -> None:
    assert config.merged(audio_input(noise_reduction={"type": "near_field"})) == config


@pytest.mark.parametrize("kind", ["audio/pcm", "audio/pcmu", "audio/pcma"])
def test_formats_go_each_direction_by_itself(config: SessionConfig, kind: Any) -> None:
    """Section 5: pcm at 24 kHz or G.711 at 8 kHz, and only pcm names its rate."""
    merged = config.merged({"audio": {"output": {"format": {"type": kind}}}})
    assert (merged.input_format, merged.output_format) == (AudioFormat(), AudioFormat(kind))
    assert merged.output_format.rate_hz == (24_000 if kind == "audio/pcm" else 8_000)
    assert shaped(merged) == []


def test_missing_format_is_pcm_24000(new_config: NewConfig) -> None:
    config = new_config(input_format=AudioFormat("audio/pcmu"))
    assert config.merged(audio_input(format=None)).input_format == AudioFormat("audio/pcm")
    assert config.merged(audio_input(format={})).input_format == AudioFormat("audio/pcm")


@pytest.mark.parametrize(
    ("eagerness", "silence_ms"), [("low", 1_000), ("medium", 720), ("auto", 720), ("high", 500), (None, 720)]
)
def test_semantic_vad_eagerness_sets_the_silence(config: SessionConfig, eagerness: str | None, silence_ms: int) -> None:
    merged = config.merged(audio_input(turn_detection={"type": "semantic_vad", "eagerness": eagerness}))
    assert isinstance(merged.turn_detection, SemanticVad)
    assert merged.turn_settings().silence_ms == silence_ms
    assert merged.turn_settings().end_of_turn == ("adaptive" if eagerness == "low" else "soft")
    assert shaped(merged) == []


def test_turn_settings_follow_server_vad(config: SessionConfig) -> None:
    detection = {
        "type": "server_vad",
        "threshold": 0.7,
        "silence_duration_ms": 250.0,
        "prefix_padding_ms": 100,
        "idle_timeout_ms": 9_000,
        "create_response": False,
        "interrupt_response": False,
    }
    merged = config.merged(audio_input(turn_detection=detection))
    turns = merged.turn_settings()
    assert (turns.detection, turns.silence_ms) == ("vad", 250)
    assert not turns.create_response
    assert not turns.interrupt_response
    assert (merged.vad_threshold, merged.prefix_padding_ms, merged.idle_timeout_ms) == (0.7, 100, 9_000)
    assert shaped(merged) == []


def test_tools_are_replaced_and_echoed_without_extras(config: SessionConfig) -> None:
    """Clients add keys of their own (`meta`, `strict`); the echo has only the published ones."""
    parameters = {"type": "object", "properties": {"place": {"type": "string", "description": "wo? \u00fc"}}}
    tool = {"type": "function", "name": "get_weather", "description": "d", "parameters": parameters, "meta": 1}
    merged = config.merged({"type": "realtime", "tools": [tool, {"type": "function", "name": "bare"}]})
    rendered = session_object(merged)["tools"]
    assert rendered[0] == {"type": "function", "name": "get_weather", "description": "d", "parameters": parameters}
    assert json.loads(merged.reply_settings().tools[1].parameters_json) == {"type": "object", "properties": {}}
    assert shaped(merged) == []
    assert merged.merged({"tools": []}).tools == ()


@pytest.mark.parametrize(
    ("choice", "held"), [("none", "none"), ("required", "required"), ({"type": "function", "name": "f"}, "f")]
)
def test_tool_choice_is_echoed(config: SessionConfig, choice: object, held: str) -> None:
    merged = config.merged({"tool_choice": choice})
    assert merged.reply_settings().tool_choice == held
    assert session_object(merged)["tool_choice"] == choice
    assert shaped(merged) == []


def test_an_mcp_server_brings_its_authorization_and_its_tools_as_a_filter() -> None:
    """The two shapes that are published for `allowed_tools`: a list of names, and a filter with such a list."""
    plain = read_mcp({**MCP_SERVER, "allowed_tools": ["find", "book"]}, "tool")
    assert (plain.allowed_tools, plain.headers) == (("find", "book"), ())
    filtered = read_mcp({**MCP_SERVER, "authorization": "t0ken", "allowed_tools": {"tool_names": ["find"]}}, "tool")
    assert (filtered.allowed_tools, filtered.headers) == (("find",), (("Authorization", "Bearer t0ken"),))
    with pytest.raises(ProtocolError) as refusal:
        read_mcp({**MCP_SERVER, "allowed_tools": {"tool_names": "find"}}, "tool")
    assert refusal.value.field == "tool.allowed_tools.tool_names"


def test_null_gives_up_tools_and_their_choice(config: SessionConfig) -> None:
    chosen = config.merged({"tools": [{"name": "f"}], "tool_choice": "required"})
    given_up = chosen.merged({"tools": None, "tool_choice": None})
    assert (given_up.tools, given_up.tool_choice) == ((), "auto")


@pytest.mark.parametrize(
    ("modalities", "audible"), [(["text"], False), (["audio"], True), (["audio", "text"], True), (None, True)]
)
def test_audio_and_text_together_means_audio(config: SessionConfig, modalities: object, audible: bool) -> None:
    merged = config.merged({"output_modalities": modalities})
    assert merged.reply_settings().audible is audible
    assert session_object(merged)["output_modalities"] == (["audio"] if audible else ["text"])


def test_max_output_tokens_is_a_number_or_inf(config: SessionConfig) -> None:
    limited = config.merged({"max_output_tokens": 200})
    assert session_object(limited)["max_output_tokens"] == 200
    assert limited.merged({"max_output_tokens": "inf"}).reply_settings().max_output_tokens is None


def test_voice_may_be_an_object(config: SessionConfig) -> None:
    merged = config.merged({"audio": {"output": {"voice": {"id": "v_1"}}}})
    assert merged.reply_settings().voice == "v_1"
    assert config.merged({"audio": {"output": {"voice": None, "speed": None}}}) == config


def test_model_cannot_change(config: SessionConfig) -> None:
    """Section 5: it is accepted, and the echo is the effective one."""
    assert session_object(config.merged({"type": "realtime", "model": "gpt-realtime"}))["model"] == "default"


def test_what_is_not_served_is_accepted_and_null(config: SessionConfig) -> None:
    update = {
        "type": "realtime",
        "tracing": "auto",
        "include": ["item.input_audio_transcription.logprobs"],
        "prompt": {"id": "p"},
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": True,
        "prompt_cache_key": "k",
        "temperature": 0.6,
        "providerData": {"stt": {"x": 1}},
        "audio": {"output": {"model": "tts"}},
    }
    merged = config.merged(update)
    rendered = session_object(merged)
    assert [rendered[key] for key in ("tracing", "include", "prompt")] == [None] * 3
    assert merged.reply_settings().temperature == 0.6
    assert shaped(merged) == []


NOT_SERVED: list[tuple[dict[str, Any], list[str]]] = [
    ({"include": ["item.input_audio_transcription.logprobs"]}, ["session.include"]),
    ({"reasoning": {"effort": "low"}}, ["session.reasoning"]),
    ({"parallel_tool_calls": False}, ["session.parallel_tool_calls"]),
    ({"tracing": {"workflow_name": "w", "metadata": {"a": 1}}}, ["session.tracing"]),
    ({"prompt": {"id": "pmpt_1", "version": "2"}}, ["session.prompt", "session.prompt.version"]),
    (audio_input(noise_reduction={"type": "near_field"}), ["session.audio.input.noise_reduction"]),
    ({"input_audio_noise_reduction": {"type": "far_field"}}, ["session.input_audio_noise_reduction"]),
    (audio_input(transcription={"keywords": ["Bern"]}), ["session.audio.input.transcription.keywords"]),
    (audio_input(transcription={"languages": ["de", "fr"]}), ["session.audio.input.transcription.languages"]),
    (audio_input(transcription={"delay": "low"}), ["session.audio.input.transcription.delay"]),
    ({"tools": [{"type": "function", "name": "a"}, {"type": "web_search"}]}, ["session.tools[1].type"]),
]


@pytest.mark.parametrize(("update", "fields"), NOT_SERVED, ids=[fields[0] for _, fields in NOT_SERVED])
def test_a_published_field_that_is_not_served_is_named(
    config: SessionConfig, update: dict[str, Any], fields: list[str]
) -> None:
    """By its path, and the update is accepted."""
    assert [field for field, _ in not_served(update)] == fields
    config.merged(update)


@pytest.mark.parametrize(
    "update",
    [
        {"tracing": "auto", "include": None, "reasoning": None, "prompt": None, "parallel_tool_calls": True},
        {"include": [], "tool_choice": {"type": "function", "name": "n"}, "tools": [{"name": "n"}]},
        {"prompt": {"id": "p", "variables": {"name": "Ada"}}},
        audio_input(noise_reduction=None, transcription={"model": "m", "languages": ["de"]}),
        audio_input(noise_reduction=False, transcription=None),
    ],
)
def test_what_clients_send_by_default_is_not_named(update: dict[str, Any]) -> None:
    assert list(not_served(update)) == []


@pytest.mark.parametrize("field", ["include", "reasoning", "prompt", "parallel_tool_calls", "tracing"])
def test_what_is_not_served_may_be_null(config: SessionConfig, field: str) -> None:
    assert config.merged({"type": "realtime", field: None}) == config
    assert list(not_served({field: None})) == []


def test_a_tool_that_is_not_served_leaves_the_others(config: SessionConfig) -> None:
    tools = [{"type": "web_search"}, {"type": "function", "name": "look"}]
    merged = config.merged({"type": "realtime", "instructions": "Hi.", "tools": tools})
    assert (merged.instructions, [tool.name for tool in merged.tools]) == ("Hi.", ["look"])


def test_one_language_of_languages_is_the_language(config: SessionConfig) -> None:
    assert config.merged(audio_input(transcription={"languages": ["de"]})).transcription == Transcription(language="de")


def test_opt_in_is_merged_by_name(config: SessionConfig) -> None:
    assert config.extensions is None
    opted = config.merged({"providerData": {"voicepipe": {}}})
    assert opted.extensions == Extensions()
    both = opted.merged({"providerData": {"voicepipe": {"resume": True}}}).merged(
        {"providerData": {"voicepipe": {"binary_audio": True, "of_a_later_version": 1}}}
    )
    assert both.extensions == Extensions(resume=True, binary_audio=True)
    less = both.merged({"providerData": {"voicepipe": {"resume": None}}})
    assert less.extensions == Extensions(binary_audio=True)
    for nothing in (None, False):
        assert both.merged({"providerData": {"voicepipe": nothing}}).extensions is None


@pytest.mark.parametrize(
    ("wrong", "field"), [(1, ""), ({"resume": "yes"}, ".resume"), ({"turn_events": 1}, ".turn_events")]
)
def test_wrong_opt_in_names_its_field(config: SessionConfig, wrong: object, field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        config.merged({"providerData": {"voicepipe": wrong}})
    assert refused.value.field == f"session.providerData.voicepipe{field}"


def test_transcription_session_has_no_output(config: SessionConfig) -> None:
    merged = config.merged({"type": "transcription", "audio": {"input": {"transcription": {"model": "m"}}}})
    rendered = session_object(merged)
    assert rendered["object"] == "realtime.transcription_session"
    assert not {"model", "tools", "output_modalities"} & rendered.keys()
    assert "output" not in rendered["audio"]
    assert not merged.turn_settings().create_response
    assert shaped(merged) == []


def test_beta_shaped_update_is_read_by_its_own_shape(config: SessionConfig) -> None:
    merged = config.merged(
        {
            "modalities": ["text", "audio"],
            "instructions": "hi",
            "voice": "verse",
            "speed": 0.5,
            "input_audio_format": "g711_ulaw",
            "output_audio_format": "g711_alaw",
            "input_audio_transcription": {"model": "whisper-1"},
            "input_audio_noise_reduction": {"type": "far_field"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 200},
            "max_response_output_tokens": 10,
            "temperature": 0.8,
        }
    )
    assert (merged.instructions, merged.voice, merged.speed, merged.max_output_tokens) == ("hi", "verse", 0.5, 10)
    assert (merged.input_format.name, merged.output_format.name) == ("audio/pcmu", "audio/pcma")
    assert merged.transcription == Transcription(model="whisper-1")
    assert merged.turn_detection == ServerVad(silence_duration_ms=200)
    assert shaped(merged) == []


# --- what is refused --------------------------------------------------------------------------

REFUSED = [
    ("session", "invalid_type", []),
    ("session.type", "invalid_value", {"type": "realtimes"}),
    ("session.audio", "invalid_type", {"audio": []}),
    ("session.audio.input", "invalid_type", {"audio": {"input": "x"}}),
    ("session.audio.input.turn_detection", "invalid_type", audio_input(turn_detection="server_vad")),
    ("session.audio.input.turn_detection.type", "missing_required_parameter", audio_input(turn_detection={})),
    ("session.audio.input.turn_detection.type", "invalid_value", audio_input(turn_detection={"type": "magic"})),
    (
        "session.audio.input.turn_detection.threshold",
        "invalid_value",
        audio_input(turn_detection={"type": "server_vad", "threshold": 1.01}),
    ),
    (
        "session.audio.input.turn_detection.threshold",
        "invalid_type",
        audio_input(turn_detection={"type": "server_vad", "threshold": True}),
    ),
    (
        "session.audio.input.turn_detection.silence_duration_ms",
        "invalid_value",
        audio_input(turn_detection={"type": "server_vad", "silence_duration_ms": -1}),
    ),
    (
        "session.audio.input.turn_detection.silence_duration_ms",
        "invalid_type",
        audio_input(turn_detection={"type": "server_vad", "silence_duration_ms": 0.5}),
    ),
    (
        "session.audio.input.turn_detection.prefix_padding_ms",
        "invalid_value",
        audio_input(turn_detection={"type": "server_vad", "prefix_padding_ms": 10**40}),
    ),
    (
        "session.audio.input.turn_detection.idle_timeout_ms",
        "invalid_type",
        audio_input(turn_detection={"type": "server_vad", "idle_timeout_ms": "5000"}),
    ),
    (
        "session.audio.input.turn_detection.create_response",
        "invalid_type",
        audio_input(turn_detection={"type": "server_vad", "create_response": 1}),
    ),
    (
        "session.audio.input.turn_detection.eagerness",
        "invalid_value",
        audio_input(turn_detection={"type": "semantic_vad", "eagerness": "very"}),
    ),
    ("session.audio.input.format.type", "invalid_value", audio_input(format={"type": "audio/opus"})),
    ("session.audio.input.format.rate", "invalid_value", audio_input(format={"type": "audio/pcm", "rate": 16_000})),
    ("session.audio.input.transcription.model", "invalid_type", audio_input(transcription={"model": 3})),
    ("session.audio.input.noise_reduction.type", "invalid_value", audio_input(noise_reduction={"type": "mid"})),
    ("session.audio.output.speed", "invalid_value", {"audio": {"output": {"speed": 1.6}}}),
    ("session.audio.output.voice", "invalid_type", {"audio": {"output": {"voice": 1}}}),
    ("session.audio.output.voice.id", "missing_required_parameter", {"audio": {"output": {"voice": {}}}}),
    ("session.instructions", "invalid_type", {"instructions": 5}),
    ("session.output_modalities", "invalid_value", {"output_modalities": []}),
    ("session.output_modalities[1]", "invalid_value", {"output_modalities": ["audio", "video"]}),
    ("session.max_output_tokens", "invalid_value", {"max_output_tokens": 0}),
    ("session.max_output_tokens", "invalid_type", {"max_output_tokens": "many"}),
    ("session.tools", "invalid_type", {"tools": {}}),
    ("session.tools[0].type", "invalid_type", {"tools": [{"type": 1}]}),
    ("session.instruction", "unknown_parameter", {"instruction": "Hi."}),
    ("session.voice", "unknown_parameter", {"type": "realtime", "voice": "verse"}),
    ("session.audio.input.noise", "unknown_parameter", audio_input(noise={})),
    (
        "session.audio.input.turn_detection.silence_ms",
        "unknown_parameter",
        audio_input(turn_detection={"type": "server_vad", "silence_ms": 100}),
    ),
    ("session.turn_detection.silence_ms", "unknown_parameter", {"turn_detection": {"silence_ms": 1}, "voice": "v"}),
    ("session.include[0]", "invalid_value", {"include": ["everything"]}),
    ("session.parallel_tool_calls", "invalid_type", {"parallel_tool_calls": "yes"}),
    ("session.reasoning", "invalid_type", {"reasoning": "low"}),
    ("session.audio.input.transcription.keywords", "invalid_type", audio_input(transcription={"keywords": "Bern"})),
    ("session.audio.input.transcription.delay", "invalid_value", audio_input(transcription={"delay": "none"})),
    ("session.tools[0].server_url", "missing_required_parameter", {"tools": [{"type": "mcp", "server_label": "s"}]}),
    (
        "session.tools",
        "invalid_value",
        {"tools": [{**MCP_SERVER, "server_label": f"s{n}"} for n in range(MAX_SERVERS + 1)]},
    ),
    ("session.tools", "invalid_value", {"tools": [MCP_SERVER, MCP_SERVER]}),
    ("session.tools[0].name", "missing_required_parameter", {"tools": [{"type": "function"}]}),
    ("session.tools[0].name", "missing_required_parameter", {"tools": [{"type": "function", "name": ""}]}),
    ("session.tools", "string_above_max_length", {"tools": [{"name": "f", "description": "d" * MAX_ECHOED_CHARS}]}),
    ("session.tools[0].parameters", "invalid_type", {"tools": [{"name": "f", "parameters": "{}"}]}),
    ("session.tools[0].parameters", "invalid_value", {"tools": [{"name": "f", "parameters": {"a": float("inf")}}]}),
    ("session.tool_choice", "invalid_value", {"tool_choice": "maybe"}),
    ("session.tool_choice.name", "missing_required_parameter", {"tool_choice": {"type": "function"}}),
    ("session.tracing", "invalid_value", {"tracing": "on"}),
    ("session.turn_detection.threshold", "invalid_value", {"turn_detection": {"type": "server_vad", "threshold": 5}}),
    ("session.input_audio_format", "invalid_value", {"input_audio_format": "opus"}),
]


@pytest.mark.parametrize(("path", "code", "update"), REFUSED, ids=[f"{path}-{code}" for path, code, _ in REFUSED])
def test_real_mistakes_are_refused_by_path(config: SessionConfig, path: str, code: str, update: object) -> None:
    """Section 6: `param` is the dotted path; the text says what was expected and what came."""
    with pytest.raises(ProtocolError, match="expected") as refusal:
        config.merged(update)
    assert (refusal.value.field, refusal.value.code) == (path, code)
    assert path in refusal.value.why


def test_refusal_names_the_value(config: SessionConfig) -> None:
    with pytest.raises(ProtocolError) as refusal:
        config.merged(audio_input(turn_detection={"type": "server_vad", "threshold": 2}))
    assert refusal.value.why == "session.audio.input.turn_detection.threshold: expected 0 to 1, got 2"


def test_a_refusal_is_short_whatever_was_sent(config: SessionConfig) -> None:
    with pytest.raises(ProtocolError) as refused:
        config.merged({"max_output_tokens": "many " * 1_000})
    assert "many many" in str(refused.value)
    assert len(str(refused.value)) < 200


def test_deep_nesting_is_refused(config: SessionConfig) -> None:
    deep: object = 1
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(ProtocolError, match="64 levels"):
        config.merged({"tools": [{"name": "f", "parameters": deep}]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KNOWN = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("realtime") | JSON,
        "instructions": JSON,
        "output_modalities": st.just(["text"]) | JSON,
        "max_output_tokens": JSON,
        "tools": st.lists(st.fixed_dictionaries({"name": JSON}, optional={"parameters": JSON}), max_size=2) | JSON,
        "tool_choice": JSON,
        "tracing": JSON,
        "temperature": JSON,
        "providerData": JSON,
        "audio": st.fixed_dictionaries(
            {},
            optional={
                "input": st.fixed_dictionaries(
                    {},
                    optional={
                        "format": JSON,
                        "transcription": st.fixed_dictionaries({}, optional={"model": JSON, "language": JSON}) | JSON,
                        "turn_detection": st.fixed_dictionaries(
                            {"type": st.sampled_from(["server_vad", "semantic_vad"])},
                            optional={"threshold": JSON, "silence_duration_ms": JSON, "eagerness": JSON},
                        )
                        | JSON,
                    },
                ),
                "output": st.fixed_dictionaries({}, optional={"voice": JSON, "speed": JSON, "format": JSON}),
            },
        ),
        "voice": JSON,
        "turn_detection": JSON,
    },
)


@given(KNOWN | JSON)
def test_any_update_is_taken_or_refused(update: object) -> None:
    """Whatever JSON comes: either a session of the published shape, or a refusal that names a field."""
    config = SessionConfig.start(session_id="s", model="m", voice="v", instructions="", expires_at=1)
    refused_at = None
    try:
        config = config.merged(update)
    except ProtocolError as refusal:
        refused_at = refusal.field
    assert refused_at is None or refused_at.startswith("session")
    assert shaped(config) == []
    assert config.turn_settings().silence_ms >= 0
