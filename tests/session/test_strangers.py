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
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.grant import SessionGrant
from voicepipe.session.phrases import PhraseBook
from voicepipe.session.session import Session, SessionHooks, SessionStages
from voicepipe.stages.model import ModelRequest
from voicepipe.stages.synthesizer import Voice
from voicepipe.stages.transcriber import Hearing
from voicepipe.testing.fakes.cues import LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.stages import FakeModel, FakeSynthesizer, FakeTranscriber
from voicepipe.turn.settings import CoreSettings

WAIT_S = 20.0


class Client:
    """Asks once for an answer in text when `ready` is set, and leaves when it has come."""

    hung_up = True
    gone = False

    def __init__(self, ready: asyncio.Event) -> None:
        self._ready, self._answered = ready, asyncio.Event()
        self._asked = False
        self.answers: list[str] = []

    async def receive(self) -> str | None:
        await self._ready.wait()
        if self._asked:
            await self._answered.wait()
            return None
        self._asked = True
        return json.dumps({"type": "response.create", "response": {"output_modalities": ["text"]}})

    async def send(self, frame: bytes) -> None:
        told = json.loads(frame)
        if told["type"] == "response.done":
            self.answers.append(told["response"]["status"])
            self._answered.set()

    async def close(self, code: int, reason: str) -> None:
        raise AssertionError(f"closed with {code}: {reason}")

    def abort(self) -> None:
        raise AssertionError("the line was dropped")


class Stranger:
    """Breaks wherever it is met, with an error that is in nobody's tree."""

    def __init__(self, error: Exception) -> None:
        self.error, self.met = error, asyncio.Event()

    def breaks(self) -> None:
        self.met.set()
        raise self.error

    def ear(self) -> FakeTranscriber:
        stranger = self

        class Ear(FakeTranscriber):
            def open(self, hearing: Hearing) -> Any:
                @asynccontextmanager
                async def opened() -> AsyncIterator[None]:
                    stranger.breaks()
                    yield

                return opened()

        return Ear(SttCue())

    def mind(self) -> FakeModel:
        stranger = self

        class Mind(FakeModel):
            async def warm(self, request: ModelRequest) -> None:
                stranger.breaks()

        return Mind(LlmCue(tokens=tokens("It is noon.")))

    def mouth(self) -> FakeSynthesizer:
        stranger = self

        class Mouth(FakeSynthesizer):
            def open(self, voice: Voice) -> Any:
                @asynccontextmanager
                async def opened() -> AsyncIterator[None]:
                    stranger.breaks()
                    yield

                return opened()

        return Mouth(TtsCue())

    def warmth(self) -> FakeSynthesizer:
        stranger = self

        class Mouth(FakeSynthesizer):
            @contextmanager
            def keep_warm(self, voice: Voice) -> Iterator[None]:
                stranger.breaks()
                yield

        return Mouth(TtsCue())


async def talk(
    client: Client,
    *,
    ear: FakeTranscriber | None = None,
    mind: FakeModel | None = None,
    mouth: FakeSynthesizer | None = None,
) -> None:
    """A session whose stages are these, or others that are well."""
    voice = mouth or FakeSynthesizer(TtsCue())
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
    hooks = SessionHooks(
        keep_record=lambda record: None,
        note_overrun=lambda order: None,
        note_stuck=lambda order: None,
        note_strategy_failure=lambda order: None,
        check_update=lambda before, after: None,
        check_reply=lambda session, reply: None,
        show=lambda session: session,
    )
    stages = SessionStages(
        transcriber=ear or FakeTranscriber(SttCue()),
        model=mind or FakeModel(LlmCue(tokens=tokens("It is noon."))),
        synthesizer=voice,
        stt_model="",
        llm_model="",
        tts_model="",
        phrases=PhraseBook(voice, prepared=("One moment.",)),
    )
    session = Session(grant=grant, config=config, stages=stages, settings=CoreSettings(), hooks=hooks)
    async with asyncio.timeout(WAIT_S):
        await session.run(client)


@pytest.mark.parametrize("error", [ValueError("odd"), Overload("full"), KeyError("delta")], ids=repr)
@pytest.mark.parametrize("who", ["ear", "mind", "mouth", "warmth"])
async def test_a_session_outlives_a_stage_that_breaks_in_a_way_of_its_own(who: str, error: Exception) -> None:
    """While it opens its ear, warms its model or its voice, or has its phrases spoken. It answers afterwards."""
    stranger = Stranger(error)
    client = Client(stranger.met)
    match who:
        case "ear":
            await talk(client, ear=stranger.ear())
        case "mind":
            await talk(client, mind=stranger.mind())
        case "mouth":
            await talk(client, mouth=stranger.mouth())
        case "warmth":
            await talk(client, mouth=stranger.warmth())
    assert client.answers == ["completed"]
