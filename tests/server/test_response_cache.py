"""Answers over REST that are given again: only to the same request, and never across projects or users."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

import aiohttp
import msgspec
import openai
import pytest

from voicepipe import clock
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.errors import ConfigError
from voicepipe.ports.model import Content, Finished, ModelEvent, ModelRequest, Text, TextDelta, Usage
from voicepipe.server.authenticate import Principal
from voicepipe.server.chat_ports import ChatRoute
from voicepipe.server.gateway.response_cache import ResponseCache
from voicepipe.server.gateway.response_cache_settings import ResponseCacheSettings
from voicepipe.testing.fakes.cues import Cut, LlmCue

QUESTION: Any = [{"role": "user", "content": "Which mountain is the tallest?"}]
ON = {
    "response_cache.mb": 1,
    "providers.fake.input_usd_per_million": 1000,
    "providers.fake.output_usd_per_million": 2000,
}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PICTURE: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def key_of(server: Any, project: str) -> str:
    return ApiKeys(server.folder / "data").create(project, now_s=clock.unix_s()).text


@asynccontextmanager
async def caching(fake_server: Any, more: dict[str, Any] | None = None) -> AsyncIterator[Any]:
    async with fake_server(ON | (more or {})) as server:
        server.vendor.llm.usual = LlmCue(tokens=("Mount", " Everest", "."), input_tokens=12)
        yield server


class Client:
    """Puts a question with temperature 0 and returns the answer as (text, header, `voicepipe`)."""

    def __init__(self, server: Any, key: str = "any") -> None:
        self.api = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.api.close()

    async def request(self, **more: Any) -> tuple[str, str | None, dict[str, Any]]:
        body: Any = {"model": "default", "messages": QUESTION, "temperature": 0} | more
        raw = await self.api.chat.completions.with_raw_response.create(**body)
        answer = raw.parse()
        return (
            answer.choices[0].message.content or "",
            raw.headers.get("X-Voicepipe-Cache"),
            answer.model_dump()["voicepipe"],
        )

    async def stream(self) -> tuple[list[str], str | None, Any]:
        raw = await self.api.chat.completions.with_raw_response.create(
            model="default",
            messages=QUESTION,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in raw.parse()]
        texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
        return texts, raw.headers.get("X-Voicepipe-Cache"), chunks[-1]


async def samples(server: Any, name: str) -> dict[str, float]:
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"voicepipe_{name}")
    }


async def test_the_same_request_is_answered_from_the_cache(fake_server: Any) -> None:
    """Whole or streamed, with the usage of the first answer and without its cost."""
    async with caching(fake_server) as server, Client(server) as client:
        text, header, ours = await client.request()
        assert (text, header, ours["cache"]) == ("Mount Everest.", "miss", "miss")
        assert ours["cost_usd"] == pytest.approx((12 * 1000 + 3 * 2000) / 1e6)
        again, header, ours = await client.request()
        assert (again, header, ours["cache"], ours["cost_usd"]) == ("Mount Everest.", "hit", "hit", 0.0)
        assert ours["route"] == "fake/llm"
        assert ours["why"] == "from the response cache"
        texts, header, last = await client.stream()
        assert (texts, header) == (["Mount", " Everest", "."], "hit")
        assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (12, 3)
        assert len(server.vendor.llm.received) == 1
        results = await samples(server, "response_cache_requests_total")
        assert {key.split('"')[1]: value for key, value in results.items()} == {"hit": 2, "miss": 1, "excluded": 0}
        (saved,) = (await samples(server, "response_cache_saved_usd_total")).values()
        assert saved == pytest.approx(2 * 0.018)
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/providers") as answer:
            counts = (await answer.json())["response_cache"]
    n_bytes = counts.pop("bytes")
    assert counts == {"hit": 2, "miss": 1, "excluded": 0, "saved_usd": saved, "entries": 1}
    assert 512 + len("Mount Everest.") < n_bytes < 1_000


async def test_a_streamed_answer_is_stored_too(fake_server: Any) -> None:
    async with caching(fake_server) as server, Client(server) as client:
        assert (await client.stream())[1] == "miss"
        assert (await client.request())[:2] == ("Mount Everest.", "hit")


async def test_responses_use_the_same_answers(fake_server: Any) -> None:
    """A chat completion and a response with the same conversation are the same request to the model."""
    async with caching(fake_server) as server, Client(server) as client:
        await client.request()
        raw = await client.api.responses.with_raw_response.create(
            model="default", input=QUESTION[0]["content"], temperature=0
        )
        assert raw.headers["X-Voicepipe-Cache"] == "hit"
        assert raw.parse().output_text == "Mount Everest."


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"role": "user", "content": "Which mountain is the tallest"}]},
        {"messages": [{"role": "system", "content": QUESTION[0]["content"]}]},
        {"max_completion_tokens": 40},
        {"top_p": 0.5},
        {"model": "fake/llm"},
    ],
)
async def test_another_request_is_another_answer(fake_server: Any, more: dict[str, Any]) -> None:
    async with caching(fake_server) as server, Client(server) as client:
        await client.request()
        assert (await client.request(**more))[1] == "miss"
        assert len(server.vendor.llm.received) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [TOOL]},
        {"user": "anna"},
        {"safety_identifier": "anna"},
        {"prompt_cache_key": "anna"},
        {"metadata": {"country": "de"}},
        {"temperature": 0.5},
        {"temperature": None},
        {"messages": [{"role": "user", "content": [PICTURE]}]},
        {
            "messages": [
                *QUESTION,
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "1", "content": "rain"},
            ]
        },
    ],
)
async def test_a_request_of_one_user_or_with_tools_is_never_stored(fake_server: Any, more: dict[str, Any]) -> None:
    async with caching(fake_server) as server, Client(server) as client:
        for _ in range(2):
            _, header, ours = await client.request(**more)
            assert header is None
            assert "cache" not in ours
        assert len(server.vendor.llm.received) == 2
        assert sum((await samples(server, "response_cache_requests_total")).values()) == 2


async def test_any_temperature_by_setting(fake_server: Any) -> None:
    async with caching(fake_server, {"response_cache.any_temperature": True}) as server, Client(server) as client:
        assert [(await client.request(temperature=1))[1] for _ in range(2)] == ["miss", "hit"]


async def test_projects_share_nothing(fake_server: Any) -> None:
    async with (
        caching(fake_server) as server,
        Client(server, key_of(server, "acme")) as one,
        Client(server, key_of(server, "rival")) as other,
    ):
        assert [(await client.request())[1] for client in (one, other, one, other)] == ["miss", "miss", "hit", "hit"]


async def test_off_by_default(fake_server: Any) -> None:
    async with fake_server() as server, Client(server) as client:
        for _ in range(2):
            assert (await client.request())[1] is None
        assert await samples(server, "response_cache") == {}
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/providers") as answer:
            assert (await answer.json())["response_cache"] is None


async def test_an_incomplete_answer_is_not_stored(fake_server: Any) -> None:
    """One that broke, that ended at its limit, or that was cut at a stop sequence."""
    async with caching(fake_server) as server, Client(server) as client:
        server.vendor.llm.cue(LlmCue(tokens=("Mount",), fault=Cut(after=1)))
        with pytest.raises(openai.APIStatusError):
            await client.request()
        server.vendor.llm.cue(LlmCue(tokens=("Mount",), finish="length"))
        assert (await client.request())[1] == "miss"
        assert (await client.request(stop=["Everest"]))[:2] == ("Mount ", "miss")
        assert (await client.request())[:2] == ("Mount Everest.", "miss")
        assert (await client.request(stop=["Everest"]))[:2] == ("Mount ", "hit")


async def test_it_is_bounded_in_entries_bytes_and_age(fake_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        caching(fake_server, {"response_cache.entries": 2, "response_cache.keep_s": 60}) as server,
        Client(server) as client,
    ):

        async def put(n: int) -> str | None:
            return (await client.request(max_completion_tokens=n))[1]

        assert [await put(n) for n in (1, 2, 1, 3)] == ["miss", "miss", "hit", "miss"]
        assert [await put(n) for n in (2, 1)] == ["miss", "miss"]  # 2 was used least recently, then 1 gave way for it
        server.vendor.llm.cue(LlmCue(tokens=("x" * 600_000, "y" * 400_000)))
        assert [await put(n) for n in (9, 1)] == ["miss", "hit"]  # too large to be stored: nothing gives way
        server.vendor.llm.usual = LlmCue(tokens=("x" * 600_000,))
        assert [await put(n) for n in (11, 12, 12, 11)] == ["miss", "miss", "hit", "miss"]
        now_ms = clock.monotonic_ms()
        monkeypatch.setattr(clock, "monotonic_ms", lambda: now_ms + 60_000)
        assert [await put(11) for _ in range(2)] == ["miss", "hit"]


@dataclass
class Answered:
    """Counters of an answer that cost nothing."""

    spec: str = "fake/llm"
    cache: Any = "miss"
    reported: Usage | None = None

    def answer_usd(self, models: object) -> float | None:
        return None


@dataclass
class LongAnswer:
    """A model whose answer has a million characters and more, one piece at a time."""

    n_pieces: int
    n_given: int = 0

    @asynccontextmanager
    async def open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        yield self._events()

    async def _events(self) -> AsyncIterator[ModelEvent]:
        for _ in range(self.n_pieces):
            self.n_given += 1
            yield TextDelta("x" * 1_000)
        yield Finished("stop")


def route_to(model: Any, *specs: str) -> ChatRoute:
    """Return the route of an agent that these models answer."""
    return ChatRoute(name="default", agent="default", specs=specs, reached=(), model=model, model_name="m")


REQUEST = ModelRequest(model="m", messages=(Content("user", (Text("Which?"),)),), max_output_tokens=9, temperature=0)


async def test_a_name_with_other_models_after_a_reload_has_other_answers() -> None:
    """The first agent's answer would be given for as long as `keep_s` otherwise."""
    anyone, no_models = Principal(project="p", holder=None), cast(Any, None)
    cache, n_given = ResponseCache(ResponseCacheSettings(mb=1), no_models), list[int]()
    for specs in (("a/one",), ("a/one",), ("a/two",), ("a/one", "a/two")):
        model = LongAnswer(1)
        async with cache.open(anyone, route_to(model, *specs), REQUEST, Answered()) as events:
            assert [event async for event in events if isinstance(event, TextDelta)]
        n_given.append(model.n_given)
    assert n_given == [1, 0, 1, 1]


async def test_an_answer_too_long_to_be_stored_takes_no_memory_meanwhile() -> None:
    """Its pieces pass, and are held no longer than they could be stored."""
    cache, model = ResponseCache(ResponseCacheSettings(mb=1), cast(Any, None)), LongAnswer(1_500)
    async with cache.open(
        Principal(project="p", holder=None), route_to(model, "a/one"), REQUEST, Answered()
    ) as passing:
        events, held, n_passed = cast(Any, passing), 0, 0
        async for event in events:
            n_passed += isinstance(event, TextDelta)
            held = max(held, sum(len(text) for text in events._texts))
        assert (n_passed, events._texts) == (1_500, [])
    assert held == 1_000_000
    assert len(cache) == 0


def held_bytes(value: Any) -> int:
    """Return the memory of an object and of all that it holds."""
    parts: list[Any] = list(value) if isinstance(value, tuple | list) else []
    if isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    return sys.getsizeof(value) + sum(map(held_bytes, parts))


@pytest.mark.parametrize("piece", [" a", " ü", " 早", " 🙂"])
@pytest.mark.parametrize("n_pieces", [1, 4_000])
def test_the_limit_is_that_of_the_memory_it_takes(piece: str, n_pieces: int) -> None:
    """A model's pieces have a few characters each: a string has some 50 bytes beside them."""
    no_models: Any = None
    cache = ResponseCache(ResponseCacheSettings(mb=1), no_models)
    keys = [n.to_bytes(32, "big") for n in range(3_000 if n_pieces == 1 else 60)]
    for key in keys:
        cache.store(key, [piece] + [f"{piece}{n}" for n in range(1, n_pieces)], Answered())
    replies = [reply for key in keys if (reply := cache.find(key)) is not None]
    assert 0 < len(replies) < len(keys)
    n_bytes = sum(held_bytes(reply) + sys.getsizeof(keys[0]) for reply in replies)
    assert n_bytes <= cache.n_bytes <= 1_000_000
    texts = [event.text for event in replies[0].events() if isinstance(event, TextDelta)]
    assert texts == [piece] + [f"{piece}{n}" for n in range(1, n_pieces)]


@pytest.mark.parametrize(("entries", "n_stored"), [(40, 10), (2, 1)])
def test_each_process_has_its_share_of_the_limits(entries: int, n_stored: int) -> None:
    no_models: Any = None
    cache = ResponseCache(ResponseCacheSettings(mb=1, entries=entries), no_models, n_processes=4)
    assert cache.max_chars == 250_000
    for n in range(20):
        cache.store(n.to_bytes(32, "big"), ["a"], Answered())
    assert len(cache) == n_stored


@pytest.mark.parametrize(("name", "value"), [("mb", -1), ("entries", 0), ("keep_s", 0)])
def test_wrong_settings(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"response_cache\.{name}: expected a whole number from"):
        ResponseCacheSettings(**{name: value})


async def test_a_secret_with_a_subject_has_answers_of_its_own(fake_server: Any) -> None:
    """Nobody else may get what one user was answered, and a secret without a subject is its project's."""
    async with caching(fake_server) as server:
        kinds = []
        for more in ({}, {"subject": "anna"}, {}):
            async with (
                aiohttp.ClientSession() as http,
                http.post(
                    f"{server.url}/v1/realtime/client_secrets",
                    json={"voicepipe": {"scopes": ["chat"], **more}},
                ) as made,
            ):
                secret = (await made.json())["value"]
            async with Client(server, secret) as client:
                kinds.append((await client.request())[1])
    assert kinds == ["miss", None, "hit"]
