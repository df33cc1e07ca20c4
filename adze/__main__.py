"""``python -m adze``: the command line (``commands/``)."""

import sys

from .commands import main

if __name__ == "__main__":
    sys.exit(main())
