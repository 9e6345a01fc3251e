"""`voicepipe keys`: manage API keys and token signing secrets, with access to the server's data folder."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from voicepipe.auth.apikeys import ApiKey, ApiKeys
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.scopes import KEY_DEFAULT
from voicepipe.cli.options import KeysOptions
from voicepipe.clock import unix_s
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError, Overload


def run(options: KeysOptions) -> int:
    """Run the requested key command on the data folder that the settings name.

    Raises:
        ConfigError: a setting, a name, a scope or an id is wrong.
    """
    settings = load(options.config, overrides=options.overrides())
    folder = settings.data_path
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as why:
        raise ConfigError(f"server.data_dir: expected a folder that can be made, got {folder}: {why.strerror}") from why
    keys = ApiKeys(folder)
    match options.action:
        case "create":
            _create(keys, options)
            _share(settings, keys)
        case "list":
            sys.stdout.writelines(f"{_line(key)}\n" for key in keys.list())
        case "revoke":
            sys.stdout.write(f"{_line(keys.revoke(options.id, now_s=unix_s()))}\n")
            _share(settings, keys)
            if all(key.revoked_at_s is not None for key in keys.list()):
                sys.stderr.write(
                    "No key works any more: no client can connect until 'voicepipe keys create' makes one.\n"
                )
        case "rotate":
            secrets = KeyStore(folder)
            secrets.keyring(unix_s())  # a folder without a secret gets its first one here, so that there is one before
            sys.stdout.write(f"{secrets.rotate(unix_s()).kid}\n")
            sys.stderr.write(
                "It signs new client secrets. Those of older keys stay valid until 'voicepipe keys remove'.\n"
            )
        case "remove":
            KeyStore(folder).remove(options.id)
    return 0


def _create(keys: ApiKeys, options: KeysOptions) -> None:
    """Create a key. Only the key goes to stdout, so that a script can read it."""
    new = keys.create(options.project, now_s=unix_s(), name=options.name, scopes=options.scope or KEY_DEFAULT)
    sys.stdout.write(f"{new.text}\n")
    sys.stderr.write("This is the only time that the key is shown. From now on every client needs one.\n")


def _share(settings: Settings, keys: ApiKeys) -> None:
    """Share the keys with the other nodes at once; a server of this machine does so too, within seconds."""
    if not settings.cluster.store:
        return
    try:
        asyncio.run(_sync(settings, keys))
    except (ConfigError, Overload) as why:
        sys.stderr.write(
            f"The other nodes do not have this yet: {why} A server that runs here sends it when the store is back.\n"
        )


async def _sync(settings: Settings, keys: ApiKeys) -> None:
    from voicepipe.cluster.port import NodeStore  # slow to import, and seldom needed
    from voicepipe.wiring.cluster import open_store
    from voicepipe.wiring.shared_keys import KeySync

    async with open_store(settings) as store:
        if isinstance(store, NodeStore):
            await KeySync(keys, store).sync()


def _line(key: ApiKey) -> str:
    state = "works" if key.revoked_at_s is None else f"revoked {_day(key.revoked_at_s)}"
    return (
        f"{key.id}  {key.project:<12}  {state:<18}  made {_day(key.created_at_s)}  {','.join(key.scopes)}  {key.name}"
    )


def _day(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).date().isoformat()
