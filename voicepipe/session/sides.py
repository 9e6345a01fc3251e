"""The two sides of a session: what takes in the user's speech, and what answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from voicepipe.clock import SessionClock
from voicepipe.pii.redact import Redactor
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.active_agent import StageUsers
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.context import SessionStages
from voicepipe.session.endpoint_scoring import EndpointScoring
from voicepipe.session.grant import SessionGrant
from voicepipe.session.item_audio import both
from voicepipe.session.outbox import Outbox
from voicepipe.session.phrase_preparation import Preparation
from voicepipe.session.phrases import PhraseCache
from voicepipe.session.ports import SessionPorts
from voicepipe.session.prompt import PromptBuilder
from voicepipe.session.recorded_items import RecordedItems
from voicepipe.session.replies import Replies, SentAudio
from voicepipe.session.session_voice import SessionVoice
from voicepipe.session.speech_model import SpeechSession, voice_of
from voicepipe.session.summaries import Summaries
from voicepipe.session.transcription import SessionTranscription
from voicepipe.telemetry.journal.port import Journal
from voicepipe.telemetry.recording.port import CallRecorder
from voicepipe.turn import events as e
from voicepipe.turn.core import Core


class SharedParts(Struct, frozen=True, kw_only=True):
    """The parts that both sides of a session use."""

    grant: SessionGrant
    config: SessionConfig
    """The session as it begins."""

    stages: SessionStages
    ports: SessionPorts
    clock: SessionClock
    core: Core
    wire: EventRenderer
    outbox: Outbox
    journal: Journal | None
    recorder: CallRecorder | None
    post: Callable[[e.Event], None]

    def speech_session(self) -> SpeechSession:
        """Return the session's conversation with a speech-to-speech model, which gets the user's audio and answers."""
        return SpeechSession(self.stages.speech, self.ports.costs.charge, voice_of(self.core.context))


class UserInput(Struct, frozen=True):
    """The user's side: the audio, its transcripts, and the scores of pauses."""

    audio_input: AudioInput
    transcription: SessionTranscription
    scoring: EndpointScoring
    recorded_items: RecordedItems

    @classmethod
    def of(cls, shared: SharedParts, speech: SpeechSession) -> UserInput:
        """Return the user's side of a session; `speech` gets the user's audio too."""
        stages, post, capabilities = shared.stages, shared.post, shared.stages.transcriber.capabilities
        scoring = EndpointScoring(
            stages.endpoint_scorer,
            shared.grant.session_id,
            post,
            stt_detects=capabilities.turn_events,
            audio_scorer=stages.audio_scorer,
            count=shared.ports.observer.scored,
            now_ms=shared.clock.now_ms,
        )
        recorder = both(shared.ports.items, shared.recorder)
        audio_input = AudioInput(
            shared.config, capabilities, shared.clock, post, shared.journal, recorder, speech.listener, scoring.audio
        )
        transcription = SessionTranscription(
            stages.transcriber, stages.stt_model, shared.config, audio_input, post, scoring.take
        )
        return cls(audio_input, transcription, scoring, RecordedItems(stages.transcriber, post))

    def configure(self, config: SessionConfig) -> None:
        """Apply the session's new settings to the audio and, from the next utterance on, to the transcription."""
        self.audio_input.configure(config)
        self.transcription.configure(config)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the tasks of this side in `group`."""
        group.create_task(self.transcription.run(), name="stt")
        group.create_task(self.scoring.run(), name="scores")


class Answering(Struct, frozen=True):
    """The agent's side: what the LLM reads, the voice, the phrases, the replies, the summaries."""

    speech: SpeechSession
    prompt_builder: PromptBuilder
    voices: SessionVoice
    preparation: Preparation
    replies: Replies
    summaries: Summaries

    @classmethod
    def of(cls, shared: SharedParts, speech: SpeechSession, listening: UserInput) -> Answering:
        """Return the agent's side of a session. `listening` gets the agent's audio, to detect its echo."""
        grant, stages, ports, core, post = shared.grant, shared.stages, shared.ports, shared.core, shared.post
        prompt_builder = PromptBuilder(
            stages.model, stages.llm_model, grant, core, shared.clock, Redactor(stages.redact_for_llm)
        )
        voices = SessionVoice(
            stages.synthesizer,
            stages.tts_model,
            stages.phrases or PhraseCache(stages.synthesizer),
            core.context,
            post,
            ports.costs.charge_phrases,
            stages.pronunciations,
        )
        replies = Replies(
            stages.model,
            prompt_builder,
            voices,
            SentAudio(listening.audio_input.echo, shared.clock, shared.journal, shared.recorder, ports.items),
            wire=shared.wire,
            outbox=shared.outbox,
            post=post,
            knowledge=stages.knowledge,
            prepare=ports.before_reply,
            speech=speech,
        )
        summaries = Summaries(stages.summary_model, grant, post, ports.costs.charge, Redactor(stages.redact_for_llm))
        return cls(speech, prompt_builder, voices, Preparation(voices), replies, summaries)

    def stage_users(self, listening: UserInput) -> StageUsers:
        """Return the parts of both sides that another agent's stages replace."""
        return StageUsers(self.prompt_builder, self.voices, self.replies, listening.audio_input, self.speech)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the tasks of this side in `group`."""
        group.create_task(self.speech.run(), name="speech")
        self.prompt_builder.keep_warm(group)
        group.create_task(self.voices.stay_warm(), name="voice")
        group.create_task(self.preparation.run(), name="phrases")

    def renew_phrases(self) -> None:
        """Request the preparation of the phrases in the present voice."""
        self.voices.report_ready()
        self.preparation.request()
