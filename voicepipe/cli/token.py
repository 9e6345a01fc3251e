"""`voicepipe token`: mint a client secret on the command line, with access to the server's data folder."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from voicepipe.auth.scopes import REALTIME, TURNS
from voicepipe.cli.options import TokenOptions
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError, ProtocolError, validation_place
from voicepipe.server.token_issuer import Minted, SecretRequest

SCOPES = (REALTIME, TURNS)
"""The default scopes: connect to sessions, and read the own turns, as the talk page does."""

_ARGUMENTS = {
    "expires_after.seconds": "--seconds",
    "limits.agents": "--agent",
    "limits.max_sessions": "--max-sessions",
    "limits.session_seconds": "--session-seconds",
    "limits.turns": "--turns",
    "limits.spend_usd": "--spend-usd",
    "limits.origins": "--origin",
    "locks": "--lock, --hide",
    "scopes": "--scope",
    "subject": "--subject",
    "identity": "--identity",
    "session": "--session",
}
"""Field of the request named by a refusal -> the option to change here."""


def run(options: TokenOptions) -> int:
    """Mint as the endpoint would, and print only the client secret, so that a script can read it.

    Raises:
        ConfigError: a setting or an option is wrong.
    """
    settings = load(options.config, overrides=options.overrides())
    try:
        minted = asyncio.run(_mint(settings, options.project, secret_request(options)))
    except ProtocolError as refused:
        raise ConfigError(f"{_argument(refused.field or '')}{refused.why}") from None
    sys.stdout.write(f"{minted.value}\n")
    sys.stderr.write(f"id {minted.token_id}: 'voicepipe revoke {minted.token_id}' revokes it.\n")
    return 0


def secret_request(options: TokenOptions) -> SecretRequest:
    """Return the request in the options, checked as the endpoint checks a request.

    Raises:
        ConfigError: `--session` is not a JSON object.
        ProtocolError: a value is out of its range; `field` names it.
    """
    locks = [{"field": name} for name in options.lock] + [{"field": name, "hidden": True} for name in options.hide]
    limits = {
        "max_sessions": options.max_sessions,
        "session_seconds": options.session_seconds,
        "turns": options.turns,
        "spend_usd": options.spend_usd,
        "origins": options.origin,
        "agents": (options.agent,) if options.agent else (),
    }
    extension = {"subject": options.subject, "identity": options.identity, "limits": limits, "locks": locks}
    fields: dict[str, Any] = {
        "session": _session(options),
        "voicepipe": extension | {"scopes": options.scope or SCOPES},
        "expires_after": {"seconds": options.seconds} if options.seconds is not None else None,
    }
    try:
        return msgspec.convert(fields, SecretRequest)
    except msgspec.ValidationError as wrong:
        why, path = validation_place(wrong)
        raise ProtocolError(why, field=path) from None


def _session(options: TokenOptions) -> dict[str, Any]:
    try:
        session = msgspec.json.decode(options.session or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        raise ConfigError(
            f'--session: expected a JSON object such as \'{{"instructions": "Be brief."}}\', got {options.session!r}'
        ) from None
    return {"model": options.agent, **session} if options.agent else session


async def _mint(settings: Settings, project: str, request: SecretRequest) -> Minted:
    from voicepipe.wiring.cluster import open_store
    from voicepipe.wiring.key_store import key_store
    from voicepipe.wiring.reload import SettingsInForce
    from voicepipe.wiring.tokens import token_issuer

    keys = await asyncio.to_thread(key_store, settings)
    async with open_store(settings) as cluster:
        return await token_issuer(SettingsInForce(settings), cluster, keys).mint(project, request)


def _argument(field: str) -> str:
    path = field.removeprefix("voicepipe.")
    return next((f"{name}: " for known, name in _ARGUMENTS.items() if path.startswith(known)), "")
