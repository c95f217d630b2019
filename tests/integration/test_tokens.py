"""Clients and tools with tokens in a cluster of real processes: unknown, granted, renewed, withdrawn."""

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import waltz
from tests.unit.common.acl.tokens import described, token, write_keys
from tests.unit.common.net.certificates import Authority, write_pem
from waltz.common.config.schemas import ClientConfig, TlsConfig, load
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Layout

pytestmark = pytest.mark.integration


class Files:
    """The files of a cluster whose nodes have certificates, and whose clients have tokens."""

    def __init__(self, directory: Path) -> None:
        authority = Authority("authority")
        self.directory = directory
        self.trust = write_pem(directory / "trust.pem", None, [authority.certificate])
        self.node = write_pem(directory / "node.pem", authority.issue("localhost"), [])
        self.keys = write_keys(directory / "keys.json", described("ES256"))
        self.withdrawn, self.admin_token = directory / "withdrawn.txt", directory / "admin.token"
        self.withdrawn.write_text("")
        self.admin_token.write_text("none yet")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def cluster(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A storage and a server that take tokens; the cluster is made with the certificate of the nodes."""

    def tls(_: Layout, prefix: str) -> dict[str, object]:
        return {f"{prefix}.keyStore.location": files.node, f"{prefix}.trustStore.location": files.trust}

    def rules(node: str) -> dict[str, object]:
        return {
            f"{node}.acl.enabled": True,
            f"{node}.acl.superPrincipals": "CN=localhost;ops",
            f"{node}.acl.tokens.keys": files.keys,
            f"{node}.acl.tokens.withdrawn": str(files.withdrawn),
            f"{node}.acl.auditLog": str(files.directory / f"{node}.jsonl"),
            f"{node}.http.tls": True,
            f"{node}.http.open": "/health",
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


@pytest.fixture(scope="module")
def cluster_key(cluster: LocalCluster) -> str:
    return tool(cluster, "zookeeper show-cluster-key").strip().split()[-1]


def tool(cluster: LocalCluster, command: str, *words: str) -> str:
    line = [sys.executable, "-m", "waltz.cli.main", *command.split(), "-c", str(cluster.layout.cli_config_path), *words]
    result = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def without_certificate(cluster: LocalCluster, files: Files) -> ClientConfig:
    config = load(cluster.layout.client_config_path, ClientConfig)
    tls = TlsConfig(trust_store_location=files.trust, check_hostname=False)
    return config.model_copy(update={"tls": tls})


def replace(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    os.replace(new, path)


def test_a_token_is_refused_granted_renewed_and_withdrawn(
    cluster: LocalCluster, cluster_key: str, files: Files
) -> None:
    tool(cluster, "acl init")
    tool(cluster, "acl mode", "enforce", "--wait")
    config = without_certificate(cluster, files)

    async def appended(given: str | None) -> int:
        async with waltz.connect(config, token=given) as client:
            return await client.append(0, b"hello", timeout_s=60)

    first = token(aud=cluster_key, jti="first")
    with pytest.raises(
        waltz.NotAuthorizedError, match="principal 'anonymous' .neither a certificate nor a token. may not"
    ):
        asyncio.run(appended(None))
    with pytest.raises(waltz.NotAuthorizedError, match="'svc-t' .token. may not describe partition 0: no rule"):
        asyncio.run(appended(first))
    tool(cluster, "acl grant", "svc-t", "append,read", "0", "--wait")
    assert asyncio.run(appended(first)) == 0
    for bad, reason in (
        (token(), "for another cluster"),
        (token(aud=cluster_key, exp=1), "has expired"),
        (token("HS256", aud=cluster_key), "key 'HS256' is not known here"),
    ):
        with pytest.raises(waltz.NotAppendedError, match=reason):
            asyncio.run(appended(bad))
    asyncio.run(_followed(config, cluster_key, files))


async def _followed(config: ClientConfig, cluster_key: str, files: Files) -> None:
    """Keys and withdrawals are those of the files, and a client takes a newer token for its next connection."""
    given = token(aud=cluster_key, jti="first")
    async with waltz.connect(config, token=lambda: given) as client:
        feed = client.feed(0, after=-1)
        assert (await anext(feed)).data == b"hello"
        replace(files.withdrawn, "first\n")
        async with waltz.connect(config, token=given) as other:
            with pytest.raises(waltz.NotAppendedError, match="has been withdrawn"):
                async with asyncio.timeout(60):
                    while True:
                        await other.append(0, b"more", timeout_s=60)
                        await asyncio.sleep(0.5)
        given = token(aud=cluster_key, jti="second")
        async with asyncio.timeout(60):
            mark = await _appended_at_last(client)
            async for transaction in feed:
                if transaction.transaction_id == mark:
                    break


async def _appended_at_last(client: waltz.Client) -> int:
    """The connection with the withdrawn token is refused until the client has looked for another one."""
    while True:
        try:
            return await client.append(0, b"last", timeout_s=60)
        except waltz.NotAppendedError:
            await asyncio.sleep(0.5)


def test_tools_present_tokens_to_servers_and_storages(
    cluster: LocalCluster, cluster_key: str, files: Files, tmp_path: Path
) -> None:
    own = tmp_path / "cli.yml"
    own.write_text(
        "".join(
            line
            for line in cluster.layout.cli_config_path.read_text().splitlines(keepends=True)
            if "keyStore" not in line
        )
    )
    node = cluster.layout.storages[0]

    def listed(text: str) -> subprocess.CompletedProcess[str]:
        files.admin_token.write_text(text)
        line = [sys.executable, "-m", "waltz.cli.main", "storage", "list", "-c", str(own)]
        line += ["--token-file", str(files.admin_token), "-s", f"localhost:{node.admin_port}"]
        return subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)

    found = listed(token(aud=cluster_key, sub="ops", jti="ops"))
    assert found.returncode == 0, found.stderr
    assert "Partition Info for id: 0" in found.stdout
    assert "Partition Info for id: 1" in found.stdout
    filtered = listed(token(aud=cluster_key, sub="svc-t", jti="svc")).stdout
    assert "Partition Info for id: 0" in filtered, "who may append may describe"
    assert "Partition Info for id: 1" not in filtered
    refused = listed(token(aud=cluster_key, sub="stranger", jti="stranger"))
    assert "principal 'stranger' (token) may not describe this node: no rule" in refused.stdout + refused.stderr
    unknown = listed(token(sub="ops"))
    assert "for another cluster" in unknown.stdout + unknown.stderr


def page(files: Files, port: int, path: str, given: str | None = None) -> tuple[int, str]:
    """Status and body of a page over HTTPS."""
    headers = {} if given is None else {"Authorization": f"Bearer {given}"}
    request = urllib.request.Request(f"https://localhost:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(
            request, timeout=60, context=ssl.create_default_context(cafile=files.trust)
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_readers_and_tools_at_the_https_ports(cluster: LocalCluster, cluster_key: str, files: Files) -> None:
    server, storage = cluster.layout.servers[0], cluster.layout.storages[0]
    tool(cluster, "acl mode", "enforce", "--wait")
    tool(cluster, "acl revoke", "anonymous", "describe", "*", "--wait")
    reader = token(aud=cluster_key, sub="prometheus", jti="prometheus")
    for node in (server, storage):
        assert page(files, node.http_port, "/ping") == (200, "pong\n")
        status, text = page(files, node.http_port, "/metrics", reader)
        assert (status, text.partition(": ")[0]) == (403, "principal 'prometheus' (token) may not describe this node")
        status, text = page(files, node.http_port, "/metrics")
        assert (status, text.partition(": ")[0]) == (
            403,
            "principal 'anonymous' (no certificate) may not describe this node",
        )
        assert page(files, node.http_port, "/health")[0] in (200, 500), "which is open"
    granted = tool(cluster, "acl grant", "prometheus", "describe", "*", "--wait")
    assert "+ allow prometheus to describe at *" in granted
    for node in (server, storage):
        assert page(files, node.http_port, "/metrics/prometheus", reader)[0] == 200
    assert page(files, server.http_port, "/console", reader)[0] == 200
    tool(cluster, "acl revoke", "prometheus", "describe", "0", "--deny", "--wait")
    assert page(files, server.http_port, "/console/cluster.json", reader)[0] == 200, "what it shows is filtered"
    status, text = page(files, server.http_port, "/metrics", reader)
    assert (status, text.partition(": ")[0]) == (403, "principal 'prometheus' (token) may not describe partition 0")

    shown = tool(cluster, "session show", "--http", str(server.http_port), "--set", "http.tls=true")
    assert "fences: 0" in shown
    listed = tool(cluster, "server list", "-s", f"localhost:{server.http_port}", "--set", "http.tls=true")
    assert listed.startswith("There are 2 partitions for current server\n")
    line = [sys.executable, "-m", "waltz.cli.main", "server", "list", "-s", f"localhost:{server.http_port}"]
    plain = subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)
    assert (plain.returncode, plain.stderr.count("does it use TLS, as http.tls says?")) == (1, 1)

    late = token(aud=cluster_key, sub="svc-late", exp=1)
    assert page(files, server.http_port, "/metrics", late)[0] == 401
    with pytest.raises(waltz.NotAppendedError, match="has expired"):
        asyncio.run(_appended(without_certificate(cluster, files), late))
    lines = until_noted(files.directory / "server.jsonl", 2)
    assert [(each["user"]["name"], each["dst_endpoint"]["port"]) for each in lines] == [
        ("svc-late", server.http_port),
        ("svc-late", server.port),
    ]
    assert {each["status_detail"] for each in lines} == {"the token has expired; the client needs a new one"}
    assert late.split(".")[2] not in (files.directory / "server.jsonl").read_text()
    metrics = page(files, server.http_port, "/metrics/prometheus", token(aud=cluster_key, sub="ops", jti="ops"))[1]
    for port in ("http", "client"):
        assert re.search(rf'^waltz_tokens_refused_total{{port="{port}",reason="expired"}} [1-9]', metrics, re.M)


async def _appended(config: ClientConfig, given: str) -> None:
    async with waltz.connect(config, token=given) as client:
        await client.append(0, b"hello", timeout_s=60)


def until_noted(path: Path, count: int) -> list[dict[str, Any]]:
    """The lines about tokens of "svc-late", when there are so many: a thread writes them."""
    deadline_s = time.monotonic() + 60
    while True:
        lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        found = [line for line in lines if line["class_uid"] == 3002 and line["user"]["name"] == "svc-late"]
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_whose_token_it_is(files: Files) -> None:
    files.admin_token.write_text(token(aud="the-cluster", sub="ops", exp=2_000_000_000))
    line = [sys.executable, "-m", "waltz.cli.main", "acl", "whoami", "--token", str(files.admin_token)]
    unverified = subprocess.run(line, capture_output=True, text=True, timeout=100, check=True).stdout
    assert unverified == (
        "principal 'ops' (token)\n"
        "key 'ES256', id 't-1', for cluster the-cluster, until 2033-05-18T03:33:20+00:00\n"
        "not verified: --keys FILE names the keys\n"
    )
    verified = subprocess.run([*line, "--keys", files.keys], capture_output=True, text=True, timeout=100, check=True)
    assert f"verified with {files.keys}\n" in verified.stdout
    files.admin_token.write_text(token(aud="the-cluster", private=b"x" * 64, algorithm="HS256", key_id="ES256"))
    bad = subprocess.run([*line, "--keys", files.keys], capture_output=True, text=True, timeout=100, check=False)
    assert (bad.returncode, bad.stderr.count("algorithm is not ES256")) == (1, 1)
