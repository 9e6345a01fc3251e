"""Build the keys that sign client secrets, for the server and for the command line."""

from __future__ import annotations

from pathlib import Path

from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.keys import SigningKey, read_pem
from voicepipe.config.settings import Settings
from voicepipe.storage import StorageHealth


def key_store(settings: Settings, health: StorageHealth | None = None) -> KeyStore:
    """Return the generated secrets, with the keys of `server.token_keys` before them.

    Reads files: call from a worker thread.

    Raises:
        ConfigError: a key file is not valid; the text names it.
    """
    keys = [read_pem(Path(path).expanduser()) for path in settings.server.token_keys]
    signing = [key for key in keys if isinstance(key, SigningKey)]
    verifying = [key for key in keys if not isinstance(key, SigningKey)]
    return KeyStore(settings.data_path, signing=signing, verifying=verifying, health=health)
