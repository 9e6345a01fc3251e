"""Pages of other servers load the scripts, and frame the talk page where a setting allows it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.errors import ConfigError
from voicepipe.server.api.scripts import ENTRIES, bundle, read_script, without_comments
from voicepipe.server.options import ServerSettings

SHOP = "https://shop.example"
ROOT = Path(__file__).parents[2]


async def test_any_page_may_load_the_scripts(fake_server: Any) -> None:
    """A worklet and a module of another origin are read with CORS; nothing but scripts is given away."""
    headers = {"Origin": SHOP}
    async with fake_server() as server, aiohttp.ClientSession(server.url, headers=headers) as http:
        for path in ("/web/realtime.js", "/web/speaker.worklet.js"):
            async with http.get(path) as answer:
                assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "*")
        for path in ("/talk", "/web/talk.css", "/healthz", "/v1/turns"):
            async with http.get(path) as answer:
                assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_script_is_served_compressed_and_without_comments(fake_server: Any) -> None:
    """Its lines keep their numbers, so that a browser's errors name those of the source."""
    path, source = "/web/realtime.js", (ROOT / "web" / "realtime.js").read_text(encoding="utf-8")
    async with fake_server() as server, aiohttp.ClientSession(server.url) as http:
        async with http.get(path, headers={"Accept-Encoding": "identity"}) as answer:
            plain = await answer.text()
            assert "Content-Encoding" not in answer.headers
        async with http.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
            assert await answer.text() == plain
            assert (answer.headers["Content-Encoding"], answer.content_type) == ("gzip", "text/javascript")
            assert int(answer.headers["Content-Length"]) == len(gzip.compress(plain.encode(), mtime=0))
            assert "Accept-Encoding" in ",".join(answer.headers.getall("Vary"))
    lines = source.splitlines()
    assert all(line in ("", lines[number]) for number, line in enumerate(plain.splitlines()))
    assert len(plain) < 0.7 * len(source)


async def test_a_script_that_a_browser_has_is_not_sent_again(fake_server: Any) -> None:
    path = "/web/frames.js"
    async with fake_server() as server, aiohttp.ClientSession(server.url) as http:
        async with http.get(path) as answer:
            tag = answer.headers["ETag"]
        async with http.get(path, headers={"If-None-Match": tag}) as answer:
            assert (answer.status, await answer.read(), answer.headers["ETag"]) == (304, b"", tag)
        async with http.get(path, headers={"If-None-Match": tag, "Accept-Encoding": "identity"}) as answer:
            assert answer.status == 200, "the tag is that of the compressed script"


def test_a_changed_script_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.js"
    path.write_text("// first\nlet a = 1;\n")
    first = read_script(path)
    path.write_text("// again\nlet a = 2;\n")
    os.utime(path, ns=(1, 1))
    assert (first.plain, read_script(path).plain) == (b"\nlet a = 1;\n", b"\nlet a = 2;\n")
    assert first.tag != read_script(path).tag


def test_scripts_of_others_keep_their_licence() -> None:
    path = ROOT / "web" / "vendor" / "uplot" / "uPlot.esm.js"
    assert read_script(path).plain == path.read_bytes()


@pytest.mark.parametrize(
    ("source", "served"),
    [
        ("/** A.\n * b */\nlet a = 1; // c\n", "\n\nlet a = 1; // c\n"),
        ("  // a\n  let b = /** @type {any} */ (c);\n", "\n  let b = /** @type {any} */ (c);\n"),
        ('let a = "http://b";\n', 'let a = "http://b";\n'),
        ("/** a */ let b = 1;\n", "/** a */ let b = 1;\n"),
    ],
)
def test_comments_that_begin_a_line_are_left_out(source: str, served: str) -> None:
    assert without_comments(source) == served


async def test_the_talk_page_is_framed_by_the_listed_pages_only(serve: Any) -> None:
    origins = (SHOP, "https://*.shop.example", "http://localhost:3000")
    async with serve(frame_ancestors=origins) as server:
        async with server.http.get(f"{server.base}/talk") as answer:
            assert answer.headers["Content-Security-Policy"].endswith(f"frame-ancestors {' '.join(origins)}")
            assert "X-Frame-Options" not in answer.headers
        for path in ("/dashboard", "/docs", "/web/talk.css", "/v1/turns"):
            async with server.http.get(server.base + path) as answer:
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Frame-Options"] == "DENY"


async def test_without_the_setting_no_page_is_framed(serve: Any) -> None:
    async with serve() as server, server.http.get(f"{server.base}/talk") as answer:
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    "wrong", ["shop.example", "https://shop.example/", "https://a b", "*", "https://a; script-src *", "'self'", ""]
)
def test_what_is_no_origin_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.frame_ancestors: expected an origin"):
        ServerSettings(frame_ancestors=(wrong,))


def test_addresses_and_ports_are_origins() -> None:
    origins = ("http://127.0.0.1:3000", "https://[::1]:3000", "https://a-b.example")
    assert ServerSettings(frame_ancestors=origins).frame_ancestors == origins


def modules(folder: Path, **sources: str) -> Path:
    """Write modules; return the path of the first."""
    for name, source in sources.items():
        (folder / f"{name}.js").write_text(source)
    return folder / f"{next(iter(sources))}.js"


def test_a_bundle_has_each_module_once_and_no_import(tmp_path: Path) -> None:
    entry = modules(
        tmp_path,
        a='import { b as x } from "./b.js";\nimport { c, D } from "./c.js";\nexport const a = [x, D];\nexport { c };\n',
        b='import { c } from "./c.js";\nconst own = 1;\nexport const b = c() + own;\n',
        c="/** C. */\nconst own = 2;\nexport function c() {\n  return own;\n}\nclass D {}\nexport { D };\n",
    )
    assert bundle(entry) == (
        "const $c = (() => {\n\nconst own = 2;\nfunction c() {\nreturn own;\n}\nclass D {}\n"
        "\nreturn { c, D };\n})();\n"
        "const $b = (() => {\nconst { c } = $c;\nconst own = 1;\nconst b = c() + own;\nreturn { b };\n})();\n"
        "const { b: x } = $b;\nconst { c, D } = $c;\nexport const a = [x, D];\nexport { c };\n"
    )


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('import * as all from "./b.js";\n', "imports and exports by name"),
        ('export * from "./b.js";\n', "imports and exports by name"),
        ("export default 1;\n", "imports and exports by name"),
        ('import { b } from "./a.js";\n', "no circle of imports"),
    ],
)
def test_what_cannot_be_bundled_is_refused(tmp_path: Path, source: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        bundle(modules(tmp_path, a=source, b="export const b = 1;\n"))


def test_the_entries_of_the_pages_can_be_bundled() -> None:
    for name in ENTRIES:
        text = bundle(ROOT / "web" / name)
        assert "import {" not in text
        assert "export class Voicepipe" in text or "export { VoicepipeCall" in text
