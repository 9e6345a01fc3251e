"""Stages of third parties that break in ways of their own: a session outlives each of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from voicepipe.clock import unix_s
from voicepipe.errors import Overload
from voicepipe.ports.model import ModelRequest
from voicepipe.ports.synthesizer import Voice
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.grant import SessionGrant
from voicepipe.session.phrases import PhraseCache
from voicepipe.session.ports import SessionPorts
from voicepipe.session.session import Session, SessionStages
from voicepipe.session.shutdown import NORMAL
from voicepipe.testing.fakes.cues import LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.ports import FakeModel, FakeSynthesizer, FakeTranscriber
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.settings import CoreSettings


class Client:
    """Request one text answer when `ready` is set, and leave when it has come."""

    hung_up = True
    gone = False
    has_message = False

    def __init__(self, ready: asyncio.Event) -> None:
        self._ready, self._answered = ready, asyncio.Event()
        self._requested = False
        self.answers: list[str] = []

    async def receive(self) -> str | None:
        await self._ready.wait()
        if self._requested:
            await self._answered.wait()
            return None
        self._requested = True
        return json.dumps({"type": "response.create", "response": {"output_modalities": ["text"]}})

    async def send(self, frame: bytes) -> None:
        event = json.loads(frame)
        if event["type"] == "response.done":
            self.answers.append(event["response"]["status"])
            self._answered.set()

    async def close(self, code: int, reason: str) -> None:
        """Only a client that has left gets an answer to its close."""
        assert code == NORMAL, f"closed with {code}: {reason}"

    def abort(self) -> None:
        raise AssertionError("the line was dropped")


class ThirdParty:
    """Break wherever it is used, with an error outside every known hierarchy."""

    def __init__(self, error: Exception) -> None:
        self.error, self.met = error, asyncio.Event()

    def breaks(self) -> None:
        self.met.set()
        raise self.error

    def transcriber(self) -> FakeTranscriber:
        third_party = self

        class FailingTranscriber(FakeTranscriber):
            def open(self, options: TranscriptionOptions) -> Any:
                @asynccontextmanager
                async def opened() -> AsyncIterator[None]:
                    third_party.breaks()
                    yield

                return opened()

        return FailingTranscriber(SttCue())

    def model(self) -> FakeModel:
        third_party = self

        class FailingModel(FakeModel):
            async def warm(self, request: ModelRequest) -> None:
                third_party.breaks()

        return FailingModel(LlmCue(tokens=tokens("It is noon.")))

    def synthesizer(self) -> FakeSynthesizer:
        third_party = self

        class FailingSynthesizer(FakeSynthesizer):
            def open(self, voice: Voice) -> Any:
                @asynccontextmanager
                async def opened() -> AsyncIterator[None]:
                    third_party.breaks()
                    yield

                return opened()

        return FailingSynthesizer(TtsCue())

    def warmth(self) -> FakeSynthesizer:
        third_party = self

        class FailingSynthesizer(FakeSynthesizer):
            @contextmanager
            def keep_warm(self, voice: Voice) -> Iterator[None]:
                third_party.breaks()
                yield

        return FailingSynthesizer(TtsCue())


async def talk(
    client: Client,
    *,
    transcriber: FakeTranscriber | None = None,
    model: FakeModel | None = None,
    synthesizer: FakeSynthesizer | None = None,
) -> None:
    """A session whose stages are these, or others that are well."""
    voice = synthesizer or FakeSynthesizer(TtsCue())
    grant = SessionGrant(
        session_id="sess_x",
        project="p",
        agent="default",
        model="default",
        identity=None,
        config=None,
        expires_at=unix_s() + 600,
    )
    config = SessionConfig.start(
        session_id="sess_x", model="default", voice="v", instructions="Be brief.", expires_at=grant.expires_at
    )
    ports = SessionPorts()
    stages = SessionStages(
        transcriber=transcriber or FakeTranscriber(SttCue()),
        model=model or FakeModel(LlmCue(tokens=tokens("It is noon."))),
        synthesizer=voice,
        stt_model="",
        llm_model="",
        tts_model="",
        phrases=PhraseCache(voice, prepared=("One moment.",)),
    )
    session = Session(grant=grant, config=config, stages=stages, settings=CoreSettings(), ports=ports)
    async with asyncio.timeout(WAIT_S):
        await session.run(client)


@pytest.mark.parametrize("error", [ValueError("odd"), Overload("full"), KeyError("delta")], ids=repr)
@pytest.mark.parametrize("who", ["transcriber", "model", "synthesizer", "warmth"])
async def test_a_session_outlives_a_stage_that_breaks_in_a_way_of_its_own(who: str, error: Exception) -> None:
    """The stage breaks while it opens the STT, warms the LLM or the TTS, or prepares phrases. The session answers
    afterwards.
    """
    third_party = ThirdParty(error)
    client = Client(third_party.met)
    match who:
        case "transcriber":
            await talk(client, transcriber=third_party.transcriber())
        case "model":
            await talk(client, model=third_party.model())
        case "synthesizer":
            await talk(client, synthesizer=third_party.synthesizer())
        case "warmth":
            await talk(client, synthesizer=third_party.warmth())
    assert client.answers == ["completed"]
