"""`voicepipe replay`: replay journals of sessions through the core, optionally with other settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from voicepipe.bench.counterfactual.changes import AGENT_OPTIONS, SECTIONS, Changes, option_named
from voicepipe.bench.counterfactual.recorded_session import read_session
from voicepipe.bench.counterfactual.report import plain, table, what_if
from voicepipe.bench.replay_report import plain_replay, replay_lines
from voicepipe.cli.options import ReplayOptions
from voicepipe.config import load
from voicepipe.config.agents import AgentSettings
from voicepipe.config.convert import Found, convert
from voicepipe.errors import ConfigError
from voicepipe.ports.endpointing import strategies_named
from voicepipe.telemetry.journal.format import JournalFile, read_journal
from voicepipe.telemetry.journal.replay import replay
from voicepipe.turn.endpointing.strategies import SILENCE
from voicepipe.turn.events import SettingsChanged
from voicepipe.values import replace

SAME, DIFFERENT = 0, 1


def run(options: ReplayOptions) -> int:
    """Replay each journal and print the result; 1 when the core decides differently in any of them.

    Raises:
        VoicepipeError: a file can't be read, is not a journal, or (with --what-if) can't be replayed.
        ConfigError: a setting of --what-if is unknown or wrong.
    """
    changes = parse_changes(options.what_if)
    folder = load(options.config, overrides=options.overrides()).data_path / "journals"
    status = SAME
    for path in _files(options.files, folder):
        journal = _with_strategies(read_journal(_read(path)), changes)
        if options.what_if:
            _print_line(options, path, *_what_if_lines(journal, changes, as_json=options.json))
            continue
        replayed = replay(journal)
        status = status if replayed.difference is None else DIFFERENT
        output = [_line(plain_replay(journal, replayed))] if options.json else list(replay_lines(journal, replayed))
        _print_line(options, path, *output)
    return status


def parse_changes(pairs: tuple[str, ...]) -> Changes:
    """Parse KEY=VALUE settings of a command line into changes.

    Raises:
        ConfigError: naming the key.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        option = option_named(key.strip())
        if not equals or option is None:
            raise ConfigError(
                f"--what-if: expected KEY=VALUE with one of agents.NAME.OPTION ({', '.join(AGENT_OPTIONS)}), "
                f"budget.STAGE_ms or deadlines.NAME_ms, got {pair!r}"
            )
        values[option] = convert(Found(value.strip(), "--what-if", text=True), _hint(option), key.strip())
    return Changes(values)


def _hint(option: str) -> Any:
    section, _, name = option.partition(".")
    kind: type = SECTIONS[section] if name else AgentSettings
    hints: Mapping[str, Any] = get_type_hints(kind, include_extras=True)
    return hints[name or option]


def _with_strategies(journal: JournalFile, changes: Changes) -> JournalFile:
    """Return the journal with the code of the end-of-turn strategies that it and the changes name."""
    names = {line.event.settings.end_of_turn for line in journal.lines if isinstance(line.event, SettingsChanged)}
    names |= {journal.opening.settings.end_of_turn, changes.values.get("end_of_turn", SILENCE)}
    strategies = strategies_named(sorted(names), key="end_of_turn")
    return replace(journal, opening=replace(journal.opening, strategies=strategies))


def _files(named: tuple[Path, ...], folder: Path) -> list[Path]:
    """Return the journals named by file, by folder, or by session in the server's folder."""
    found: list[Path] = []
    for path in named:
        sessions = sorted(folder.glob(f"*-{path.name}.jsonl")) if not path.exists() and path.name == str(path) else []
        found += sorted(path.glob("*.jsonl")) if path.is_dir() else sessions or [path]
    if not found:
        raise ConfigError(f"expected journals, found none in {', '.join(map(str, named))}")
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror or problem}") from problem


def _what_if_lines(journal: JournalFile, changes: Changes, *, as_json: bool) -> list[str]:
    answer = what_if(read_session(journal), changes)
    return [_line(plain(answer))] if as_json else list(table(answer))


def _line(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _print_line(options: ReplayOptions, path: Path, *lines: str) -> None:
    several = len(options.files) > 1 or options.files[0].is_dir()
    head = [f"== {path}"] if several and not options.json else []
    sys.stdout.write("\n".join([*head, *lines]) + "\n")
