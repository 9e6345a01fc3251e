"""Smart-turn: its features, its file, and its engine with a tiny model in the same form."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
import platform
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest

from tests.local.tiny_onnx import write_model
from voicepipe.audio.samples import Samples, silence
from voicepipe.errors import ConfigError, StageBroken, StageRefused
from voicepipe.providers.local import wire
from voicepipe.providers.local.engine.daemon import Loaders
from voicepipe.providers.local.engine.smart_turn import RATE_HZ, SmartTurn, log_mel
from voicepipe.providers.local.engine.worker import Task
from voicepipe.providers.local.process import start_engine
from voicepipe.providers.local.smart_turn import LocalSmartTurn, open_smart_turn
from voicepipe.registry import ProviderSettings
from voicepipe.testing.waiting import WAIT_S

RunDaemon = Callable[[Loaders], AbstractAsyncContextManager[ProviderSettings]]
KEY = "agents.default.smart_turn"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny.onnx")


def tone(rate_hz: int, n_seconds: float = 1.0) -> Samples:
    at_s = np.arange(round(n_seconds * rate_hz)) / rate_hz
    return (8_000 * np.sin(2 * np.pi * 440 * at_s)).astype(np.int16)


# --- the model -----------------------------------------------------------------------------------


def test_features_are_whispers() -> None:
    """A tone is in the filter of its pitch, at full height; the rest is at the floor. 80 filters, 10 ms each."""
    seconds = np.arange(16_000) / 16_000
    found = log_mel(np.sin(2 * np.pi * 1_000 * seconds))
    assert found.shape == (80, 100)
    top = found.max()
    assert found.min() == pytest.approx(top - 2)
    assert set(found[:, 20:80].argmax(axis=0)) <= {24, 25, 26}


@pytest.mark.parametrize("rate_hz", [8_000, RATE_HZ, 24_000])
def test_the_last_8_s_are_judged(weights: Path, rate_hz: int) -> None:
    """What is before them changes nothing; shorter audio follows silence."""
    model = SmartTurn(weights)
    eight, one = model.probability(tone(rate_hz, 8), rate_hz), model.probability(tone(rate_hz, 1), rate_hz)
    assert abs(eight - one) > 0.03
    longer = np.concatenate((silence(3 * rate_hz), tone(rate_hz, 8)))
    assert model.probability(longer, rate_hz) == pytest.approx(eight, abs=0.01)
    padded = np.concatenate((silence(7 * rate_hz), tone(rate_hz, 1)))
    assert model.probability(padded, rate_hz) == pytest.approx(one, abs=0.01)


def test_a_job_is_answered_with_its_score(weights: Path) -> None:
    """Of what the model returns for the features of the audio, as 16 kHz after zeros."""
    model, replies, audio = SmartTurn(weights), list[wire.EngineReply](), tone(RATE_HZ)
    model.run(Task(wire.ScoreAudio("s", audio.tobytes(), RATE_HZ), replies.append))
    mean = log_mel(np.concatenate((np.zeros(7 * RATE_HZ), audio / 32_768))).mean()
    (reply,) = replies
    assert isinstance(reply, wire.Scored)
    assert reply.probability == pytest.approx(1 / (1 + math.exp(-mean)), abs=1e-3)


# --- what is said of a wrong file ------------------------------------------------------------------


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"--smart-turn: expected an ONNX file of smart-turn v3, got .*m\.onnx"):
        SmartTurn(tmp_path / "m.onnx", key="--smart-turn")


@pytest.mark.parametrize(("name", "shape"), [("audio", (1, 80, 800)), ("input_features", (1, 80, 3_000))])
def test_another_model_is_an_error(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Whisper has the same features, of 30 s."""
    path = write_model(tmp_path / "m.onnx", name=name, shape=shape)
    with pytest.raises(ConfigError, match=r"smart_turn: .*input is input_features of \[80, 800\], got .*m\.onnx with"):
        SmartTurn(path)


def test_a_missing_file_or_package_is_named_with_the_setting(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an engine is started."""
    socket_path = tmp_path / "t.sock"
    with pytest.raises(ConfigError, match=rf"{KEY}: expected the ONNX file of smart-turn, got .*no.onnx: No such file"):
        open_smart_turn(tmp_path / "no.onnx", socket_path, key=KEY)
    with pytest.raises(ConfigError, match="smart_turn: expected the ONNX file of smart-turn, got none"):
        SmartTurn(None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=rf"{KEY}: not installed: onnxruntime; run: pip install --editable '\.\[smart-turn\]'"
    ):
        open_smart_turn(weights, socket_path, key=KEY)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(ConfigError, match=rf"{KEY}: expected Linux, got Darwin"):
        open_smart_turn(weights, socket_path, key=KEY)


# --- the adapter and the engine --------------------------------------------------------------------


class Judge:
    """Answers each job with what the test wants, when it wants."""

    concurrency = 1

    def __init__(self, *replies: wire.EngineReply) -> None:
        self.replies = list(replies)
        self.jobs: list[wire.Job] = []
        self.begun, self.gate = threading.Event(), threading.Event()

    def run(self, task: Task) -> None:
        self.jobs.append(task.job)
        self.begun.set()
        assert self.gate.wait(WAIT_S)
        task.emit(self.replies.pop(0))


def scorer_at(settings: ProviderSettings, weights: Path) -> LocalSmartTurn:
    return open_smart_turn(weights, Path(dict(settings.options)["socket"]), key=KEY)


async def test_the_audio_is_sent_as_it_is(run_daemon: RunDaemon, weights: Path) -> None:
    """With its rate; the engine resamples. A model that is too sure is cut to 1."""
    judge = Judge(wire.Scored(0.25), wire.Scored(1.5), wire.Done())
    judge.gate.set()
    async with run_daemon({"endpoint": lambda: judge}) as settings, asyncio.timeout(WAIT_S):
        scorer = scorer_at(settings, weights)
        assert scorer.score_name == "smart-turn"
        assert await scorer.score("s", np.array([1, -2], np.int16), 8_000) == 0.25
        assert await scorer.score("s", silence(1), 24_000) == 1.0
        with pytest.raises(StageBroken, match="endpoint by smart-turn: the engine ended without a score"):
            await scorer.score("s", silence(1), 24_000)
    assert judge.jobs[0] == wire.ScoreAudio("s", b"\1\0\xfe\xff", 8_000)


async def test_a_cancelled_score_is_not_computed(run_daemon: RunDaemon, weights: Path) -> None:
    """A session that has waited long enough leaves the queue."""
    judge = Judge(wire.Scored(0.1), wire.Scored(0.2))
    async with run_daemon({"endpoint": lambda: judge}) as settings, asyncio.timeout(WAIT_S):
        scorer = scorer_at(settings, weights)
        first, late, last = (asyncio.ensure_future(scorer.score(each, silence(1), 8_000)) for each in ("a", "b", "c"))
        await asyncio.to_thread(judge.begun.wait, WAIT_S)
        await in_queue(settings)
        late.cancel()
        await asyncio.wait([late])
        await in_queue(settings)
        judge.gate.set()
        assert (await first, await last) == (0.1, 0.2)
    assert [job.session for job in judge.jobs] == ["a", "c"]


async def in_queue(settings: ProviderSettings) -> None:
    """Return when the daemon has seen all that was sent before: a later lease has been answered."""
    reader, writer = await asyncio.open_unix_connection(dict(settings.options)["socket"])
    writer.write(wire.frame(wire.Attach(wire.VERSION, ("endpoint",))))
    reply: wire.EngineReply | None = None
    while not isinstance(reply, wire.Ready):
        reply = await wire.receive(reader, wire.REPLIES)
    writer.close()


async def test_a_model_that_does_not_load_refuses(run_daemon: RunDaemon, weights: Path, tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(b"no model")
    loaders: Loaders = {"endpoint": lambda: SmartTurn(tmp_path / "other.onnx")}
    async with run_daemon(loaders) as settings, asyncio.timeout(WAIT_S):
        with pytest.raises(StageRefused, match="can't load the local endpoint model: smart_turn: expected an ONNX"):
            await scorer_at(settings, weights).score("s", silence(1), 8_000)


@pytest.mark.slow
async def test_the_engine_scores_dies_and_comes_back(tmp_path: Path, weights: Path) -> None:
    """One process for each file. While it is away there are no scores, and then there are again."""
    socket_path = tmp_path / "t.sock"
    engine = start_engine(socket_path, stages=("endpoint",), model_file=weights, linger_ms=200)
    async with asyncio.timeout(WAIT_S), engine:
        scorer = open_smart_turn(weights, socket_path, key=KEY)
        expected = SmartTurn(weights).probability(tone(24_000), 24_000)
        assert await scorer.score("s", tone(24_000), 24_000) == pytest.approx(expected)
        os.kill(engine.pid, signal.SIGSTOP)
        scoring = asyncio.ensure_future(scorer.score("s", tone(24_000), 24_000))
        await asyncio.sleep(0)
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(StageBroken):
            await scoring
        assert await scorer.score("s", tone(24_000), 24_000) == pytest.approx(expected)
        assert engine.restarts == 1


@pytest.mark.slow
async def test_another_model_ends_the_start(tmp_path: Path) -> None:
    """What the engine finds wrong with the file reaches the operator."""
    other = write_model(tmp_path / "whisper.onnx", shape=(1, 80, 3_000))
    with pytest.raises(ConfigError, match=r"smart_turn: .*got .*whisper\.onnx with"):
        async with start_engine(tmp_path / "t.sock", stages=("endpoint",), model_file=other, linger_ms=50):
            pass
