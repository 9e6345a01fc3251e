"""A spoken turn whose model is several: the first one hangs, refuses or breaks, and the user is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import Cut, Fault, Hang, LlmCue, Stall, Status, tokens
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import eventually

Record = dict[str, Any]

VAD = {"type": "server_vad", "silence_duration_ms": 200}
SESSION = {"audio": {"input": {"turn_detection": VAD}}}
SORRY = "Sorry, please ask again."
LONG = "The museum opens at nine, and closes at five. On Mondays it is shut."


@pytest.fixture
async def app_with(fake_server: Any) -> AsyncIterator[Callable[..., Any]]:
    """`await app_with(fault)`: an agent whose first model does that with every question, and whose second answers."""
    async with AsyncExitStack() as stack:

        async def opened(fault: Fault, answer: str = "It is noon.", ttft_ms: int = 0) -> Any:
            settings = {"agents.default.llm": "fake/first,fake/second", "router.order": "given"}
            server = await stack.enter_async_context(fake_server(settings))
            by_model = {
                "first": LlmCue(tokens=tokens(LONG), fault=fault),
                "second": LlmCue(tokens=tokens(answer), ttft_ms=ttft_ms),
            }
            server.vendor.llm.usual = lambda received: by_model[received["model"]]
            return server

        yield opened


async def record_of(server: Any) -> Record:
    """The first turn, when it is over."""

    async def probe() -> Record | None:
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/turns") as answer:
            turns: list[Record] = (await answer.json())["data"]
            over = [turn for turn in turns if turn["outcome"] is not None]
            return over[-1] if over else None

    return await eventually(probe)


async def answered(server: Any, speech: Samples) -> tuple[User, Record]:
    async with calling(server.url, session=SESSION) as user:
        await user.speak(speech)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
    return user, await record_of(server)


@pytest.mark.parametrize("fault", [Hang(), Stall(0), Status(500), Cut(0)], ids=lambda fault: type(fault).__name__)
async def test_the_user_is_answered_though_the_first_model_is_down(
    app_with: Callable[..., Any], speech: Samples, fault: Fault
) -> None:
    """By the second one, without an error event; the record says who answered and what was tried."""
    _, record = await answered(await app_with(fault), speech)
    assert record["agent_text"] == "It is noon."
    assert record["providers"]["llm"] == "fake/second"
    tried = [(call["provider"], call["outcome"]) for call in record["attempts"]]
    assert tried in (
        [("fake/first", "lost"), ("fake/second", "spoke")],
        [("fake/first", "failed"), ("fake/second", "spoke")],
    )
    assert record["actions"] in (["hedge"], ["fallback"])
    # The second was started in time to speak within the stage's limit, whatever this machine made of it then.
    assert record["attempts"][1]["began_ms"] < 600


@pytest.mark.parametrize(
    ("fault", "ttft_ms", "owner"), [(Hang(), 0, "fake/first"), (Status(500), 1_500, "fake/second")]
)
async def test_the_stage_belongs_to_the_model_that_was_waited_for_longest(
    app_with: Callable[..., Any], speech: Samples, fault: Fault, ttft_ms: int, owner: str
) -> None:
    """Of two, the first hangs: the second has answered, and is not late. A failure at once takes less time than the
    second one's answer.
    """
    _, record = await answered(await app_with(fault, ttft_ms=ttft_ms), speech)
    stages = {stage["stage"]: stage["owner"] for stage in record["stages"]}
    assert (stages["llm_ttft"], stages["first_clause"]) == (owner, "fake/second")
    assert record["providers"]["llm"] == "fake/second"
    assert record["route"]


async def test_an_answer_that_breaks_is_finished_by_another_model(
    app_with: Callable[..., Any], speech: Samples
) -> None:
    """One answer is played to the user, and the history holds one."""
    server = await app_with(Cut(6), "opens at nine, and closes at five. Come early.")
    _, record = await answered(server, speech)
    assert record["agent_text"] == "The museum opens at nine, and closes at five. Come early."
    assert record["actions"][-1] == "continuation"


async def test_what_can_not_be_continued_is_spoken_to_its_end_and_then_fails(fake_server: Any, speech: Samples) -> None:
    """With one model: the sentence that was begun is played, and the client is notified that there is no more."""
    said = tokens(LONG)[:12]
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens(LONG), fault=Cut(len(said)))
        async with calling(server.url, session=SESSION) as user:
            await user.speak(speech)
            done = await user.until("response.done")
            assert done["response"]["status"] == "failed"
        record = await record_of(server)
    assert record["agent_text"] == "".join(said)
    assert record["outcome"] == "failed"
    # The fake voice speaks 40 ms for each character.
    assert record["spoken_ms"] >= 40 * len("".join(said).replace(" ", ""))


EMPTY = pytest.mark.parametrize(
    "cue",
    [LlmCue(tokens=()), LlmCue(tokens=(" ", "\n")), LlmCue(tokens=(), finish="content_filter")],
    ids=["nothing", "blank text", "filtered"],
)


@EMPTY
@pytest.mark.parametrize("llm", ["fake/first", "fake/first,fake/second"], ids=["one model", "two models"])
async def test_a_turn_without_any_answer_fails_and_apologises(
    fake_server: Any, speech: Samples, llm: str, cue: LlmCue
) -> None:
    """Every model answers with nothing: the response fails, the apology is spoken, and the record is a failure's."""
    async with fake_server({"agents.default.llm": llm, "agents.default.apology": SORRY}) as server:
        server.vendor.llm.usual = cue
        async with calling(server.url, session=SESSION) as user:
            await user.speak(speech)
            failed = (await user.until("response.done"))["response"]
            sorry = (await user.until("response.done"))["response"]
        record = await record_of(server)
    assert (failed["status"], failed["output"]) == ("failed", [])
    assert sorry["status"] == "completed"
    assert sorry["metadata"]["voicepipe_apology_for"] == record["id"]
    assert sorry["output"][0]["content"][0]["transcript"] == SORRY
    assert (record["outcome"], record["cause"]) == ("failed", "vad")
    assert (record["agent_text"], record["answer_audio_ms"]) == ("", None)
    tried = ["fake/first", "fake/second"] if "," in llm else []  # a model alone has no attempts of its own
    assert [(call["provider"], call["outcome"]) for call in record["attempts"]] == [(each, "failed") for each in tried]
    assert record["actions"][-1] == "apology"


async def test_a_rule_reads_the_sessions_metadata(fake_server: Any, speech: Samples) -> None:
    """By the session's metadata; what a single response says can't take it back."""
    settings = {
        "agents.default.llm": "fake/plain",
        "pools.gold.models": "fake/golden",
        "rules.gold.when": "user_tier=gold",
        "rules.gold.pool": "gold",
    }
    async with fake_server(settings) as server:
        server.vendor.llm.usual = lambda received: LlmCue(tokens=(f"I am {received['model']}.",))
        session = {**SESSION, "providerData": {"voicepipe": {"metadata": {"user_tier": "gold"}}}}
        async with calling(server.url, session=session) as user:
            await user.speak(speech)
            await user.until("response.done")
        record = await record_of(server)
    assert record["agent_text"] == "I am golden."
    assert record["route"].startswith("rule gold")
