"""Read the operator's own prompts for the LLM bench."""

from __future__ import annotations

from pathlib import Path

import msgspec

from voicepipe.bench.llm import BenchPrompt
from voicepipe.errors import ConfigError


def read_prompts(path: Path) -> tuple[BenchPrompt, ...]:
    """Read a file with a prompt on each line: plain text, or JSON such as `{"system": "Be brief.", "user": "Hi."}`.

    Raises:
        ConfigError: the file cannot be read, a line is no such prompt, or there is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as why:
        raise ConfigError(f"--prompts: expected a text file that can be read, got {str(path)!r}: {why}") from None
    prompts = tuple(_prompt(line.strip(), number) for number, line in enumerate(lines, 1) if line.strip())
    if not prompts:
        raise ConfigError(f"--prompts: expected a question on each line, got none in {str(path)!r}")
    return prompts


def _prompt(line: str, number: int) -> BenchPrompt:
    if not line.startswith("{"):
        return BenchPrompt(line)
    try:
        return msgspec.json.decode(line, type=BenchPrompt)
    except msgspec.DecodeError as wrong:
        raise ConfigError(
            f'--prompts: expected {{"system": "...", "user": "..."}} on line {number}, got {line[:60]!r}: {wrong}'
        ) from None
