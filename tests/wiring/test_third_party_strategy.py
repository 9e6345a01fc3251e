"""The docs' example of a strategy of one's own: installed as it is written there, tested, and talked to."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import docs
from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.ports.endpointing import strategies_named, strategy_named, strategy_names
from voicepipe.testing.conformance.endpointing import EndpointStrategyConformance
from voicepipe.testing.user import calling
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import NOTHING, Decision, Evidence, StrategyFactory

BLOCKS = dict(
    re.findall(
        r"```(?:toml|python)(?: package)?\n# ([\w.]+)[^\n]*\n(.*?)```",
        docs.section("Add an end-of-turn strategy"),
        re.DOTALL,
    )
)
WRITTEN = tomllib.loads(BLOCKS["voicepipe.toml"])["agents"]["default"]

FAULTY = {
    "faulty:Raises": """
        class Raises:
            max_wait_ms = 1_000
            def __init__(self, silence_ms): pass
            def decide(self, evidence): raise ValueError(evidence.text)
    """,
    "faulty:absent": "",
}


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package, from the docs' two files."""
    folder = tmp_path_factory.mktemp("full_stop")
    for name in ("pyproject.toml", "full_stop.py"):
        (folder / name).write_text(BLOCKS[name], encoding="utf-8")
    target = folder / "installed"
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([sys.executable, *pip, "--target", str(target), str(folder)], check=True, capture_output=True)
    return target


@pytest.fixture
def package(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be imported, and its entry point found."""
    monkeypatch.syspath_prepend(str(installed))
    importlib.invalidate_caches()


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, source: str) -> None:
    """Install a strategy named `faulty`, as pip would leave it."""
    about = folder / "faulty-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[voicepipe.endpointing]\nfaulty = {target}\nsilence = {target}\n")
    (folder / "faulty.py").write_text(re.sub(r"^ {8}", "", source, flags=re.M))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    importlib.invalidate_caches()


@pytest.mark.usefixtures("package")
class TestFullStop(EndpointStrategyConformance):
    @pytest.fixture
    def make(self) -> StrategyFactory:
        return strategy_named("full_stop", key="agents.default.end_of_turn")


@pytest.mark.usefixtures("package")
def test_it_is_found_by_its_name() -> None:
    """Beside the built-in ones; it waits as its page says."""
    assert strategy_names() == (*BUILT_IN, "full_stop")
    strategy = strategies_named(["full_stop"], key="end_of_turn")["full_stop"](576)
    assert strategy.decide(NOTHING) == Decision(150, 1_152)
    assert strategy.decide(Evidence(text="That is all.")) == Decision(150, 576)
    assert strategy.decide(Evidence(scores=(("smart-turn", 0.95),))) == Decision(150, 288)


@pytest.mark.usefixtures("package")
async def test_a_turn_is_ended_by_it(fake_server: Any, question: Path) -> None:
    """With the docs' settings: the wait without a full stop is twice 1.44 times the silence that is set."""
    settings = {f"agents.default.{name}": value for name, value in WRITTEN.items()}
    async with fake_server(settings) as server, calling(server.url) as user:
        await user.speak(read_sound(question, 24_000), then_silence_ms=2_000)
        done = await user.until("response.done")
    assert done["response"]["status"] == "completed"


async def test_a_strategy_that_raises_ends_no_session(
    fake_server: Any,
    question: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two turns are answered; one log event, one count."""
    (target, source), _ = FAULTY.items()
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, monkeypatch, target, source)
    async with fake_server({"agents.default.end_of_turn": "faulty"}) as server, calling(server.url) as user:
        for _ in range(2):
            await user.speak(read_sound(question, 24_000), then_silence_ms=1_500)
            done = await user.until("response.done")
            assert done["response"]["status"] == "completed"
    logged = [record.fields for record in caplog.records if record.message == "endpointing_failed"]  # type: ignore[attr-defined]
    assert [(each["strategy"], each["so_far"]) for each in logged] == [("faulty", 1)]
    assert re.fullmatch(r"ValueError in faulty\.py, line \d+", logged[0]["why"])
    assert "no" not in json.dumps(logged[0]["why"]).lower().split()


def test_a_package_that_can_not_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start of the server, with the setting."""
    _, (target, source) = FAULTY.items()
    install(tmp_path, monkeypatch, target, source)
    with pytest.raises(ConfigError, match=r"^agents\.a\.end_of_turn: expected faulty:absent to be importable, got A"):
        strategy_named("faulty", key="agents.a.end_of_turn")
    assert strategy_named("silence", key="agents.a.end_of_turn").__name__ == "Silence"


def test_an_unknown_strategy_is_refused(tmp_path: Path) -> None:
    """The settings refuse it, and so does the function that code calls."""
    quoted, plain = (", ".join(map(form, BUILT_IN)) for form in ('"{}"'.format, str))
    expected = rf"agents\.default\.end_of_turn: expected {quoted} or the name of an installed strategy"
    with pytest.raises(ConfigError, match=expected):
        load(overrides={"agents.default.end_of_turn": "soon"}, environ={"HOME": str(tmp_path)}, folder=tmp_path)
    with pytest.raises(ConfigError, match=rf"^end_of_turn: expected one of {plain}, got 'soon'$"):
        strategies_named(["soon"], key="end_of_turn")
