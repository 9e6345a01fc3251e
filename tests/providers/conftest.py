"""What the tests of providers share: a vendor on a real socket, and the connections' lifetime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from voicepipe.providers.net import http
from voicepipe.registry import ProviderSettings
from voicepipe.testing.conformance.promptness import PATIENT_MS
from voicepipe.testing.fakes.vendor import FakeVendor


@pytest.fixture
async def vendor() -> AsyncIterator[FakeVendor]:
    """A vendor for one test; the connections to it are closed first."""
    async with FakeVendor() as vendor, http.lifetime():
        yield vendor


@pytest.fixture
def patience_ms() -> int:
    """How long the vendor may send nothing; `impatient` tests shorten it."""
    return PATIENT_MS


@pytest.fixture
def settings(vendor: FakeVendor, patience_ms: int) -> Callable[..., ProviderSettings]:
    """Settings that lead to the vendor, with options as keywords."""

    def make(*, api_key: str = "sk-test-0123456789", **options: str) -> ProviderSettings:
        return ProviderSettings(
            kind="openai",
            base_url=vendor.base_url,
            api_key=api_key,
            idle_timeout_ms=patience_ms,
            options=tuple(options.items()),
        )

    return make
