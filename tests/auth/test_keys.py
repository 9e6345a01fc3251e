"""Keys from files and from the store: which sign, which verify, and what leaves the server."""

from __future__ import annotations

import hmac
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from stat import S_IMODE
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from voicepipe.auth.claims import Claims
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.keys import Keyring, SigningKey, VerifyingKey, read_pem
from voicepipe.auth.sqlite import FILE_NAME
from voicepipe.auth.tokens import MAX_TOKEN_BYTES, mint, verify
from voicepipe.errors import AuthError, ConfigError

Make = Callable[..., Claims]


def private_pem(private: Any, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    pem: bytes = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return pem


def public_pem(private: Any) -> bytes:
    pem: bytes = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@pytest.fixture(params=["EdDSA", "RS256"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> tuple[Path, Path]:
    """Files with a private key and with its public half, of each kind."""
    private = ed25519.Ed25519PrivateKey.generate() if request.param == "EdDSA" else rsa_key
    (tmp_path / "private.pem").write_bytes(private_pem(private))
    (tmp_path / "public.pem").write_bytes(public_pem(private))
    return tmp_path / "private.pem", tmp_path / "public.pem"


def test_a_public_key_verifies_what_its_private_key_signed(
    pair: tuple[Path, Path], claims_with: Make, now_s: int
) -> None:
    """The two agree on the kid by themselves, and the token stays under 2 kB with the longest signature."""
    private, public = map(read_pem, pair)
    assert isinstance(private, SigningKey)
    assert isinstance(public, VerifyingKey)
    token = mint(claims_with(), private)
    assert len(token) < MAX_TOKEN_BYTES
    assert verify(token, Keyring([], [public]), now_s=now_s) == claims_with()


def test_a_ring_of_public_keys_can_not_sign(pair: tuple[Path, Path]) -> None:
    """The attempt to sign raises an error that says so."""
    public = read_pem(pair[1], kid="partner")
    assert isinstance(public, VerifyingKey)
    assert public.kid == "partner"
    with pytest.raises(ConfigError, match="no token key can sign"):
        _ = Keyring([], [public]).signer


def test_hs_rs_confusion(pair: tuple[Path, Path], claims_with: Make, now_s: int) -> None:
    """A token signed by HS256 with the public key's file as the secret: any reader of the public key could forge it."""
    private = read_pem(pair[0])
    assert isinstance(private, SigningKey)
    # By hand: the library refuses to sign with a key file's text.
    header = msgspec.json.encode({"alg": "HS256", "kid": private.kid})
    signed = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in (header, msgspec.json.encode(claims_with())))
    mac = hmac.digest(pair[1].read_bytes(), signed, "sha256")
    forged = (signed + b"." + urlsafe_b64encode(mac).rstrip(b"=")).decode()
    with pytest.raises(AuthError, match="names algorithm 'HS256', but its key is for"):
        verify(forged, Keyring([private]), now_s=now_s)


def test_the_key_set_shows_public_halves_only(pair: tuple[Path, Path], key: SigningKey) -> None:
    """No private number and no shared secret leaves the server; the published keys verify a token elsewhere."""
    private = read_pem(pair[0])
    assert isinstance(private, SigningKey)
    published = Keyring([private, key]).jwks()
    assert [entry["kid"] for entry in published["keys"]] == [private.kid]
    [entry] = published["keys"]
    assert set(entry) <= {"kty", "crv", "x", "n", "e", "kid", "alg", "use"}
    assert jwt.PyJWKSet.from_dict(published)[private.kid].algorithm_name == private.verifies.algorithm


def test_a_token_is_verified_by_the_published_key_set(pair: tuple[Path, Path], claims_with: Make) -> None:
    """By a library that knows nothing of us but the set."""
    private = read_pem(pair[0])
    assert isinstance(private, SigningKey)
    token = mint(claims_with(), private).removeprefix("ek_")
    published = jwt.PyJWKSet.from_dict(Keyring([private]).jwks())[private.kid]
    assert jwt.PyJWS().decode_complete(token, published)["header"]["kid"] == private.kid


def test_keys_that_are_refused(tmp_path: Path) -> None:
    """Each with the file's name and what was expected."""
    path = tmp_path / "key.pem"
    refused = {
        private_pem(ec.generate_private_key(ec.SECP256R1())): "expected an Ed25519 key, or an RSA key of 2048 bits",
        private_pem(rsa.generate_private_key(65_537, 1_024)): "expected an Ed25519 key, or an RSA key of 2048 bits",
        private_pem(ed25519.Ed25519PrivateKey.generate(), b"secret"): "is encrypted",
        b"hello": "expected an Ed25519 or RSA key in PEM",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----": "expected an Ed25519 or RSA key in PEM",
    }
    for pem, why in refused.items():
        path.write_bytes(pem)
        with pytest.raises(ConfigError, match=f"key.pem.*{why}"):
            read_pem(path)
    with pytest.raises(ConfigError, match=r"missing\.pem: No such file"):
        read_pem(tmp_path / "missing.pem")


def test_a_key_file_without_the_extra_says_what_to_install(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base works without `cryptography`; only such a file needs it."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigError, match="the extra 'crypto'"):
        read_pem(pair[0])


def test_two_keys_of_one_kid_are_refused(key: SigningKey) -> None:
    """Which of them verifies would be left to chance."""
    with pytest.raises(ConfigError, match="same kid 'hs-1'"):
        Keyring([key, SigningKey.hs256("hs-1", b"y" * 32)])


def test_a_short_secret_is_refused() -> None:
    """Below the length of the hash it could be guessed offline from any token."""
    with pytest.raises(ConfigError, match="at least 32 bytes of secret, got 31"):
        SigningKey.hs256("hs-1", b"x" * 31)


def test_no_secret_in_any_repr(key: SigningKey, pair: tuple[Path, Path]) -> None:
    """What is logged by mistake shows nothing."""
    assert repr(key.secret)[2:-1] not in repr(key)
    assert "secret" not in repr(key)
    assert "material" not in repr(read_pem(pair[1]))


def test_a_generated_secret_persists(tmp_path: Path, claims_with: Make, now_s: int) -> None:
    """A token minted before a restart is good after it."""
    token = mint(claims_with(), KeyStore(tmp_path).keyring(now_s).signer)
    assert verify(token, KeyStore(tmp_path).keyring(now_s), now_s=now_s)


def test_the_file_of_secrets_is_for_its_owner_only(tmp_path: Path, now_s: int) -> None:
    """And one that others may read is refused with the command that helps."""
    store = KeyStore(tmp_path / "data")
    store.keyring(now_s)
    file = tmp_path / "data" / FILE_NAME
    assert S_IMODE(file.stat().st_mode) == 0o600
    assert S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"mode 0644\): run chmod 600"):
        KeyStore(tmp_path / "data").keyring(now_s)


def generated_kid(data_dir: Path) -> str:
    return KeyStore(data_dir).keyring(1_700_000_000).signer.kid


@pytest.mark.slow
def test_processes_that_start_at_once_agree_on_the_secret(tmp_path: Path) -> None:
    """Several at the same new data_dir; one makes the secret."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for n in range(5):
            data_dir = tmp_path / str(n)
            both = [pool.submit(generated_kid, data_dir) for _ in range(2)]
            assert len({one.result(timeout=60) for one in both}) == 1


def test_rotation_drops_no_token(tmp_path: Path, claims_with: Make, now_s: int) -> None:
    """The new key signs, also in a process that runs already; the old one verifies until it is removed."""
    running, command = KeyStore(tmp_path), KeyStore(tmp_path)
    old = running.keyring(now_s).signer
    old_token = mint(claims_with(), old)
    new = command.rotate(now_s)
    assert running.keyring(now_s).signer.kid == new.kid != old.kid
    assert verify(old_token, running.keyring(now_s), now_s=now_s)
    command.remove(old.kid)
    with pytest.raises(AuthError, match="removed after a rotation"):
        verify(old_token, running.keyring(now_s), now_s=now_s)
    assert verify(mint(claims_with(), new), running.keyring(now_s), now_s=now_s)


def test_the_key_that_signs_is_not_removed(tmp_path: Path, now_s: int) -> None:
    """Rotate first; and a name that isn't there is said."""
    store = KeyStore(tmp_path)
    kid = store.keyring(now_s).signer.kid
    with pytest.raises(ConfigError, match="rotate first"):
        store.remove(kid)
    with pytest.raises(ConfigError, match=f"no token key 'hs-nope'; there are: {kid}"):
        store.remove("hs-nope")


def test_the_ring_is_read_again_only_after_a_change(tmp_path: Path, now_s: int) -> None:
    """A handshake costs four bytes of reading."""
    store = KeyStore(tmp_path)
    store.keyring(now_s)
    ring = store.keyring(now_s)
    assert store.keyring(now_s) is ring
    KeyStore(tmp_path).rotate(now_s)
    assert store.keyring(now_s) is not ring


def test_keys_from_files_sign_before_generated_ones(tmp_path: Path, key: SigningKey, now_s: int) -> None:
    """The generated ones still verify, so that changing to files drops no session."""
    generated = KeyStore(tmp_path).keyring(now_s).signer
    ring = KeyStore(tmp_path, signing=[key]).keyring(now_s)
    assert ring.signer is key
    assert ring.find(generated.kid) == generated.verifies


def test_a_damaged_file_of_secrets_is_refused(tmp_path: Path, now_s: int) -> None:
    """It is left as it is, and the text says what moving it away would cost."""
    file = tmp_path / FILE_NAME
    file.write_bytes(b"damaged" * 200)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="issued API keys and tokens stop working"):
        KeyStore(tmp_path).keyring(now_s)
    assert file.read_bytes() == b"damaged" * 200
