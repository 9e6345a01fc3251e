"""`voicepipe regions`: measure how far each provider's addresses are from this machine, and advise where to put it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec

from voicepipe.cli.connectivity import reason_of
from voicepipe.cli.options import RegionsOptions
from voicepipe.cli.probe import Probe, StageOutput, probe, probe_llm
from voicepipe.cli.provider_status import key_of
from voicepipe.config import Settings, load
from voicepipe.config.settings import LOCAL
from voicepipe.config.speech_vendors import for_stage
from voicepipe.errors import ConfigError
from voicepipe.providers.net.distance import Distance, distance_of
from voicepipe.registry import Spec, Stage
from voicepipe.values import replace

HEAD: Final = ("provider", "address", "region", "round trip", "connect", "first token", "published")

FAR_MS: Final = 40.0
"""Round trip above which another place for the node is advised: a turn has several, one in each stage."""

FAILED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedAddress:
    """An address of a provider, and how far it is."""

    provider: str
    base_url: str
    region: str
    """`providers.NAME.region`; empty: not set."""

    in_use: bool
    """An agent uses the provider, at this address."""

    distance: Distance | None = None
    why: str = ""
    """The reason why the distance is not known."""

    ttft: Probe | None = None
    published: str = ""
    """What is published of the vendor's regions."""


def run(options: RegionsOptions) -> int:
    """Print a line for each address; 0 unless a provider that an agent uses can't be reached.

    Raises:
        ConfigError: a setting is wrong, or there is no provider of a given name.
    """
    settings = load(options.config, overrides=options.overrides())
    for name in options.names:
        if name not in settings.providers:
            raise ConfigError(f"regions: expected one of {', '.join(settings.providers)}, got {name!r}")
    if not 1 <= options.tries <= 100:
        raise ConfigError(f"--tries: expected 1 to 100, got {options.tries}")
    places = asyncio.run(_measured(settings, options))
    if options.json:
        sys.stdout.write(json.dumps([msgspec.to_builtins(each) for each in places], indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in (*table(places), *advice(places))))
    return FAILED if any(each.in_use and each.distance is None for each in places) else 0


def places_of(settings: Settings, names: tuple[str, ...]) -> Iterator[LocatedAddress]:
    """Yield the addresses of the agents' providers, then of those with a key; or of the named ones alone. A vendor with
    addresses in several regions, or with another one for its speech, has a line for each."""
    used = _used_addresses(settings)
    keyed = (name for name in settings.providers if key_of(settings, name) == "set")
    for name in names or dict.fromkeys((*used, *keyed)):
        entry, vendor = settings.providers[name], settings.vendor(name)
        if entry.kind in LOCAL or not entry.base_url:
            continue
        others = vendor.also if vendor is not None else ()
        for base_url in _one_of_each_host((*used.get(name, ()), entry.base_url, *others)):
            yield LocatedAddress(
                provider=name,
                base_url=base_url,
                region=entry.region if base_url == entry.base_url else "",
                in_use=base_url in used.get(name, ()),
                published=vendor.regions if vendor is not None else "",
            )


def _used_addresses(settings: Settings) -> dict[str, list[str]]:
    """Return the addresses that the agents use of each provider: STT and TTS may have another one than the LLM."""
    stages: tuple[Stage, ...] = ("stt", "llm", "tts")
    used: dict[str, list[str]] = {}
    for agent in settings.agents.values():
        for stage in stages:
            for spec in agent.specs(stage):
                name = spec.provider
                connection = for_stage(name, stage, settings.providers[name].connection())
                used.setdefault(name, []).append(connection.base_url)
    return used


def _one_of_each_host(base_urls: Iterable[str]) -> Iterable[str]:
    """Return the first address of each host: its others are as far."""
    firsts: dict[str, str] = {}
    for base_url in base_urls:
        firsts.setdefault(urlsplit(base_url).netloc, base_url)
    return firsts.values()


async def _measured(settings: Settings, options: RegionsOptions) -> list[LocatedAddress]:
    from voicepipe.providers.net import connection_pool, http

    places = [await _located(each, options.tries) for each in places_of(settings, options.names)]
    if options.probe:
        async with http.lifetime(), connection_pool.lifetime():
            # One after the other: they would share this machine's line.
            places = [await _probed(settings, each) for each in places]
    return sorted(places, key=lambda each: (not each.in_use, each.distance is None, _round_trip_ms(each)))


async def _located(place: LocatedAddress, tries: int) -> LocatedAddress:
    try:
        return replace(place, distance=await distance_of(place.base_url, tries=tries))
    except TimeoutError:
        return replace(place, why="no answer")
    except (OSError, ValueError) as why:
        return replace(place, why=reason_of(why))


async def _probed(settings: Settings, place: LocatedAddress) -> LocatedAddress:
    """Send one short question, which is paid, to the LLM that an agent uses there."""
    from voicepipe.wiring import Stages

    specs = (spec for agent in settings.agents for spec in settings.llm_specs(agent) if spec.provider == place.provider)
    spec = next(specs, None)
    if spec is None or not place.in_use or place.distance is None:
        return place
    result, _ = await probe("llm", str(spec), _reply(settings, Stages(settings), spec))
    return replace(place, ttft=result)


async def _reply(settings: Settings, stages: object, spec: Spec) -> StageOutput:
    return await probe_llm(stages.get("llm", spec, key="--probe"), spec.model)  # type: ignore[attr-defined]


def table(places: Iterable[LocatedAddress]) -> Iterator[str]:
    """Yield the lines of a table for people."""
    found = list(places)
    rows = [HEAD, *(_cells(each) for each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row, place in zip(rows, [None, *found], strict=True):
        marker = "* " if place is not None and place.in_use else "  "
        yield (marker + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
    yield "* an agent uses it. The shortest of several tries; what is published is other people's claim."


def _cells(place: LocatedAddress) -> tuple[str, ...]:
    near, ttft = place.distance, place.ttft
    first = "-" if ttft is None else f"{ttft.first_ms} ms" if ttft.ok else "FAILED"
    known = (f"{near.round_trip_ms:.0f} ms", f"{near.connect_ms:.0f} ms") if near else (f"no: {place.why}", "-")
    return (place.provider, place.base_url, place.region or "-", *known, first, place.published or "-")


def advice(places: Iterable[LocatedAddress]) -> Iterator[str]:
    """Yield what to do about addresses that are far: another address of the vendor, or another place for the node."""
    found = list(places)
    for place in found:
        if not place.in_use or place.distance is None:
            continue
        others = [each for each in found if _may_replace(each, place)]
        nearest = min(others, key=_round_trip_ms, default=None)
        if nearest is not None and _round_trip_ms(nearest) < 0.8 * _round_trip_ms(place):
            saved_ms = _round_trip_ms(place) - _round_trip_ms(nearest)
            yield (
                f"{place.provider}: {nearest.base_url} is {saved_ms:.0f} ms nearer "
                f"(providers.{place.provider}.base_url); its keys may belong to one region"
            )
        elif place.distance.round_trip_ms > FAR_MS:
            yield (
                f"{place.provider}: each request travels {place.distance.round_trip_ms:.0f} ms; "
                "a node nearer to it would save most of that in each turn"
            )
    used = [each for each in found if each.in_use and each.distance is not None]
    if used:
        total_ms = sum(map(_round_trip_ms, used))
        yield f"The agents' {len(used)} addresses are {total_ms:.0f} ms of round trips away, of a budget of 1000 ms."


def _may_replace(other: LocatedAddress, place: LocatedAddress) -> bool:
    """Return whether another address serves the same: those for WebSockets and those for HTTP are apart."""
    is_same_kind = other.base_url.startswith("ws") == place.base_url.startswith("ws")
    return other.provider == place.provider and is_same_kind and other.distance is not None and not other.in_use


def _round_trip_ms(place: LocatedAddress) -> float:
    return place.distance.round_trip_ms if place.distance is not None else float("inf")
