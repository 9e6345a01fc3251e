"""From settings to a model made of several."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from voicepipe.config import load
from voicepipe.errors import ConfigError, StageRefused
from voicepipe.ports.model import Content, ModelEvent, ModelRequest, Routed, Text, TextDelta
from voicepipe.ports.synthesizer import Spoken, Voice
from voicepipe.providers.net import http
from voicepipe.providers.net.distance import Distance
from voicepipe.registry import Spec
from voicepipe.testing.fakes.cues import Hang, Hold, LlmCue, Status, TtsCue
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.values import replace
from voicepipe.wiring import model_routing
from voicepipe.wiring.components import Components
from voicepipe.wiring.detached_tasks import DetachedTasks
from voicepipe.wiring.model_routing import candidate_of
from voicepipe.wiring.resources import open_resources
from voicepipe.wiring.stages import Stages

OVERLAP_S = 0.3
"""How long a save waits for another one beside it, which must not begin."""

HI = ModelRequest(model="m", messages=(Content("user", (Text("Hi"),)),), session="s1")


@dataclass(frozen=True)
class Town:
    """Three vendors, who say their own names, and settings that lead to them."""

    vendors: dict[str, FakeVendor]
    folder: Path

    def stages(self, text: str) -> Stages:
        """The stages of these settings, which need no others than the language model's."""
        providers = "".join(f'[providers.{n}]\nbase_url = "{v.base_url}"\n' for n, v in self.vendors.items())
        usual = '[agents.default]\nstt = "one/ear"\ntts = "one/mouth"\n'
        (self.folder / "voicepipe.toml").write_text(providers + usual + text)
        return Stages(load(environ={"HOME": str(self.folder)}, folder=self.folder))


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(http.lifetime())
        vendors = {name: await stack.enter_async_context(FakeVendor()) for name in ("one", "two", "three")}
        for name, vendor in vendors.items():
            vendor.llm.usual = LlmCue(tokens=(name,))
        yield Town(vendors, tmp_path)


async def events_of(stages: Stages, request: ModelRequest = HI, agent: str = "default") -> list[ModelEvent]:
    async with stages.of_agent(agent).model.open(request) as events:
        return [event async for event in events]


async def said(stages: Stages, request: ModelRequest = HI, agent: str = "default") -> str:
    return "".join(each.text for each in await events_of(stages, request, agent) if isinstance(each, TextDelta))


async def test_one_model_is_called_without_any_route(town: Town) -> None:
    events = await events_of(town.stages('llm = "one/m"\n'))
    assert not any(isinstance(event, Routed) for event in events)
    assert (await town.vendors["one"].llm.nth(0)).question["model"] == "m"


async def test_a_list_answers_in_spite_of_its_first(town: Town) -> None:
    town.vendors["one"].llm.usual = LlmCue(fault=Status(500))
    stages = town.stages('llm = ["one/a", "two/b", "three/c"]\n[router]\norder = "given"\n')
    events = await events_of(stages)
    assert [event.provider for event in events if isinstance(event, Routed)] in (["two/b"], ["three/c"])
    assert (await town.vendors["one"].llm.nth(0)).question["model"] == "a"


async def test_a_pool_has_its_own_options(town: Town) -> None:
    town.vendors["one"].llm.usual = LlmCue(fault=Hang())
    stages = town.stages(
        'llm = "pool/p"\n[pools.p]\nmodels = ["one/a", "two/b"]\n'
        'policy = "fallback"\nfallback_after_ms = 60\nmax_output_tokens = 90\n'
    )
    assert await said(stages) == "two"
    assert (await town.vendors["two"].llm.nth(0)).question["max_tokens"] == 90
    shorter = replace(HI, max_output_tokens=7, session="s2")
    await said(stages, shorter)
    assert (await town.vendors["two"].llm.nth(1)).question["max_tokens"] == 7


async def test_a_pool_of_tts_has_its_own_options(town: Town) -> None:
    """The router alone would wait for a minute."""
    town.vendors["one"].tts.usual = TtsCue(fault=Hang())
    stages = town.stages(
        'llm = "one/a"\n[agents.desk]\ntts = "pool/voices"\n'
        "[router]\nfallback_after_ms = 60_000\nattempt_timeout_ms = 60_000\n"
        '[pools.voices]\nmodels = ["one/t", "two/t"]\npolicy = "fallback"\nfallback_after_ms = 60\n'
    )
    async with stages.synthesizer_of("desk").open(Voice(model="t", session="s")) as speech:
        speech.push("Hello.")
        speech.finish()
        spoken = [event async for event in speech if isinstance(event, Spoken)]
    assert spoken
    assert [len(town.vendors[name].tts.received) for name in ("one", "two")] == [1, 1]


async def test_rules_look_at_the_agent_and_at_what_the_request_says(town: Town) -> None:
    stages = town.stages(
        'llm = "one/a"\n[agents.support]\n[pools.de]\nmodels = ["two/b"]\n[pools.help]\nmodels = ["three/c"]\n'
        '[rules.german]\nwhen = ["language=de"]\npool = "de"\n[rules.help]\nwhen = ["agent=support"]\npool = "help"\n'
    )
    assert await said(stages) == "one"
    assert await said(stages, replace(HI, metadata=(("language", "DE"),))) == "two"
    assert await said(stages, agent="support") == "three"


async def test_an_experiment_keeps_a_session_in_its_arm_and_records_it(town: Town) -> None:
    stages = town.stages('llm = "one/a"\n[pools.new]\nmodels = ["two/b"]\n[experiments.trial]\nsplit = ["new=50"]\n')
    arms: dict[str, set[str]] = {}
    for session in (f"session {i}" for i in range(20)):
        for _ in range(2):
            events = await events_of(stages, replace(HI, session=session))
            reasons = [event.why for event in events if isinstance(event, Routed)]
            assert reasons in ([], ["experiment trial: new; first choice"])
            arms.setdefault(session, set()).add(str(reasons))
    assert all(len(seen) == 1 for seen in arms.values())
    assert len({seen.pop() for seen in arms.values()}) == 2


async def test_easy_questions_go_to_the_small_model(town: Town) -> None:
    stages = town.stages('llm = "pool/p"\n[pools.p]\nmodels = ["one/big"]\neasy_models = ["two/small"]\n')
    assert await said(stages) == "two"
    hard = Content("user", (Text("Explain to me why the sky is blue and compare it with Mars."),))
    assert await said(stages, replace(HI, messages=(hard,))) == "one"
    town.vendors["one"].llm.usual = LlmCue(fault=Status(503))
    assert await said(stages, replace(HI, messages=(hard,))) == "two"


async def test_a_judge_runs_beside_the_model_of_a_class(town: Town) -> None:
    """Of the question alone; the answer is that of the class while it says nothing harder."""
    hold = Hold(after=0)
    town.vendors["two"].llm.usual = LlmCue(tokens=("two",), hold=hold)
    town.vendors["three"].llm.usual = LlmCue(tokens=("B",))
    stages = town.stages(
        'llm = "pool/p"\n[pools.p]\nmodels = ["one/big"]\nmedium_models = ["two/middle"]\njudge_model = "three/judge"\n'
    )
    medium = replace(HI, messages=(Content("user", (Text("Why do cats purr?"),)),))
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(said(stages, medium))
        judged = (await town.vendors["three"].llm.nth(0)).question
        hold.release.set()
    assert answering.result() == "two"
    assert (judged["model"], judged["messages"][-1]["content"]) == ("judge", "Why do cats purr?")
    assert town.vendors["one"].llm.received == []


async def test_the_nearest_provider_is_measured(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pools with the order `region` alone; an address that is out of reach keeps its last distance."""
    far = {town.vendors["one"].base_url: 80.0, town.vendors["two"].base_url: 8.0}
    measured: list[str] = []

    async def distance_of(base_url: str, *, tries: int) -> Distance:
        measured.append(base_url)
        if far[base_url] > 1_000:
            raise OSError("out of reach")
        return Distance(far[base_url], 2 * far[base_url])

    monkeypatch.setattr(model_routing, "distance_of", distance_of)
    monkeypatch.setattr(model_routing, "DISTANCE_S", 0.001)
    monkeypatch.setattr(model_routing, "CHECK_S", 0.001)
    stages = town.stages(
        'llm = "pool/p"\n[pools.p]\norder = "region"\nmodels = ["one/a", "two/b"]\n'
        '[agents.other]\nllm = ["three/c", "one/a"]\n'
    )
    assert await said(stages) == "one"
    measuring = asyncio.create_task(model_routing.keep_distances(lambda: stages.router))

    async def until(n: int) -> None:
        async def are_measured() -> bool | None:
            return len(measured) >= n or None

        await eventually(are_measured)

    await until(3)
    assert await said(stages) == "two"
    far[town.vendors["two"].base_url] = 9_999
    await until(len(measured) + 3)
    assert await said(stages) == "two"
    measuring.cancel()
    assert town.vendors["three"].base_url not in measured


async def test_a_reload_has_its_own_providers_measured(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon, and not only when the distances are due again."""
    measured = asyncio.Queue[str]()

    async def distance_of(base_url: str, *, tries: int) -> Distance:
        measured.put_nowait(base_url)
        return Distance(1.0, 2.0)

    monkeypatch.setattr(model_routing, "distance_of", distance_of)
    monkeypatch.setattr(model_routing, "CHECK_S", 0.001)
    routers = [
        town.stages(f'llm = ["{llm}", "three/c"]\n[router]\norder = "region"\n').router for llm in ("one/a", "two/b")
    ]
    for router in routers:
        router.of_agent("default")
    in_force = routers[0]
    measuring = asyncio.create_task(model_routing.keep_distances(lambda: in_force))
    async with asyncio.timeout(WAIT_S):
        assert await measured.get() == town.vendors["one"].base_url
        assert await measured.get() == town.vendors["three"].base_url
        in_force = routers[1]
        found = {await measured.get(), await measured.get()}
    assert found == {town.vendors["three"].base_url, town.vendors["two"].base_url}
    measuring.cancel()


async def test_a_request_may_name_more_models(town: Town) -> None:
    town.vendors["one"].llm.usual = LlmCue(fault=Status(500))
    stages = town.stages('llm = "one/a"\n')
    assert await said(stages, replace(HI, models=("two/b",))) == "two"
    assert (await town.vendors["one"].llm.nth(0)).question["model"] == "a"


async def test_a_request_that_names_what_there_is_not_is_refused(town: Town) -> None:
    stages = town.stages('llm = "one/a"\n')
    with pytest.raises(StageRefused, match="expected"):
        await said(stages, replace(HI, models=("no-such-spec",)))


async def test_rules_do_not_apply_to_a_model_requested_by_name(town: Town) -> None:
    stages = town.stages('llm = "one/a"\n[pools.p]\nmodels = ["two/b"]\n[rules.all]\nwhen = []\npool = "p"\n')
    assert await said(stages) == "two"
    model = stages.router.of_spec(Spec("one", "a"), key="k")
    async with model.open(HI) as events:
        assert "one" in [event.text async for event in events if isinstance(event, TextDelta)]
    async with stages.router.of_pool("p").open(HI) as events:
        assert "two" in [event.text async for event in events if isinstance(event, TextDelta)]


def test_a_pool_with_a_model_whose_key_is_missing_is_refused_at_the_start(tmp_path: Path) -> None:
    town = Town({}, tmp_path)
    text = '[providers.one]\nbase_url = "http://127.0.0.1:1/v1"\n[router]\n'
    text += '[pools.p]\nmodels = ["openai/gpt-5-mini"]\n[rules.all]\nwhen = ["a=b"]\npool = "p"\n'
    with pytest.raises(ConfigError, match=r"pools\.p\.models is 'openai/gpt-5-mini', which needs a key"):
        town.stages(f'llm = "one/a"\n{text}').of_agent("default")


@pytest.mark.parametrize(
    ("spec", "does"),
    [
        ("anthropic/claude-haiku-4-5", True),
        ("anthropic/claude-haiku-5-5", False),
        ("mistral/mistral-small-latest", True),
        ("moonshot/kimi-k2.6", True),
        ("deepseek/deepseek-v4-flash", False),
        ("vllm/any", False),
    ],
)
def test_who_goes_on_in_the_same_breath_stands_in_the_catalog(tmp_path: Path, spec: str, does: bool) -> None:
    settings = load(environ={"HOME": str(tmp_path)}, folder=tmp_path)
    assert candidate_of(settings, Spec.parse(spec)).prefills is does


async def test_operators_see_all_three_stages(town: Town) -> None:
    """Single providers are listed too, from the beginning or after their first request."""
    stages = town.stages('llm = ["one/a", "two/b"]\n')
    stages.of_agent("default")
    assert [(each.stage, each.spec) for each in stages.healths()] == [
        ("llm", "one/a"),
        ("llm", "two/b"),
        ("stt", "one/ear"),
        ("tts", "one/mouth"),
    ]


async def test_what_the_router_has_learned_is_saved_at_the_end(town: Town) -> None:
    router = town.stages('llm = ["one/m", "two/m"]\n').router
    saving = asyncio.create_task(router.keep_state(town.folder, saves=True), name="router-state")
    await asyncio.sleep(0)  # it has read the folder
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert json.loads((town.folder / "router.json").read_text())["version"] == 1


async def test_one_process_saves_what_it_has_learned_and_the_others_continue_with_it(town: Town) -> None:
    """Each would replace what the others have learned."""
    routers = [town.stages('llm = ["one/m", "two/m"]\n').router for _ in range(2)]
    for router in routers:
        router.of_agent("default")
    first, other = routers
    saving = asyncio.create_task(first.keep_state(town.folder, saves=True), name="router-state")
    await asyncio.sleep(0)
    first._pools["agents.default.llm"].hedge_budget.spent(0.01)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    saved = (town.folder / "router.json").read_bytes()
    await other.keep_state(town.folder, saves=False)
    assert other._pools["agents.default.llm"].hedge_budget.level_usd < 0
    assert (town.folder / "router.json").read_bytes() == saved


async def test_a_saved_state_is_restored_once(town: Town) -> None:
    """A task that begins again after an error keeps what the router has learned since its start."""
    router = town.stages('llm = ["one/m", "two/m"]\n').router
    router.of_agent("default")
    await router.keep_state(town.folder, saves=False)
    with pytest.raises(asyncio.CancelledError):
        await _cancelled(router.keep_state(town.folder, saves=True))  # the file has no debt
    budget = router._pools["agents.default.llm"].hedge_budget
    budget.spent(0.01)
    level_usd = budget.level_usd
    await router.keep_state(town.folder, saves=False)
    assert budget.level_usd == level_usd < 0


async def _cancelled(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work, name="cancelled")
    await asyncio.sleep(0)
    task.cancel()
    await task


async def test_a_damaged_state_is_logged_and_the_router_starts_fresh(
    town: Town, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a state that can't be written. Neither keeps the server from starting."""
    (town.folder / "router.json").write_text("{")
    router = town.stages('llm = ["one/m", "two/m"]\n').router
    with caplog.at_level(logging.WARNING, logger="voicepipe"):
        saving = asyncio.create_task(router.keep_state(town.folder, saves=True), name="router-state")
        await asyncio.sleep(0)
        monkeypatch.setattr(Path, "open", _no_room)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["router_state_unreadable", "router_state_write_failed"]


async def test_the_state_is_saved_again_and_again(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = asyncio.Event()
    monkeypatch.setattr("voicepipe.wiring.model_routing.SAVE_S", 0.0)
    monkeypatch.setattr("voicepipe.wiring.model_routing.save", lambda folder, state: saved.set())
    router = town.stages('llm = ["one/m", "two/m"]\n').router
    saving = asyncio.create_task(router.keep_state(town.folder, saves=True), name="router-state")
    await saved.wait()
    assert not saving.done()
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving


async def test_the_last_save_waits_for_one_that_runs(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """They write the same file: one would tear what the other writes."""
    begun, begun_again = threading.Event(), threading.Event()
    overlaps: list[bool] = []

    def slow(folder: Path, state: Mapping[str, Any]) -> None:
        if begun.is_set():
            begun_again.set()
            return
        begun.set()
        overlaps.append(begun_again.wait(OVERLAP_S))

    monkeypatch.setattr(model_routing, "SAVE_S", 0.0)
    monkeypatch.setattr(model_routing, "save", slow)
    router = town.stages('llm = ["one/m", "two/m"]\n').router
    saving = asyncio.create_task(router.keep_state(town.folder, saves=True), name="router-state")
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert (overlaps, begun_again.is_set()) == ([False], True)


def _no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


async def test_what_is_known_of_providers_outlasts_a_reload(town: Town) -> None:
    """A circuit breaker that is open stays so, and the probes that close it run."""
    town.vendors["one"].llm.usual = LlmCue(fault=Status(401))
    stages = town.stages('llm = ["one/a", "two/b"]\n[router]\norder = "given"\n')
    await events_of(stages)
    reloaded = stages.with_settings(load(environ={"HOME": str(town.folder)}, folder=town.folder), {}, {})
    states = {health.spec: health.state for health in reloaded.router.healths()}
    assert states["one/a"] == "open"
    assert reloaded.router._probes is stages.router._probes


async def test_a_reload_earns_no_new_money_for_hedges(town: Town) -> None:
    """Unless the cap is another."""
    stages = town.stages('llm = ["one/a", "two/b"]\n[router]\nhedge_budget_usd = 0.001\n')
    stages.of_agent("default")
    stages.router._pools["agents.default.llm"].hedge_budget.spent(0.01)

    def level_usd(cap: float) -> float:
        town.stages(f'llm = ["one/a", "two/b"]\n[router]\nhedge_budget_usd = {cap}\n')
        settings = load(environ={"HOME": str(town.folder)}, folder=town.folder)
        reloaded = stages.with_settings(settings, {}, {})
        reloaded.of_agent("default")
        return reloaded.router._pools["agents.default.llm"].hedge_budget.level_usd

    assert level_usd(0.001) < 0
    assert level_usd(0.002) > 0


async def test_the_processes_of_a_server_share_a_hedge_budget(town: Town) -> None:
    """After a reload too."""
    text = 'llm = ["one/a", "two/b"]\n[router]\nhedge_budget_usd = 1.0\n'

    def reserved_usd(stages: Stages) -> float:
        stages.of_agent("default")
        return stages.router._pools["agents.default.llm"].hedge_budget.reserved_usd

    alone = reserved_usd(town.stages(text))
    settings = load(environ={"HOME": str(town.folder)}, folder=town.folder)
    async with (
        open_resources(settings, is_first=True, n_processes=4, hub=None) as resources,
        asyncio.TaskGroup() as group,
    ):
        parts = await Components.of(settings, resources, DetachedTasks(group), None, print, is_first=True)
        assert reserved_usd(parts.stages) == pytest.approx(alone / 4)
        town.stages(text.replace("1.0", "2.0"))
        changed = load(environ={"HOME": str(town.folder)}, folder=town.folder)
        assert reserved_usd(parts.stages.with_settings(changed, {}, {})) == pytest.approx(alone / 2)
