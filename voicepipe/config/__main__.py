"""`python -m voicepipe.config --markdown` prints the table of all settings for the docs."""

from __future__ import annotations

import sys

from voicepipe.config.docs_table import markdown

if __name__ == "__main__":
    if sys.argv[1:] != ["--markdown"]:
        sys.exit("usage: python -m voicepipe.config --markdown")
    sys.stdout.write(markdown())
