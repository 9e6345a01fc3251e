"""The requirements of the port `Synthesizer`."""

from __future__ import annotations

import asyncio
from typing import Protocol

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.ports.synthesizer import RATE_HZ, Speech, SpeechEvent, Spoken, Synthesizer, Voice, audio_of
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.conformance.waits import (
    REFUSALS,
    LeavesNothing,
    TakesCues,
    ends_when_cancelled,
    lets_failures_out,
    names_its_provider,
    promptly,
    short_timeout,
)
from voicepipe.testing.fakes.cues import Cut, Fault, Hang, HangUp, Hold, Stall, Status, TtsCue
from voicepipe.testing.fakes.script import ReceivedRequest, soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S


class TtsScript(Protocol):
    """The part of a fake's script that a scripted suite needs."""

    def cue(self, *cues: TtsCue) -> None: ...
    async def nth(self, n: int) -> ReceivedRequest: ...


async def speak(synthesizer: Synthesizer, voice: Voice, *clauses: str) -> list[Spoken]:
    """Return the audio of one turn."""
    return [event for event in await events_of(synthesizer, voice, *clauses) if isinstance(event, Spoken)]


async def events_of(synthesizer: Synthesizer, voice: Voice, *clauses: str) -> list[SpeechEvent]:
    """Return all events of one turn."""
    async with synthesizer.open(voice) as speech:
        for clause in clauses:
            speech.push(clause)
        speech.finish()
        async with asyncio.timeout(WAIT_S):
            return [event async for event in speech]


async def outcome(synthesizer: Synthesizer, voice: Voice, *clauses: str) -> tuple[list[Spoken], StageError | None]:
    """Return the audio of one turn, and the error that it ended with, if any."""
    received: list[Spoken] = []
    try:
        async with synthesizer.open(voice) as speech:
            for clause in clauses:
                speech.push(clause)
            speech.finish()
            async with asyncio.timeout(WAIT_S):
                async for spoken in audio_of(speech):
                    received.append(spoken)  # noqa: PERF401  a comprehension would lose what came before the error
    except StageError as error:
        return received, error
    return received, None


def sound_of(received: list[Spoken], clause: int) -> Samples:
    """Return the samples of one clause: int16, (n_samples,)."""
    pieces = [spoken.samples for spoken in received if spoken.clause == clause]
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int16)


class SynthesizerConformance(LeavesNothing):
    """For any TTS, real ones too. Fixture: `synthesizer`; optionally `voice`."""

    @pytest.fixture
    def voice(self) -> Voice:
        """Return the voice."""
        return Voice(model="any")

    async def test_clauses_come_in_order(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """Audio comes clause after clause, audible, int16, in pieces that are not empty."""
        received = await speak(synthesizer, voice, "Good morning.", "The shop is open.", "Bye.")
        clauses = [spoken.clause for spoken in received]
        assert clauses == sorted(clauses)
        assert set(clauses) == {0, 1, 2}
        assert all(spoken.samples.dtype == np.int16 and spoken.samples.ndim == 1 for spoken in received)
        assert all(len(spoken.samples) for spoken in received)
        for clause in range(3):
            assert np.abs(sound_of(received, clause).astype(int)).max() > 300

    async def test_without_a_clause_it_ends_at_once(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """A turn without a clause has no audio."""
        async with promptly():
            assert await speak(synthesizer, voice) == []

    async def test_clauses_may_come_late(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """The iterator waits for further clauses, and ends after the end mark."""
        async with synthesizer.open(voice) as speech, asyncio.timeout(WAIT_S):
            speech.push("First.")
            spoken = audio_of(speech)
            assert (await anext(spoken)).clause == 0
            speech.push("Second.")
            speech.finish()
            assert {later.clause async for later in spoken} >= {1}

    async def test_turns_side_by_side(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """One instance serves several turns at once."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(speak(synthesizer, voice, f"Number {n}.")) for n in range(3)]
        assert all(len(sound_of(task.result(), 0)) for task in tasks)

    async def test_being_ready_is_no_guarantee(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """A session requests a ready connection more than once, and ends each request; turns work during and after."""
        with synthesizer.keep_warm(voice), synthesizer.keep_warm(voice):
            assert len(await speak(synthesizer, voice, "Hello."))
        with synthesizer.keep_warm(voice):
            pass
        assert len(await speak(synthesizer, voice, "Bye."))

    async def test_leaving_early_is_prompt(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """The context is left in the middle of a clause, and again; the next turn works."""
        context = synthesizer.open(voice)
        speech = await context.__aenter__()
        speech.push("This is a rather long clause that somebody interrupts.")
        speech.push("And one more.")
        async with asyncio.timeout(WAIT_S):
            await anext(audio_of(speech))
        async with promptly():
            await context.__aexit__(None, None, None)
            await context.__aexit__(None, None, None)
        assert len(await speak(synthesizer, voice, "Yes?"))

    async def test_leaving_ends_the_iteration(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """A task that waits for audio ends when another task leaves the context."""
        listening = asyncio.Event()

        async def listen(speech: Speech) -> int:
            sound = audio_of(speech)
            listening.set()
            return len([spoken async for spoken in sound])

        async with asyncio.TaskGroup() as group:
            async with synthesizer.open(voice) as speech:
                task = group.create_task(listen(speech))
                await soon(listening)
            async with promptly():
                assert await task == 0

    async def test_cancelled_turn_is_free_at_once(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """A turn that is cancelled during synthesis ends as cancelled, promptly."""
        begun = asyncio.Event()

        async def turn() -> None:
            async with synthesizer.open(voice) as speech:
                speech.push("This is a rather long clause that somebody interrupts.")
                async for _ in audio_of(speech):
                    begun.set()

        await ends_when_cancelled(turn(), begun)

    async def test_body_failure_leaves_as_it_is(self, synthesizer: Synthesizer, voice: Voice) -> None:
        """An exception of the user comes out unchanged."""
        await lets_failures_out(synthesizer.open(voice))


class ScriptedSynthesizerConformance(TakesCues, SynthesizerConformance):
    """For TTS that takes cues. Fixtures: `script`, and `synthesizer` made with the suite's `timeout_ms`."""

    async def test_sound_is_the_vendors(self, synthesizer: Synthesizer, script: TtsScript, voice: Voice) -> None:
        """Every sample arrives, wherever the vendor cuts its bytes."""
        script.cue(TtsCue(chunk_bytes=4_801), TtsCue(chunk_bytes=333))
        received = await speak(synthesizer, voice, "One clause,", "two clauses.")
        assert np.array_equal(sound_of(received, 0), tone("One clause,", rate_hz=RATE_HZ))
        assert np.array_equal(sound_of(received, 1), tone("two clauses.", rate_hz=RATE_HZ))

    async def test_sound_comes_before_its_end(self, synthesizer: Synthesizer, script: TtsScript, voice: Voice) -> None:
        """The first piece is there while the vendor still has the rest."""
        hold = Hold(after=4_800)
        script.cue(TtsCue(hold=hold))
        async with synthesizer.open(voice) as speech, asyncio.timeout(WAIT_S):
            speech.push("A clause of some length.")
            speech.finish()
            first = await anext(audio_of(speech))
            assert not hold.release.is_set()
            hold.release.set()
            rest = [spoken async for spoken in audio_of(speech)]
        assert np.array_equal(sound_of([first, *rest], 0), tone("A clause of some length."))

    @pytest.mark.parametrize(("status", "retry_after", "retryable"), REFUSALS)
    async def test_refusal(
        self,
        synthesizer: Synthesizer,
        script: TtsScript,
        voice: Voice,
        status: int,
        retry_after: str | None,
        retryable: bool,
    ) -> None:
        """A refusal has its status, whether a retry may succeed, and when."""
        script.cue(TtsCue(fault=Status(status, retry_after=retry_after)))
        _, error = await outcome(synthesizer, voice, "Hello.")
        assert isinstance(error, StageRefused)
        names_its_provider(error, stage="tts", provider=synthesizer.name)
        assert (error.status, error.retryable) == (status, retryable)
        assert error.retry_after_ms == (2_000 if retry_after else None)

    @short_timeout
    @pytest.mark.parametrize("fault", [Hang(), Stall(after=0), Stall(after=9_600)], ids=["headers", "first", "middle"])
    async def test_stall(self, synthesizer: Synthesizer, script: TtsScript, voice: Voice, fault: Fault) -> None:
        """A vendor that stalls is a timeout; audio sent before is not lost, and the vendor's connection closes."""
        script.cue(TtsCue(fault=fault))
        received, error = await outcome(synthesizer, voice, "A clause of some length.")
        assert isinstance(error, StageTimeout)
        names_its_provider(error, stage="tts", provider=synthesizer.name)
        assert error.retryable
        assert len(sound_of(received, 0)) == (4_800 if fault == Stall(after=9_600) else 0)
        await soon((await script.nth(0)).ended)

    @pytest.mark.parametrize("fault", [HangUp(), Cut(after=0), Cut(after=9_600)], ids=["answer", "first", "middle"])
    async def test_break(self, synthesizer: Synthesizer, script: TtsScript, voice: Voice, fault: Fault) -> None:
        """A cut is never taken for the end; the audio before it, and the clauses before it, are not lost."""
        script.cue(TtsCue(), TtsCue(fault=fault))
        received, error = await outcome(synthesizer, voice, "All is well.", "A clause of some length.", "Never said.")
        assert isinstance(error, StageBroken)
        names_its_provider(error, stage="tts", provider=synthesizer.name)
        assert error.retryable
        assert np.array_equal(sound_of(received, 0), tone("All is well."))
        assert len(sound_of(received, 1)) == (4_800 if fault == Cut(after=9_600) else 0)
        assert not len(sound_of(received, 2))
        assert len(await speak(synthesizer, voice, "Next turn."))

    async def test_broken_speech_stays_broken(self, synthesizer: Synthesizer, script: TtsScript, voice: Voice) -> None:
        """Reading after an error raises it again; it does not wait."""
        script.cue(TtsCue(fault=HangUp()))
        async with synthesizer.open(voice) as speech:
            speech.push("Hello.")
            for _ in range(2):
                async with promptly():
                    with pytest.raises(StageBroken):
                        await anext(audio_of(speech))

    async def test_leaving_is_seen(self, synthesizer: Synthesizer, script: TtsScript, voice: Voice) -> None:
        """The vendor's connection closes while it still has audio to send."""
        script.cue(TtsCue(hold=Hold(after=4_800)))
        async with synthesizer.open(voice) as speech, asyncio.timeout(WAIT_S):
            speech.push("A clause of some length.")
            await anext(audio_of(speech))
        async with promptly():
            await (await script.nth(0)).gone.wait()
