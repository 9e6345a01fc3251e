"""The scripts of deploy/ as modules: they are no package, a person runs them from a clone."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root() -> Path:
    """The clone."""
    return ROOT


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """deploy/up.py, not run."""
    monkeypatch.syspath_prepend(ROOT / "deploy")
    return importlib.import_module("up")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """deploy/machine.py."""
    monkeypatch.syspath_prepend(ROOT / "deploy")
    return importlib.import_module("machine")
