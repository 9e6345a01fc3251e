"""The rule of waits: a test waits up to `WAIT_S` for what must come, so that no busy machine fails it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from voicepipe.testing.waiting import WAIT_S

TESTS = Path(__file__).parent

WAITS = ("receive", "receive_str", "receive_json", "receive_bytes", "wait_for", "timeout")
"""Calls with a limit: of aiohttp's WebSockets, and of asyncio."""


def short_waits(source: str) -> list[int]:
    """Return the lines with a limit in numbers below `WAIT_S`, unless reaching it is what the test expects."""
    return sorted({call.lineno for call in _unexpected(ast.parse(source)) if _limit_s(call) < WAIT_S})


def _unexpected(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls whose timeout nothing handles: no `except TimeoutError`, no `pytest.raises(TimeoutError)`."""
    if isinstance(node, ast.Try) and any("TimeoutError" in ast.unparse(h.type) for h in node.handlers if h.type):
        return
    if isinstance(node, ast.With) and any("TimeoutError" in ast.unparse(item.context_expr) for item in node.items):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _unexpected(child)


def _limit_s(call: ast.Call) -> float:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in WAITS or ast.unparse(call.func).startswith("pytest."):
        return WAIT_S
    named = [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    limits = (node.value for node in (*named, *call.args[-1:]) if isinstance(node, ast.Constant))
    return min((float(limit) for limit in limits if isinstance(limit, int | float)), default=WAIT_S)


def test_no_test_waits_too_short() -> None:
    """Only a hang reaches the limit, also where a hypervisor stops the machine for seconds."""
    sources = {path: path.read_text() for path in TESTS.rglob("*.py")}
    waiting = {path: source for path, source in sources.items() if "timeout" in source or "wait_for" in source}
    found = {str(path): lines for path, source in waiting.items() if (lines := short_waits(source))}
    assert found == {}


SHORT = "await asyncio.wait_for(it(), 1)"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("async def f(): await line.receive(timeout=5)", [1]),
        ("async def f():\n    await asyncio.wait_for(reader.read(), 0.5)", [2]),
        ("async def f():\n    async with asyncio.timeout(10):\n        await it()", [2]),
        ("async def f(): await line.receive(timeout=WAIT_S)", []),
        ("async def f(): await asyncio.wait_for(process.wait(), 60)", []),
        (f"async def f():\n    with pytest.raises(TimeoutError):\n        {SHORT}", []),
        (f"async def f():\n    try:\n        {SHORT}\n    except TimeoutError:\n        pass", []),
        ("@pytest.mark.timeout(20)\ndef test_x(): ...", []),
    ],
)
def test_a_short_wait_is_found(source: str, lines: list[int]) -> None:
    """Unless the test expects that nothing comes."""
    assert short_waits(source) == lines
