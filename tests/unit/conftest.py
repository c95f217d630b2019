"""Unit tests run without Spark as well, and then what is made for it is left out. And they do not wait for disks."""

import importlib.util
import os
from collections.abc import Generator
from pathlib import Path
from unittest import mock

import hypothesis
import pytest

HERE = Path(__file__).parent

MISSING = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]

hypothesis.settings.register_profile("untimed", deadline=None)  # how long an example takes is the machine's affair
hypothesis.settings.load_profile("untimed")

collect_ignore_glob = ["spark/*", "demo/test_progress.py"] if MISSING else []


def pytest_report_header() -> str | None:
    """Say so."""
    return f"without {' and '.join(MISSING)}: unit tests of what is made for Spark are left out" if MISSING else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A sync of a real file is left to tests of that: no unit test takes the power away from a real disk.

    This hook is called for tests of other folders as well.
    """
    if HERE not in item.path.parents or item.get_closest_marker("real_syncs"):
        return (yield)
    with mock.patch.multiple(os, fsync=os.fstat, fdatasync=os.fstat):  # fails as well if a file is closed
        return (yield)
