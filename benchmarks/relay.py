"""`benchmarks.compare` with what it costs to relay: this router beside nginx and vllm-router.

python -m benchmarks.relay --scenarios short,paced20k --repetitions 5 --json FILE
"""

import sys

from benchmarks.compare import main
from benchmarks.entrants import DIRECT, OURS

if __name__ == "__main__":
    sys.exit(main([DIRECT, "nginx", "vllm-router", OURS]))
