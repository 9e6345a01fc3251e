"""The settings for people: the values in force with their sources, and the docs' table of all settings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from voicepipe.config.agents import AgentSettings
from voicepipe.config.benches import BenchEntry
from voicepipe.config.convert import displayed, displayed_option, expected, is_secret, is_table, section_kind
from voicepipe.config.languages import LanguageEntry
from voicepipe.config.load import SINGLE, default_of
from voicepipe.config.mcp import McpEntry
from voicepipe.config.phone import PhoneEntry
from voicepipe.config.regions import RegionEntry
from voicepipe.config.settings import ProviderEntry, Settings
from voicepipe.config.tools import ParameterEntry, ToolEntry
from voicepipe.config.webhooks import WebhookEntry
from voicepipe.router.options import ExperimentOptions, PoolOptions, RuleOptions

HIDDEN = "(set, hidden)"


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option in force."""

    key: str
    value: str
    source: str
    """A file's path, `$NAME`, `command line`, `agents.default`, or `default`."""


def effective(settings: Settings) -> tuple[OptionRow, ...]:
    """Return every option in force, in the order of the docs' table; secrets are hidden."""
    rows = [row for name in SINGLE for row in _rows(getattr(settings, name), name, settings)]
    for name, agent in settings.agents.items():
        rows += _rows(agent, f"agents.{name}", settings)
    for name, entry in settings.providers.items():
        rows += _rows(entry, f"providers.{name}", settings)
    for name, tool in settings.tools.items():
        rows += _rows(tool.entry, f"tools.{name}", settings)
        for parameter, options in tool.parameters:
            rows += _rows(options, f"tools.{name}.parameters.{parameter}", settings)
    for name, server in settings.mcp.items():
        rows += _rows(server, f"mcp.{name}", settings)
    for name, pool in settings.routing.pools.items():
        rows += _rows(pool, f"pools.{name}", settings)
    for name, webhook in settings.webhooks.items():
        rows += _rows(webhook, f"webhooks.{name}", settings)
    for name, phone in settings.phone.items():
        rows += _rows(phone, f"phone.{name}", settings)
    for name, bench in settings.benches.items():
        rows += _rows(bench, f"benches.{name}", settings)
    for name, region in settings.regions.items():
        rows += _rows(region, f"regions.{name}", settings)
    return tuple(rows)


def markdown() -> str:
    """Return the table of all options with their defaults and meanings, as Markdown."""
    lines = ["| setting | default | expected | what it does |", "| --- | --- | --- | --- |"]
    sections: list[tuple[str, type]] = [
        *SINGLE.items(),
        ("agents.NAME", AgentSettings),
        ("agents.NAME.languages.TAG", LanguageEntry),
        ("tools.NAME", ToolEntry),
        ("tools.NAME.parameters.NAME", ParameterEntry),
        ("mcp.NAME", McpEntry),
        ("providers.NAME", ProviderEntry),
        ("pools.NAME", PoolOptions),
        ("rules.NAME", RuleOptions),
        ("experiments.NAME", ExperimentOptions),
        ("webhooks.NAME", WebhookEntry),
        ("phone.NAME", PhoneEntry),
        ("benches.NAME", BenchEntry),
        ("regions.NAME", RegionEntry),
    ]
    for section, kind in sections:
        meanings, hints = _meanings(kind), get_type_hints(kind, include_extras=True)
        for option in fields(kind):
            if option.name not in meanings:
                continue  # inherited from the class above, and documented there
            hint = hints[option.name]
            if section_kind(hint) is not None:
                continue  # its tables are sections of their own
            what = f"a table of options of `[{option.name}]`" if is_dataclass(hint) else expected(hint)
            cells = (f"`{section}.{option.name}`", _default(option, hint), what, meanings[option.name])
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _rows(options: Any, at: str, settings: Settings) -> Iterator[OptionRow]:
    hints = get_type_hints(type(options), include_extras=True)
    for option in fields(options):
        key, value = f"{at}.{option.name}", getattr(options, option.name)
        source = settings.origins.get(key, "default")
        if is_dataclass(value):
            yield from (row for row in _rows(value, key, settings) if row.key in settings.origins)
        elif section_kind(hints[option.name]) is not None:
            for name, entry in value:
                yield from _rows(entry, f"{key}.{name}", settings)
        elif is_table(hints[option.name]):
            source = next((origin for k, origin in settings.origins.items() if k.startswith(f"{key}.")), source)
            hides = is_secret(hints[option.name])  # a third-party kind may keep a secret there, under an unknown name
            pairs = (f"{name} = {HIDDEN if hides else displayed(text)}" for name, text in value)
            yield OptionRow(key, f"{{{', '.join(pairs)}}}", source)
        elif is_secret(hints[option.name]):
            yield OptionRow(key, HIDDEN if value else '""', source)
        else:
            yield OptionRow(key, displayed_option(value, hints[option.name]), source)


def _default(option: Any, hint: Any) -> str:
    value = default_of(option)
    if is_dataclass(hint):
        return f"`[{option.name}]`"
    return "`{}`" if is_table(hint) else "unset" if value is None else f"`{displayed_option(value, hint)}`"


def _meanings(kind: type) -> dict[str, str]:
    """Return each option's docstring from the source; an option without a docstring has its class's first sentence."""
    parsed = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(parsed, ast.ClassDef)
    first = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    above = {option for parent in kind.__bases__ for option in getattr(parent, "__dataclass_fields__", ())}
    meanings = {option.name: first for option in fields(kind) if option.name not in above}
    for statement, after in zip(parsed.body, parsed.body[1:], strict=False):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                meanings[name] = " ".join(text.split())
    return meanings
