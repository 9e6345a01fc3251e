"""An agent's pauses are scored by the local LLM, where it is one of the agent's own, and never by another."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import load
from voicepipe.providers.local.llm import LocalModel
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
