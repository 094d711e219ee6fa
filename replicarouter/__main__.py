"""`python -m replicarouter` is the same program as the console script."""

import sys

from replicarouter.cli import main

if __name__ == "__main__":
    sys.exit(main())
