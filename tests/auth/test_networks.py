"""A set of addresses and networks, as a setting lists them."""

from __future__ import annotations

import pytest

from voicepipe.auth.networks import Networks
from voicepipe.auth.proxies import TrustedProxies
from voicepipe.errors import ConfigError


def test_an_address_is_in_it_however_it_is_written() -> None:
    networks = Networks(("10.0.0.0/8", "::1"), key="a.b")
    assert "10.1.2.3" in networks
    assert "::ffff:10.1.2.3" in networks
    assert "0:0:0:0:0:0:0:1" in networks
    assert "11.1.2.3" not in networks


def test_text_that_is_no_address_is_not_in_it() -> None:
    """Such as the name of a socket in the file system."""
    assert "unix:" not in Networks(("0.0.0.0/0",), key="a.b")


@pytest.mark.parametrize(("listed", "some"), [((), False), (("127.0.0.1",), True)])
def test_an_empty_set_is_false(listed: tuple[str, ...], some: bool) -> None:
    assert bool(Networks(listed, key="a.b")) is some
    trusted = TrustedProxies(listed)
    assert bool(trusted) is some
    assert ("127.0.0.1" in trusted) is some


def test_what_is_neither_is_refused_by_the_settings_name() -> None:
    with pytest.raises(ConfigError, match=r"a\.b: expected addresses or networks .*'localhost'"):
        Networks(("localhost",), key="a.b")
