"""The process that decodes one recording, and the one that starts it, each on a socket; the server's side is tested
with the server.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from voicepipe.audio import decode_process as process
from voicepipe.audio.files import wav_bytes
from voicepipe.audio.samples import silence
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S

RATE_HZ = 8_000
SOUND = tone("x" * 25, rate_hz=RATE_HZ)


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end and the process's end of a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(WAIT_S)
        yield ours, theirs


def answered(ours: socket.socket) -> tuple[bytes, float, bytes]:
    """One answer: its kind, how many seconds were read, and its bytes."""
    kind, read_s, n_bytes = process.ANSWER.unpack(process._receive(ours, process.ANSWER.size))
    return kind, read_s, process._receive(ours, n_bytes)


def decoded(
    line: tuple[socket.socket, socket.socket], file: bytes, *, max_duration_s: int = 60
) -> list[tuple[bytes, bytes]]:
    """All answers about a file: (kind, bytes)."""
    ours, theirs = line
    serving = threading.Thread(target=process.serve_recording, args=(theirs,))
    serving.start()
    ours.sendall(process.QUESTION.pack(len(file), RATE_HZ, max_duration_s, 1 << 40) + file)
    answers: list[tuple[bytes, bytes]] = []
    while not answers or answers[-1][0] not in (b"e", b"x"):
        kind, _, payload = answered(ours)
        answers.append((kind, payload))
        if kind in (b"o", b"p"):
            ours.sendall(process.NEXT)
    ours.close()
    serving.join(WAIT_S)
    assert not serving.is_alive()
    return answers


def refusal(answers: list[tuple[bytes, bytes]]) -> process.DecodeRefusal:
    kind, payload = answers[-1]
    assert kind == b"x"
    return msgspec.json.decode(payload, type=process.DecodeRefusal)


# --- one recording --------------------------------------------------------------------------------


def test_a_recording_comes_piece_by_piece(line: tuple[socket.socket, socket.socket]) -> None:
    """Ready first, then opened, the pieces on request, and the end."""
    answers = decoded(line, wav_bytes(SOUND, RATE_HZ))
    assert [kind for kind, _ in answers] == [b"r", b"o", b"p", b"e"]
    assert np.array_equal(np.frombuffer(answers[2][1], np.int16), SOUND)


@pytest.mark.parametrize(
    ("file", "why", "too_long"),
    [
        (b"no sound", "expected a sound file", False),
        (wav_bytes(silence(3 * RATE_HZ), RATE_HZ), "at most 2 s", True),
    ],
)
def test_what_is_refused_says_why(
    line: tuple[socket.socket, socket.socket], file: bytes, why: str, too_long: bool
) -> None:
    refused = refusal(decoded(line, file, max_duration_s=2))
    assert why in refused.why
    assert refused.too_long is too_long


@pytest.mark.parametrize(
    ("fault", "why"),
    [(MemoryError(), "needs too much memory"), (KeyError("a secret"), "can't be decoded (KeyError)")],
    ids=["memory", "bug"],
)
def test_any_fault_of_a_library_is_a_refusal(
    line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, fault: Exception, why: str
) -> None:
    """The text of an unknown error stays in the process: it may hold parts of the file."""

    def breaks(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(process, "Pieces", breaks)
    refused = refusal(decoded(line, b"any"))
    assert why in refused.why
    assert "secret" not in refused.why


def test_a_server_that_leaves_in_the_middle_of_its_question_ends_it(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    ours.sendall(process.QUESTION.pack(100, RATE_HZ, 60, 1_000)[:5])
    ours.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        process.serve_recording(theirs)


def test_a_server_that_needs_no_more_pieces_ends_it(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    file = wav_bytes(SOUND, RATE_HZ)
    ours.sendall(process.QUESTION.pack(len(file), RATE_HZ, 60, 1 << 40) + file)
    ours.shutdown(socket.SHUT_WR)
    process.serve_recording(theirs)
    assert [answered(ours)[0], answered(ours)[0]] == [b"r", b"o"]


# --- the process that starts it -------------------------------------------------------------------


@pytest.fixture
def signals() -> Iterator[None]:
    """The process's signal handling is its own: this restores ours."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, before)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What a fork starts: here a program that waits."""
    program = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(os, "fork", lambda: program.pid)
    yield program
    program.kill()
    program.wait(WAIT_S)


def test_a_recording_that_is_killed_is_reported(
    line: tuple[socket.socket, socket.socket], signals: None, forked: subprocess.Popen[bytes]
) -> None:
    """An unknown number is no reason to kill anything."""
    ours, theirs = line
    ended: list[tuple[int, int]] = []

    def server() -> None:
        mine, theirs = socket.socketpair()
        with mine, theirs:
            socket.send_fds(ours, [process.CONTROL.pack(b"s", 7)], [theirs.fileno()])
        ours.sendall(process.CONTROL.pack(b"k", 8))
        ours.sendall(process.CONTROL.pack(b"k", 7))
        ended.append(process.ENDED.unpack(process._receive(ours, process.ENDED.size)))
        ours.close()

    serving = threading.Thread(target=server)
    serving.start()
    process.serve(theirs)
    serving.join(WAIT_S)
    assert ended == [(7, -signal.SIGKILL)]


def test_a_recording_that_runs_has_not_ended(forked: subprocess.Popen[bytes]) -> None:
    children = process._Children({7: forked.pid})
    assert list(children.ended()) == []
    assert children.pids == {7: forked.pid}


def test_recordings_end_with_the_server(
    line: tuple[socket.socket, socket.socket], signals: None, forked: subprocess.Popen[bytes]
) -> None:
    ours, theirs = line
    socket.send_fds(ours, [process.CONTROL.pack(b"s", 7)], [theirs.fileno()])
    ours.close()
    process.serve(theirs)
    assert forked.wait(WAIT_S) == -signal.SIGKILL


def test_a_recording_that_can_not_be_started_is_closed(
    line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many processes run: the server sees the recording's socket close."""

    def full() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", full)
    ours, theirs = line
    children = process._Children({})
    children.start(7, theirs, ours)
    assert ours.recv(1) == b""
    assert children.pids == {}


def test_a_library_is_loaded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it that can't be imported is left out."""
    package = tmp_path / "loaded_whole"
    package.mkdir()
    for name, text in (("__init__", ""), ("inner", ""), ("broken", "raise ImportError")):
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    process.load_whole("loaded_whole")
    assert "loaded_whole.inner" in sys.modules
    assert "loaded_whole.broken" not in sys.modules
    with pytest.raises(ImportError):
        process.load_whole("no_such_library")
