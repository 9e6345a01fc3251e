"""The certificate: from files, or made for trying out."""

from __future__ import annotations

import ipaddress
import ssl
import stat
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from voicepipe.errors import ConfigError
from voicepipe.server.options import ServerSettings
from voicepipe.server.tls import dev_certificate, tls_context
from voicepipe.testing.waiting import WAIT_S


async def test_the_server_speaks_https_and_wss_with_a_made_certificate(serve: Any, tmp_path: Path) -> None:
    """A client that trusts the certificate accepts it for the names of this machine."""
    async with serve(tls_dev=True) as server:
        assert server.base.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=tmp_path / "tls-dev" / "cert.pem")
        for host in ("127.0.0.1", "localhost"):
            base = server.base.replace("127.0.0.1", host)
            async with server.http.get(f"{base}/healthz", ssl=trusting) as answer:
                assert answer.status == 200
        async with server.connect(ssl=trusting) as line:
            await line.send_str("hello")
            assert await line.receive_str(timeout=WAIT_S) == "hello"
        page = {"Origin": server.base}
        assert (await server.post("/talk/token", headers=page, ssl=trusting))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await server.get("/healthz")


async def test_plain_http_on_a_page_of_https_is_another_origin(serve: Any, tmp_path: Path) -> None:
    async with serve(tls_dev=True) as server:
        trusting = ssl.create_default_context(cafile=tmp_path / "tls-dev" / "cert.pem")
        page = {"Origin": server.base.replace("https", "http")}
        status, body = await server.post("/talk/token", headers=page, ssl=trusting)
        assert (status, body["error"]["code"]) == (403, "origin_not_allowed")


def test_a_made_certificate_is_private_and_used_again(tmp_path: Path) -> None:
    """A browser's exception for it lasts over a restart, until a week before it ends."""
    cert, key = dev_certificate(tmp_path / "tls")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls", cert, key)] == [0o700, 0o600, 0o600]
    before = cert.read_bytes()
    assert dev_certificate(tmp_path / "tls") == (cert, key)
    assert cert.read_bytes() == before
    made = x509.load_pem_x509_certificate(before)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert ipaddress.ip_address("127.0.0.1") in names.get_values_for_type(x509.IPAddress)
    assert made.not_valid_after_utc - made.not_valid_before_utc <= timedelta(days=31)


def test_a_made_certificate_that_is_old_or_damaged_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, _ = dev_certificate(tmp_path)
    before = cert.read_bytes()
    made = x509.load_pem_x509_certificate(before)
    late_s = int(made.not_valid_after_utc.timestamp()) - 86_400
    monkeypatch.setattr("voicepipe.server.tls.unix_s", lambda: late_s)
    dev_certificate(tmp_path)
    renewed = cert.read_bytes()
    assert renewed != before
    cert.write_text("nonsense")
    dev_certificate(tmp_path)
    assert b"BEGIN CERTIFICATE" in cert.read_bytes()


def test_files_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    cert, key = dev_certificate(tmp_path / "one")
    _, other = dev_certificate(tmp_path / "two")
    missing = tmp_path / "nowhere.pem"
    for pair, words in (
        ((missing, key), f"server.tls_cert: expected a PEM file that can be read, got '{missing}'"),
        ((cert, missing), f"server.tls_key: expected a PEM file that can be read, got '{missing}'"),
        ((cert, other), "server.tls_cert: expected a certificate chain and its key in PEM"),
        ((key, cert), "server.tls_cert: expected a certificate chain and its key in PEM"),
    ):
        options = ServerSettings(tls_cert=str(pair[0]), tls_key=str(pair[1]))
        with pytest.raises(ConfigError) as refused:
            tls_context(options, tmp_path)
        assert words in str(refused.value)
    assert tls_context(ServerSettings(), tmp_path) is None


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ConfigError, match=r"install voicepipe with the extra 'crypto', or give a certificate"):
        tls_context(ServerSettings(tls_dev=True), tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_cert": "a"}, "server.tls_key: expected a PEM file, since server.tls_cert is set"),
        ({"tls_key": "a"}, "server.tls_cert: expected a PEM file, since server.tls_key is set"),
        ({"tls_cert": "a", "tls_key": "b", "tls_dev": True}, "server.tls_dev: expected false"),
        ({"trusted_proxies": ("proxy",)}, "server.trusted_proxies: expected addresses or networks"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ServerSettings(**options)
