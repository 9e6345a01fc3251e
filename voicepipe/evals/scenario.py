"""Scenarios: what the user does, what the agent's models are, and what is expected. Read from YAML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from voicepipe.errors import ConfigError, validation_place
from voicepipe.evals.yaml_file import Place, YamlFile, read_yaml
from voicepipe.values import replace

TIMEOUT_MS: Final = 30_000
"""Limit of each wait for the agent, unless the scenario sets one."""

ACTIONS: Final = ("say", "type", "listen", "wait_ms", "persona", "hang_up")
"""The keys of a step of which it has exactly one."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a scenario."""


class Part(Struct, frozen=True, kw_only=True):
    """A piece of what the user says: a text for a TTS, a recording with its text, or a pause."""

    text: str = ""
    audio: str = ""
    """A recording, relative to the scenario's file."""

    pause_ms: int = 0


class Trigger(Struct, frozen=True, kw_only=True):
    """A place in the agent's audio; exactly one of both is set."""

    after_ms: int | None = None
    """Audio of the agent that was played before, from its first audible sample."""

    word: str = ""
    """When this word is being played, estimated from the share of the text before it."""


class ExpectedCall(Struct, frozen=True, kw_only=True):
    """A tool call that must be made; `arguments` are those that must be among the call's."""

    name: str
    arguments: dict[str, Any] = {}


class Expect(Struct, frozen=True, kw_only=True):
    """Expectations of one answer, or of a whole conversation. Omitted ones are not checked."""

    contains: str | list[str] = []
    not_contains: str | list[str] = []
    matches: str | list[str] = []
    """Regular expressions, of which each must be found."""

    judge: str | list[str] = []
    """Statements that a language model must find true."""

    transcript: str | list[str] = []
    """Texts that the server must have understood from the user."""

    tools: list[ExpectedCall] | None = None
    """An empty list: no tool may be called."""

    outcome: Literal["completed", "interrupted", "failed", "abandoned"] | None = None
    latency_ms: int | None = None
    """The longest time from the user's last voiced sample to the first audible sample of the answer."""

    answers: int | None = None
    """How many answers must have been audible, those that were broken off too."""


class PersonaStep(Struct, frozen=True, kw_only=True):
    """A model that plays the user."""

    instructions: str
    turns: int = 5
    """The most turns of the persona."""


class Step(Struct, frozen=True, kw_only=True):
    """One thing that the user does, and what is expected of the agent then."""

    say: str | Part | list[str | Part] | None = None
    type: str | None = None
    listen: bool = False
    wait_ms: int | None = None
    persona: PersonaStep | None = None
    hang_up: bool | Trigger = False
    interrupt: Trigger | None = None
    expect: Expect | None = None
    timeout_ms: int = TIMEOUT_MS

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the pieces of what is said, in order."""
        parts = self.say if isinstance(self.say, list) else [] if self.say is None else [self.say]
        return tuple(Part(text=each) if isinstance(each, str) else each for each in parts)

    @property
    def title(self) -> str:
        """Return the step as one line for reports."""
        if self.say is not None:
            words = " ".join(
                each.text or (f"({each.pause_ms} ms)" if each.pause_ms else each.audio) for each in self.parts
            )
            return f"{'interrupts: ' if self.interrupt else ''}{words}"
        if self.type is not None:
            return f"types: {self.type}"
        if self.wait_ms is not None:
            return f"waits {self.wait_ms} ms"
        if self.persona is not None:
            return f"persona, at most {self.persona.turns} turns"
        return "listens" if self.listen else "hangs up"


class ToolResult(Struct, frozen=True, kw_only=True):
    """A scripted result of a tool."""

    output: Any
    """Sent as text; anything but a text as JSON."""

    arguments: dict[str, Any] = msgspec.field(default={}, name="if")
    """The result is for calls whose arguments have these values."""

    after_ms: int = 0


class ScriptedTool(Struct, frozen=True, kw_only=True):
    """A tool that the client offers, with scripted results; the first that fits a call is sent."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    results: list[ToolResult]


class ScriptedToolCall(Struct, frozen=True, kw_only=True):
    """A tool call of the scripted LLM."""

    name: str
    arguments: dict[str, Any] = {}


class ScriptedAnswer(Struct, frozen=True, kw_only=True):
    """An answer of the scripted LLM."""

    pattern: str = msgspec.field(default="", name="if")
    """A regular expression that is searched in the newest message: the user's text, or a tool's result."""

    text: str = ""
    calls: list[ScriptedToolCall] = []
    after_ms: int = 100
    """Time to the first token."""

    token_ms: int = 10
    """From one token to the next."""


class Scripted(Struct, frozen=True, kw_only=True):
    """Scripted models for the server, instead of those of its settings."""

    answers: list[ScriptedAnswer] = []
    """Empty: the LLM of the settings."""

    stt: bool = True
    """A transcriber that returns what the user says, word by word."""

    stt_ms: int = 50
    """Time to its text."""

    tts: bool = True
    """A voice that is a tone."""

    tts_ms: int = 80
    """Time to its first audio."""


class UserVoice(Struct, frozen=True, kw_only=True):
    """The TTS that speaks the user's texts."""

    tts: str = "local/hibari"
    voice: str | None = None


class SessionTable(Struct, frozen=True, kw_only=True):
    """The session that the client requests; omitted fields keep the agent's settings."""

    language: str | None = None
    instructions: str | None = None
    voice: str | None = None


class Models(Struct, frozen=True, kw_only=True):
    """Models of the eval itself, as `provider/model`."""

    judge: str = ""
    persona: str = ""


class Scenario(Struct, frozen=True, kw_only=True):
    """A scenario file."""

    path: Path
    name: str
    agent: str | None = None
    pass_share: float = 1.0
    """The least share of passed runs with which the scenario passes."""

    session: SessionTable = SessionTable()
    user: UserVoice = UserVoice()
    models: Models = Models()
    tools: tuple[ScriptedTool, ...] = ()
    scripted: Scripted | None = None
    steps: tuple[Step, ...]
    expect: Expect | None = None

    @property
    def agent_name(self) -> str:
        """Return the agent that answers, for texts: without one in the file it is the server's choice."""
        return self.agent or "default"

    @property
    def expectations(self) -> tuple[Expect, ...]:
        """Return all expectations: of the steps, then of the conversation."""
        return tuple(each for each in (*(step.expect for step in self.steps), self.expect) if each is not None)


class _File(Struct, frozen=True, kw_only=True):
    """The file's fields; its lists are read one by one, so that errors name the place."""

    name: str = ""
    agent: str | None = None
    pass_share: float = 1.0
    session: SessionTable = SessionTable()
    user: UserVoice = UserVoice()
    models: Models = Models()
    tools: list[Any] = []
    scripted: dict[str, Any] | None = None
    steps: list[Any]
    expect: Expect | None = None


def read_scenario(path: Path) -> Scenario:
    """Read and check a scenario file.

    Raises:
        ConfigError: the file is not a scenario; the text names the file, the line, the field, what was expected and
            what came.
    """
    file = read_yaml(path)
    top = _convert(file, file.values, _File, ())
    scenario = Scenario(
        path=path,
        name=top.name or path.stem,
        agent=top.agent,
        pass_share=top.pass_share,
        session=top.session,
        user=top.user,
        models=top.models,
        tools=tuple(_each(file, top.tools, ScriptedTool, ("tools",))),
        scripted=None if top.scripted is None else _scripted(file, top.scripted, ("scripted",)),
        steps=tuple(_each(file, top.steps, Step, ("steps",))),
        expect=top.expect,
    )
    _check(file, scenario)
    return scenario


def read_script(path: Path) -> Scripted:
    """Read the scripted models of a scenario file, or a file that has only that part.

    Raises:
        ConfigError: the file is neither, or its LLM has no answers; the text has as much as that of `read_scenario`.
    """
    file = read_yaml(path)
    place: Place = ("scripted",) if "scripted" in file.values else ()
    values = file.values["scripted"] if place else file.values
    script = _scripted(file, values, place) if isinstance(values, dict) else Scripted()
    if not script.answers:
        raise file.wrong((*place, "answers"), "expected at least one answer of the scripted LLM, got none")
    _check_answers(file, script, place)
    return script


def texts(value: str | list[str]) -> list[str]:
    """Return a text or a list of texts as a list."""
    return [value] if isinstance(value, str) else value


T = TypeVar("T")


def _scripted(file: YamlFile, values: dict[str, Any], place: Place) -> Scripted:
    raw = values.get("answers") or []
    if not isinstance(raw, list):
        raise file.wrong((*place, "answers"), f"expected a list, got {_brief(raw)}")
    answers = _each(file, raw, ScriptedAnswer, (*place, "answers"))
    rest = _convert(file, {key: each for key, each in values.items() if key != "answers"}, Scripted, place)
    return replace(rest, answers=answers)


def _each(file: YamlFile, values: Sequence[Any], kind: type[T], place: Place) -> list[T]:
    return [_convert(file, value, kind, (*place, n)) for n, value in enumerate(values)]


def _convert(file: YamlFile, value: object, kind: type[T], place: Place) -> T:
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        what, path = validation_place(error)
        inner = (*place, *(part for part in re.split(r"\.|\[\.\.\.\]", path) if part))
        unknown = re.search(r"unknown field `(.*)`", what)
        if unknown is not None:
            raise file.wrong((*inner, unknown[1]), f"unknown field; expected {_known(kind, inner, place)}") from None
        missing = re.search(r"missing required field `(.*)`", what)
        if missing is not None:
            raise file.wrong((*inner, missing[1]), "expected a value, got none") from None
        raise file.wrong(inner, f"{what[0].lower()}{what[1:]}{_came(file, inner)}") from None


def _known(kind: type, inner: Place, place: Place) -> str:
    """Return the fields of a table of a kind, or of a table inside it."""
    for name in inner[len(place) :]:
        field_type = next((each.type for each in msgspec.structs.fields(kind) if each.encode_name == name), None)
        inside = [field_type, *getattr(field_type, "__args__", ())]
        kind = next((each for each in inside if isinstance(each, type) and issubclass(each, Struct)), kind)
    return "one of " + ", ".join(each.encode_name for each in msgspec.structs.fields(kind))


def _came(file: YamlFile, place: Place) -> str:
    value: Any = file.values
    for name in place:
        try:
            value = value[name]
        except (KeyError, IndexError, TypeError):
            return ""
    return f": {_brief(value)}"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- what types can't check -----------------------------------------------------------------------


def _check(file: YamlFile, scenario: Scenario) -> None:
    if not scenario.steps:
        raise file.wrong(("steps",), "expected at least one step, got none")
    if not 0 < scenario.pass_share <= 1:
        raise file.wrong(("pass_share",), f"expected more than 0 and at most 1, got {scenario.pass_share}")
    if not scenario.expectations:
        raise file.wrong((), "expected an `expect` in the file or in a step, got none: such a scenario cannot fail")
    for n, step in enumerate(scenario.steps):
        _check_step(file, scenario, step, ("steps", n))
    if scenario.scripted is not None:
        _check_answers(file, scenario.scripted, ("scripted",))
    if scenario.expect is not None:
        if scenario.expect.outcome is not None:
            raise file.wrong(("expect", "outcome"), "expected it in a step, got it here")
        _check_expect(file, scenario.expect, ("expect",))


def _check_answers(file: YamlFile, script: Scripted, place: Place) -> None:
    for n, answer in enumerate(script.answers):
        _check_pattern(file, answer.pattern, (*place, "answers", n, "if"))
        if not answer.text and not answer.calls:
            raise file.wrong((*place, "answers", n), "expected `text` or `calls`, got neither")


def _check_step(file: YamlFile, scenario: Scenario, step: Step, place: Place) -> None:
    set_here = [name for name in ACTIONS if getattr(step, name) not in (None, False)]
    if len(set_here) != 1:
        got = ", ".join(set_here) or "none"
        raise file.wrong(place, f"expected exactly one of {', '.join(ACTIONS)}, got {got}")
    if step.hang_up and step is not scenario.steps[-1]:
        raise file.wrong((*place, "hang_up"), "expected no step behind it, got one")
    for n, part in enumerate(step.parts):
        _check_part(file, scenario, part, (*place, "say", n) if isinstance(step.say, list) else (*place, "say"))
    if step.say is not None and not any(part.text or part.audio for part in step.parts):
        raise file.wrong((*place, "say"), "expected a text or a recording, got neither")
    for name in ("interrupt", "hang_up"):
        trigger = getattr(step, name)
        if isinstance(trigger, Trigger) and (trigger.after_ms is None) == (not trigger.word):
            raise file.wrong((*place, name), "expected either `after_ms` or `word`")
    if step.interrupt is not None and step.say is None and step.type is None:
        raise file.wrong((*place, "interrupt"), "expected it beside `say` or `type`")
    if step.expect is not None:
        _check_expect(file, step.expect, (*place, "expect"))


def _check_part(file: YamlFile, scenario: Scenario, part: Part, place: Place) -> None:
    if (part.pause_ms != 0) == bool(part.text or part.audio) or part.pause_ms < 0:
        raise file.wrong(place, "expected either `pause_ms`, 1 or more, or a `text` or `audio`")
    if part.audio and not (file.path.parent / part.audio).is_file():
        raise file.wrong(place, f"expected a recording, got no file {file.path.parent / part.audio}")
    if part.audio and not part.text and scenario.scripted is not None and scenario.scripted.stt:
        raise file.wrong(place, "expected the recording's `text`, which the scripted transcriber returns; got none")


def _check_expect(file: YamlFile, expect: Expect, place: Place) -> None:
    for n, pattern in enumerate(texts(expect.matches)):
        _check_pattern(
            file, pattern, (*place, "matches", n) if isinstance(expect.matches, list) else (*place, "matches")
        )
    if expect == Expect():
        raise file.wrong(place, "expected at least one expectation, got none")


def _check_pattern(file: YamlFile, pattern: str, place: Place) -> None:
    try:
        re.compile(pattern)
    except re.error as why:
        raise file.wrong(place, f"expected a regular expression, got {pattern!r}: {why}") from None


def scenario_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files named, and all `*.yaml` and `*.yml` of the folders named.

    Raises:
        ConfigError: there is no such file, or a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        inside = (
            sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
        )
        if not inside:
            raise ConfigError(f"expected scenarios (*.yaml), got none in the folder {path}")
        found += inside
    return found
