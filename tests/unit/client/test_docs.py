"""The documentation: every example runs, and every name that it mentions is there."""

import logging
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import waltz
from tests.unit.client.examples import DOCS, EXAMPLES, PROGRAMS, TESTS, run
from waltz.client.mock import MockDriver

pytestmark = pytest.mark.timeout(90)


def test_the_examples_are_found() -> None:
    assert {"The bank", "An idempotent consumer", "An outbox", "Hierarchical locks"} <= set(EXAMPLES)
    assert "Testing without a cluster" in EXAMPLES


@pytest.mark.parametrize("written_before", [0, 7])
@pytest.mark.parametrize("heading", EXAMPLES)
def test_example(heading: str, written_before: int, caplog: pytest.LogCaptureFixture) -> None:
    """On empty logs, and on logs of different lengths; nothing goes wrong unseen."""
    driver = MockDriver(4)
    for partition in driver.partitions:
        for _ in range(written_before * (partition.partition_id + 1)):
            partition.add(b"of somebody else")
    run(heading, driver)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.deep
def test_type_checkers_accept_the_examples(tmp_path: Path) -> None:
    """The checks are as strict as functions without annotations allow."""
    for number, source in enumerate([*EXAMPLES.values(), *PROGRAMS.values(), *TESTS.values()]):
        (tmp_path / f"example_{number}.py").write_text(source + "\n")
    strict = ["--strict", "--allow-untyped-defs", "--allow-untyped-calls", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *strict, *map(str, tmp_path.glob("example_*.py"))],
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
        timeout=80,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "page",
    [
        *("client.md", "callbacks.md", "client-operations.md", "consuming.md", "migration-from-java.md"),
        *("write-sessions.md", "tables.md"),
    ],
)
def test_the_names_are_there(page: str) -> None:
    text = (DOCS / page).read_text()
    for name in set(re.findall(r"\bwaltz\.([A-Za-z_]+)", text)) - {"client", "yml"}:
        assert hasattr(waltz, name), name


@pytest.mark.parametrize("package", [waltz, waltz.table])
def test_everything_that_the_package_offers_is_loaded_on_demand(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense
