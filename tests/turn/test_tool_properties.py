"""Properties of functions that the server runs: their events come in any order, also twice, late or never."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import CancelTool, Command, Notify, RunTool
from voicepipe.turn.record.values import ToolResult
from voicepipe.turn.settings import ReplySettings, ServerTool, Tool

TOOLS = (
    ServerTool(tool=Tool("look_up", "", "{}"), label="agent", side_effects=False, runs_early=True),
    ServerTool(tool=Tool("book", "", "{}"), label="agent"),
    ServerTool(tool=Tool("wait", "", "{}"), label="agent", cancellable=True),
)
ARGUMENTS = ('{"day":1}', '{"day": 1}', '{"day":2}')
"""The second differs from the first by white space only."""

OUTCOMES: tuple[ToolResult, ...] = ("returned", "failed", "timed_out")

calls = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("calls"), calls),
        st.tuples(st.just("ends"), st.tuples(st.integers(0, 9), st.integers(0, 2))),
        st.tuples(st.just("deletes"), st.integers(0, 9)),
        st.tuples(st.just("passes"), st.sampled_from((50, 700, 3_000, 70_000))),
        st.tuples(
            st.sampled_from(("utters", "speaks", "falls_silent", "answers", "creates", "cancels", "breaks")), st.none()
        ),
    ),
    max_size=24,
)


class Watched:
    """A session, and what is known of its calls."""

    def __init__(self) -> None:
        self.scenario = Scenario(reply=ReplySettings(server_tools=TOOLS))
        self.started: list[RunTool] = []
        self.outputs: dict[str, str] = {}
        """Item of a call -> the result that came first."""

        self.effects: Counter[tuple[str, str]] = Counter()
        self.n_ended: Counter[str] = Counter()
        self._n_seen = 0

    @property
    def _turns(self) -> dict[tuple[int, str], str]:
        return {key: turn.id for key, turn in self.scenario.driver.core.context.turns.calls.items()}

    def look(self) -> list[Command]:
        """Check the commands that are new."""
        commands = self.scenario.driver.commands[self._n_seen :]
        self._n_seen += len(commands)
        for command in commands:
            match command:
                case RunTool(turn, call_id, name, arguments, revision):
                    assert (turn, call_id, revision) not in {
                        (each.turn, each.call_id, each.revision) for each in self.started
                    }, "a call runs once"
                    assert (revision is not None) == (name == "look_up"), "only a look-up runs early"
                    self.started.append(command)
                    if name == "book":
                        turn_id = self._turns.get((turn, call_id), "")
                        self.effects[turn_id, arguments.replace(" ", "")] += bool(turn_id)
                case Notify(a.ToolEnded(call)):
                    self.n_ended[call.id] += 1
                    assert call.output is not None
                case _:
                    pass
        assert max(self.effects.values(), default=0) <= 1, "a side effect happens once in a turn"
        assert max(self.n_ended.values(), default=0) <= 1, "a call ends once"
        return commands

    def do(self, kind: str, what: object) -> None:
        """One step."""
        scenario = self.scenario
        match kind, what:
            case "calls", list(made) if scenario.started():
                scenario.model_requested()
                turn, revision = scenario._key(-1)
                for index, (tool, arguments) in enumerate(made):
                    name = TOOLS[tool].tool.name
                    scenario._post(e.CallGrew(turn, revision, index, f"call_{index}", name, ARGUMENTS[arguments]))
                scenario.model_done("tool_calls")
                scenario.voice_done()
            case "ends", (int(of), int(outcome)) if self.started:
                self.ends(self.started[of % len(self.started)], OUTCOMES[outcome])
            case "deletes", int(of) if self.n_ended:
                item_id = list(self.n_ended)[of % len(self.n_ended)]
                scenario.deletes_item(item_id)
            case "passes", int(duration_ms):
                scenario.passes(duration_ms)
            case "answers" | "breaks", _ if scenario.started():
                scenario.answers() if kind == "answers" else scenario.breaks("llm")
            case "utters" | "creates" | "cancels" | "speaks", _:
                getattr(scenario, kind)()
            case "falls_silent", _ if scenario._utterances:
                scenario.pauses()
                scenario.transcribes("Never mind.")
                scenario.stops()
            case _:
                pass
        self.look()

    def ends(self, call: RunTool, outcome: ToolResult) -> None:
        """A result comes. Only the first one of a call that runs counts."""
        scenario, key = self.scenario, (call.turn, call.call_id)
        runs = key in self._turns
        output = f"result {len(self.outputs)}"
        scenario._post(e.ToolFinished(call.turn, call.call_id, output, outcome, revision=call.revision))
        notices = (each.what for each in self.look() if isinstance(each, Notify))
        ended = [each.call for each in notices if isinstance(each, a.ToolEnded)]
        own = [each for each in ended if each.call_id == call.call_id]
        assert len(own) == runs, "a result counts if its call runs, and never else"
        for each in own:
            assert each.failed == (outcome != "returned")
            assert each.output == f"result {len(self.outputs)}"
        self.outputs |= {each.id: each.output or "" for each in own}


@given(steps)
@settings(max_examples=150)
def test_results_in_any_order(drawn: list[tuple[str, object]]) -> None:
    """No call runs or ends twice, no side effect happens twice in a turn, and nothing stays open."""
    session = Watched()
    session.do("utters", None)
    for kind, what in drawn:
        session.do(kind, what)
    scenario, core = session.scenario, session.scenario.driver.core
    scenario.passes(200_000)  # one never returns
    assert core.context.turns.awaits_tools is None, "no turn waits for ever"
    scenario.leaves()
    session.look()
    assert core.n_stuck == 0
    assert all(record.outcome is not None for record in scenario.driver.records.values())


def test_the_properties_see_what_they_are_for() -> None:
    """Two calls of which one fails, one that is repeated, one that is cancelled, and one that is late all occur."""
    session = Watched()
    for step in (
        ("utters", None),
        ("calls", [(1, 0), (2, 0), (0, 0)]),
        ("ends", (1, 0)),
        ("ends", (0, 1)),
        ("utters", None),
        ("ends", (2, 0)),
        ("ends", (1, 0)),
    ):
        session.do(*step)
    cancelled = [each for each in session.scenario.driver.commands if isinstance(each, CancelTool)]
    assert (len(session.started), len(cancelled), len(session.outputs)) == (3, 1, 2)
    assert sum(session.effects.values()) == 1
