"""A model scores the answers of arms after their turns, within its share and its cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from voicepipe.config import load
from voicepipe.config.settings import QualitySettings
from voicepipe.errors import ConfigError, StageBroken
from voicepipe.pii.redact import Redactor
from voicepipe.ports.model import Content, ModelRequest, Text, text_chars
from voicepipe.registry import Spec
from voicepipe.telemetry.store.port import StoredTurn, StoreError, TurnQuery
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.fakes.model import FakeModel
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import eventually
from voicepipe.turn.cost import Price
from voicepipe.turn.record.arm import Arm
from voicepipe.values import replace
from voicepipe.wiring import answer_judge
from voicepipe.wiring.answer_judge import MAX_WAITING, AnswerJudge, JudgedTurns

SPEC = Spec("fake", "judge")


def turn(id: str, *, arm: str = "host/new", said: str = "What time is it?") -> StoredTurn:
    record = turn_record(id=id, session="s", user_text=said, agent_text="Noon.")
    return replace(StoredTurn(record, "p", "default", 1_000), arm=Arm.read(arm))


@asynccontextmanager
async def judging(
    folder: Path, model: FakeModel, *, n_processes: int = 1, **quality: Any
) -> AsyncIterator[tuple[AnswerJudge, JudgedTurns, Any]]:
    overrides = {
        "quality.judge_model": "fake/judge",
        "quality.judged_share": 1,
        "providers.fake.base_url": "http://127.0.0.1:9/v1",
        "agents.default.redact_for_llm": ["email"],
        **{f"quality.{name}": value for name, value in quality.items()},
    }
    settings = load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)
    store = await SqliteTurnStore.open(folder / "turns.sqlite3")
    turns = JudgedTurns(settings.quality)
    price = Price(input_usd=1_000, output_usd=1_000)
    judge = AnswerJudge(lambda: settings, SPEC, price, model, store, turns, n_processes)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(judge.run())
        yield judge, turns, store
        running.cancel()
    await store.close()


async def until(judge: AnswerJudge, **counts: int) -> None:
    async def reached() -> bool | None:
        return all(judge.counts[name] >= n for name, n in counts.items()) or None

    await eventually(reached)


async def scores(store: SqliteTurnStore) -> list[dict[str, float]]:
    return [dict(each.scores) for each in await store.by_arm("p", TurnQuery())]


async def test_a_verdict_is_stored_as_a_score(tmp_path: Path) -> None:
    model = FakeModel(LlmCue(tokens=("Rating: ", "4"), input_tokens=50))
    async with judging(tmp_path, model) as (judge, turns, store):
        await store.store([turn("a")])
        turns.on_turn_end(turn("a"))
        await until(judge, judged=1)
        assert await scores(store) == [{"judge": 0.75}]
        assert judge.cost_usd == pytest.approx(52 * 1_000 / 1e6)
    (request,) = [received.question for received in model.script.received]
    assert request.model == "judge"
    assert request.messages[-1] == Content("user", (Text("User: What time is it?\nAssistant: Noon."),))


async def test_what_is_no_verdict_fails(tmp_path: Path) -> None:
    async with judging(tmp_path, FakeModel(LlmCue(tokens=("Fine!",)))) as (judge, turns, store):
        await store.store([turn("a")])
        turns.on_turn_end(turn("a"))
        await until(judge, failed=1)
        assert await scores(store) == [{}]


async def test_no_failure_ends_the_judge(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug of an adapter, a broken answer and a store that can't write are counted; the next turn is judged."""
    cues: list[Exception | LlmCue] = [KeyError("choices"), LlmCue(tokens=("2",)), LlmCue(tokens=("5",))]

    def next_cue(_: ModelRequest) -> LlmCue:
        cue = cues.pop(0)
        if isinstance(cue, Exception):
            raise cue
        return cue

    async with judging(tmp_path, FakeModel(next_cue)) as (judge, turns, store):
        await store.store([turn("a")])
        keep = store.store_feedback

        async def full(*_: object) -> bool:
            store.store_feedback = keep
            raise StoreError("the disk is full")

        store.store_feedback = full
        for _ in range(3):
            turns.on_turn_end(turn("a"))
        await until(judge, judged=1, failed=2)
        assert judge.counts == {"judged": 1, "failed": 2, "dropped": 0}
        assert await scores(store) == [{"judge": 1.0}]
    (crash,) = [record for record in caplog.records if record.message == "crashed"]
    assert crash.exc_info is not None
    assert crash.exc_info[0] is KeyError


async def test_what_no_llm_may_read_is_hidden_from_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the event loop, before the text is cut; everything of an agent that a reload has removed."""
    threads = set()

    class Watched(Redactor):
        def __call__(self, text: str) -> str:
            threads.add(threading.get_ident())
            return super().__call__(text)

    monkeypatch.setattr(answer_judge, "Redactor", Watched)
    model = FakeModel(LlmCue(tokens=("4",)))
    said = turn("a", said="I am ann@example.org, card 4111 1111 1111 1111.")
    said = replace(said, record=replace(said.record, agent_text="Is ann@example.org right?"))
    async with judging(tmp_path, model) as (judge, turns, store):
        await store.store([said])
        turns.on_turn_end(said)
        turns.on_turn_end(replace(said, agent="removed"))
        await until(judge, judged=2)
    read = [received.question.messages[-1] for received in model.script.received]
    assert read == [
        Content("user", (Text(f"User: I am [email], card {card}.\nAssistant: Is [email] right?"),))
        for card in ("4111 1111 1111 1111", "[card]")
    ]
    assert threads
    assert threading.get_ident() not in threads


async def test_an_answer_that_breaks_costs_its_estimate(tmp_path: Path) -> None:
    """Its provider counts no tokens; the limit of the day holds all the same."""
    model = FakeModel()
    async with judging(tmp_path, model, usd_per_day=0.01) as (judge, turns, _):
        turns.on_turn_end(turn("a"))
        received = await model.script.nth(0)
        received.send("Well, ")
        received.fail(StageBroken("llm", provider="fake/judge", why="gone", retryable=True))
        await until(judge, failed=1)
        n_chars = text_chars(received.question) + len("Well, ")
        assert judge.cost_usd == pytest.approx(n_chars / 4 * 1_000 / 1e6)
        turns.on_turn_end(turn("b"))
        await until(judge, dropped=1)


async def test_a_turn_that_is_not_stored_yet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_judge, "STORE_S", 0.001)
    monkeypatch.setattr(answer_judge, "STORE_TRIES", 2)
    async with judging(tmp_path, FakeModel(LlmCue(tokens=("5",)))) as (judge, turns, _):
        turns.on_turn_end(turn("a"))
        await until(judge, failed=1)


@pytest.mark.parametrize(("n_processes", "usd_per_day"), [(1, 0.05), (4, 0.2)])
async def test_its_cost_is_bounded(tmp_path: Path, n_processes: int, usd_per_day: float) -> None:
    """Each process has its share of the limit."""
    model = FakeModel(LlmCue(tokens=("1",), input_tokens=90))
    judging_ = judging(tmp_path, model, n_processes=n_processes, usd_per_day=usd_per_day)
    async with judging_ as (judge, turns, store):
        await store.store([turn("a"), turn("b")])
        turns.on_turn_end(turn("a"))
        turns.on_turn_end(turn("b"))
        await until(judge, judged=1, dropped=1)
        assert sorted(await scores(store), key=len) == [{}, {"judge": 0.0}]


def test_turns_without_words_or_arm_are_not_judged() -> None:
    turns = JudgedTurns(QualitySettings(judge_model="fake/judge", judged_share=1))
    turns.on_turn_end(turn("a", arm=""))
    turns.on_turn_end(turn("b", said=""))
    assert len(turns._waiting) == 0
    for number in range(MAX_WAITING + 2):
        turns.on_turn_end(turn(str(number)))
    assert (len(turns._waiting), turns.dropped) == (MAX_WAITING, 2)


def test_a_share_of_the_turns_is_judged() -> None:
    turns = JudgedTurns(QualitySettings(judge_model="fake/judge", judged_share=0.1))
    for number in range(800):
        turns.on_turn_end(turn(f"turn_{number}"))
    assert 50 < len(turns._waiting) + turns.dropped < 115
    off = JudgedTurns(QualitySettings())
    off.on_turn_end(turn("a"))
    assert len(off._waiting) == 0


async def test_the_settings_name_the_judge(fake_server: Any) -> None:
    """A whole server judges a turn of an arm; an unknown provider is refused, and a model without a price."""
    with pytest.raises(ConfigError, match=r"quality\.judge_model: no provider is called 'nowhere'"):
        async with fake_server({"quality.judge_model": "nowhere/m"}):
            pass
    with pytest.raises(ConfigError, match=r"quality\.judge_model: expected a model with a known price"):
        async with fake_server({"quality.judge_model": "fake/judge"}):
            pass
    prices = {"providers.fake.input_usd_per_million": 1, "providers.fake.output_usd_per_million": 4}
    async with fake_server({"quality.judge_model": "fake/judge", **prices}):
        pass
