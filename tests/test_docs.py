"""The documentation is true: every setting, event and limit is in it, and its code runs."""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import voicepipe
from tests import docs
from tests.docs import DOCS, PAGES, README, ROOT, code, named, rows, section
from voicepipe.agents import Agent
from voicepipe.cli import command_line, parser
from voicepipe.cli.defaults import default_of
from voicepipe.cli.options import TalkOptions
from voicepipe.cli.scripted_llm import names_a_script
from voicepipe.config import load, markdown
from voicepipe.config.settings import STAGES
from voicepipe.protocol import inbound, outbound
from voicepipe.providers import catalog
from voicepipe.providers.built_in import APIS, TRANSCRIBERS, VENDORS, VOICES, adapter, key_env_of
from voicepipe.providers.catalog.load import parse
from voicepipe.providers.vendor import SpeechFacts
from voicepipe.telemetry.metrics import catalog as metrics_catalog
from voicepipe.telemetry.metrics.catalog import Family
from voicepipe.telemetry.store.port import StoredTurn, turn_plain
from voicepipe.testing.fakes.cues import CallCue, LlmCue
from voicepipe.testing.fakes.vendor_rules import VENDOR_RULES
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.endpointing.built_in import BUILT_IN as STRATEGIES
from voicepipe.turn.settings import BudgetLimits


def vendors() -> str:
    """The table of language model vendors: what the catalog says, and what the fake in the tests refuses."""
    lines = [
        "| provider | evidence | key | kind | reports cached tokens in | keeps a session by | refuses |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, facts in catalog.load().providers.items():
        key = f"`{facts.key_env[0]}` ({facts.auth})" if VENDOR_RULES[name].key else f"none, or `{facts.key_env[0]}`"
        cells = (facts.evidence.replace("_", " "), key, APIS[facts.kind].title, facts.cached_tokens, facts.affinity)
        lines.append(f"| `{name}` | {' | '.join(cells)} | {VENDOR_RULES[name].summary() or '-'} |")
    return "\n".join(lines) + "\n"


def apis() -> str:
    """The table of APIs, with what each serves and the file of its LLM options."""
    lines = ["| kind | API | serves | LLM options |", "| --- | --- | --- | --- |"]
    for package, vendor in VENDORS.items():
        for api in vendor.apis:
            serves = [stage.upper() for stage in STAGES if adapter(api.kind, stage)]
            file = f"voicepipe/providers/{package}/options.py"
            options = f"`{file}`" if api.llm and (ROOT / file).is_file() else "-"
            lines.append(f"| `{api.kind}` | {api.title} | {', '.join(serves)} | {options} |")
    return "\n".join(lines) + "\n"


def options() -> str:
    """The table of STT and TTS options; a row for each meaning."""
    rows: dict[tuple[str, str], list[str]] = {}
    for vendor in VENDORS.values():
        for option in vendor.options:
            rows.setdefault((option.name, option.meaning), []).append(option.of)
    lines = [f"| `{name}` | {', '.join(of)} | {meaning} |" for (name, meaning), of in rows.items()]
    return "\n".join(["| option | of | what it does |", "| --- | --- | --- |", *lines]) + "\n"


def price(facts: SpeechFacts) -> str:
    """The price as its vendor states it: per minute of audio for STT, per million characters for TTS."""
    if facts.usd is None:
        return "-"
    return f"{facts.usd:.4f}/min" if facts.stage == "stt" else f"{facts.usd:g}/M"


def speech() -> str:
    """The table of speech vendors."""
    lines = [
        "| named | kind | key | streams | turn events | word times | request or stop | sound | evidence | USD |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for facts in (*TRANSCRIBERS, *VOICES):
        cells = (
            facts.streams,
            facts.turn_events,
            facts.word_times,
            facts.cancel,
            facts.formats,
            facts.evidence,
            price(facts),
        )
        key = f"`{key_env_of(facts)}`" if key_env_of(facts) else "-"
        lines.append(f"| `{facts.spec}` | `{facts.kind}` | {key} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def contents() -> str:
    """The tables of the index, with links as they are from the README."""
    index = PAGES[ROOT / "web/docs/index.md"]
    return re.sub(r"\]\((?=[\w-]+\.md)", "](web/docs/", index[index.index("| guides") :])


def commands(
    tree: argparse.ArgumentParser, meaning: str | None = None
) -> Iterator[tuple[argparse.ArgumentParser, str | None]]:
    """Yield (parser, meaning) of each command that can be run."""
    nested = [action for action in tree._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield tree, meaning
    for action in nested:
        meanings = {each.dest: each.help for each in action._choices_actions}
        for name, command in action.choices.items():
            yield from commands(command, meanings[name])


COMMANDS = {command.prog: (command, meaning) for command, meaning in commands(parser())}
"""`voicepipe keys create` -> its parser, and its meaning."""

OF_EVERY_COMMAND = ("config", "data_dir", "set")


def command_list() -> str:
    """The table of all commands, with links to their sections."""
    lines = [(f"[`{name}`](#{name.replace(' ', '-')})", str(meaning)) for name, (_, meaning) in COMMANDS.items()]
    return docs.table(("command", "what it does"), lines)


def common_options() -> str:
    """The table of the options that each command takes."""
    taken = [{action.dest for action in command._actions} for command, _ in COMMANDS.values()]
    assert set.intersection(*taken) == {*OF_EVERY_COMMAND, "help"}
    command, _ = COMMANDS["voicepipe revoke"]
    return _options_table(command, [each for each in command._actions if each.dest in OF_EVERY_COMMAND])


def command_reference(name: str) -> str:
    """A command's meaning and usage, and the tables of its arguments and its own options."""
    command, _ = COMMANDS[name]
    arguments = [action for action in command._actions if not action.option_strings]
    options = [
        each for each in command._actions if each.option_strings and each.dest not in (*OF_EVERY_COMMAND, "help")
    ]
    usage = argparse.HelpFormatter(name, width=10_000)
    usage.add_usage(None, arguments, [], prefix="")
    parts = [f"{command.description}\n", f"```text\n{usage.format_help().strip()} [OPTION ...]\n```\n"]
    if arguments:
        rows = [(f"`{each.metavar}`", _cell(each.help)) for each in arguments]
        parts.append(docs.table(("argument", "meaning"), rows))
    if options:
        parts.append(_options_table(command, options))
    return "\n".join(parts)


def _options_table(command: argparse.ArgumentParser, options: Sequence[argparse.Action]) -> str:
    kind, rows = command.get_default("options"), []
    for each in options:
        named = " ".join((each.option_strings[-1], *_values(each)))
        default = default_of(kind, each.dest)
        rows.append((f"`{named}`", f"`{default}`" if default else "-", _cell(each.help)))
    return docs.table(("option", "default", "meaning"), rows)


def _values(option: argparse.Action) -> tuple[str, ...]:
    if option.nargs == 0:
        return ()
    if option.choices is not None:
        return ("{" + ",".join(map(str, option.choices)) + "}",)
    value = str(option.metavar or option.dest.upper())
    return (value, "[...]") if option.nargs == "+" else (value,)


def _cell(text: str | None) -> str:
    assert text
    return text.replace("|", "\\|")


GENERATED: docs.Generated = {
    "contents in README": contents,
    "settings": markdown,
    "vendors": vendors,
    "speech": speech,
    "apis": apis,
    "options": options,
    "commands": command_list,
    "options of every command": common_options,
    **{name: partial(command_reference, name) for name in COMMANDS},
}


def test_the_generated_blocks_are_those_of_the_code() -> None:
    for name, now in docs.generated().items():
        assert docs.block(name) == now, f"{name}: renew it with: python -m tests.docs"


def test_the_counts_are_those_of_the_code() -> None:
    for noun, n in docs.counts().items():
        counted = re.findall(rf"\b(\d+) {noun}\b", DOCS)
        assert len(counted) > 1
        assert set(counted) == {str(n)}, f"{noun}: renew it with: python -m tests.docs"


def test_the_limits_are_the_defaults() -> None:
    table = {next(iter(named(row[0]))): row[3] for row in rows(section("The budget")) if named(row[0])}
    limits = BudgetLimits()
    assert table == {each.name.removesuffix("_ms"): f"{getattr(limits, each.name)} ms" for each in fields(BudgetLimits)}


def test_every_built_in_strategy_is_explained() -> None:
    """Beside its setting, whose text is in the reference, and where the end of a turn is explained."""
    (setting,) = (row for row in rows(DOCS) if "agents.NAME.end_of_turn" in named(row[0]))
    (guide,) = re.findall(r"gets the agent's `end_of_turn`:.*?\n\n", section("The budget"), re.DOTALL)
    for where, text in (
        ("the docstring of end_of_turn in voicepipe/config/agents.py", setting[3]),
        ("turns.md", guide),
    ):
        assert not (unexplained := set(STRATEGIES) - named(text)), f"explain {sorted(unexplained)} in {where}"


def reasons() -> Iterator[str]:
    """The reasons that the core itself gives for the end of a turn."""
    for path in (ROOT / "voicepipe" / "turn").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(ast.Attribute(attr="drop" | "hang_up"), args):
                    found = (each.value for arg in args for each in ast.walk(arg) if isinstance(each, ast.Constant))
                    yield from (text for text in found if isinstance(text, str))
                case ast.Call(ast.Attribute(attr="give_up"), [_, _, ast.Constant(str(text)), *_]):
                    yield text


def test_the_steps_for_a_metric_name_the_groups_of_the_catalog() -> None:
    groups = {group for row in rows(section("A metric")) for group in named(row[1])}
    assert groups == {"COUNTED", "CURRENT"}
    assert all(isinstance(family, Family) for group in groups for family in getattr(metrics_catalog, group))


def test_every_reason_is_documented() -> None:
    documented = set().union(*(named(row[0]) for row in rows(section("Reasons"))))
    by_others = {"client_truncated", "the user left"}  # of a reply that was cut, of the session
    assert documented == {*reasons(), *by_others}


def test_every_record_field_is_documented() -> None:
    stored = StoredTurn(record=turn_record(), project="p", agent="default", started_at_ms=0)
    documented = set().union(*(named(row[0]) for row in rows(section("A turn's record"))))
    assert documented == set(turn_plain(stored))


def test_every_client_event_is_documented() -> None:
    taken = {kind.__struct_config__.tag for kind in inbound._Event.__subclasses__()}
    documented = {event for row in rows(section("The wire")) for event in named(row[0])}
    assert taken <= documented
    assert documented - taken == server_events()


def server_events() -> set[str]:
    """The published names that the writer knows, as they stand in its source."""
    source = ast.parse(Path(outbound.__file__).read_text(encoding="utf-8"))
    strings = {
        node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    event = re.compile(r"(session|mcp_list_tools|conversation|input_audio_buffer|response|rate_limits)\.[a-z_.]+|error")
    only_beta = {"conversation.created"}
    return {text for text in strings if event.fullmatch(text)} - only_beta


@pytest.mark.parametrize("line", [line for each in code("sh") for line in each.splitlines()])
def test_every_line_for_the_terminal_is_one_that_is_understood(line: str) -> None:
    words = shlex.split(line)
    environ = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    arguments = words[len(environ) :]
    if arguments[:2] == [".venv/bin/python", "-m"]:
        assert (ROOT / arguments[2].replace(".", "/")).with_suffix(".py").is_file()
        return
    assert arguments[0] == "voicepipe"
    chosen = command_line.parse(arguments[1:])
    assert chosen is not None
    served = {"providers.scripted.base_url": "http://127.0.0.1:1/v1"}  # by the command that names a script
    overrides = chosen.overrides() | (served if names_a_script(getattr(chosen, "llm", None)) else {})
    settings = load(overrides=overrides, environ={"HOME": "/", **environ}, folder=ROOT)
    for stage in ("stt", "llm", "tts"):
        spec = settings.agents["default"].spec(stage)
        settings.connection(spec, key=stage)
    if isinstance(chosen, TalkOptions) and chosen.sound is not None:
        assert (ROOT / chosen.sound).is_file()


@pytest.mark.parametrize("text", code("toml"))
def test_every_settings_file_is_one_that_loads(text: str, tmp_path: Path) -> None:
    """Each of its agents can be reached with the keys that it names."""
    (tmp_path / "voicepipe.toml").write_text(text)
    (tmp_path / "my-catalog.toml").write_text(code("toml catalog")[0])
    keys = dict.fromkeys(re.findall(r"[A-Z0-9_]+_(?:KEY|TOKEN|SECRET)", DOCS), "k")
    settings = load(environ={"HOME": str(tmp_path), **keys}, folder=tmp_path)
    for agent in settings.agents.values():
        reached = settings.connection(agent.spec("llm"), key="llm")
        assert reached.kind == "local" or reached.base_url


def test_the_first_settings_file_says_what_is_said_of_it(tmp_path: Path) -> None:
    (tmp_path / "voicepipe.toml").write_text(code("toml", section("A better model"))[0])
    settings = load(environ={"HOME": str(tmp_path), "MINE_API_KEY": "k"}, folder=tmp_path)
    assert settings.agent_named("help-desk") == "support"
    assert settings.budget.total_ms == 900


@pytest.mark.parametrize("text", code("toml catalog"))
def test_every_catalog_is_one_that_is_read(text: str) -> None:
    mine = parse(text, where="the docs", over=catalog.load())
    assert mine.providers["corner"].models


def with_a_tool() -> Agent:
    """An agent that speaks first and has a tool."""
    agent = Agent("Be brief.", first_speaker="agent", greeting="Hello.")

    async def look_up() -> str:
        return "It is Mount Everest."

    agent.tool(look_up)
    return agent


def answer_to(request: Mapping[str, Any]) -> LlmCue:
    """The LLM's answer, for which it calls its agent's tool, if there is one."""
    has_tool = "look_up" in str(request.get("tools"))
    if has_tool and request["messages"][-1]["role"] != "tool":
        return LlmCue(calls=(CallCue("look_up", ("{}",), "c1"),), tokens=())
    return LlmCue(tokens=("Mount", " Everest."))


@pytest.mark.slow
@pytest.mark.parametrize("agents", [(), (with_a_tool(),)], ids=["plain", "tool"])
@pytest.mark.parametrize("snippet", code("python"))
async def test_the_snippets_run_as_they_stand(
    snippet: str, agents: tuple[Agent, ...], fake_server: Any, question: Path, tmp_path: Path
) -> None:
    """In a process of their own, against a server on another port: also with an agent that greets and has a tool."""
    async with fake_server(agents=agents) as server:
        server.vendor.llm.usual = answer_to
        documented = snippet.replace("http://127.0.0.1:8080", server.url)
        assert documented != snippet
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", documented),
            stdout=asyncio.subprocess.PIPE,
            cwd=question.parent,
            env={**os.environ, "PYTHONPATH": str(Path(voicepipe.__file__).parents[1])},
        )
        try:
            async with asyncio.timeout(WAIT_S):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert b"Mount Everest." in out
    assert (tmp_path / "answer.wav").stat().st_size > 1_000


def headings(text: str) -> set[str]:
    """The names by which links lead to a page's headings."""
    return {re.sub(r"[^a-z0-9 _-]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in text.splitlines()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        assert not heading or heading in headings(PAGES[target]), link


MEASURED = re.compile(
    r"Date: (?:published )?\d{1,2} \w+ \d{4}\b.* Command: (?=.*(?:`[^`]+`|not on record)).+ Machine: \w.*\.$"
)
"""What stands above each table of figures: "published" where only the day of the commit is on record."""


def unsourced(text: str) -> list[str]:
    """Return the heads of the tables of a page that do not follow a paragraph with date, command and machine."""
    paragraphs = [" ".join(each.split()) if each[0] != "|" else each for each in re.split(r"\n{2,}", text.strip())]
    return [
        table.partition("\n")[0]
        for before, table in pairwise(["", *paragraphs])
        if table.startswith("|") and not MEASURED.match(before)
    ]


def test_every_measured_table_names_its_date_command_and_machine() -> None:
    text = PAGES[ROOT / "web/docs/measured.md"]
    assert text.count("\n\n|") == len(re.findall(r"^Date: ", text, re.MULTILINE))
    assert unsourced(text) == []
    for module in set(re.findall(r"`python -m (tests[.\w]+)", text)):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module


@pytest.mark.parametrize(
    ("above", "is_found"),
    [
        ("Date: 1 May 2026. Command: `voicepipe bench llm`.\nMachine: two cores.", False),
        ("Date: published 1 May 2026. Command: not on record. Machine: not on record.", False),
        ("", True),
        ("A text.", True),
        ("Date: yesterday. Command: `voicepipe bench llm`. Machine: two cores.", True),
        ("Date: 1 May 2026. Command: the bench. Machine: two cores.", True),
        ("Date: 1 May 2026. Command: `voicepipe bench llm`.", True),
        ("Date: 1 May 2026. Command: `voicepipe bench llm`. Machine: two cores.\n\nA text.", True),
    ],
)
def test_a_table_without_them_is_found(above: str, is_found: bool) -> None:
    planted = f"# A page\n\n{above}\n\n| users | ms |\n| --- | --- |\n| 1 | 400 |\n"
    assert unsourced(planted) == (["| users | ms |"] if is_found else [])


def test_every_page_is_linked_to() -> None:
    for page in PAGES:
        assert page in (README, ROOT / "web/docs/index.md") or f"]({page.relative_to(ROOT)}" in PAGES[README]


def test_the_version_and_the_files_that_are_named_are_there() -> None:
    assert f"version {voicepipe.__version__}" in PAGES[README]
    assert f"## {voicepipe.__version__}\n" in section("Changelog")
    for path in ("deploy/up.py", "LICENSE", "THIRD_PARTY"):
        assert path in PAGES[README]
        assert (ROOT / path).is_file()
