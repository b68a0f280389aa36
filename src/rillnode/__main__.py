"""`python -m rillnode`: the command line."""

import sys

from rillnode.node.cli import main

if __name__ == "__main__":
    sys.exit(main())
