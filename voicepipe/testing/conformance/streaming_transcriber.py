"""The requirements of the port `Transcriber` for STT that gets all audio of a session and answers in order."""

from __future__ import annotations

import numpy as np

from voicepipe.ports.transcriber import Final, Samples, Transcriber, TranscriptionOptions
from voicepipe.testing.conformance.transcriber import ScriptedTranscriberConformance, SttScript, final, push
from voicepipe.testing.conformance.waits import promptly
from voicepipe.testing.fakes.cues import Hold, SttCue


class LiveTranscriberConformance(ScriptedTranscriberConformance):
    """As the scripted suite; a cue's text covers the audio since the earlier flush.

    Three requirements differ on one socket: a vendor gets audio once, cannot cancel a request, and answers
    in order.
    """

    async def test_text_is_the_vendors(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """Each flush has the text of all audio since `begin`; each sample reaches the vendor once."""
        script.cue(SttCue(text="What time"), SttCue(text="is it in Zürich?"))
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            for flush, text in ((1, "What time"), (2, "What time is it in Zürich?")):
                push(stream, speech)
                stream.flush(flush)
                assert (await final(stream)).text == text
        assert np.array_equal((await script.nth(1)).samples, np.concatenate([speech, speech]))

    async def test_superseded_flush_is_taken_back(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """The vendor's answer to the earlier flush is part of the text of the later one, which alone is answered."""
        hold = Hold()
        script.cue(SttCue(text="first", hold=hold), SttCue(text="second"))
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            push(stream, speech)
            stream.flush(1)
            await script.nth(0)
            push(stream, speech)
            stream.flush(2)
            await script.nth(1)
            hold.release.set()
            received = await final(stream)
            while received.text != "first second":
                assert received.flush == 0  # a text for a superseded flush counts as the vendor's own
                received = await final(stream)
            assert received == Final(1, 2, "first second")

    async def test_late_text_of_an_earlier_utterance_comes(
        self, transcriber: Transcriber, script: SttScript, transcription: TranscriptionOptions, speech: Samples
    ) -> None:
        """Words that arrive after the next utterance began belong to the utterance in which they were spoken."""
        hold = Hold()
        script.cue(SttCue(text="slow", hold=hold), SttCue(text="quick"))
        async with transcriber.open(transcription) as stream:
            for utterance in (1, 2):
                stream.begin(utterance)
                push(stream, speech)
                stream.flush(1)
                await script.nth(utterance - 1)
            hold.release.set()
            assert await final(stream) == Final(1, 1, "slow")
            assert await final(stream) == Final(2, 1, "quick")

    async def test_open_is_prompt(self, transcriber: Transcriber, transcription: TranscriptionOptions) -> None:
        """Dialling does not delay a session."""
        async with promptly(), transcriber.open(transcription) as stream:
            stream.begin(1)
