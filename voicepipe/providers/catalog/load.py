"""Read the catalog's file strictly: an error for an unknown or wrong entry names the file, the row and the field."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

import msgspec

from voicepipe.errors import ConfigError
from voicepipe.providers.built_in import PACKAGES
from voicepipe.providers.catalog.facts import Catalog, ModelFacts, ProviderFacts, RequestRule
from voicepipe.values import replace

BUILT_IN = "catalog.toml"
"""The file in this package; a vendor's package may have one too."""

_MODEL_FIELDS = {
    "input_usd": "input_usd_per_million",
    "output_usd": "output_usd_per_million",
    "cached_usd": "cached_usd_per_million",
    "cache_write_usd": "cache_write_usd_per_million",
    "context_tokens": "context_tokens",
    "cache_min_tokens": "cache_min_tokens",
    "ttft_p50_ms": "ttft_p50_ms",
    "tokens_per_s": "tokens_per_s",
    "source": "source",
    "figures": "figures_source",
    "other_figures": "other_figures",
}
"""The names in a model's row for the fields of `ModelFacts`."""

T = TypeVar("T")


def load(more: Path | None = None) -> Catalog:
    """Return the built-in catalog, merged with the file `more` if it exists.

    Raises:
        ConfigError: `more` cannot be read, or an entry in it is unknown or wrong; the text names row and field.
    """
    built_in = _built_in()
    if more is None:
        return built_in
    try:
        text = more.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"catalog.file: expected a catalog, got {str(more)!r}, which can't be read") from problem
    return parse(text, where=str(more), over=built_in)


@functools.cache
def _built_in() -> Catalog:
    read = Catalog()
    for package in (*PACKAGES, "catalog"):
        if (file := files(f"voicepipe.providers.{package}") / BUILT_IN).is_file():
            read = parse(file.read_text(encoding="utf-8"), where=f"{package}/{BUILT_IN}", over=read)
    return read


def parse(text: str, *, where: str, over: Catalog) -> Catalog:
    """Read a catalog's text and merge it into another one; `where` names it in errors.

    Raises:
        ConfigError: as in `load`.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{where}: expected a TOML file, got one that can't be read: {problem}") from problem
    _known(tree, ("sources", "providers"), where)
    sources = _convert(tree.get("sources", {}), dict[str, str], f"{where}: sources")
    rows = _convert(tree.get("providers", {}), dict[str, dict[str, Any]], f"{where}: providers")
    made = {
        name: _provider(name, row, over.provider(name), sources, f"{where}: providers.{name}")
        for name, row in rows.items()
    }
    return Catalog(MappingProxyType({**over.providers, **made}))


def _provider(
    name: str, row: Mapping[str, Any], start: ProviderFacts | None, sources: Mapping[str, str], at: str
) -> ProviderFacts:
    hints = get_type_hints(ProviderFacts)
    _known(row, [each for each in ProviderFacts.__struct_fields__ if each != "name"], at)
    changes: dict[str, Any] = {
        key: _convert(value, hints[key], f"{at}.{key}")
        for key, value in row.items()
        if key not in ("options", "when", "models")
    }
    if "options" in row:
        options = _convert(row["options"], dict[str, str], f"{at}.options")
        changes["options"] = tuple({**(dict(start.options) if start else {}), **options}.items())
    if "when" in row:
        rules = _convert(row["when"], list[dict[str, Any]], f"{at}.when")
        changes["when"] = tuple(_rule(rule, f"{at}.when[{i}]") for i, rule in enumerate(rules))
    models = _convert(row.get("models", {}), dict[str, dict[str, Any]], f"{at}.models")
    read = {model: _model(model, options, sources, f'{at}.models."{model}"') for model, options in models.items()}
    changes["models"] = MappingProxyType({**(start.models if start else {}), **read})
    if start is not None:
        return replace(start, **changes)
    missing = [key for key in ("title", "evidence", "source", "cached_tokens", "affinity") if key not in changes]
    if missing:
        raise ConfigError(f"{at}.{missing[0]}: expected text, got nothing")
    return ProviderFacts(name=name, **changes)


def _rule(row: Mapping[str, Any], at: str) -> RequestRule:
    _known(row, RequestRule.__struct_fields__, at)
    if "models" not in row:
        raise ConfigError(f"{at}.models: expected patterns of names, got nothing")
    hints = get_type_hints(RequestRule)
    return RequestRule(**{key: _convert(value, hints[key], f"{at}.{key}") for key, value in row.items()})


def _model(name: str, row: Mapping[str, Any], sources: Mapping[str, str], at: str) -> ModelFacts:
    _known(row, _MODEL_FIELDS, at)
    hints = get_type_hints(ModelFacts)
    read = {_MODEL_FIELDS[key]: _convert(value, hints[_MODEL_FIELDS[key]], f"{at}.{key}") for key, value in row.items()}
    for key in row:
        if isinstance(row[key], int | float) and row[key] < 0:
            raise ConfigError(f"{at}.{key}: expected 0 or more, got {row[key]}")
    for key in ("source", "figures"):
        if key in row:
            read[_MODEL_FIELDS[key]] = sources.get(row[key], row[key])
    others = read.get("other_figures", ())
    read["other_figures"] = tuple(replace(speed, figures=sources.get(speed.figures, speed.figures)) for speed in others)
    if ("ttft_p50_ms" in row or "tokens_per_s" in row) and "figures" not in row:
        raise ConfigError(f"{at}.figures: expected where its speed was published, got nothing")
    if ("input_usd" in row) != ("output_usd" in row):
        raise ConfigError(f"{at}: expected both input_usd and output_usd, or none, got one")
    return ModelFacts(name=name, **read)


def _convert(value: object, hint: type[T], at: str) -> T:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{at}: {str(problem)[:1].lower()}{str(problem)[1:]}") from None


def _known(row: Mapping[str, Any], names: Iterable[str], at: str) -> None:
    choices = list(names)
    for key in row:
        if key not in choices:
            near = difflib.get_close_matches(key, choices, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known here are {', '.join(choices)}"
            raise ConfigError(f"{at}.{key}: unknown field; {hint}")
