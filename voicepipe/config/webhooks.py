"""`[webhooks.NAME]`: receivers of turn and session events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from voicepipe.config.convert import SECRET, between
from voicepipe.errors import ConfigError
from voicepipe.telemetry.webhooks.payload import KINDS, Webhook, WebhookKind, read_secrets
from voicepipe.values import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEntry:
    """A `[webhooks.NAME]`: a receiver and its events."""

    url: Annotated[str, SECRET] = field(default="", repr=False)
    """The receiver's address, `http://` or `https://`; never shown, since many contain a key. Private addresses are
    allowed: the operator can reach them anyway. Redirects are not followed."""

    events: tuple[str, ...] = KINDS
    """Which of `session.started`, `turn.completed`, `turn.over_budget`, `tool.called`, `session.ended` and
    `bench.drifted` to send."""

    project: str = ""
    """The project whose events are sent; empty: all projects."""

    secret: Annotated[str, SECRET] = field(default="", repr=False)
    """The signing secret: `whsec_` and 24 to 64 bytes in base64. Several, separated by spaces, all sign: for
    rotation.
    """

    secret_env: str = ""
    """The environment variable that holds the secret; if it is named but empty or unset, the server does not start."""

    secret_file: str = ""
    """The file that holds the secret."""

    timeout_ms: Annotated[int, between(100, 60_000)] = 10_000
    """Timeout of the receiver's answer, after which the attempt has failed."""

    def webhook(self, name: str) -> Webhook:
        """Return the sender's form of this webhook.

        Raises:
            ConfigError: naming the key of a missing or wrong value.
        """
        at = f"webhooks.{name}"
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"{at}.url: expected an address that begins with http(s)://, got another one or none")
        unknown = [kind for kind in self.events if kind not in KINDS]
        if unknown or not self.events:
            came = repr(unknown[0]) if unknown else "none"
            raise ConfigError(f"{at}.events: expected some of {', '.join(KINDS)}, got {came}")
        try:
            secrets = read_secrets(self.secret)
        except ConfigError as why:
            raise ConfigError(f"{at}.secret: {why}") from None
        kinds: tuple[WebhookKind, ...] = tuple(kind for kind in KINDS if kind in self.events)
        return Webhook(
            name=name, url=self.url, secrets=secrets, kinds=kinds, project=self.project, timeout_ms=self.timeout_ms
        )


def with_secret(entry: WebhookEntry, name: str, env: Mapping[str, str], origins: dict[str, str]) -> WebhookEntry:
    """Return the entry with the secret from its environment variable or its file, checked.

    Raises:
        ConfigError: naming the key of a missing or wrong value.
    """
    key, source = f"webhooks.{name}.secret", ""
    if not entry.secret and entry.secret_env:
        if not env.get(entry.secret_env):
            raise ConfigError(f"{key}_env: expected a secret in the environment variable {entry.secret_env}, got none")
        entry, source = replace(entry, secret=env[entry.secret_env]), f"${entry.secret_env}"
    elif not entry.secret and entry.secret_file:
        entry, source = replace(entry, secret=_read(entry.secret_file, f"{key}_file")), entry.secret_file
    if source:
        origins[key] = source
    entry.webhook(name)
    return entry


def _read(path: str, key: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise ConfigError(f"{key}: expected a file that can be read, got {path!r}: {why}") from None
