"""Draw the diagrams of the documentation: each block `mermaid NAME` of a page becomes web/diagrams/NAME.svg.

    npm install --prefix DIR mermaid@11.17.2
    python tests/web/diagrams.py DIR/node_modules/mermaid/dist/mermaid.min.js

Run it after a change of such a block; a test compares the digests. Needs Chromium. The server shows the drawings, with
the colours of the reader's scheme, and needs no Mermaid.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from voicepipe.testing.chromium import chromium

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "web" / "diagrams"
PAGES: Final = ROOT / "web" / "docs"

CONFIG: Final = {
    "startOnLoad": False,
    "theme": "base",
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False},
    "state": {"htmlLabels": False},
    "fontFamily": "system-ui, sans-serif",
    "deterministicIds": True,
    "themeVariables": {
        "background": "#fefdfc",
        "primaryColor": "#fefdfb",
        "primaryTextColor": "#010203",
        "primaryBorderColor": "#030405",
        "lineColor": "#030405",
        "edgeLabelBackground": "#fefdfc",
        "textColor": "#010203",
        "compositeBackground": "#fefdfa",
        "compositeTitleBackground": "#fefdfa",
        "altBackground": "#fefdfc",
    },
}
"""The colours are placeholders: `COLOURS` says what each becomes."""

COLOURS: Final = {
    "#fefdfc": ("#ffffff", "#16181d"),
    "#fefdfb": ("#eef3fb", "#24304a"),
    "#fefdfa": ("#fafafa", "#1d2027"),
    "#010203": ("#1c1e21", "#e8eaee"),
    "#030405": ("#5b6472", "#9aa4b5"),
}
"""Placeholder -> the colour on a light and on a dark page."""


def diagrams() -> dict[str, str]:
    """Return the source of each diagram of the pages, by its name."""
    texts = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md")))
    return dict(re.findall(r"^```mermaid (\w+)\n(.*?)^```", texts, re.DOTALL | re.MULTILINE))


def digest(source: str) -> str:
    """Return what an SVG says of the text that it was drawn from."""
    return hashlib.sha256(source.encode()).hexdigest()


async def main(mermaid: str) -> None:
    """Draw them all, with the text of Mermaid's script."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        page_file = Path(name) / "page.html"
        page_file.write_text("<!doctype html><meta charset='utf-8'><body></body>", encoding="utf-8")
        async with chromium(Path(name)) as browser, browser.page(page_file.as_uri()) as page:
            await page.evaluate(mermaid + ";0")
            await page.evaluate(f"mermaid.initialize({json.dumps(CONFIG)})")
            for diagram, source in diagrams().items():
                svg = await page.evaluate(f"mermaid.render('d', {json.dumps(source)}).then((drawn) => drawn.svg)")
                (FOLDER / f"{diagram}.svg").write_text(coloured(svg, source), encoding="utf-8")
                print(f"{diagram}.svg", file=sys.stderr)


def coloured(svg: str, source: str) -> str:
    """Return a drawing with the colours of both schemes, and the digest of its source."""
    schemes = ["".join(f"--c{n}:{pair[scheme]};" for n, pair in enumerate(COLOURS.values())) for scheme in (0, 1)]
    for n, placeholder in enumerate(COLOURS):
        svg = svg.replace(placeholder, f"var(--c{n})")
    style = f"<style>:root{{{schemes[0]}}}@media (prefers-color-scheme: dark){{:root{{{schemes[1]}}}}}</style>"
    head, _, rest = svg.partition(">")
    return f"{head}><!-- {digest(source)} -->{style}{rest}\n"


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_text(encoding="utf-8")))
