"""Load the server's certificate from files, or make one for trying out."""

from __future__ import annotations

import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from voicepipe.clock import unix_s
from voicepipe.errors import ConfigError
from voicepipe.server.options import ServerSettings

DEV_DAYS: Final = 30
"""Lifetime of a made certificate. The same one is used again, so that a browser's exception for it lasts."""

DEV_RENEW_DAYS: Final = 7
"""A certificate with a shorter remaining lifetime is replaced at the next start."""

_NOWHERE: Final = ("192.0.2.1", 9)
"""An address of RFC 5737, section 3: connecting a UDP socket to it looks up the route and sends nothing."""


def tls_context(options: ServerSettings, data_dir: Path) -> ssl.SSLContext | None:
    """Return the context for TLS 1.2 or newer; None for plain HTTP.

    Reads and may write files: call from a worker thread.

    Raises:
        ConfigError: a file can't be read, the two don't belong together, or `tls_dev` lacks the package trustme.
    """
    if not options.has_tls:
        return None
    if options.tls_dev:
        cert, key, setting = *dev_certificate(data_dir / "tls-dev"), "tls_dev"
    else:
        cert, key, setting = Path(options.tls_cert), Path(options.tls_key), "tls_cert"
    for name, path in (("tls_cert", cert), ("tls_key", key)):
        if not os.access(path, os.R_OK):
            raise ConfigError(f"server.{name}: expected a PEM file that can be read, got {str(path)!r}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password: without it OpenSSL prompts at the terminal and waits.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError) as wrong:
        why = getattr(wrong, "reason", None) or "unreadable"
        raise ConfigError(
            f"server.{setting}: expected a certificate chain and its key in PEM, got {str(cert)!r} and {str(key)!r}: "
            f"{str(why).replace('_', ' ').lower()}"
        ) from None
    return context


def dev_certificate(folder: Path) -> tuple[Path, Path]:
    """Return the certificate and key files in `folder`, made now unless good ones are there.

    Valid for this machine's names and addresses. Its issuer, made with it, stands behind it in the same file: a client
    that is configured to trust the file trusts the server. The issuer's key is not stored.

    Raises:
        ConfigError: the package trustme is missing.
    """
    try:
        import trustme
    except ImportError:
        raise ConfigError(
            "server.tls_dev needs the package trustme: install voicepipe with the extra 'crypto', or give a "
            "certificate with --tls-cert and --tls-key"
        ) from None
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    names = _own_names()
    now = datetime.fromtimestamp(unix_s(), UTC)
    if key_path.is_file() and _serves(cert_path, names, now + timedelta(days=DEV_RENEW_DAYS)):
        return cert_path, key_path
    issuer = trustme.CA(path_length=0, organization_name="voicepipe, for testing")
    made = issuer.issue_cert(
        *names,
        organization_name="voicepipe, for testing",
        not_before=now - timedelta(minutes=5),  # phones' clocks differ
        not_after=now + timedelta(days=DEV_DAYS),
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_private(key_path, made.private_key_pem.bytes())
    _write_private(cert_path, b"".join(pem.bytes() for pem in (*made.cert_chain_pems, issuer.cert_pem)))
    return cert_path, key_path


def _serves(cert_path: Path, names: tuple[str, ...], until: datetime) -> bool:
    """Return whether the file's first certificate is valid for all names until that time."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(cert_path.read_bytes())
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return certificate.not_valid_after_utc > until and set(names) <= {str(name.value) for name in covered}


def lan_address() -> str | None:
    """Return the address by which other machines on the local network reach this one; None without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_NOWHERE)
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address == "0.0.0.0" else address


def _own_names() -> tuple[str, ...]:
    lan = lan_address()
    host = socket.gethostname()
    usable = host.isascii() and 0 < len(host) < 64
    return ("localhost", "127.0.0.1", "::1", *((host,) if usable else ()), *((lan,) if lan else ()))


def _write_private(path: Path, data: bytes) -> None:
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    draft.replace(path)
