"""Keys and claims that the tests of this room begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from voicepipe.auth.claims import Claims
from voicepipe.auth.keys import Keyring, SigningKey
from voicepipe.auth.tokens import AUDIENCE, ISSUER

NOW_S = 1_700_000_000


@pytest.fixture
def now_s() -> int:
    return NOW_S


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.hs256("hs-1", bytes(range(32)))


@pytest.fixture
def ring(key: SigningKey) -> Keyring:
    return Keyring([key])


@pytest.fixture
def claims_with() -> Callable[..., Claims]:
    """Good claims, with any of them set to something else."""

    def claims_with(**changed: Any) -> Claims:
        good: dict[str, Any] = {
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "subject": "anna",
            "issued_at_s": NOW_S,
            "not_before_s": NOW_S,
            "expires_at_s": NOW_S + 600,
            "token_id": "t1",
            "project": "shop",
        }
        return Claims(**{**good, **changed})

    return claims_with
