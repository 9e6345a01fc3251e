"""`python -m voicepipe` is `voicepipe`."""

import sys

from voicepipe.cli import main

if __name__ == "__main__":
    sys.exit(main())
