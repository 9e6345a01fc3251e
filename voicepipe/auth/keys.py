"""Keys that sign tokens, each under its own `kid`, each with the one algorithm that it may be used with.

HS256 (a shared secret) is the default. Ed25519 (`EdDSA`) and RSA (`RS256`) come from PEM files and need the
`cryptography` extra, which is imported only when such a file is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from voicepipe.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

    Public = bytes | Ed25519PublicKey | RSAPublicKey
    Private = bytes | Ed25519PrivateKey | RSAPrivateKey

Algorithm = Literal["HS256", "EdDSA", "RS256"]

SECRET_BYTES: Final = 32
"""Length of an HS256 secret: as long as the hash, the minimum of RFC 7518 section 3.2."""

MIN_RSA_BITS: Final = 2_048
"""RFC 7518 section 3.3."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A key that verifies signatures. For HS256 this is the secret itself."""

    kid: str
    algorithm: Algorithm
    material: Public = field(repr=False)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs new tokens, and its counterpart that verifies them."""

    secret: Private = field(repr=False)
    verifies: VerifyingKey

    @property
    def kid(self) -> str:
        return self.verifies.kid

    @classmethod
    def hs256(cls, kid: str, secret: bytes) -> SigningKey:
        """Return a key from a shared secret.

        Raises:
            ConfigError: the secret is shorter than 32 bytes.
        """
        if len(secret) < SECRET_BYTES:
            raise ConfigError(f"token key {kid!r}: expected at least {SECRET_BYTES} bytes of secret, got {len(secret)}")
        return cls(secret, VerifyingKey(kid, "HS256", secret))


class Keyring:
    """All keys that are valid at this moment. A value: rotation makes a new ring."""

    def __init__(self, signing: Iterable[SigningKey], verifying: Iterable[VerifyingKey] = ()) -> None:
        """Create a ring. The first of `signing` signs; all of both verify.

        Raises:
            ConfigError: two keys have the same `kid`.
        """
        self._signing = tuple(signing)
        self._by_kid: dict[str, VerifyingKey] = {}
        for key in (*(key.verifies for key in self._signing), *verifying):
            if self._by_kid.setdefault(key.kid, key) is not key:
                raise ConfigError(f"two token keys have the same kid {key.kid!r}: give one of them another name")

    @property
    def signer(self) -> SigningKey:
        """Return the key that signs new tokens.

        Raises:
            ConfigError: there is none, only keys that verify.
        """
        if not self._signing:
            raise ConfigError(
                "no token key can sign: the key files hold only public keys, so another program must sign the tokens"
            )
        return self._signing[0]

    def find(self, kid: str) -> VerifyingKey | None:
        """Return the key of that name, or None."""
        return self._by_kid.get(kid)

    def jwks(self) -> dict[str, list[dict[str, Any]]]:
        """Return the public keys as a JWK Set (RFC 7517), for `/.well-known/jwks.json`.

        Shared secrets have no public half: a ring of HS256 keys alone gives an empty set.
        """
        keys = (key for key in self._by_kid.values() if key.algorithm != "HS256")
        return {"keys": [_jwk(key) for key in keys]}


def read_pem(path: Path, *, kid: str = "") -> SigningKey | VerifyingKey:
    """Read an Ed25519 or RSA key from a PEM file: a private key signs and verifies, a public key verifies.

    Without `kid` the key is named by the first 16 hex digits of its public half's SHA-256, so that all nodes agree.

    Raises:
        ConfigError: the file cannot be read, is no such key, is encrypted, or the `cryptography` extra is missing.
    """
    try:
        pem = path.read_bytes()
    except OSError as unread:
        raise ConfigError(f"token key file {path}: {unread.strerror}") from None
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    except ImportError:
        raise ConfigError(
            f"token key file {path} needs the package cryptography: install voicepipe with the extra 'crypto'"
        ) from None
    try:
        if b"PRIVATE KEY" not in pem:
            return _verifying(load_pem_public_key(pem), kid, path)
        private: Any = load_pem_private_key(pem, password=None)
        return SigningKey(private, _verifying(private.public_key(), kid, path))
    except TypeError:  # cryptography's exception for "this file needs a password"
        raise ConfigError(f"token key file {path} is encrypted: expected a PEM file without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"token key file {path}: expected an Ed25519 or RSA key in PEM") from None


def _verifying(public: Any, kid: str, path: Path) -> VerifyingKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    algorithm: Algorithm
    if isinstance(public, Ed25519PublicKey):
        algorithm = "EdDSA"
    elif isinstance(public, RSAPublicKey) and public.key_size >= MIN_RSA_BITS:
        algorithm = "RS256"
    else:
        raise ConfigError(
            f"token key file {path}: expected an Ed25519 key, or an RSA key of {MIN_RSA_BITS} bits or more"
        )
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return VerifyingKey(kid or hashlib.sha256(der).hexdigest()[:16], algorithm, public)


def _jwk(key: VerifyingKey) -> dict[str, Any]:
    from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

    material: Any = key.material
    shape: dict[str, Any]
    if key.algorithm == "EdDSA":
        shape = OKPAlgorithm.to_jwk(material, as_dict=True)
    else:
        shape = RSAAlgorithm.to_jwk(material, as_dict=True)
    public = {name: value for name, value in shape.items() if name != "key_ops"}
    return public | {"kid": key.kid, "alg": key.algorithm, "use": "sig"}
