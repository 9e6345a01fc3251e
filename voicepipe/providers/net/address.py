"""The address that an adapter connects to, as a plain value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from voicepipe.errors import ConfigError
from voicepipe.registry import ProviderSettings, Spec, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAddress:
    """The address of a provider for one stage, with headers and timeouts; `name` is the spec that errors show."""

    stage: Stage
    name: str
    base_url: str
    """Without a trailing slash."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with every request; contains the key."""

    secret: str = field(default="", repr=False)
    """The key itself, so that it can be removed from the vendor's texts."""

    connect_timeout_ms: int
    idle_timeout_ms: int

    @classmethod
    def of(
        cls,
        stage: Stage,
        spec: Spec,
        settings: ProviderSettings,
        *,
        auth_scheme: str = "Bearer",
        key_header: str = "Authorization",
        more_headers: Mapping[str, str] = MappingProxyType({}),
        scheme: Literal["http", "ws"] = "http",
    ) -> ProviderAddress:
        """Return the address that `settings` describe; `scheme` names the protocol, with TLS or without.

        The key goes into `key_header`, after `auth_scheme` unless that is empty; `more_headers` are added.

        Raises:
            ConfigError: there is no `base_url`, or it is not one of that scheme.
        """
        if not settings.base_url.startswith((f"{scheme}://", f"{scheme}s://")):
            raise ConfigError(
                f'providers.{spec.provider}.base_url: expected "{scheme}://..." or "{scheme}s://...", '
                f"got {settings.base_url!r}"
            )
        key = f"{auth_scheme} {settings.api_key}".lstrip()
        headers = ((key_header, key),) if settings.api_key else ()
        return cls(
            stage=stage,
            name=str(spec),
            base_url=settings.base_url.rstrip("/"),
            headers=(*headers, *more_headers.items()),
            secret=settings.api_key,
            connect_timeout_ms=settings.connect_timeout_ms,
            idle_timeout_ms=settings.idle_timeout_ms,
        )
