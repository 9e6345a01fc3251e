"""A small model judges beside an answer how hard the question is: a better model is preferred, and nothing waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from voicepipe.errors import ConfigError, StageBroken
from voicepipe.ports.model import Attempted, Content, ModelEvent, ModelRequest, Routed, Text, TextDelta, Usage
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.llm.judge import MAX_CHARS, judge_request, verdict_of
from voicepipe.router.llm.model import RoutedModel, Routes
from voicepipe.router.llm.probe import Probes
from voicepipe.router.options import PoolOptions
from voicepipe.router.pool import SharedStats
from voicepipe.router.race import Race, RacePlan, Start
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.model import FakeModel
from voicepipe.testing.fakes.model import ReceivedModelRequest as Received
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.cost import Price

MEDIUM = ModelRequest(model="any", messages=(Content("user", (Text("Why do cats purr?"),)),), session="s1")
EASY = ModelRequest(model="any", messages=(Content("user", (Text("What time is it?"),)),), session="s1")
HARD = ModelRequest(model="any", messages=(Content("user", (Text("Write a poem about cats."),)),), session="s1")
NAMES = ("large/m", "middle/m", "small/m", "judge/m")


@dataclass
class Bench:
    model: RoutedModel
    fakes: dict[str, FakeModel]
    stats: SharedStats
    events: list[ModelEvent]

    def n_requests(self) -> dict[str, int]:
        return {name.partition("/")[0]: len(fake.script.received) for name, fake in self.fakes.items()}

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def attempts(self) -> dict[str, Attempted]:
        return {each.provider.partition("/")[0]: each for each in self.events if isinstance(each, Attempted)}

    async def read(self, request: ModelRequest) -> None:
        async with asyncio.timeout(WAIT_S), self.model.open(request) as events:
            async for event in events:
                self.events.append(event)

    async def begun(self, group: asyncio.TaskGroup) -> tuple[asyncio.Task[None], Received, Received]:
        """Ask a question of the middle class. Return the reading, and the answers of its model and of the judge."""
        reading = group.create_task(self.read(MEDIUM))
        middle = await self.fakes["middle/m"].script.nth(0)
        return reading, middle, await self.fakes["judge/m"].script.nth(0)

    async def found_harder(self, judge: Received, *more: str | Usage) -> Received:
        """Have the judge find it harder; return the answer of the better model."""
        judge.send("C", *more)
        judge.finish()
        return await self.fakes["large/m"].script.nth(0)


def bench(**options: object) -> Bench:
    stats = SharedStats()
    fakes = {name: FakeModel(name=name) for name in NAMES}
    candidates = {name: Candidate(spec=name, price=Price(1.0, 10.0), ttft_p50_ms=100.0) for name in NAMES}
    chosen = PoolOptions(
        models=("large/m",),
        medium_models=("middle/m",),
        judge_model="judge/m",
        **{"easy_models": ("small/m",), "deadline_ms": 4_000, "policy": "single"} | options,  # type: ignore[arg-type]
    )
    pool = build_pool(
        "p", tuple(candidates[name] for name in chosen.specs), chosen, stats, judge_candidate=candidates["judge/m"]
    )
    routes = Routes(
        pools={"p": pool},
        rules=(),
        experiments=(),
        stats=stats,
        probes=Probes(stats),
        models=fakes.__getitem__,
        pool_for=lambda specs, like: pool,
    )
    return Bench(RoutedModel(fakes["large/m"], "p", routes, metadata={}), fakes, stats, [])


@pytest.fixture
async def opened() -> Bench:
    return bench()


async def test_a_harder_question_gets_the_better_model(opened: Bench) -> None:
    """The model of the words' class runs meanwhile; its answer is held, and then closed."""
    async with asyncio.TaskGroup() as group:
        reading, middle, judge = await opened.begun(group)
        large = await opened.found_harder(judge, ".", Usage(input_tokens=90, output_tokens=2))
        middle.send("Middling.")
        await asyncio.sleep(0)
        large.send("Because of", " their larynx.")
        large.finish()
        await reading
    assert opened.text == "Because of their larynx."
    routed = [event for event in opened.events if isinstance(event, Routed)]
    assert [(event.provider, event.why) for event in routed] == [("large/m", "the judge found the question harder")]
    attempts = opened.attempts
    assert {name: (each.role, each.outcome) for name, each in attempts.items()} == {
        "middle": ("primary", "lost"),
        "large": ("hedge", "spoke"),
        "judge": ("judge", "lost"),
    }
    assert attempts["judge"].cost_usd == pytest.approx((90 * 1.0 + 2 * 10.0) / 1e6)


async def test_no_answer_waits_for_the_judge(opened: Bench) -> None:
    """A first word before the verdict goes out, and the judge is closed; its input is paid."""
    async with asyncio.TaskGroup() as group:
        reading, middle, judge = await opened.begun(group)
        middle.send("Middling.")
        middle.finish()
        await reading
    assert opened.text == "Middling."
    assert judge.gone.is_set()
    assert opened.n_requests()["large"] == 0
    assert opened.attempts["judge"].outcome == "lost"
    assert (opened.attempts["judge"].cost_usd or 0) > 0
    assert opened.stats.running["judge/m"] == 0


async def test_the_held_answer_goes_out_at_the_deadline() -> None:
    """A better model that is late costs no more than the deadline."""
    opened = bench(deadline_ms=200)
    async with asyncio.TaskGroup() as group:
        reading, middle, judge = await opened.begun(group)
        large = await opened.found_harder(judge)
        middle.send("Middling.")
        middle.finish()
        await reading
    assert opened.text == "Middling."
    assert large.gone.is_set()


@pytest.mark.parametrize("verdict", ["B", "A", "no idea"])
async def test_a_verdict_that_is_not_harder_changes_nothing(opened: Bench, verdict: str) -> None:
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(opened.read(MEDIUM))
        judge = await opened.fakes["judge/m"].script.nth(0)
        judge.send(verdict)
        judge.finish()
        await judge.ended.wait()
        middle = await opened.fakes["middle/m"].script.nth(0)
        middle.send("Middling.")
        middle.finish()
        await reading
    assert opened.n_requests() == {"large": 0, "middle": 1, "small": 0, "judge": 1}


async def test_a_better_model_that_fails_leaves_the_held_answer(opened: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        reading, middle, judge = await opened.begun(group)
        large = await opened.found_harder(judge)
        middle.send("Middling.")
        middle.finish()
        large.fail(StageBroken("llm", provider="large/m", why="gone", retryable=True))
        await reading
    assert opened.text == "Middling."


async def test_the_hardest_questions_need_no_judge(opened: Bench) -> None:
    opened.fakes["large/m"].script.usual = LlmCue(tokens=("Cats, ", "cats."))
    await opened.read(HARD)
    assert opened.n_requests() == {"large": 1, "middle": 0, "small": 0, "judge": 0}


async def test_the_words_are_read_without_a_model_for_easy_questions() -> None:
    """With `medium_models` alone: a hard question goes to the best model, and the judge gets a medium one's words."""
    opened = bench(easy_models=())
    opened.fakes["large/m"].script.usual = LlmCue(tokens=("Cats, ", "cats."))
    await opened.read(HARD)
    assert opened.n_requests() == {"large": 1, "middle": 0, "small": 0, "judge": 0}
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(opened.read(MEDIUM))
        judge = await opened.fakes["judge/m"].script.nth(0)
        middle = await opened.fakes["middle/m"].script.nth(0)
        middle.send("Middling.")
        middle.finish()
        await reading
    assert judge.question.messages[-1] == Content("user", (Text("Why do cats purr?"),))


async def test_an_easy_question_may_turn_out_to_be_medium(opened: Bench) -> None:
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(opened.read(EASY))
        judge = await opened.fakes["judge/m"].script.nth(0)
        judge.send(" b")
        judge.finish()
        middle = await opened.fakes["middle/m"].script.nth(0)
        middle.send("Noon.")
        middle.finish()
        await reading
    assert opened.text == "Noon."
    assert opened.n_requests() == {"large": 0, "middle": 1, "small": 1, "judge": 1}


async def test_a_judge_that_fails_is_recorded_and_costs_no_answer(opened: Bench) -> None:
    """With its circuit breaker open it is not asked."""
    for n in range(6):
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(opened.read(MEDIUM))
            middle = await opened.fakes["middle/m"].script.nth(n)
            if opened.stats.breaker_of("judge/m").n_opened == 0:
                judge = await opened.fakes["judge/m"].script.nth(n)
                judge.fail(StageBroken("llm", provider="judge/m", why="gone", retryable=True))
                await judge.ended.wait()
            middle.send("Middling.")
            middle.finish()
            await reading
    assert opened.text == "Middling." * 6
    assert opened.n_requests()["judge"] == 5


async def test_a_silent_judge_is_given_up_at_the_deadline() -> None:
    opened = bench(deadline_ms=50)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(opened.read(MEDIUM))
        judge = await opened.fakes["judge/m"].script.nth(0)
        async with asyncio.timeout(WAIT_S):
            await judge.gone.wait()
        middle = await opened.fakes["middle/m"].script.nth(0)
        middle.send("Middling.")
        middle.finish()
        await reading
    assert opened.attempts["judge"].why == "no verdict for 50 ms"
    # The circuit breaker is shared with answers of the same model: being slower than the deadline is no fault of it.
    assert opened.stats.breaker_of("judge/m").errors == {}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("A", "easy"), (" b.", "medium"), ("**C**", "hard"), ("C: several steps", "hard"), ("Cats", None), ("", None)],
)
def test_verdicts(text: str, verdict: str | None) -> None:
    assert verdict_of(text) == verdict


def test_the_judge_reads_the_beginning_of_the_question_alone() -> None:
    """Not the conversation: the request is short, and the same prefix each time."""
    request = judge_request(Candidate(spec="groq/openai/gpt-oss-20b"), "x" * 5_000)
    assert request.model == "openai/gpt-oss-20b"
    first, second = request.messages
    assert isinstance(first, Content)
    assert isinstance(second, Content)
    assert first.role == "system"
    assert second == Content("user", (Text("x" * MAX_CHARS),))


def test_a_race_that_is_decided_prefers_nothing() -> None:
    """Nor does one that has started that model already."""
    a, b = Candidate(spec="a/m"), Candidate(spec="b/m")
    race = Race(RacePlan(first=a, reserve=(b,)))
    (start,) = race.begin(0)
    assert isinstance(start, Start)
    assert race.prefer(a, 590, 10) == []
    race.spoke(start.attempt, 20)
    assert race.prefer(b, 590, 30) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"judge_model": "a/m"}, "judge_model: expected easy_models or medium_models too"),
        (
            {"easy_models": ("a/m",), "medium_models": ("a/m",)},
            "medium_models: expected none of easy_models, got 'a/m'",
        ),
    ],
)
def test_wrong_options(options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        PoolOptions(models=("b/m",), **options)  # type: ignore[arg-type]
