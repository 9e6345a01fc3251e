"""The server in a terminal: what it says, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from voicepipe.agents import Agent
from voicepipe.config import Settings, load
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S
from voicepipe.wiring.serve import COLLECTED_AFTER
from voicepipe.wiring.terminal import greeting, settings_warnings

PROGRAM = "import sys; from voicepipe.config import load; from voicepipe.wiring import run; run(load(sys.argv[1]))"
COMMAND = "import sys; from voicepipe.cli.main import main; sys.exit(main(['serve', '--config', *sys.argv[1:]]))"


def config_file(folder: Path, vendor: FakeVendor, *, limits: str = "", workers: int = 1) -> Path:
    """A server with a fake vendor. `limits`: more of its section, and sections of limits."""
    path = folder / "voicepipe.toml"
    path.write_text(
        f"""
        [server]
        port = 0
        workers = {workers}
        data_dir = "{folder / "data"}"
        {limits}
        [providers.fake]
        base_url = "{vendor.base_url}"
        [agents.default]
        stt = "fake/stt"
        llm = "fake/llm"
        tts = "fake/tts"
        """
    )
    return path


@asynccontextmanager
async def serving(path: Path, program: str = PROGRAM, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(path), *more),
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("VOICEPIPE_")},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def lines_until(process: asyncio.subprocess.Process, last: str) -> list[str]:
    """What it says up to and with the line that begins with `last`."""
    assert process.stdout is not None
    said: list[str] = []
    async with asyncio.timeout(90):
        while not said or not said[-1].startswith(last):
            line = await process.stdout.readline()
            assert line, f"it ended after saying {said}"
            said.append(line.decode().rstrip())
    return said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_prints_commands_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    async with FakeVendor() as vendor, serving(config_file(tmp_path, vendor)) as process:
        said = await lines_until(process, "Ctrl-C")
        base_url = said[0].rpartition(" ")[2]
        assert base_url.startswith("http://127.0.0.1:")
        assert f"  voicepipe talk question.wav --out answer.wav --url {base_url}" in said
        assert "  agent default: transcribes with fake/stt, answers with fake/llm, speaks with fake/tts" in said
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{base_url}/v1/realtime") as line:
            await line.receive(timeout=WAIT_S)
            process.send_signal(number)
            assert (await lines_until(process, "stopping"))[-1] == "stopping ..."
            process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 60) in (0, -number, 130, 1)


@pytest.mark.slow
async def test_collector_looks_only_at_what_came_after_the_start(tmp_path: Path) -> None:
    """Modules would make each full collection block the loop for 100 ms and more; and it runs rarely. They are exempt
    before there is a loop: else the start of an idle server would stall it.
    """
    frozen = PROGRAM.replace("run(load(sys.argv[1]))", "run(load(sys.argv[1]), print_line=print_count)")
    counts = "{gc.get_threshold()[0]} {gc.get_freeze_count()}"
    count = f"import gc; print_count = lambda line: print(f'{{line}} {counts}', flush=True); "
    async with FakeVendor() as vendor, serving(config_file(tmp_path, vendor), count + frozen) as process:
        said = await lines_until(process, "Ctrl-C")
    assert 10_000 < int(said[0].split()[-1]) < int(said[-1].split()[-1])
    assert int(said[-1].split()[-2]) == COLLECTED_AFTER[0]


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("why", ["", "they are not compiled"])
async def test_it_says_when_it_starts_that_loops_run_in_numpy(tmp_path: Path, n_workers: int, why: str) -> None:
    numpy = f"import voicepipe.wiring.terminal; voicepipe.wiring.terminal.WHY_NUMPY = {why!r}; "
    async with (
        FakeVendor() as vendor,
        serving(config_file(tmp_path, vendor, workers=n_workers), numpy + COMMAND) as process,
    ):
        said = await lines_until(process, "Ctrl-C")
    assert ("listens with 2 workers on" in said[0]) == (n_workers == 2)
    lines = [line for line in said if line.startswith("The loops over samples run in numpy")]
    assert [f"({why})" in line for line in lines] == ([True] if why else [])


@pytest.mark.slow
@pytest.mark.parametrize("n_cores", [1, 2])
async def test_each_core_has_a_worker_unless_the_settings_say_how_many(tmp_path: Path, n_cores: int) -> None:
    """Each loads the Python file, and the operator is told so."""
    file = tmp_path / "agents.py"
    file.write_text("from voicepipe.agents import Agent\nfirst = Agent('Be brief.', name='first')\n")
    on_machine = f"from voicepipe.wiring.machine_limits import *; ControlGroup.cores = lambda group: {n_cores}; "
    async with (
        FakeVendor() as vendor,
        serving(config_file(tmp_path, vendor, workers=0), on_machine + COMMAND, str(file)) as process,
    ):
        said = await lines_until(process, "Ctrl-C")
    assert ("listens with 2 workers on" in said[0]) == (n_cores == 2)
    notes = [line for line in said if line.startswith("NOTE: each of the 2 workers loads the Python file")]
    assert len(notes) == (n_cores == 2)


@pytest.mark.slow
async def test_it_ends_without_clients(tmp_path: Path) -> None:
    async with FakeVendor() as vendor, serving(config_file(tmp_path, vendor)) as process:
        await lines_until(process, "Ctrl-C")
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0


def loaded(folder: Path, **more: object) -> Settings:
    overrides = {f"server.{name}": value for name, value in more.items()}
    return load(overrides=overrides, environ={"HOME": "/h"}, folder=folder)


def test_a_reachable_server_warns_and_needs_keys(tmp_path: Path) -> None:
    settings = loaded(tmp_path, host="0.0.0.0")
    (warning,) = settings_warnings(settings)
    assert warning.startswith("WARNING: 0.0.0.0 can be reached from other machines without encryption")
    assert "--tls-cert" in warning
    said = "\n".join(greeting(settings, base_url="http://127.0.0.1:8080", is_open=False))
    assert "voicepipe keys create" in said
    assert "/dashboard  with the key of `voicepipe keys create --scope operate`" in said
    assert "--url" not in said


@pytest.mark.parametrize(
    "safe", [{}, {"host": "0.0.0.0", "trusted_proxies": ["10.0.0.1"]}, {"tls_cert": "c.pem", "tls_key": "k.pem"}]
)
def test_a_server_that_is_safe_does_not_warn(tmp_path: Path, safe: dict[str, object]) -> None:
    assert list(settings_warnings(loaded(tmp_path, **safe))) == []


def test_functions_that_the_llm_cannot_call_are_a_warning(tmp_path: Path) -> None:
    """Else the local LLM answers as if it had called them."""
    agent = Agent("You book.", tools=["end_call"])

    @agent.tool
    async def book() -> str:
        return "booked"

    def of(**overrides: object) -> Settings:
        return load(overrides=overrides, environ={"HOME": "/h"}, folder=tmp_path, agents=[agent])

    (warning,) = settings_warnings(of())
    assert warning.startswith("WARNING: agent default has functions (book, end_call), and local/smollm2-135m can call")
    able = of(**{"agents.default.llm": "groq/llama-3.3-70b-versatile", "providers.groq.api_key": "k"})
    assert list(settings_warnings(able)) == []
    (line,) = (each for each in greeting(able, base_url="http://h", is_open=True) if "agent default" in each)
    assert line.endswith(", calls book, end_call")


def test_a_certificate_for_trying_out_is_called_that(tmp_path: Path) -> None:
    settings = loaded(tmp_path, host="0.0.0.0", tls_dev=True)
    (said,) = settings_warnings(settings)
    assert "The certificate is for testing" in said
    assert "  https://127.0.0.1:8080/talk" in greeting(settings, base_url="https://127.0.0.1:8080", is_open=False)
