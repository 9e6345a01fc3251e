"""Serve the pages: files of the package's own `web` folder, under a policy by which they load nothing else."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import IO, Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from voicepipe.auth.origin import is_loopback_host
from voicepipe.server.api.docs import INDEX, MAX_QUERY_CHARS, Docs, document, results
from voicepipe.server.api.scripts import read_script
from voicepipe.server.context import CONTEXT
from voicepipe.server.errors import NotFound

TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".ts": "text/plain",
}
"""File types that are served; other files in the folder are not. Worklets and modules only run with JavaScript's type.
"""

POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
    "connect-src 'self'{sockets}; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
)

HSTS_S: Final = 30 * 86_400
"""Time for which a browser that used `https` uses only `https` (RFC 6797). Browsers ignore it with a certificate that
they do not trust, so it is not sent for `tls_dev`."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")


async def home(request: web.Request) -> web.Response:
    """`GET /`: redirect to the talk page."""
    return web.Response(status=302, headers={"Location": "/talk"})


async def talk(request: web.Request) -> web.StreamResponse:
    """`GET /talk`: the page where a user talks to an agent. Pages of `server.frame_ancestors` may frame it."""
    return await _file(request, "talk.html", frames=" ".join(request.app[CONTEXT].options.frame_ancestors))


async def dashboard(request: web.Request) -> web.StreamResponse:
    """`GET /dashboard`: the operator's page. It holds no figures itself: it requests them from the API, with a key."""
    return await _file(request, "dashboard.html")


async def docs(request: web.Request) -> web.Response:
    """`GET /docs`, `/docs/{page}`: the documentation; `?q=` searches it."""
    pages = await asyncio.to_thread(Docs.read, request.app[CONTEXT].pages / "docs")
    name, query = request.match_info.get("page", INDEX), request.query.get("q", "")[:MAX_QUERY_CHARS].strip()
    if query:
        return _html(request, document(pages, "Search", results(pages, query), current="", query=query))
    page = pages.pages.get(name)
    if page is None:
        raise NotFound(f"There is no page {name[:64]!r} in the documentation.", param=None, code="not_found")
    return _html(request, document(pages, page.title, page.body, current=name))


def _html(request: web.Request, text: str) -> web.Response:
    headers = _headers(request)
    # The search is a form of the page itself; no other page has a form.
    policy = headers["Content-Security-Policy"].replace("form-action 'none'", "form-action 'self'")
    return web.Response(text=text, content_type="text/html", headers=headers | {"Content-Security-Policy": policy})


async def asset(request: web.Request) -> web.StreamResponse:
    """`GET /web/...`: files that the pages load. Any page may load the scripts: they are the same for all."""
    return await _file(request, request.match_info["path"])


class _Page(web.FileResponse):
    """A file that is sent through the connection's buffer, where a client that does not read is detected.

    The loop's `sendfile` waits for a client without limit, and holds a thread's and a file's descriptor meanwhile.
    """

    async def _sendfile(self, request: web.BaseRequest, fobj: IO[Any], offset: int, count: int) -> AbstractStreamWriter:
        writer = await web.StreamResponse.prepare(self, request)
        assert writer is not None
        return await self._sendfile_fallback(writer, fobj, offset, count)


async def _file(request: web.Request, name: str, *, frames: str = "") -> web.StreamResponse:
    kind = TYPES.get(Path(name).suffix)
    path = request.app[CONTEXT].pages / name
    if kind is None or not _NAME.fullmatch(name) or not await asyncio.to_thread(path.is_file):
        raise NotFound(f"There is no page {name[:64]!r}.", param=None, code="not_found")
    headers = _headers(request, frames)
    answer = await _script(request, path, headers) if path.suffix == ".js" else _Page(path, headers=headers)
    answer.content_type = kind
    if kind.startswith("text/"):
        answer.charset = "utf-8"
    return answer


async def _script(request: web.Request, path: Path, headers: dict[str, str]) -> web.Response:
    script = await asyncio.to_thread(read_script, path)
    compress = "gzip" in request.headers.get("Accept-Encoding", "")
    tag = f"{script.tag}-gzip" if compress else script.tag
    headers |= {"ETag": f'"{tag}"', "Vary": "Accept-Encoding", "Access-Control-Allow-Origin": "*"}
    if any(each.value in (tag, "*") for each in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    if compress:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=script.compressed if compress else script.plain, headers=headers)


def _headers(request: web.Request, frames: str = "") -> dict[str, str]:
    """Return a page's headers; `frames`: origins of pages that may frame it."""
    handshake = request.app[CONTEXT].authenticator.handshake(request)
    host = request.headers.get("Host", "")
    # 'self' did not cover WebSockets in Safari before 15.4.
    sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""
    headers = {
        "Content-Security-Policy": POLICY.format(sockets=sockets, frames=frames or "'none'"),
        "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",  # revalidated each time, by its ETag: pages and scripts must fit together
    }
    if handshake.scheme == "https" and not is_loopback_host(host):
        headers["Strict-Transport-Security"] = f"max-age={HSTS_S}"
    return headers
