"""Keep a session's transcriber open: when a provider fails, an utterance is lost, not the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from voicepipe.errors import Overload, StageError
from voicepipe.freeing import FreeingTaskGroup
from voicepipe.ports.provider_events import ProviderChanged, TranscriberConnected
from voicepipe.ports.transcriber import EndOfTurn, Final, Interim, Transcriber, TranscriptionOptions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.audio_input import AudioInput
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import events as e

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
"""Pause in seconds between two attempts to open the stream: doubled each time, so that a failing provider is not
flooded."""


class SessionTranscription:
    """The transcriber's stream of one session, reopened when it breaks and when the client changes its settings."""

    def __init__(
        self,
        transcriber: Transcriber,
        stt_model: str,
        config: SessionConfig,
        audio_input: AudioInput,
        post: Callable[[e.Event], None],
        on_end_of_turn: Callable[[EndOfTurn], None],
    ) -> None:
        self._transcriber, self._audio_input, self._post = transcriber, audio_input, post
        self._on_end_of_turn = on_end_of_turn
        self._stt_model = stt_model
        self.configure(config)
        self._open_as = self.options
        audio_input.feed.expect_stream(transcriber.capabilities.push_hz(self.options))
        self._changed = AsyncEvent()
        self._provider = transcriber.name
        """The provider whose transcripts arrive: of several, the latest."""

    def configure(self, config: SessionConfig) -> None:
        """Use these settings from the next utterance on; `renew` must be called before the utterance begins."""
        requested, telephone = config.transcription, config.input_format.telephone
        self.options = TranscriptionOptions(
            model=self._stt_model,
            language=config.turn_settings().language,
            prompt=requested.prompt if requested else None,
            telephone=telephone if telephone in self._transcriber.capabilities.telephone else None,
        )

    def renew(self) -> None:
        """Close a stream that does not match the settings. Call it when no utterance is open and no transcript is
        pending.

        Audio that the listener receives from here on waits for the next stream.
        """
        if self.options != self._open_as:
            self._open_as = self.options
            self._audio_input.feed.detach()
            self._audio_input.feed.expect_stream(self._transcriber.capabilities.push_hz(self.options))
            self._changed.set()

    async def run(self) -> None:
        """Keep the stream open, until cancelled."""
        while True:
            self._changed.clear()
            async with FreeingTaskGroup() as group:
                opened = group.create_task(self._keep_open(self._open_as), name="transcription")
                await self._changed.wait()
                opened.cancel()

    async def _keep_open(self, options: TranscriptionOptions) -> None:
        """Pass the stream's transcripts on as events, and reopen the stream when it breaks, until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                self._provider = self._transcriber.name
                async with self._transcriber.open(options) as stream:
                    self._audio_input.feed.attach(stream)
                    async for event in stream:
                        if isinstance(event, Interim | Final):
                            pause_s = FIRST_PAUSE_S
                        if isinstance(event, EndOfTurn):
                            self._on_end_of_turn(event)
                        else:
                            self._post(self._turn_event(event))
                why = "ended its stream"
            except (StageError, Overload) as failure:
                why = failure.why
            except Exception as bug:
                log_crash(f"stt by {self._provider}", bug)
                why = f"internal error ({type(bug).__name__})"
            self._audio_input.feed.detach()
            self._post(e.TranscriberFailed(self._audio_input.latest_utterance, self._transcriber.name, why))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _turn_event(self, event: Interim | Final | TranscriberConnected | ProviderChanged) -> e.Event:
        match event:
            case Interim(utterance, text):
                return e.TranscriptGrew(utterance, text)
            case Final(utterance, flush, text, language):
                given_ms = self._audio_input.feed.take_given_ms()
                return e.TranscriptFinished(utterance, flush, text, language, self._provider, given_ms)
            case TranscriberConnected(took_ms):
                return e.TranscriberConnected(took_ms, self._audio_input.hidden_ms(took_ms))
            case ProviderChanged(provider, role, why, waited_for=waited_for):
                self._provider = provider
                return e.TranscriberChanged(self._audio_input.latest_utterance, provider, role, why, waited_for)
