"""Finding the jars; everything else of the local ZooKeeper is tested with real processes."""

from pathlib import Path

import pytest

from waltz.local.zookeeper import LocalZooKeeperError, zookeeper_jars


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
