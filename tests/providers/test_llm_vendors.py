"""Every vendor of the catalog, against a fake that checks its key and refuses what the real one refuses.

What the fakes demand is written down apart from the catalog, from the sources named in `vendor_rules`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from voicepipe.config import load
from voicepipe.errors import StageRefused
from voicepipe.ports.model import (
    CallDelta,
    Called,
    Content,
    Finished,
    Function,
    Image,
    Message,
    Model,
    ModelRequest,
    Returned,
    Text,
    Usage,
)
from voicepipe.providers import catalog
from voicepipe.providers.built_in import factory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.model import ModelConformance, answer, text_of
from voicepipe.testing.fakes.cues import CallCue, InBandError, LlmCue
from voicepipe.testing.fakes.request_rules import RequestRules
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.fakes.vendor_rules import VENDOR_RULES
from voicepipe.values import replace

VENDORS = catalog.load().providers
AFFINITIES = {rules.affinity for rules in VENDOR_RULES.values() if rules.affinity is not None}
USER = Content("user", (Text("What time is it?"),))
TOOLS = (
    Function("look_up", "Looks up.", '{"type": "object", "properties": {"city": {"type": "string"}}}'),
    Function("hang_up", "Ends the call.", ""),
)


def test_every_vendor_has_its_rules() -> None:
    without = set(VENDORS) - set(VENDOR_RULES)
    assert not without, f"add a row to VENDOR_RULES in voicepipe/testing/fakes/vendor_rules.py: {sorted(without)}"
    unknown = set(VENDOR_RULES) - set(VENDORS)
    assert not unknown, f"rules of vendors that no catalog.toml has: {sorted(unknown)}"


def settings_of(name: str, rules: RequestRules, vendor: FakeVendor) -> ProviderSettings:
    """What the settings make of a vendor whose key is set, at the fake's address instead of its own."""
    facts = VENDORS[name]
    address = {} if facts.base_url else {f"providers.{name}.base_url": "https://mine.example/v1"}
    chosen = load(overrides=address, environ={"HOME": "/h", facts.key_env[0]: rules.key})
    return replace(chosen.connection(Spec(name, rules.model), key="k"), base_url=vendor.base_url)


@pytest.fixture(params=sorted(VENDORS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rules(name: str) -> RequestRules:
    return VENDOR_RULES[name]


@pytest.fixture
async def strict_vendor(vendor: FakeVendor, rules: RequestRules) -> FakeVendor:
    vendor.rules = rules
    return vendor


@pytest.fixture
def model(name: str, rules: RequestRules, strict_vendor: FakeVendor) -> Model:
    made: Model = factory(VENDORS[name].kind, "llm", key="k")(
        Spec(name, rules.model), settings_of(name, rules, strict_vendor)
    )
    return made


def request_to(rules: RequestRules, *messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(model=rules.model, messages=messages or (USER,), **more)


class TestEveryVendor(ModelConformance):
    """The port's promises, with the vendor's law in force."""

    @pytest.fixture
    def question(self, rules: RequestRules) -> ModelRequest:
        return request_to(rules, Content("system", (Text("Be brief."),)), USER, max_output_tokens=24)


async def test_nothing_that_the_port_can_say_is_refused(
    model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """A whole conversation: greeting, instructions in the middle, calls of another vendor, an interruption."""
    conversation = (
        Content("system", (Text("Be brief."),)),
        Content("assistant", (Text("Good morning!"),)),
        USER,
        Called("call_of:another/vendor.1", "look_up", '{"city": "Oslo"}'),
        Called("call_2", "hang_up", ""),
        Returned("call_2", "done"),
        Returned("call_of:another/vendor.1", '{"time": "noon"}'),
        Content("user", (Text("Hurry!"), Text(" "))),
        Content("assistant", (Text(" "),)),
        Content("system", (Text("The user is in Norway."),)),
        Content("user", (Text("Well?"),)),
        Called("call_3", "look_up", "{}"),
        Returned("call_3", "[1]"),
        Called("call_4", "look_up", "{}"),
        Returned("call_4", ""),
    )
    for choice in ("auto", "none", "required", "look_up"):
        request = request_to(
            rules,
            *conversation,
            functions=TOOLS,
            tool_choice=choice,
            temperature=1.7,
            max_output_tokens=9_000,
            session="session-1",
            user="user-1",
        )
        assert text_of(await answer(model, request))
    only = request_to(rules, Content("assistant", (Text("Is anybody there? "),)), temperature=0.0)
    assert text_of(await answer(model, only))
    assert text_of(await answer(model, request_to(rules, Content("system", (Text("Greet the user."),)))))


async def test_the_key_goes_where_it_belongs(
    name: str, model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """The vendor's own header bears it; without it, or with another one, the fake says 401."""
    await answer(model, request_to(rules))
    received = await strict_vendor.llm.nth(0)
    bearers = [header for header, value in received.headers.items() if rules.key and rules.key in value]
    assert bearers == ([rules.key_header] if rules.key else [])
    if rules.key:
        wrong = replace(settings_of(name, rules, strict_vendor), api_key="sk-wrong")
        with pytest.raises(StageRefused) as raised:
            await answer(factory(VENDORS[name].kind, "llm", key="k")(Spec(name, rules.model), wrong), request_to(rules))
        assert raised.value.status == 401


async def test_what_it_refuses_is_never_sent(
    name: str, model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """Not even when the settings ask for it."""
    fields = json.dumps(dict.fromkeys(sorted(rules.refuses), 1))
    settings = settings_of(name, rules, strict_vendor)
    with_refused = replace(settings, options=(*settings.options, ("llm_extra", fields)))
    stubborn: Model = factory(VENDORS[name].kind, "llm", key="k")(Spec(name, rules.model), with_refused)
    assert text_of(await answer(stubborn, request_to(rules)))
    assert not rules.refuses & (await strict_vendor.llm.nth(0)).question.keys()


async def test_thinking_is_disabled(model: Model, rules: RequestRules, strict_vendor: FakeVendor) -> None:
    """What switches thinking off stands in the question."""
    await answer(model, request_to(rules, max_output_tokens=24))
    question = (await strict_vendor.llm.nth(0)).question
    for field, value in rules.quiet.items():
        assert within(value, question[field])


def within(part: Any, whole: Any) -> bool:
    """Whether `whole` says all that `part` says."""
    if isinstance(part, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


async def test_the_sessions_name_goes_to_its_place_and_to_no_other(
    model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """A vendor that routes a session to one replica by a key gets that key in its own field; other vendors get none."""
    await answer(model, request_to(rules, session="opaque-77"))
    received = await strict_vendor.llm.nth(0)
    reported = {("header", key.lower()) for key, value in received.headers.items() if value == "opaque-77"}
    reported |= {("body", key) for key, value in received.question.items() if value == "opaque-77"}
    assert reported == ({rules.affinity} if rules.affinity is not None else set())
    assert reported <= AFFINITIES


async def test_tokens_are_counted_where_the_vendor_reports_them(
    model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """The cached ones in its own field; the port's count holds all that was read."""
    strict_vendor.llm.cue(LlmCue(tokens=("Noon", "."), input_tokens=2_000, cached_tokens=1_500))
    counted = [event for event in await answer(model, request_to(rules)) if isinstance(event, Usage)]
    if rules.usage == "never":
        assert counted == []
    else:
        cached = 0 if rules.cached_at == "nowhere" else 1_500
        assert counted == [Usage(input_tokens=2_000, output_tokens=2, cached_tokens=cached)]


async def test_a_function_is_called_and_its_result_is_taken(
    model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """Both ways: the call comes out whole, and goes back with its result."""
    strict_vendor.llm.cue(LlmCue(calls=(CallCue("look_up", ('{"city":', '"Oslo"}'), "call_fak1"),)))
    events = await answer(model, request_to(rules, functions=TOOLS))
    calls = [event for event in events if isinstance(event, CallDelta)]
    assert (calls[0].name, "".join(call.arguments for call in calls)) == ("look_up", '{"city":"Oslo"}')
    assert Finished("tool_calls") in events
    again = request_to(
        rules, USER, Called(calls[0].call_id, "look_up", '{"city":"Oslo"}'), Returned(calls[0].call_id, "noon")
    )
    assert text_of(await answer(model, again))


async def test_a_picture_is_taken_or_refused_in_words(
    model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """A vendor that takes no pictures gets no request."""
    request = request_to(rules, Content("user", (Text("What is this?"), Image("data:image/png;base64,AAAA"))))
    if rules.text_only:
        with pytest.raises(StageRefused, match="takes no images"):
            await answer(model, request)
        assert strict_vendor.llm.received == []
    else:
        assert text_of(await answer(model, request))
        assert "AAAA" in json.dumps((await strict_vendor.llm.nth(0)).question)


async def test_many_keep_alives_and_thinking_are_ignored(
    model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """Comments, pings, empty chunks and thoughts are neither text nor an end."""
    strict_vendor.llm.cue(LlmCue(tokens=("Hi", "!"), keep_alives=400, role_only=5))
    events = await answer(model, request_to(rules))
    assert text_of(events) == "Hi!"
    assert Finished("stop") in events


async def test_overload_inside_an_answer_is_a_refusal_with_its_status(
    model: Model, rules: RequestRules, strict_vendor: FakeVendor
) -> None:
    """After a 200 too it differs from a broken answer, so that another model gets the request."""
    strict_vendor.llm.cue(LlmCue(fault=InBandError(after=1, message="Overloaded", code=529)))
    with pytest.raises(StageRefused) as raised:
        await answer(model, request_to(rules))
    assert (raised.value.status, raised.value.retryable) == (529, True)
    assert "Overloaded" in raised.value.why


PLAIN = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
CLAUDE = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = [*PLAIN["messages"], {"role": "assistant", "content": None, "tool_calls": [CALL]}]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("openai", PLAIN | {"max_tokens": 5}, "use max_completion_tokens"),
        ("openai", PLAIN | {"temperature": 1}, "temperature is not supported"),
        ("groq", PLAIN | {"thinking": {}}, "unknown parameter thinking"),
        ("groq", PLAIN | {"messages": [{"role": "developer", "content": "x"}]}, "unknown role developer"),
        ("mistral", PLAIN | {"tool_choice": "required"}, "tool_choice required"),
        ("mistral", PLAIN | {"messages": CALLED}, "length of 9"),
        ("mistral", PLAIN | {"messages": [{"role": "assistant", "content": "x"}]}, "Expected last role User"),
        ("mistral", PLAIN | {"messages": [*PLAIN["messages"], {"role": "system", "content": "x"}]}, "role 'system'"),  # type: ignore[misc]
        ("cohere", PLAIN | {"stream_options": {}}, "stream_options is not supported"),
        ("moonshot", PLAIN | {"temperature": 0.5}, "temperature out of range"),
        ("minimax", PLAIN | {"max_completion_tokens": 4_096}, "above 2048"),
        ("deepinfra", PLAIN | {"tool_choice": {"type": "function"}}, "tool_choice named"),
        ("sambanova", PLAIN | {"messages": [{"role": "user", "content": []}]}, "content must be a string"),
        ("anthropic", CLAUDE | {"max_completion_tokens": 5}, "Extra inputs are not permitted"),
        ("anthropic", CLAUDE | {"messages": CLAUDE["messages"] * 2}, "roles must alternate"),  # type: ignore[operator]
        ("anthropic", {"model": "m", "messages": []}, "max_tokens is required"),
        ("anthropic", CLAUDE | {"system": [{"cache_control": {}}] * 5}, "A maximum of 4 blocks"),
        ("gemini", GEMINI | {"stream": True}, "Unknown name"),
        ("gemini", {"contents": [{"role": "model", "parts": []}]}, "alternate"),
    ],
)
def test_the_rules_find_what_would_be_refused(name: str, body: dict[str, Any], words: str) -> None:
    """Each demand can fail: what other vendors take is refused here."""
    rules = VENDOR_RULES[name]
    broken = rules.broken({rules.key_header: rules.key_prefix + rules.key, **rules.headers}, body)
    assert broken is not None
    assert broken[0] == 400
    assert words in broken[1]
