"""Programs of the operating system that tests run."""

import os
import shutil

import pytest


def program(name: str, package: str) -> str:
    """The path of `name`. Where it is missing the test fails in CI, and says elsewhere why it is skipped."""
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not installed; on Debian: apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found
