"""`python -m driftwise`."""

import os
import sys

# Python has put the working folder first: it would shadow what is installed, pathlib included.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109
    del sys.path[0]

from driftwise.cli.main import main

if __name__ == "__main__":
    main()
