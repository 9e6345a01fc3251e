"""A scenario file is read, or refused with its line, its field, what was expected and what came."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.errors import ConfigError
from voicepipe.evals.scenario import Part, Trigger, read_scenario, scenario_files

HEAD = "steps:\n  - type: hello\n    expect: {contains: hi}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "table.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_short_scenario_has_defaults(tmp_path: Path) -> None:
    scenario = read_scenario(written(tmp_path, HEAD))
    assert (scenario.name, scenario.agent, scenario.pass_share, scenario.scripted) == ("table", None, 1.0, None)
    assert [step.title for step in scenario.steps] == ["types: hello"]
    assert len(scenario.expectations) == 1


def test_what_is_said_is_a_text_or_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    text = "steps:\n  - say: no\n  - say: [I'd like, {pause_ms: 300}, {audio: a.wav}]\n    interrupt: {word: Friday}\n"
    text += "  - persona: {instructions: a person}\n  - listen: true\n  - wait_ms: 5\n  - hang_up: true\n"
    text += "expect: {answers: 1}\n"
    steps = read_scenario(written(tmp_path, text)).steps
    assert steps[0].parts == (Part(text="no"),)
    assert steps[1].parts == (Part(text="I'd like"), Part(pause_ms=300), Part(audio="a.wav"))
    assert steps[1].interrupt == Trigger(word="Friday")
    assert [step.title for step in steps] == [
        "no",
        "interrupts: I'd like (300 ms) a.wav",
        "persona, at most 5 turns",
        "listens",
        "waits 5 ms",
        "hangs up",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: x\n", "table.yaml:1: steps: expected a value, got none"),
        ("steps: []\n", ":1: steps: expected at least one step, got none"),
        ("steps: 7\n", ":1: steps: expected `array`, got `int`: 7"),
        (f"{HEAD}agnet: x\n", ":4: agnet: unknown field; expected one of name, agent,"),
        (f"{HEAD}session: {{lang: en}}\n", ":4: session.lang: unknown field; expected one of language, instructions"),
        (f"{HEAD}  - tpye: x\n", ":4: steps[1].tpye: unknown field; expected one of say, type"),
        (
            f"{HEAD}  - type: x\n    expect: {{contians: x}}\n",
            "steps[1].expect.contians: unknown field; expected one of",
        ),
        (
            f"{HEAD}  - type: x\n    expect: {{latency_ms: fast}}\n",
            ":5: steps[1].expect.latency_ms: expected `int | null`",
        ),
        (f"{HEAD}  - type: x\n    expect: {{latency_ms: fast}}\n", "got `str`: 'fast'"),
        (f"{HEAD}  - type: x\n    say: y\n", ":4: steps[1]: expected exactly one of say, type"),
        (f"{HEAD}  - type: x\n    say: y\n", "got say, type"),
        (f"{HEAD}  - timeout_ms: 5\n", "got none"),
        ("steps:\n  - type: x\n", ":1: expected an `expect` in the file or in a step, got none"),
        (f"{HEAD}expect: {{}}\n", ":4: expect: expected at least one expectation, got none"),
        (f"{HEAD}expect: {{matches: '('}}\n", ":4: expect.matches: expected a regular expression, got '('"),
        (f"{HEAD}expect: {{outcome: completed}}\n", "expect.outcome: expected it in a step, got it here"),
        (f"{HEAD}pass_share: 2\n", ":4: pass_share: expected more than 0 and at most 1, got 2"),
        (f"{HEAD}  - say: {{audio: b.wav}}\n", "steps[1].say: expected a recording, got no file"),
        (f"{HEAD}  - say: [{{pause_ms: 5}}]\n", "steps[1].say: expected a text or a recording, got neither"),
        (f"{HEAD}  - say: {{}}\n", "steps[1].say: expected either `pause_ms`, 1 or more, or a `text` or `audio`"),
        (f"{HEAD}  - say: x\n    interrupt: {{}}\n", "steps[1].interrupt: expected either `after_ms` or `word`"),
        (f"{HEAD}  - listen: true\n    interrupt: {{word: a}}\n", "expected it beside `say` or `type`"),
        (f"{HEAD}  - hang_up: true\n  - type: x\n", ":4: steps[1].hang_up: expected no step behind it, got one"),
        (f"{HEAD}scripted: {{answers: 7}}\n", ":4: scripted.answers: expected a list, got 7"),
        (
            f"{HEAD}scripted:\n  answers:\n    - if: x\n",
            ":6: scripted.answers[0]: expected `text` or `calls`, got neither",
        ),
        (
            f"{HEAD}scripted: {{answers: [{{if: '[', text: x}}]}}\n",
            "scripted.answers[0].if: expected a regular expression",
        ),
        (f"{HEAD}tools: [{{name: a}}]\n", ":4: tools[0].results: expected a value, got none"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_scenario(written(tmp_path, text))
    assert why in str(error.value)


def test_a_recording_without_its_text_is_refused_where_the_transcriber_is_scripted(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    text = "steps: [{say: {audio: a.wav}, expect: {answers: 1}}]\n"
    assert read_scenario(written(tmp_path, text)).steps[0].parts == (Part(audio="a.wav"),)
    with pytest.raises(ConfigError, match="expected the recording's `text`"):
        read_scenario(written(tmp_path, f"{text}scripted: {{}}\n"))


def test_a_folder_means_its_scenarios(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got none in the folder"):
        scenario_files([tmp_path])
    for name in ("b.yml", "a.yaml", "c.txt"):
        (tmp_path / name).touch()
    assert scenario_files([tmp_path, Path("d.yaml")]) == [tmp_path / "a.yaml", tmp_path / "b.yml", Path("d.yaml")]
