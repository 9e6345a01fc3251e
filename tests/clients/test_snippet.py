"""The program in Python that README and the first steps have: it ends with the answer, whatever comes before that."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import wave
from pathlib import Path
from typing import Any

import pytest
import websockets

from voicepipe.testing.waiting import WAIT_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOUND = b"\1\0" * 240


def program(page: str, url: str) -> str:
    blocks = (ROOT / page).read_text().split("```python\n")[1:]
    (found,) = (block.split("```")[0] for block in blocks if "AsyncOpenAI" in block)
    return found.replace("http://127.0.0.1:8080", url)


def done(*output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.done", "response": {"id": "r", "status": "completed", "output": list(output)}}


def message(item_id: str) -> dict[str, Any]:
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": []}


def said(text: str) -> list[dict[str, Any]]:
    ids = {"response_id": "r", "item_id": "i", "output_index": 0, "content_index": 0}
    sound = base64.b64encode(SOUND).decode()
    return [
        {"type": "response.output_audio.delta", **ids, "delta": sound},
        {"type": "response.output_audio_transcript.done", **ids, "transcript": text},
    ]


SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "an answer": [*said("Everest."), done(message("item_1"))],
    "a filler in its response": [*said("Well."), *said("Everest."), done(message("filler_1"), message("item_1"))],
    "a tool, and a filler in a response of its own": [
        done({"id": "c", "type": "mcp_call", "server_label": "agent", "name": "look_up", "arguments": "{}"}),
        *said("Well."),
        done(message("filler_1")),
        *said("Everest."),
        done(message("item_1")),
    ],
    "words before a tool": [
        *said("Well."),
        done(message("item_1"), {"id": "c", "type": "mcp_call", "server_label": "a", "name": "f", "arguments": "{}"}),
        *said("Everest."),
        done(message("item_2")),
    ],
}


@pytest.mark.parametrize("page", ["README.md", "web/docs/start.md"])
@pytest.mark.parametrize("script", SCRIPTS)
async def test_the_program_ends_with_the_answer(tmp_path: Path, page: str, script: str) -> None:
    async def answer(line: websockets.ServerConnection) -> None:
        async for frame in line:
            if json.loads(frame)["type"] == "response.create":
                for n, event in enumerate(SCRIPTS[script]):
                    await line.send(json.dumps({"event_id": f"e_{n}", **event}))

    async with websockets.serve(answer, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program(page, f"http://127.0.0.1:{port}")),
            stdout=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        try:
            async with asyncio.timeout(WAIT_S):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert out.decode().splitlines()[-1] == "Everest."
    assert process.returncode == 0
    n_sounds = sum(event["type"] == "response.output_audio.delta" for event in SCRIPTS[script])
    with wave.open(str(tmp_path / "answer.wav")) as sound:
        assert sound.getnframes() == n_sounds * len(SOUND) // 2
