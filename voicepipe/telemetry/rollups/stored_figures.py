"""Figures as the store has them: MessagePack, deflated.

The keys of providers and late causes are one text there, `STAGE NAME`, as servers of every version write and read them.
A stage has no space in its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from voicepipe.telemetry.rollups.aggregates import (
    BasicFigures,
    Figures,
    LateStage,
    ProviderFigures,
    StageFigures,
    StageProvider,
    TurnFigures,
)

_LEVEL: Final = 6  # level of zlib: it leaves a third of the size
_KEYS: Final = 1_024  # of the models of a server; a query reads the same few again and again


_Counts: TypeAlias = dict[str, int]
_Basic: TypeAlias = tuple[int, int, int, float, _Counts, _Counts, StageFigures]
_More: TypeAlias = tuple[_Counts, list[float], list[int], list[int], dict[str, StageFigures]]


class _StoredFigures(TurnFigures, array_like=True):
    providers: dict[str, ProviderFigures] = msgspec.field(default_factory=dict)
    late_causes: dict[str, int] = msgspec.field(default_factory=dict)


def packed(figures: Figures | Mapping[str, Figures]) -> bytes:
    """Return figures, or figures by name, as bytes."""
    stored = _stored(figures) if isinstance(figures, Figures) else {name: _stored(figures[name]) for name in figures}
    return zlib.compress(msgspec.msgpack.encode(stored), _LEVEL)


def unpacked(data: bytes) -> Figures:
    """Return the figures that `packed` wrote.

    Raises:
        ValueError, zlib.error: the data is damaged.
    """
    return _figures(_STORED.decode(zlib.decompress(data)))


def unpacked_basic(data: bytes) -> BasicFigures:
    """Return the basic figures that `packed` wrote; the other fields are skipped.

    Raises:
        ValueError, zlib.error: the data is damaged.
    """
    return _BASIC.decode(zlib.decompress(data))


def unpacked_by_name(data: bytes, matches: Callable[[str], bool]) -> Iterator[tuple[str, Figures]]:
    """Yield (name, figures) of the names that match; the others are not decoded.

    Raises:
        ValueError, zlib.error: the data is damaged.
    """
    for name, raw in _BY_NAME.decode(zlib.decompress(data)).items():
        if matches(name):
            yield name, _figures(_STORED.decode(raw))


def _stored(figures: Figures) -> _StoredFigures:
    return _StoredFigures(
        *_basic(figures),
        *_more(figures),
        {_text(*key): each for key, each in figures.providers.items()},
        {_text(*key): turns for key, turns in figures.late_causes.items()},
    )


def _figures(stored: _StoredFigures) -> Figures:
    return Figures(
        *_basic(stored),
        *_more(stored),
        {_provider(text): each for text, each in stored.providers.items()},
        {_late_stage(text): turns for text, turns in stored.late_causes.items()},
    )


def _basic(each: BasicFigures) -> _Basic:
    """Return the fields of basic figures in order. Both forms share the values."""
    return each.turns, each.over, each.measured, each.usd, each.outcomes, each.waited_ms, each.total


def _more(each: TurnFigures) -> _More:
    """Return the further fields of `TurnFigures` likewise."""
    return each.actions, each.usd_for, each.tokens, each.speculation, each.stages


def _text(stage: str, name: str) -> str:
    return f"{stage} {name}"


@lru_cache(_KEYS)
def _provider(text: str) -> StageProvider:
    stage, _, spec = text.partition(" ")
    return StageProvider(stage, spec)


@lru_cache(_KEYS)
def _late_stage(text: str) -> LateStage:
    stage, _, owner = text.partition(" ")
    return LateStage(stage, owner)


_STORED: Final = msgspec.msgpack.Decoder(_StoredFigures)
_BASIC: Final = msgspec.msgpack.Decoder(BasicFigures)
_BY_NAME: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
