"""Describe whether a provider has its key."""

from __future__ import annotations

from voicepipe.config import Settings


def key_of(settings: Settings, provider: str) -> str:
    """Return `set`, `$NAME missing`, `not needed`, or `no base_url`."""
    entry = settings.providers[provider]
    if entry.api_key:
        return "set" if entry.base_url else "set, no base_url"
    if entry.api_key_env:
        return f"${entry.api_key_env} missing"
    return "not needed" if entry.base_url or entry.kind == "local" else "no base_url"
