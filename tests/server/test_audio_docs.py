"""The docs of speech and transcriptions are right: their example runs, and their tables name every parameter."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import voicepipe
from tests import docs
from voicepipe.audio.encode_stream import FORMATS
from voicepipe.protocol import audio_rest_speech, audio_rest_transcript, audio_rest_transcription
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.waiting import WAIT_S

pytestmark = pytest.mark.slow

ROOT = Path(voicepipe.__file__).parents[1]
SECTION = docs.section("Speech and transcriptions")
SPEECH, TRANSCRIPTION = (part.partition("\n\n")[0] for part in re.split(r"^\| `POST[^\n]*\n", SECTION, flags=re.M)[1:])


def row(table: str, beginning: str) -> set[str]:
    """What stands between backticks in the second cell of a line of a table."""
    (line,) = re.findall(rf"^\| {re.escape(beginning)}[^|]* \| (.*) \|$", table, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", line))


def test_every_parameter_is_documented() -> None:
    fields = set(audio_rest_speech.SpeechRequest.__struct_fields__)
    assert row(SPEECH, "changes nothing") == set(audio_rest_speech.IGNORED)
    assert row(SPEECH, "honoured") | {"model"} == fields - set(audio_rest_speech.IGNORED)
    assert row(SPEECH, "`response_format`") == {*FORMATS, "aac"}
    assert row(TRANSCRIPTION, "changes nothing") == set(audio_rest_transcription.IGNORED)
    assert row(TRANSCRIPTION, "refused (400)") == set(audio_rest_transcription.REFUSED)
    assert row(TRANSCRIPTION, "honoured") == {*audio_rest_transcription.KNOWN, "file", "segment", "word"}
    formats = get_args(audio_rest_transcript.TranscriptFormat)
    assert row(TRANSCRIPTION, "`response_format`") == {*formats, "stream"}


async def test_the_example_runs_as_it_stands(fake_server: Any, tmp_path: Path) -> None:
    """In a process of its own, against a server on another port."""
    (snippet,) = re.findall(r"^```py\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    async with fake_server() as server:
        server.vendor.stt.usual = SttCue(text="Mount Everest.")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", snippet.replace("http://127.0.0.1:8080", server.url)),
            stdout=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            async with asyncio.timeout(WAIT_S):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert b"Mount Everest." in out
    assert b"fake/tts" in out
