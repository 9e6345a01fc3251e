"""Keep a session's transcriber open: when a provider fails, an utterance is lost, not the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from voicepipe.errors import Overload, StageError
from voicepipe.freeing import FreeingTaskGroup
from voicepipe.session.listen import Listener
from voicepipe.stages.notes import TookOver
from voicepipe.stages.transcriber import Final, Hearing, Interim, Transcriber
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import events as e

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Pause in seconds between two attempts to open the stream: doubled each time, so that a failing provider is not
flooded."""


class KeptHearing:
    """The transcriber's stream of one session, reopened when it breaks and when the client changes its settings."""

    def __init__(
        self, transcriber: Transcriber, wish: Hearing, listener: Listener, post: Callable[[e.Fact], None]
    ) -> None:
        self._transcriber, self._listener, self._post = transcriber, listener, post
        self._wish = self._open_as = wish
        self._changed = asyncio.Event()
        self._hearer = transcriber.name
        """The provider whose transcripts arrive: of several, the latest."""

    def wish(self, hearing: Hearing) -> None:
        """Use these settings from the next utterance on; `renew` must be called before the utterance begins."""
        self._wish = hearing

    def renew(self) -> None:
        """Close a stream that does not match the settings. Call it when no utterance is open and no transcript is
        pending.

        Audio that the listener receives from here on waits for the next stream.
        """
        if self._wish != self._open_as:
            self._open_as = self._wish
            self._listener.detach()
            self._changed.set()

    async def run(self) -> None:
        """Keep the stream open, until cancelled."""
        while True:
            self._changed.clear()
            async with FreeingTaskGroup() as group:
                opened = group.create_task(self._keep_open(self._open_as), name="hearing")
                await self._changed.wait()
                opened.cancel()

    async def _keep_open(self, hearing: Hearing) -> None:
        """Pass the stream's transcripts on as facts, and reopen the stream when it breaks, until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                self._hearer = self._transcriber.name
                async with self._transcriber.open(self._told(hearing)) as stream:
                    self._listener.attach(stream)
                    async for heard in stream:
                        pause_s = FIRST_PAUSE_S
                        self._post(self._fact(heard))
                why = "ended its stream"
            except (StageError, Overload) as failure:
                why = failure.why
            except Exception as bug:
                log_crash(f"stt by {self._hearer}", bug)
                why = f"internal error ({type(bug).__name__})"
            self._listener.detach()
            self._post(e.TranscriberFailed(self._listener.latest_utterance, self._transcriber.name, why))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _told(self, hearing: Hearing) -> Hearing:
        """Return the same settings, with this object's callbacks added."""
        return replace(hearing, reached=self._note_reached, note=self._note_hearer)

    def _note_reached(self, took_ms: int) -> None:
        self._post(e.EarReached(took_ms, self._listener.hidden_ms(took_ms)))

    def _note_hearer(self, told: TookOver) -> None:
        self._hearer = told.provider
        self._post(e.EarChanged(self._listener.latest_utterance, told.provider, told.role, told.why))

    def _fact(self, heard: Interim | Final) -> e.Fact:
        match heard:
            case Interim(utterance, text):
                return e.TranscriptGrew(utterance, text)
            case Final(utterance, flush, text, language):
                given_ms = self._listener.take_given_ms()
                return e.TranscriptFinished(utterance, flush, text, language, self._hearer, given_ms)
