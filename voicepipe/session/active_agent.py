"""The agent that speaks in a session now: its stages, and its tools beside those of the session's MCP servers."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from voicepipe.pii.redact import Redactor
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.context import NextAgent, SessionStages
from voicepipe.session.mcp import SessionMcp
from voicepipe.session.prompt import PromptBuilder
from voicepipe.session.replies import Replies
from voicepipe.session.server_tools import SessionTools
from voicepipe.session.session_voice import SessionVoice
from voicepipe.session.speech_model import SpeechSession
from voicepipe.turn.settings import ServerTool, Tool


class StageUsers(Struct, frozen=True):
    """The parts of a session that use an agent's stages."""

    prompt_builder: PromptBuilder
    voices: SessionVoice
    replies: Replies
    audio_input: AudioInput
    speech: SpeechSession


class ActiveAgent:
    """The agent of one session, until another one goes on with it."""

    def __init__(
        self, name: str, stages: SessionStages, users: StageUsers, tools: SessionTools, mcp: SessionMcp
    ) -> None:
        self._name, self._own_tools = name, stages.tools
        self._users, self._tools, self._mcp = users, tools, mcp

    def replace(self, to: NextAgent) -> None:
        """Use the stages and the tools of another agent, from the next reply on."""
        users, stages = self._users, to.stages
        users.prompt_builder.use(stages.model, stages.llm_model, Redactor(stages.redact_for_llm))
        users.voices.use(stages.synthesizer, stages.tts_model, stages.pronunciations)
        users.replies.use(stages.model, stages.knowledge, to.before_reply)
        users.audio_input.speech = users.speech.use(stages.speech)
        self._own_tools, self._name = stages.tools, to.name

    def renew_tools(self, client_tools: Collection[Tool]) -> tuple[ServerTool, ...]:
        """Call the tools that the agent and the MCP servers have now; return those that the client has not replaced
        with a tool of the same name."""
        taken = {tool.name for tool in client_tools}
        tools = (*self._own_tools, *self._mcp.tools(taken | {tool.facts.tool.name for tool in self._own_tools}))
        self._tools.use(tools, self._name)
        return tuple(tool.facts for tool in tools if tool.facts.tool.name not in taken)
