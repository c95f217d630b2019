"""Access rules in a cluster of real processes with mutual TLS: off, refused, granted, used, revoked."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import waltz
from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.common.net.peers import Recorder
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.ids import Endpoint
from waltz.common.net.channel import connect
from waltz.common.net.tls import client_context
from waltz.common.wire.frames import CLIENT_SERVER, STORAGE, Family
from waltz.common.zk.store_admin import read_server_descriptors
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT, Layout

pytestmark = pytest.mark.integration

MOST_CONNECTIONS = 8
MAPPING = r"RULE:^CN=([^,]+).*$/$1/"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The keys of a configuration with the stores of each principal."""
    directory = tmp_path_factory.mktemp("stores")
    authority = Authority("authority")
    trust = write_pem(directory / "trust.pem", None, [authority.certificate])
    return {
        name: {
            "keyStore.location": write_pem(directory / f"{name}.pem", authority.issue(name), []),
            "trustStore.location": trust,
        }
        for name in ("localhost", "ops", "svc-a")
    }


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the audit logs."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def cluster(
    stores: dict[str, dict[str, str]], logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """A storage and a server with access rules; there are none yet, and tools are those of a super principal."""

    def tls(_: Layout, prefix: str) -> dict[str, object]:
        name = "localhost" if prefix in ("server.ssl", "storage.ssl") else "ops"
        return {f"{prefix}.{key}": value for key, value in stores[name].items()}

    def rules(node: str) -> dict[str, object]:
        return {
            f"{node}.acl.enabled": True,
            f"{node}.acl.superPrincipals": "localhost;ops",
            f"{node}.acl.principalMapping": MAPPING,
            f"{node}.acl.auditLog": str(logs / f"{node}.jsonl"),
            f"{node}.connections.maxPerPrincipal": MOST_CONNECTIONS,
        }

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Layout, "_tls", tls)
        with LocalCluster(
            tmp_path_factory.mktemp("cluster"),
            storages=1,
            servers=1,
            partitions=2,
            server_overrides=rules("server"),
            storage_overrides=rules("storage"),
        ) as running:
            yield running


def acl(cluster: LocalCluster, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "waltz.cli.main", "acl", verb, "-c", str(cluster.layout.cli_config_path), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def done(cluster: LocalCluster, verb: str, *words: str) -> str:
    result = acl(cluster, verb, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_right_is_refused_granted_used_and_revoked(
    cluster: LocalCluster, stores: dict[str, dict[str, str]], logs: Path, tmp_path: Path
) -> None:
    done(cluster, "init")
    done(cluster, "mode", "enforce", "--wait")
    config = load(cluster.layout.client_config_path, ClientConfig)
    own = config.tls.model_copy(update={"key_store_location": stores["svc-a"]["keyStore.location"]})
    config = config.model_copy(update={"tls": own})

    async def appended(partition_id: int) -> int:
        async with waltz.connect(config) as client:
            return await client.append(partition_id, b"hello", timeout_s=60)

    with pytest.raises(waltz.NotAuthorizedError) as refused:
        asyncio.run(appended(0))
    assert str(refused.value) == (
        "principal 'svc-a' (certificate CN=svc-a) may not describe partition 0: no rule (rules version 1);"
        " waltz acl grant svc-a describe 0"
    )
    audit_log = str(logs / "server.jsonl")
    assert done(cluster, "suggest", audit_log) == "waltz acl grant svc-a describe 0\n"
    granted = done(cluster, "grant", "svc-a", "metadata,describe", "0", "--wait")
    assert "+ allow svc-a to metadata,describe at 0" in granted
    with pytest.raises(waltz.NotAuthorizedError, match="may not append to partition 0: no rule .rules version 2.;"):
        asyncio.run(appended(0))
    assert "all nodes apply the change" in done(cluster, "grant", "svc-a", "append", "0", "--wait")
    assert asyncio.run(appended(0)) == 0
    with pytest.raises(waltz.NotAuthorizedError, match="partition 1"):
        asyncio.run(appended(1))

    asyncio.run(_feed_ends(cluster, config))

    explained = done(cluster, "explain", "svc-a", "append", "0", "--json")
    assert json.loads(explained)["allowed"] is False
    listed = done(cluster, "list")
    assert f"applied by server {cluster.layout.servers[0].connect_string}: version 5" in listed
    assert f"applied by storage {cluster.layout.storages[0].connect_string}: version 5" in listed

    exported = tmp_path / "rules.json"
    exported.write_text(done(cluster, "export"))
    assert done(cluster, "diff", str(exported)) == "nothing differs\n"
    replayed = done(cluster, "replay", audit_log, str(logs / "storage.jsonl"), "--rules", str(exported))
    assert replayed.splitlines() == [
        "refused: svc-a: append at 0: no rule; 1 requests at most",
        "refused: svc-a: describe at 0-1: no rule; 2 requests at most",
        "refused: svc-a: metadata at 0: no rule; 1 requests at most",
    ]
    assigned = [json.loads(line)["api"]["operation"] for line in (logs / "storage.jsonl").read_text().splitlines()]
    assert "assign partitions" in assigned
    exported.write_text(exported.read_text().replace('"enforce"', '"off"'))
    off = done(cluster, "replay", audit_log, "--rules", str(exported), "--json")
    assert json.loads(off) == {"refused": []}
    assert done(cluster, "diff", str(exported)) == "- mode enforce\n+ mode off\n"
    done(cluster, "apply", str(exported), "--wait")
    assert asyncio.run(appended(1)) == 0


async def _feed_ends(cluster: LocalCluster, config: ClientConfig) -> None:
    """An open feed with its data ends, and says why, when its right is revoked."""
    granted = await asyncio.to_thread(done, cluster, "grant", "svc-a", "read", "0", "--wait")
    assert "+ allow svc-a to metadata,describe,append,read at 0" in granted
    async with waltz.connect(config) as client:
        feed = client.feed(0, after=-1)
        assert (await anext(feed)).data == b"hello"
        await asyncio.to_thread(done, cluster, "revoke", "svc-a", "metadata,describe,append,read", "0", "--wait")
        with pytest.raises(waltz.NotAuthorizedError, match="partition 0"):
            async with asyncio.timeout(60):
                await anext(feed)


def test_a_quota_slows_a_client_down(cluster: LocalCluster, stores: dict[str, dict[str, str]], tmp_path: Path) -> None:
    done(cluster, "mode", "enforce")
    done(cluster, "grant", "svc-a", "append", "1")
    per_second, total = 50, 200
    written = done(cluster, "set-quota", "svc-a", "1", "--appends", str(per_second), "--wait")
    assert written.startswith("+ quota svc-a at 1: 50 appends/s\n")
    assert "quota svc-a at 1: 50 appends/s\n" in done(cluster, "list")
    explained = done(cluster, "explain", "svc-a", "append", "1")
    assert explained.splitlines()[1] == "its appends have a limit: quota svc-a at 1: 50 appends/s"
    config = load(cluster.layout.client_config_path, ClientConfig)
    own = config.tls.model_copy(update={"key_store_location": stores["svc-a"]["keyStore.location"]})
    config = config.model_copy(update={"tls": own})

    async def append_all() -> tuple[list[int], float]:
        async with waltz.connect(config) as client:
            await client.append(1, b"first")
            begin_s = asyncio.get_running_loop().time()
            ids = await client.append_many(1, [b"%d" % number for number in range(total)], timeout_s=60)
            return ids, asyncio.get_running_loop().time() - begin_s

    ids, taken_s = asyncio.run(append_all())
    assert len(set(ids)) == total
    assert total <= per_second * (taken_s + 1) + 1
    exported = tmp_path / "rules.json"
    exported.write_text(done(cluster, "export"))
    assert json.loads(exported.read_text())["quotas"] == [{"principal": "svc-a", "at": "1", "appends_per_s": 50}]
    assert done(cluster, "apply", str(exported)) == "nothing to change\n"
    nothing = acl(cluster, "set-quota", "svc-a")
    assert (nothing.returncode, nothing.stderr.count("a quota needs a limit: --appends, --bytes, or both")) == (1, 1)
    assert done(cluster, "remove-quota", "svc-a", "1").startswith("- quota svc-a at 1: 50 appends/s\n")


@pytest.mark.parametrize("family", [CLIENT_SERVER._replace(versions=(5,)), STORAGE._replace(versions=(0,))])
async def test_a_principal_has_a_limit_of_connections(
    cluster: LocalCluster, stores: dict[str, dict[str, str]], family: Family
) -> None:
    await asyncio.to_thread(done, cluster, "mode", "enforce", "--wait")
    node = cluster.layout.servers[0] if family.magic == CLIENT_SERVER.magic else cluster.layout.storages[0]
    endpoint = Endpoint.parse(node.connect_string)
    own = load(cluster.layout.client_config_path, ClientConfig).tls

    async def opened(principal: str) -> Recorder:
        tls = own.model_copy(update={"key_store_location": stores[principal]["keyStore.location"]})
        handler = Recorder()
        await connect(endpoint, family, "test", handler, tls=client_context(tls), timeout_s=60)
        return handler

    of_service = [await opened("svc-a") for _ in range(MOST_CONNECTIONS + 1)]
    of_super_principal = [await opened("ops") for _ in range(MOST_CONNECTIONS + 1)]
    await of_service[-1].until_closed()
    others = (*of_service[:-1], *of_super_principal)
    channels = [handler.channel for handler in others if handler.channel is not None]
    assert len(channels) == len(others)
    assert not any(channel.closed for channel in channels)
    for channel in channels:
        await channel.close_within(10)


async def test_a_wait_names_a_server_without_a_zookeeper_session(cluster: LocalCluster) -> None:
    """A server that stands still goes on with its partitions, and with its rules, when it stands still no more."""
    (server,) = cluster.layout.servers
    zookeeper = await cluster.zookeeper()
    try:
        (before,) = await read_server_descriptors(zookeeper, ROOT)
        cluster.child(server).signal(signal.SIGSTOP)
        try:
            while await read_server_descriptors(zookeeper, ROOT):
                await asyncio.sleep(0.1)
            late = await asyncio.to_thread(acl, cluster, "mode", "audit", "--wait", "--timeout", "1")
            assert late.returncode == 1
            assert "the change is written, but 1 node may not apply it after 1 s:" in late.stderr
            assert f"a server without a ZooKeeper session (down, or cut off from ZooKeeper), id {before.server_id}" in (
                late.stderr
            )
            assert "owns partitions 0-1" in late.stderr
        finally:
            cluster.child(server).signal(signal.SIGCONT)
        changed = await asyncio.to_thread(done, cluster, "mode", "enforce", "--wait", "--timeout", "90")
        assert "all nodes apply the change" in changed
    finally:
        await zookeeper.close()
