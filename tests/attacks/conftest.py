"""Providers for all attacks of this process, and a server for those of one module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attack import bad_vendors
from attack.server import TOML, ServerProcess
from attack.vendors import vendors


@pytest.fixture(scope="session")
def providers() -> Iterator[dict[str, str]]:
    """Base addresses of the good provider and of the bad one."""
    with vendors() as addresses:
        yield addresses


@pytest.fixture(scope="session")
def settings(providers: dict[str, str]) -> str:
    """The settings file of a server under attack."""
    return TOML.format(**providers, server="", more=bad_vendors.agents())


@pytest.fixture(scope="module")
def server(settings: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that runs, for all tests of a module one after the other."""
    process = ServerProcess(tmp_path_factory.mktemp("server"), settings)
    process.start()
    yield process
    assert process.stop() == 0, process.log()[-2_000:]


@pytest.fixture
def stopped_server(settings: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own, which has not been started."""
    process = ServerProcess(tmp_path, settings)
    yield process
    process.stop()
