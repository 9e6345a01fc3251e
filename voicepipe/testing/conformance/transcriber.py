"""The requirements of the port `Transcriber`."""

from __future__ import annotations

import asyncio
from typing import Protocol

import numpy as np
import pytest

from voicepipe.audio.g711 import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw
from voicepipe.errors import StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.ports.transcriber import (
    EndOfTurn,
    Final,
    Interim,
    Samples,
    Transcriber,
    TranscriptEvent,
    TranscriptionOptions,
    TranscriptStream,
)
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
from voicepipe.testing.fakes.cues import (
    Cut,
    Fault,
    Garbage,
    Hang,
    HangUp,
    Hold,
    InBandError,
    Malformed,
    Stall,
    Status,
    SttCue,
)
from voicepipe.testing.fakes.script import ReceivedRequest, soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S


class SttScript(Protocol):
    """The part of a fake's script that a scripted suite needs."""

    def cue(self, *cues: SttCue) -> None: ...
    async def nth(self, n: int) -> ReceivedRequest: ...


async def final(stream: TranscriptStream, *, beside: list[TranscriptEvent] | None = None) -> Final:
    """Return the next final text, skipping interim ones; add the events that are no text to `beside`."""
    async with asyncio.timeout(WAIT_S):
        async for event in stream:
            match event:
                case Final():
                    return event
                case Interim():
                    pass
                case _ if beside is not None:
                    beside.append(event)
    raise AssertionError("the stream ended without a final text")


async def next_text(stream: TranscriptStream) -> Interim | Final:
    """Return the next text of any kind, skipping other events."""
    async with asyncio.timeout(WAIT_S):
        async for event in stream:
            if isinstance(event, Interim | Final):
                return event
    raise AssertionError("the stream ended without a text")


async def next_end_of_turn(stream: TranscriptStream) -> EndOfTurn:
    """Return the provider's next judgement of the end of a turn, skipping other events."""
    async with asyncio.timeout(WAIT_S):
        async for event in stream:
            if isinstance(event, EndOfTurn):
                return event
    raise AssertionError("the stream ended without an end of turn")


def push(stream: TranscriptStream, samples: Samples, *, piece_samples: int = 320) -> None:
    """Push in pieces, as a session does."""
    for at in range(0, len(samples), piece_samples):
        stream.push(samples[at : at + piece_samples])


class TranscriberConformance(LeavesNothing):
    """For any STT, real ones too. Fixture: `transcriber`; optionally `transcription`, and `speech` at its own rate."""

    @pytest.fixture
    def transcription(self) -> TranscriptionOptions:
        """Return the transcription options."""
        return TranscriptionOptions(model="any", language="en-US")

    @pytest.fixture
    def speech(self, transcriber: Transcriber, transcription: TranscriptionOptions) -> Samples:
        """Return about 1 s of audio: int16, (n_samples,). Of a telephone, it was G.711."""
        rate_hz, telephone = transcriber.capabilities.push_hz(transcription), transcription.telephone
        samples = tone("as long as this takes", rate_hz=rate_hz)
        match telephone:
            case "audio/pcmu":
                return decode_mulaw(encode_mulaw(samples))
            case "audio/pcma":
                return decode_alaw(encode_alaw(samples))
            case None:
                return samples

    async def test_final_follows_flush(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """A flush is answered by a final text with the flush's numbers."""
        async with transcriber.open(transcription) as stream:
            stream.begin(3)
            push(stream, speech)
            stream.flush(1)
            next_text = await final(stream)
        assert (next_text.utterance, next_text.flush) == (3, 1)

    async def test_flush_may_be_repeated(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """More speech, and another flush: its text is of the whole utterance."""
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            for flush in (1, 2):
                push(stream, speech)
                stream.flush(flush)
                assert (await final(stream)).flush == flush

    async def test_empty_utterance_is_answered(
        self, transcriber: Transcriber, transcription: TranscriptionOptions
    ) -> None:
        """A flush without audio is answered too, and quickly."""
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            stream.flush(1)
            assert (await final(stream)).utterance == 1

    async def test_superseded_flush_gives_way(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """The later one of two flushes of an utterance is answered, last."""
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            push(stream, speech)
            stream.flush(1)
            stream.flush(2)
            next_text = await final(stream)
            while next_text.flush != 2:
                next_text = await final(stream)

    async def test_utterances_do_not_lose_one_another(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """An utterance that begins before the last one's text has arrived changes nothing in that text."""
        async with transcriber.open(transcription) as stream:
            for utterance in (1, 2):
                stream.begin(utterance)
                push(stream, speech)
                stream.flush(1)
            next_text = [await final(stream), await final(stream)]
        assert sorted(text.utterance for text in next_text) == [1, 2]

    async def test_streams_side_by_side(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """One instance serves several sessions at once."""

        async def listen(utterance: int) -> Final:
            async with transcriber.open(transcription) as stream:
                stream.begin(utterance)
                push(stream, speech)
                stream.flush(1)
                return await final(stream)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(listen(n)) for n in range(3)]
        assert [task.result().utterance for task in tasks] == [0, 1, 2]

    async def test_leaving_is_prompt(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """Leaving the context with an unanswered flush is prompt."""
        context = transcriber.open(transcription)
        stream = await context.__aenter__()
        stream.begin(1)
        push(stream, speech)
        stream.flush(1)
        async with promptly():
            await context.__aexit__(None, None, None)
            await context.__aexit__(None, None, None)  # a second exit does nothing

    async def test_leaving_ends_the_iteration(
        self, transcriber: Transcriber, transcription: TranscriptionOptions
    ) -> None:
        """A task that reads texts ends when another task leaves the context."""
        listening = asyncio.Event()

        async def listen(stream: TranscriptStream) -> int:
            texts = aiter(stream)
            listening.set()
            return len([event async for event in texts if isinstance(event, Interim | Final)])

        async with asyncio.TaskGroup() as group:
            async with transcriber.open(transcription) as stream:
                task = group.create_task(listen(stream))
                await soon(listening)
            async with promptly():
                assert await task == 0

    async def test_cancelled_listener_is_free_at_once(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """A session that is cancelled inside ends as cancelled, promptly."""
        flushed = asyncio.Event()

        async def listen() -> None:
            async with transcriber.open(transcription) as stream:
                stream.begin(1)
                push(stream, speech)
                stream.flush(1)
                flushed.set()
                await asyncio.Event().wait()

        await ends_when_cancelled(listen(), flushed)

    async def test_body_failure_leaves_as_it_is(
        self, transcriber: Transcriber, transcription: TranscriptionOptions
    ) -> None:
        """An exception of the user comes out unchanged."""
        await lets_failures_out(transcriber.open(transcription))


class ScriptedTranscriberConformance(TakesCues, TranscriberConformance):
    """For STT that takes cues. Fixtures: `transcriber`, made with the suite's `timeout_ms`, and `script`."""

    async def test_text_is_the_vendors(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """Each flush has its own text, even if the vendor revises it; the vendor got all of the audio."""
        script.cue(SttCue(text="what time"), SttCue(text="What time is it in Zürich?"))
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            for flush, text in ((1, "what time"), (2, "What time is it in Zürich?")):
                push(stream, speech)
                stream.flush(flush)
                assert (await final(stream)).text == text
        assert np.array_equal((await script.nth(0)).samples, speech)
        assert np.array_equal((await script.nth(1)).samples, np.concatenate([speech, speech]))

    async def test_empty_text_is_an_answer(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """A vendor reports no speech with an empty text."""
        script.cue(SttCue(text=""))
        assert await self._outcome(transcriber, transcription, speech) == Final(1, 1, "")

    async def test_superseded_flush_is_taken_back(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """The vendor gets the earlier flush's cancellation, and only the later one is answered."""
        script.cue(SttCue(text="first", hold=Hold()), SttCue(text="second"))
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            push(stream, speech)
            stream.flush(1)
            earlier = await script.nth(0)
            stream.flush(2)
            async with promptly():
                await earlier.gone.wait()
            assert await final(stream) == Final(1, 2, "second")

    async def test_late_text_of_an_earlier_utterance_comes(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """A slow answer is neither lost to the next utterance nor delays it."""
        hold = Hold()
        script.cue(SttCue(text="slow", hold=hold), SttCue(text="quick"))
        async with transcriber.open(transcription) as stream:
            for utterance in (1, 2):
                stream.begin(utterance)
                push(stream, speech)
                stream.flush(1)
                await script.nth(utterance - 1)
            assert await final(stream) == Final(2, 1, "quick")
            hold.release.set()
            assert await final(stream) == Final(1, 1, "slow")

    @pytest.mark.parametrize(("status", "retry_after", "retryable"), REFUSALS)
    async def test_refusal(
        self,
        transcriber: Transcriber,
        script: SttScript,
        transcription: TranscriptionOptions,
        speech: Samples,
        status: int,
        retry_after: str | None,
        retryable: bool,
    ) -> None:
        """A refusal has its status, whether a retry may succeed, and when."""
        script.cue(SttCue(fault=Status(status, retry_after=retry_after)))
        error = await self._outcome(transcriber, transcription, speech)
        assert isinstance(error, StageRefused)
        names_its_provider(error, stage="stt", provider=transcriber.name)
        assert (error.status, error.retryable) == (status, retryable)
        assert error.retry_after_ms == (2_000 if retry_after else None)

    @short_timeout
    @pytest.mark.parametrize("fault", [Hang(), Stall(after=0), Stall(after=5)], ids=["headers", "first", "middle"])
    async def test_stall(
        self,
        transcriber: Transcriber,
        script: SttScript,
        transcription: TranscriptionOptions,
        speech: Samples,
        fault: Fault,
    ) -> None:
        """A vendor that stalls is a timeout, and its connection closes."""
        script.cue(SttCue(fault=fault))
        error = await self._outcome(transcriber, transcription, speech)
        assert isinstance(error, StageTimeout)
        names_its_provider(error, stage="stt", provider=transcriber.name)
        assert error.retryable
        await soon((await script.nth(0)).ended)

    @pytest.mark.parametrize(
        "fault",
        [HangUp(), Cut(after=0), Cut(after=5), Malformed(), Garbage(), InBandError()],
        ids=lambda fault: f"{type(fault).__name__}-{getattr(fault, 'after', 0)}",
    )
    async def test_break(
        self,
        transcriber: Transcriber,
        script: SttScript,
        transcription: TranscriptionOptions,
        speech: Samples,
        fault: Fault,
    ) -> None:
        """A cut or malformed data is never taken for a text, and a new stream works."""
        script.cue(SttCue(fault=fault))
        error = await self._outcome(transcriber, transcription, speech)
        assert isinstance(error, StageBroken)
        names_its_provider(error, stage="stt", provider=transcriber.name)
        assert error.retryable
        assert isinstance(await self._outcome(transcriber, transcription, speech), Final)

    async def test_broken_stream_stays_broken(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """Reading after an error raises it again; it does not wait."""
        script.cue(SttCue(fault=HangUp()))
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            push(stream, speech)
            stream.flush(1)
            for _ in range(2):
                with pytest.raises(StageBroken):
                    await final(stream)

    async def test_leaving_is_seen(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """The vendor's connection closes while it still works on an answer."""
        script.cue(SttCue(fault=Hang()))
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            push(stream, speech)
            stream.flush(1)
            request = await script.nth(0)
        async with promptly():
            await request.ended.wait()

    async def _outcome(
        self, transcriber: Transcriber, transcription: TranscriptionOptions, speech: Samples
    ) -> Final | StageError:
        try:
            async with transcriber.open(transcription) as stream:
                stream.begin(1)
                push(stream, speech)
                stream.flush(1)
                return await final(stream)
        except StageError as error:
            return error
