"""`voicepipe bench endpointing`: traces, rules, scores, the report and the chart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from voicepipe.bench.endpointing import measure, rules
from voicepipe.bench.endpointing.chart import svg
from voicepipe.bench.endpointing.report import READY_MS, RuleResult, lines, table, write_csv
from voicepipe.bench.endpointing.rules import default_rules, rule_factory
from voicepipe.bench.endpointing.score import START_MS, EndpointRule, ScoreSummary, TurnScore, score, summary
from voicepipe.bench.endpointing.traces import Pause, PauseModels, PauseStep, Trace, read_traces
from voicepipe.cli import main
from voicepipe.errors import ConfigError
from voicepipe.turn.endpointing.probability import SENTENCE_END, SMART_TURN
from voicepipe.turn.endpointing.strategy import Decision

DATA = Path(__file__).parents[1] / "data"
END_MS = 5_000


def pause(voiced_ms: int, until_ms: int | None = None, *, text: str = "Yes, please.", noticed_ms: int = 80) -> Pause:
    """A pause that begins at `voiced_ms` and ends at `until_ms`, or lasts 2 s."""
    last = (until_ms or voiced_ms + 2_000) - voiced_ms
    return Pause(
        began_ms=0,
        voiced_ms=voiced_ms,
        text=text,
        sentence_end=0.6,
        audio_scores={100: 0.2, 200: 0.9},
        steps=tuple(PauseStep(at_ms=voiced_ms + s, silence_ms=s) for s in range(noticed_ms, last + 1, 20)),
        resumed_at_ms=until_ms,
        onset_ms=until_ms,
    )


def trace(*pauses: Pause) -> Trace:
    return Trace(clip="c", condition="clean", started_at_ms=(100,), pauses=pauses)


class Fixed:
    """Begins work after 180 ms, or later, and answers after a wait of its own."""

    def __init__(self, wait_ms: int, start_ms: int = 180) -> None:
        self.wait_ms, self.start_ms = wait_ms, start_ms
        self.n_resumed = 0

    def decide(self, pause: Pause, step: PauseStep) -> Decision:
        return Decision(self.start_ms, self.wait_ms)

    def resumed(self, pause: Pause) -> None:
        self.n_resumed += 1


def scored(wait_ms: int, *pauses: Pause, ready_ms: int = 350) -> TurnScore:
    return score(trace(*pauses), Fixed(wait_ms), END_MS, ready_ms)


# --- scores ------------------------------------------------------------------------------------


def test_the_latency_is_the_wait_or_the_answer_whichever_is_longer() -> None:
    assert scored(400, pause(END_MS)).latency_ms == 400
    assert scored(300, pause(END_MS), ready_ms=350).latency_ms == 350
    assert scored(390, pause(END_MS), ready_ms=350).latency_ms == 400, "the next frame of 20 ms"
    assert scored(300, pause(END_MS), ready_ms=500).latency_ms == 500
    assert scored(400, pause(END_MS - 50)).latency_ms == 350, "silence before the labelled end counts"


def test_work_that_begins_late_is_paid_in_latency() -> None:
    """170 ms of it, where an answer is ready after 350 ms if its work begins after 180."""
    late = score(trace(pause(END_MS)), Fixed(400, 320), END_MS, 350)
    assert (late.begun_ms, late.latency_ms) == (320, 490)
    silent = score(trace(pause(2_000, 2_480), pause(END_MS)), Fixed(400, 320), END_MS, 350)
    assert (silent.overlapped, silent.wasted_starts) == (False, 1), "the user went on before the answer was ready"


@pytest.mark.parametrize(
    ("resumed_ms", "overlapped", "broken", "wasted_starts"),
    [
        (170, False, False, 0),
        (390, False, False, 1),
        (410, True, False, 1),
        (1_390, True, False, 1),
        (1_420, False, True, 1),
    ],
)
def test_a_user_who_goes_on_is_overlapped_for_a_second_and_broken_later(
    resumed_ms: int, overlapped: bool, broken: bool, wasted_starts: int
) -> None:
    scores = scored(400, pause(2_000, 2_000 + resumed_ms), pause(END_MS))
    assert (scores.overlapped, scores.broken, scores.wasted_starts) == (overlapped, broken, wasted_starts)
    assert scores.latency_ms == 400


def test_a_turn_that_gets_no_answer_in_time_is_missed() -> None:
    assert scored(1_990, pause(END_MS)).missed is False
    assert scored(2_010, pause(END_MS)).missed
    assert scored(400).missed, "no pause was found"


def test_noise_after_the_turn_overlaps_nothing() -> None:
    scores = scored(400, pause(END_MS, END_MS + 300), pause(END_MS + 600))
    assert (scores.overlapped, scores.wasted_starts, scores.latency_ms) == (False, 0, 1_000)


def test_rules_learn_of_each_inner_pause() -> None:
    rule = Fixed(400)
    score(trace(pause(1_000, 1_300), pause(2_000, 2_200), pause(END_MS)), rule, END_MS, 350)
    assert rule.n_resumed == 2


def test_summary_of_turns() -> None:
    result = summary([scored(400, pause(END_MS)), scored(400, pause(1_000, 1_500), pause(END_MS)), scored(400)])
    assert result.latency_ms == (400, 400)
    assert result.overlapped == result.missed == pytest.approx(100 / 3)
    assert result.wasted_starts == pytest.approx(1 / 3)
    assert summary([]).latency_ms is None


# --- rules -------------------------------------------------------------------------------------


def decided(rule: EndpointRule, silence_ms: int, of: Pause | None = None) -> Decision:
    return rule.decide(of or pause(2_000), PauseStep(at_ms=2_000 + silence_ms, silence_ms=silence_ms))


def test_words_and_scores_come_when_they_would() -> None:
    of = pause(2_000)
    known = [rules.evidence(of, PauseStep(at_ms=0, silence_ms=ms), smart_turn=True) for ms in (80, 140, 160, 180)]
    assert [bool(each.text) for each in known] == [False, True, True, True]
    assert [dict(each.scores).keys() for each in known] == [set(), set(), {SMART_TURN}, {SMART_TURN, SENTENCE_END}]


def test_no_work_begins_before_the_words_are_known() -> None:
    rule = rule_factory("silence:350", 720, 170)()
    assert decided(rule, 120) == Decision(350, 350)
    assert decided(rule, 140) == Decision(START_MS, 350)
    assert decided(rule, 120, pause(2_000, text="")) == Decision(START_MS, 350), "there will be no words"


def test_a_strategy_gets_the_score_of_smart_turn_only_where_its_rule_says_so() -> None:
    """Sessions have it only with the setting `smart_turn`. 0.2 makes the end less likely."""
    plain, scored = (decided(rule_factory(name, 720, 350)(), 300) for name in ("soft", "soft+smart-turn"))
    assert scored.audible_ms > plain.audible_ms


def test_strategies_of_the_port_are_rules_by_name() -> None:
    assert decided(rule_factory("silence:400", 720, 350)(), 300).audible_ms == 400
    assert decided(rule_factory("silence", 720, 350)(), 300).audible_ms == 720
    adaptive = rule_factory("adaptive", 720, 350)()
    open_ended, whole = pause(2_000, text="I would like a"), pause(2_000, text="I would like a coffee.")
    assert decided(adaptive, 300, open_ended).audible_ms > decided(adaptive, 300, whole).audible_ms
    soft = rule_factory("soft", 720, 350)()
    before = decided(soft, 300)
    soft.resumed(pause(2_000, 3_000))
    assert decided(soft, 300, pause(4_000)) == before, "the pace does not count"


def test_smart_turn_as_pipecat_uses_it() -> None:
    rule = rule_factory("smart-turn", 720, 350)()
    assert decided(rule, 300).audible_ms == 260
    assert decided(rule, 300, pause(2_000, noticed_ms=80)).audible_ms == 260
    rule.resumed(pause(2_000, 2_300))
    incomplete = Pause(**{**{f: getattr(pause(2_000), f) for f in Pause.__slots__}, "audio_scores": {200: 0.4}})
    assert decided(rule, 300, incomplete).audible_ms == 3_000


@pytest.mark.parametrize(("rule", "why"), [("nonsense", "expected one of"), ("silence:x", "a number of ms")])
def test_wrong_rules(rule: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        rule_factory(rule, 720, 350)


def test_the_usual_rules() -> None:
    assert "silence:800" in default_rules(smart_turn=False)
    assert default_rules(smart_turn=False)[:2] == ("soft", "adaptive")
    assert not any("smart-turn" in name for name in default_rules(smart_turn=False))
    assert default_rules(smart_turn=True)[1::6] == ("soft+smart-turn", "silence:800")
    assert default_rules(smart_turn=True)[-1] == "smart-turn"


# --- traces, report, command ---------------------------------------------------------------------


def folder_with(tmp_path: Path, *ids: str) -> Path:
    """A folder of the tests' clips, with only these."""
    manifest = [line for line in (DATA / "manifest.jsonl").read_text().splitlines() if json.loads(line)["id"] in ids]
    for line in manifest:
        path = tmp_path / json.loads(line)["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(DATA / json.loads(line)["path"])
    mix = {"id": ids[0], "noise": ids[-1], "noise_offset_ms": 0, "snr_db": 10}
    (tmp_path / "manifest.jsonl").write_text("\n".join(manifest))
    (tmp_path / "mixes.jsonl").write_text(json.dumps(mix))
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines_of = (DATA / "manifest.jsonl").read_text().splitlines()
    known = {json.loads(line)["id"]: json.loads(line)["kind"] for line in lines_of}
    hesitation = next(each for each, kind in known.items() if kind == "hesitation")
    noise = next(each for each, kind in known.items() if kind == "noise")
    return folder_with(tmp_path / "set", "clean/vctk_p287_001", hesitation, noise)


def fake_models() -> PauseModels:
    return PauseModels(
        words=lambda samples: "Please call Stella.", sentence_end=lambda text: 0.7, audio_score=lambda samples: 0.8
    )


def test_clips_are_traced_once(folder: Path, tmp_path: Path) -> None:
    file, seen = tmp_path / "traces.jsonl", list[str]()
    first = measure.trace_all([folder], fake_models, file, seen.append)
    assert [(each.trace.clip.partition("/")[0], each.set, each.trace.condition) for each in first] == [
        ("clean", "reading", "clean"),
        ("hesitation", "hesitation", "clean"),
        ("clean", "reading", "10"),
    ]
    assert seen[-1] == "3 of 3 clips"
    last = first[0].trace.pauses[-1]
    assert (last.text, last.sentence_end, last.resumed_at_ms) == ("Please call Stella.", 0.7, None)
    assert set(last.audio_scores) == {100, 200}
    assert first[0].end_ms is not None
    assert abs(last.voiced_ms - first[0].end_ms) < 100

    def forbidden() -> PauseModels:
        raise AssertionError("measured twice")

    assert measure.trace_all([folder], forbidden, file, seen.append) == first == list(read_traces(file))


def test_traces_of_another_vad_are_measured_anew(folder: Path, tmp_path: Path) -> None:
    """The same file has those of both, and each run reads its own."""
    file = tmp_path / "traces.jsonl"
    first = measure.trace_all([folder], fake_models, file, lambda line: None)
    light = measure.trace_all([folder], fake_models, file, lambda line: None, "webrtc")
    assert [each.vad for each in light] == ["webrtc"] * len(first)
    assert [each.trace for each in light] != [each.trace for each in first]
    assert (list(read_traces(file)), list(read_traces(file, "webrtc"))) == (first, light)


def test_the_report_has_each_rule_on_each_set(folder: Path, tmp_path: Path) -> None:
    traces = measure.trace_all([folder], fake_models, None, lambda line: None)
    makers: dict[str, Callable[[int], Callable[[], EndpointRule]]] = {
        name: partial(rule_factory, name, 720) for name in ("soft", "silence:300", "silence:800")
    }
    results = lines(traces, makers)
    assert [(each.rule, each.set, each.condition) for each in results[:3]] == [
        ("soft", "reading", "clean"),
        ("silence:300", "reading", "clean"),
        ("silence:800", "reading", "clean"),
    ]
    text = "\n".join(table(results))
    assert "**reading, clean** (1 turns)" in text
    assert "**reading, 10 dB** (1 turns)" in text
    assert text.count("| silence:800 |") == 3
    chart = svg(results)
    assert chart.count("<circle") == 6
    assert "silence:800" in chart
    write_csv(tmp_path / "e.csv", results)
    assert len((tmp_path / "e.csv").read_text().splitlines()) == 1 + len(READY_MS) * len(results)


LABEL = re.compile(r'<text x="([\d.-]+)" y="([\d.-]+)" font-size="11" fill="[^"]+">([^<]+)')


def drawn(*points: tuple[str, float, float, float]) -> list[tuple[float, float, str]]:
    """(left, base line, words) of the label of each rule, from its name, p50, overlapped and missed."""
    results = [
        RuleResult(rule=rule, set="orders", condition="clean", summaries=(summed(p50_ms, overlapped, missed),))
        for rule, p50_ms, overlapped, missed in points
    ]
    return [(float(x), float(y), words) for x, y, words in LABEL.findall(svg(results))]


def summed(p50_ms: float, overlapped: float, missed: float) -> ScoreSummary:
    latency_ms = (p50_ms, p50_ms + 20)
    shares = {"overlapped": overlapped, "broken": 0.0, "missed": missed, "wasted_starts": 0.0}
    return ScoreSummary(n_turns=20, latency_ms=latency_ms, begun_ms=latency_ms, **shares)


def test_no_label_of_the_chart_covers_another() -> None:
    """Rules that do alike lie on one another, and on orders most overlap none."""
    n = 12
    labels = drawn(*((f"a-rule-of-{n}", 360 + 10 * n, 0.0, 0.0) for n in range(n)), ("late", 1_900, 9.9, 0.0))
    assert len(labels) == n + 1
    for (x, y, words), (other_x, other_y, other_words) in combinations(labels, 2):
        beside = x + 6 * len(words) <= other_x or other_x + 6 * len(other_words) <= x
        assert beside or abs(y - other_y) >= 11, (words, other_words)
    assert all(0 <= y <= 240 for _, y, _ in labels)


def test_the_chart_says_how_many_turns_got_no_answer() -> None:
    """A rule that leaves the hard turns unanswered looks quick."""
    assert [words for *_, words in drawn(("quick", 430, 0.0, 25.0), ("sure", 500, 0.0, 0.0))] == [
        "quick, 25 % unanswered",
        "sure",
    ]


def test_the_command_measures_prints_and_writes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert (
        main(["bench", "endpointing", str(folder), "--without-words", "--rule", "silence:500", "--out", str(out)]) == 0
    )
    captured = capsys.readouterr()
    assert "| silence:500 |" in captured.out
    assert "3 of 3 clips" in captured.err
    assert {path.name for path in out.iterdir()} == {"endpointing.md", "endpointing.csv", "endpointing.svg"}


def test_the_command_measures_the_vad_of_the_settings(folder: Path, tmp_path: Path) -> None:
    """That of the agent `default`."""
    file = tmp_path / "t.jsonl"
    light = ["--traces", str(file), "--set", "agents.default.vad=webrtc"]
    assert main(["bench", "endpointing", str(folder), "--without-words", "--rule", "silence:500", *light]) == 0
    assert (len(list(read_traces(file, "webrtc"))), list(read_traces(file))) == (3, [])


def test_a_folder_without_a_manifest_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "endpointing", str(tmp_path), "--without-words"]) != 0
    assert "manifest.jsonl" in capsys.readouterr().err


def test_a_broken_trace_file_is_an_error(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.jsonl").write_text("{}\n")
    assert main(["bench", "endpointing", str(folder), "--traces", str(tmp_path / "t.jsonl")]) != 0
    assert "bench endpointing" in capsys.readouterr().err
