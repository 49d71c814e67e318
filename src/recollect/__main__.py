"""`python -m recollect`."""

import os
import sys

# Python has put the working folder first, where it would shadow what is installed.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from recollect.cli import main

if __name__ == "__main__":
    main()
