"""Finding a Java and the jars; everything else of the local ZooKeeper is tested with real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz.local.zookeeper import LocalZooKeeperError, find_java, zookeeper_jars


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


def distribution(directory: Path, *names: str) -> list[Path]:
    directory.mkdir()
    for name in names:
        (directory / name).touch()
    return sorted(directory.glob("*.jar"))


def test_all_jars_of_a_distribution_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = distribution(tmp_path / "lib", "zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar", "logback-core-1.3.jar")
    monkeypatch.setenv("WALTZ_ZOOKEEPER_JARS", "lib")
    monkeypatch.chdir(tmp_path)
    assert zookeeper_jars() == jars


def test_of_many_jars_those_are_used_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WALTZ_ZOOKEEPER_JARS", raising=False)
    pytest.importorskip("pyspark")
    of_pyspark = zookeeper_jars()
    monkeypatch.setenv("WALTZ_ZOOKEEPER_JARS", str(of_pyspark[0].parent))
    assert zookeeper_jars() == of_pyspark
    assert len(of_pyspark) < 20


@pytest.mark.parametrize("names", [(), ("zookeeper-jute-3.9.5.jar",)])
def test_a_directory_without_zookeeper_is_named(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path / "lib", *names)
    monkeypatch.setenv("WALTZ_ZOOKEEPER_JARS", str(tmp_path / "lib"))
    with pytest.raises(LocalZooKeeperError, match=r"WALTZ_ZOOKEEPER_JARS=.*/lib: there is no zookeeper-\[0-9\]"):
        zookeeper_jars()
