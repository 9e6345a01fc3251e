"""Every way in which a vendor can fail has one error, which says whose it is and quotes little."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest

from voicepipe import clock
from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.cues import Hold, LlmCue, Status
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.values import replace

KEY = "sk-test-0123456789"


@pytest.fixture
def address(settings: Callable[..., ProviderSettings]) -> ProviderAddress:
    return ProviderAddress.of("llm", Spec("groq", "llama"), settings(api_key=KEY))


async def failure(address: ProviderAddress) -> StageError:
    """The error of one request."""
    with pytest.raises(StageError) as raised:
        async with http.post(address, "/chat/completions", json=b'{"stream": true}') as answer:
            await answer.body(limit_bytes=1_000_000)
    return raised.value


@asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[int]:
    """A server that says `answer` to whatever comes, or just hangs up; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def at(address: ProviderAddress, port: int, scheme: str = "http") -> ProviderAddress:
    return replace(address, base_url=f"{scheme}://127.0.0.1:{port}/v1")


async def test_nothing_listens_at_the_address(address: ProviderAddress, vendor: FakeVendor) -> None:
    """A refused connection is retryable, and says what to look for."""
    vendor.unplug()
    error = await failure(address)
    assert isinstance(error, StageBroken)
    assert "refused" in error.why
    assert error.retryable


async def test_vendor_dies_and_comes_back(address: ProviderAddress, vendor: FakeVendor) -> None:
    """The next request after a restart succeeds: no dead connection stays in the pool."""
    async with http.post(address, "/chat/completions", json=b"{}") as answer:
        await answer.body(limit_bytes=10_000)
    vendor.unplug()
    await failure(address)
    await vendor.plug_in()
    async with http.post(address, "/chat/completions", json=b"{}") as answer:
        assert await answer.body(limit_bytes=10_000)


async def test_unknown_name(address: ProviderAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is not found says DNS."""

    def not_found(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", not_found)
    error = await failure(replace(address, base_url="http://vendor.invalid/v1"))
    assert isinstance(error, StageBroken)
    assert "DNS" in error.why


async def test_no_tls_where_tls_is_expected(address: ProviderAddress) -> None:
    """A plain server behind an https address."""
    async with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        error = await failure(at(address, port, "https"))
    assert isinstance(error, StageBroken)


async def test_connection_that_takes_too_long(address: ProviderAddress) -> None:
    """A server whose backlog is full is a timeout of the connection, not of the answer."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        error = await failure(replace(at(address, port), connect_timeout_ms=150))
        for filler in fillers:
            filler.close()
    assert isinstance(error, StageTimeout)
    assert error.why == "no connection within 150 ms"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["hangs up", "another protocol", "cut", "broken chunk"],
)
async def test_answer_that_is_none(address: ProviderAddress, answer: bytes | None) -> None:
    """Whatever is not HTTP, or not all of it, is broken and retryable."""
    async with listening(answer) as port:
        error = await failure(at(address, port))
    assert isinstance(error, StageBroken)
    assert error.retryable
    assert (error.stage, error.provider) == ("llm", "groq/llama")


async def test_redirect_is_not_followed(address: ProviderAddress, vendor: FakeVendor) -> None:
    """The user's words go where the settings say, and nowhere else."""
    target = vendor.base_url.encode() + b"/chat/completions"
    async with listening(b"HTTP/1.1 307 Go\r\nContent-Length: 0\r\nLocation: " + target + b"\r\n\r\n") as port:
        error = await failure(at(address, port))
    assert isinstance(error, StageRefused)
    assert error.status == 307
    assert not vendor.llm.received


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no such model", "type": "x"}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"message": "no such model"}', "no such model"),
        (b'{"detail": "no such model"}', "no such model"),
        (b'{"detail": [{"loc": ["body"], "msg": "no such model"}]}', "no such model"),
        (b'[{"error": {"message": "no such model"}}]', "no such model"),
        (b"no such\r\n\x00model", "no such model"),
        (b"<html>no such model</html>", ""),
        (b"", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_vendors_words_are_found(address: ProviderAddress, body: bytes, words: str) -> None:
    """In every shape that vendors use, in one line; pages of HTML are left out."""
    error = failures.refused(address, 404, body)
    assert words in error.why
    assert error.why.endswith(f"({words})" if words else "model")
    assert error.why.isprintable()


@pytest.mark.parametrize("status", [400, 401, 403, 500])
async def test_key_is_never_quoted(address: ProviderAddress, vendor: FakeVendor, status: int) -> None:
    """A vendor that repeats the key, or part of one, is not repeated."""
    vendor.llm.cue(
        LlmCue(fault=Status(status, f"Incorrect API key provided: {KEY} or sk-proj-abc***xyz. " + "x" * 900))
    )
    error = await failure(address)
    assert isinstance(error, StageRefused)
    assert KEY not in str(error)
    assert "sk-proj" not in str(error)
    assert len(str(error)) < 320
    assert ("Incorrect" in error.why) == (status != 401)  # there its text is all about the key
    assert KEY not in repr(address)


@pytest.mark.parametrize(("header", "ms"), [("2", 2_000), ("0.25", 250), ("-3", 0), ("soon", None), (None, None)])
def test_retry_after_in_seconds(header: str | None, ms: int | None) -> None:
    """Seconds, fractions too, become ms; what can't be read is as if absent."""
    assert failures.retry_after_ms(header) == ms


def test_retry_after_as_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date becomes the time until it; one that is past becomes 0."""
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    monkeypatch.setattr(clock, "unix_s", lambda: int(now.timestamp()))
    assert failures.retry_after_ms(format_datetime(now + timedelta(seconds=90), usegmt=True)) == 90_000
    assert failures.retry_after_ms(format_datetime(now - timedelta(seconds=90), usegmt=True)) == 0


@pytest.mark.parametrize(
    ("body", "kind", "retryable"),
    [
        (b'{"error": {"message": "m", "code": 429}}', StageRefused, True),
        (b'{"error": {"message": "m", "code": "502"}}', StageRefused, True),
        (b'{"error": {"message": "m", "code": 400}}', StageRefused, False),
        (b'{"error": {"message": "m", "code": "overloaded_error"}}', StageBroken, True),
        (b'{"error": "m"}', StageBroken, True),
    ],
)
def test_error_inside_an_answer(address: ProviderAddress, body: bytes, kind: type[StageError], retryable: bool) -> None:
    """A code that is an HTTP status counts as one."""
    error = failures.in_band(address, body)
    assert type(error) is kind
    assert error.retryable is retryable


@pytest.mark.parametrize(
    ("raised", "kind", "retryable"),
    [
        (aiohttp.ClientConnectorCertificateError(None, ssl.CertificateError("x")), StageBroken, False),  # type: ignore[arg-type]
        (ssl.SSLError("x"), StageBroken, True),
        (aiohttp.InvalidURL("x"), StageBroken, False),
        (ConnectionResetError(), StageBroken, True),
        (aiohttp.ClientPayloadError(), StageBroken, True),
        (TimeoutError(), StageTimeout, True),
    ],
)
def test_transport_failures(
    address: ProviderAddress, raised: Exception, kind: type[StageError], retryable: bool
) -> None:
    """Each has its class and its flag."""
    error = failures.explain(address, raised)
    assert type(error) is kind
    assert error.retryable is retryable


def test_other_errors_are_not_the_vendors(address: ProviderAddress) -> None:
    """A bug of ours stays a bug of ours."""
    assert failures.explain(address, KeyError("x")) is None


async def test_overloaded_vendor(address: ProviderAddress, vendor: FakeVendor) -> None:
    """A vendor that takes one question at a time refuses the second with 503, and takes it when the first is over."""
    vendor.llm.max_concurrent = 1
    hold = Hold()
    vendor.llm.cue(LlmCue(hold=hold))
    async with http.post(address, "/chat/completions", json=b'{"stream": true}') as answer:
        error = await failure(address)
        assert isinstance(error, StageRefused)
        assert (error.status, error.retryable) == (503, True)
        hold.release.set()
        await answer.body(limit_bytes=100_000)
    async with http.post(address, "/chat/completions", json=b"{}") as answer:
        assert await answer.body(limit_bytes=100_000)


async def test_connections_are_pooled(address: ProviderAddress, vendor: FakeVendor) -> None:
    """Answers that were read to their end leave the connection to the next request, of whatever stage."""
    for stage in ("llm", "tts"):
        async with http.post(replace(address, stage=stage), "/chat/completions", json=b"{}") as answer:
            await answer.body(limit_bytes=100_000)
            assert await answer.read() == b""
    assert vendor.connections_made == 1


async def test_warm_connection_is_used(address: ProviderAddress, vendor: FakeVendor) -> None:
    """A preconnect opens the connection that the first request then finds."""
    await http.preconnect(address, "/models")
    assert vendor.connections_made == 1
    async with http.post(address, "/chat/completions", json=b"{}") as answer:
        await answer.body(limit_bytes=100_000)
    assert vendor.connections_made == 1


async def test_preconnecting_fails_in_silence(address: ProviderAddress, vendor: FakeVendor) -> None:
    """No server listens: the request will report it."""
    vendor.unplug()
    await http.preconnect(address, "/models")


@pytest.mark.parametrize("base_url", ["", "localhost:11434/v1", "ftp://x/v1"])
def test_base_url_must_be_one(base_url: str) -> None:
    """What is missing is named with its key."""
    with pytest.raises(ConfigError, match=r"providers\.mine\.base_url: expected"):
        ProviderAddress.of("llm", Spec("mine", "m"), ProviderSettings(kind="openai", base_url=base_url))


def test_without_a_key_nothing_is_said_of_one() -> None:
    """Local servers want no Authorization header; others get the scheme that they ask for."""
    local = ProviderSettings(kind="openai", base_url="http://127.0.0.1:1/v1/")
    assert ProviderAddress.of("llm", Spec("a", "b"), local).headers == ()
    assert ProviderAddress.of("llm", Spec("a", "b"), local).base_url == "http://127.0.0.1:1/v1"
    keyed = replace(local, api_key="k")
    assert ProviderAddress.of("llm", Spec("a", "b"), keyed, auth_scheme="Basic").headers == (
        ("Authorization", "Basic k"),
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, b'{"error": {"message": "You exceeded your current quota.", "code": "insufficient_quota"}}'),
        (400, b'{"error": {"message": "Hard limit.", "code": "billing_hard_limit_reached"}}'),
        (429, b'{"error": {"message": "Pay.", "type": "exceeded_current_quota_error"}}'),
        (401, b'{"detail": {"status": "quota_exceeded", "message": "0 credits remain."}}'),
        (400, b'{"error": {"type": "invalid_request_error", "message": "Your credit balance is too low."}}'),
        (400, b'{"code": "Arrearage", "message": "Access denied."}'),
        (429, b'{"error": {"message": "No.", "type": "insufficient_quota", "code": "credit_balance_exhausted"}}'),
        (403, b'{"error": {"message": "Your account has an insufficient balance.", "type": "permission_denied"}}'),
        (400, b'{"error": {"message": "You have reached your specified API usage limits."}}'),
        (429, b'{"code": "x", "error": "Your team has either used all available credits or reached a limit."}'),
        (
            412,
            b'{"error": {"message": "Possibly due to reaching the monthly spending limit.", "code": "PRECONDITION"}}',
        ),
        (429, '{"error": {"code": "1113", "message": "\u4f59\u989d\u4e0d\u8db3"}}'.encode()),
        (403, b'{"code": 30011, "message": "Your paid balance is insufficient.", "data": null}'),
    ],
)
def test_used_up_credit_is_the_same_error_with_every_status(address: ProviderAddress, status: int, body: bytes) -> None:
    error = failures.refused(address, status, body)
    assert (error.status, error.retryable) == (402, False)
    assert error.why.startswith("HTTP 402: no credit is left")
    within = failures.in_band(address, body)
    assert isinstance(within, StageRefused)
    assert within.status == 402


def test_a_code_of_used_up_credit_that_means_a_rate_stays_a_rate_limit() -> None:
    """Alibaba's `insufficient_quota` is a limit of requests or tokens a minute."""
    settings = ProviderSettings(kind="openai", base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1")
    alibaba = ProviderAddress.of("llm", Spec("alibaba", "qwen-plus"), settings)
    body = b'{"error": {"message": "Allocated quota exceeded.", "code": "insufficient_quota"}}'
    error = failures.refused(alibaba, 429, body)
    assert (error.status, error.retryable) == (429, True)
    arrears = b'{"error": {"message": "Access denied.", "code": "Arrearage"}}'
    assert failures.refused(alibaba, 403, arrears).status == 402


def test_a_rate_limit_that_speaks_of_a_quota_stays_a_rate_limit(address: ProviderAddress) -> None:
    """Gemini says so when a minute's requests are used up."""
    body = b'{"error": {"code": 429, "message": "You exceeded your current quota.", "status": "RESOURCE_EXHAUSTED"}}'
    error = failures.refused(address, 429, body)
    assert (error.status, error.retryable) == (429, True)
