"""Keeps a session's transcriber open: a provider that breaks loses an utterance, not the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from voicepipe.errors import StageError
from voicepipe.session.listen import Listener
from voicepipe.stages.transcriber import Final, Hearing, Interim, Transcriber
from voicepipe.turn import events as e

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Between two attempts to open the stream: doubled each time, so that a provider that is down is not stormed."""


async def keep_hearing(
    transcriber: Transcriber, hearing: Hearing, listener: Listener, post: Callable[[e.Fact], None]
) -> None:
    """Open the transcriber's stream, pass its words on as facts, and open it again when it breaks, until cancelled."""
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            async with transcriber.open(hearing) as stream:
                listener.attach(stream)
                async for heard in stream:
                    pause_s = FIRST_PAUSE_S
                    post(_fact(heard, transcriber.name))
            why = "ended its stream"
        except StageError as failure:
            why = failure.why
        listener.detach()
        post(e.TranscriberFailed(listener.latest_utterance, transcriber.name, why))
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _fact(heard: Interim | Final, provider: str) -> e.Fact:
    match heard:
        case Interim(utterance, text):
            return e.TranscriptGrew(utterance, text)
        case Final(utterance, flush, text, language):
            return e.TranscriptFinished(utterance, flush, text, language, provider)
