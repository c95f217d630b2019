"""Unit tests run without Spark as well: then what is made for it is left out."""

import importlib.util

import hypothesis

MISSING = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]

hypothesis.settings.register_profile("untimed", deadline=None)  # how long an example takes is the machine's affair
hypothesis.settings.load_profile("untimed")

collect_ignore_glob = ["spark/*", "demo/test_progress.py"] if MISSING else []


def pytest_report_header() -> str | None:
    """Say so."""
    return f"without {' and '.join(MISSING)}: unit tests of what is made for Spark are left out" if MISSING else None
