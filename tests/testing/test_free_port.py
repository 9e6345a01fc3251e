"""A port that a server can start again on."""

from __future__ import annotations

import socket

import pytest

from voicepipe.testing import free_port as module
from voicepipe.testing.free_port import PORTS, free_port


def test_it_is_free_and_none_that_a_connection_gets() -> None:
    port = free_port()
    assert port in PORTS
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken = server.getsockname()[1]
        free = free_port()
        monkeypatch.setattr(module, "_order", iter((taken, taken, free)))
        assert free_port() == free


def test_no_port_comes_twice() -> None:
    assert len({free_port() for _ in range(300)}) == 300
