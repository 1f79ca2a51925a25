"""Shared by all tests."""

import os
import pathlib
import sys

import pytest

# A limit set outside would decide about tests that set their own.
os.environ.pop("PLIMSOLL_MEMORY_LIMIT", None)
# Where the package is not installed, the checkout is what is tested.
sys.path.append(str(pathlib.Path(__file__).parent.parent))


@pytest.fixture
def tf():
    import plimsoll

    return plimsoll
