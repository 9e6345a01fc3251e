"""An agent's pauses are scored by the local LLM, where it is one of the agent's own, and by smart-turn, where its file
is set, and never by another model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.tiny_onnx import write_model
from voicepipe.config import load
from voicepipe.errors import ConfigError
from voicepipe.providers.local.llm import LocalModel
from voicepipe.providers.local.smart_turn import LocalSmartTurn
from voicepipe.session.session import SessionStages
from voicepipe.wiring.stages import Stages

LOCAL, PAID = "local/smollm2-135m", "openai/gpt-4.1-mini"


def stages_of(folder: Path, *models: str) -> SessionStages:
    overrides: dict[str, object] = {"agents.default.llm": models, "server.data_dir": str(folder / "data")}
    environ = {"HOME": str(folder), "OPENAI_API_KEY": "k"}
    return Stages(load(overrides=overrides, environ=environ, folder=folder)).of_agent("default")


@pytest.mark.parametrize("models", [(LOCAL,), (PAID, LOCAL)])
def test_the_local_llm_scores(tmp_path: Path, models: tuple[str, ...]) -> None:
    scorer = stages_of(tmp_path, *models).endpoint_scorer
    assert isinstance(scorer, LocalModel)
    assert (scorer.name, scorer.score_name) == (LOCAL, "sentence-end")


def test_a_paid_llm_scores_nothing(tmp_path: Path) -> None:
    assert stages_of(tmp_path, PAID).endpoint_scorer is None


# --- smart-turn ----------------------------------------------------------------------------------


def smart_turns(folder: Path, **files: str) -> Stages:
    """The stages of agents with these files."""
    overrides: dict[str, object] = {f"agents.{agent}.smart_turn": file for agent, file in files.items()}
    overrides |= {f"agents.default.{stage}": f"openai/{stage}" for stage in ("stt", "llm", "tts")}
    overrides["server.data_dir"] = str(folder / "data")
    return Stages(load(overrides=overrides, environ={"HOME": str(folder), "OPENAI_API_KEY": "k"}, folder=folder))


def test_no_agent_has_smart_turn_unless_its_file_is_set(tmp_path: Path) -> None:
    stages = smart_turns(tmp_path)
    assert stages.of_agent("default").audio_scorer is None
    assert stages.engines() == ()


def test_there_is_one_engine_for_each_file(tmp_path: Path) -> None:
    """Agents with the same file share it."""
    one, two = (str(write_model(tmp_path / name)) for name in ("one.onnx", "two.onnx"))
    stages = smart_turns(tmp_path, default=one, sales=two)
    engines = stages.engines()
    assert [(use.stages, use.model_file, use.name_of("endpoint")) for use in engines] == [
        (("endpoint",), Path(one), "one.onnx"),
        (("endpoint",), Path(two), "two.onnx"),
    ]
    assert len({use.socket_path for use in engines}) == 2
    scorer = smart_turns(tmp_path, default=one, support=one).of_agent("support").audio_scorer
    assert isinstance(scorer, LocalSmartTurn)
    assert smart_turns(tmp_path, default=one, support=one).smart_turns(("default", "support")) == engines[:1]


def test_a_missing_file_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^agents\.default\.smart_turn: expected the ONNX file of smart-turn, got "):
        smart_turns(tmp_path, default=str(tmp_path / "none.onnx")).of_agent("default")
