"""``waltz archive set-url`` and its like: what they check, store and print. The other verbs run on a real archive in
integration/test_archive.py."""

import argparse
import json
from pathlib import Path

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.archive.logs import archive_log
from tests.unit.common.cluster.fakes import make_log
from waltz.cli import archive
from waltz.cli.main import parser
from waltz.cli.session import Session
from waltz.common.errors import ConfigError
from waltz.common.zk.archive_address import read_archive_url
from waltz.common.zk.store_admin import create_cluster, read_store_params

ROOT = "/waltz"


@pytest.fixture
async def session() -> Session:
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, ROOT, "demo", 4)
    return Session(zookeeper, ROOT, None)


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["archive", *arguments, "-c", "unused.yml"])


async def test_the_address_is_set_shown_and_removed(
    session: Session, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    await archive._show_url(options("show-url"), session)
    assert capsys.readouterr().out == "no archive is set\n"
    url = f"file://{tmp_path}"
    await archive._set_url(options("set-url", url), session)
    assert f"{url} has no transactions of this cluster yet" in capsys.readouterr().out
    params = await read_store_params(session.zookeeper, ROOT)
    await archive_log(tmp_path, params.key, 0, make_log(0, 3), 3)
    await archive._set_url(options("set-url", url), session)
    assert capsys.readouterr() == ("", "")
    await archive._show_url(options("show-url", "--json"), session)
    assert json.loads(capsys.readouterr().out) == {"url": url}
    await archive._remove_url(options("remove-url"), session)
    assert await read_archive_url(session.zookeeper, ROOT) is None


async def test_an_address_of_a_store_that_does_not_answer_is_set_only_on_demand(
    session: Session, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    url = f"file://{tmp_path}/missing"
    with pytest.raises(ConfigError, match="is not a directory"):
        await archive._set_url(options("set-url", url), session)
    assert await read_archive_url(session.zookeeper, ROOT) is None
    await archive._set_url(options("set-url", url, "--unasked"), session)
    assert await read_archive_url(session.zookeeper, ROOT) == url
    with pytest.raises(ConfigError, match="must not contain secrets"):
        await archive._set_url(options("set-url", "s3://bucket?secret_access_key=x", "--unasked"), session)
    assert await read_archive_url(session.zookeeper, ROOT) == url
