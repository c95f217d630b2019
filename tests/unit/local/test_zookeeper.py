"""Finding a Java; everything else of the local ZooKeeper is tested with real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz.local.zookeeper import LocalZooKeeperError, find_java


@pytest.fixture(autouse=True)
def forget_java() -> Iterator[None]:
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def install(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ["17", "17.0.15", "25.0.1"])
def test_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java = install(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_search_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = install(tmp_path, "21")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))
    assert find_java() == str(java)


@pytest.mark.parametrize("version", ["1.8.0_372", "11.0.2", "16"])
def test_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalZooKeeperError, match=f"Java 17 or newer is needed, {tmp_path}/bin/java is"):
        find_java()


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalZooKeeperError, match=f"no Java found in JAVA_HOME={tmp_path}: install Java 17"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalZooKeeperError, match="no Java found on the search path"):
        find_java()
