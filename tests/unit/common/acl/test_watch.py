"""A node's rights follow the access rules in ZooKeeper."""

import asyncio
import itertools
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.access import ANONYMOUS, Right
from waltz.common.acl import changes
from waltz.common.acl.audit import MAX_LINES
from waltz.common.acl.audit_file import AuditFile
from waltz.common.acl.document import Document, Mode, Rule, write_document
from waltz.common.acl.enforcement import MAX_TEXTS, Row, RuleAccess
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.node import REFUSED_PAGE, start_rules, super_principals
from waltz.common.acl.rules import Decision, Rules
from waltz.common.acl.store import read_applied, read_stored, write_partition_names, write_rules
from waltz.common.acl.watch import RuleWatch
from waltz.common.config.schemas import AclConfig
from waltz.common.errors import ConfigError, WaltzError
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import Request
from waltz.common.zk.paths import ClusterPaths

ROOT = "/cluster"
PATHS = ClusterPaths.of(ROOT)
COUNT = 10
NAME = "server-host:1"
CONFIG = AclConfig(
    enabled=True, super_principals="CN=root; CN=spare", principal_mapping=r"RULE:CN=([^,]+).*/$1/,DEFAULT"
)
RULE = Rule(True, "svc-a", (Right.APPEND,), "7")
ENFORCED = Document(Mode.ENFORCE, rules=(RULE,))


class Node(NamedTuple):
    access: RuleAccess
    watch: RuleWatch
    registry: Registry
    lost: list[list[str]]


@pytest.fixture
async def server() -> AsyncIterator[MemoryZooKeeperServer]:
    made = MemoryZooKeeperServer()
    client = await made.connect()
    await client.create(ROOT, None)
    yield made
    await client.close()


@pytest.fixture
async def zookeeper(server: MemoryZooKeeperServer) -> AsyncIterator[MemoryZooKeeper]:
    client = await server.connect()
    yield client
    await client.close()


@asynccontextmanager
async def running(server: MemoryZooKeeperServer) -> AsyncIterator[Node]:
    client = await server.connect()
    registry = Registry()
    config = CONFIG.model_copy(update={"super_principals": "root; spare"})
    rules = await start_rules(config, client, ROOT, NAME, COUNT, registry, random.Random(1))
    node = Node(rules.access, rules.watch, registry, [])

    def on_lost(rows: Collection[Row]) -> None:
        node.lost.append([row.principal for row in rows])

    rules.watch.on_lost = on_lost
    try:
        yield node
    finally:
        await rules.watch.close()
        await client.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def put(zookeeper: MemoryZooKeeper, document: Document) -> None:
    await write_rules(zookeeper, ROOT, document, await read_stored(zookeeper, ROOT), COUNT)


def sample(node: Node, name: str, *labels: str) -> float:
    return dict(node.registry.readings[name]())[labels]


async def test_before_any_rules_only_super_principals_are_served(
    server: MemoryZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(server) as node:
        assert "no rules hold on: there are none; waltz acl init makes some" in caplog.text
        for right in Right:
            for partition_id in (None, 0, 9, 10):
                assert node.access.rights_of("CN=root").refusal(right, partition_id) is None
                refusal = node.access.rights_of("CN=svc-a").refusal(right, partition_id)
                assert refusal is not None
                assert refusal.endswith("only super principals may do anything; waltz acl init")
        assert sample(node, "waltz_acl_unusable") == 1
        assert sample(node, "waltz_acl_version") == -1


async def test_rules_are_followed(server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper) -> None:
    await put(zookeeper, ENFORCED)
    async with running(server) as node:
        row = node.access.rights_of("CN=svc-a,O=Bank")
        assert row.refusal(Right.APPEND, 7) is None
        assert row.refusal(Right.METADATA, 7) is None  # implied
        assert row.refusal(Right.APPEND, 6) == (
            "principal 'svc-a' (certificate CN=svc-a,O=Bank) may not append to partition 6: no rule (rules version 0);"
            " waltz acl grant svc-a append 6"
        )
        await put(zookeeper, changes.granted(ENFORCED, RULE._replace(partitions="6")))
        await until(lambda: row.refusal(Right.APPEND, 6) is None)
        assert node.lost == [[]]
        await put(zookeeper, Document(Mode.ENFORCE, rules=(RULE, RULE._replace(allows=False))))
        await until(lambda: row.refusal(Right.APPEND, 7) is not None)
        assert node.lost == [[], ["svc-a"]]
        assert row.refusal(Right.APPEND, 7) == (
            "principal 'svc-a' (certificate CN=svc-a,O=Bank) may not append to partition 7: rule 2 denies it"
            " (rules version 2); waltz acl explain svc-a append 7"
        )
        refusal = node.access.rights_of(ANONYMOUS).refusal(Right.DESCRIBE, None)
        assert refusal is not None
        assert refusal.startswith("principal 'anonymous' (no certificate) may not describe this node: no rule")
        assert refusal.endswith("waltz acl grant anonymous describe '*'")


async def test_each_node_says_what_it_applies(server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper) -> None:
    await put(zookeeper, ENFORCED)
    async with running(server) as node:
        stored = await read_stored(zookeeper, ROOT)
        assert stored is not None
        assert await read_applied(zookeeper, ROOT) == {"server host:1": stored.place}
        place = await write_partition_names(zookeeper, ROOT, {"orders": "0-3"}, stored, COUNT)
        assert place.covers(stored.place)
        assert not stored.place.covers(place)
        await until(lambda: node.watch._told is not None and node.watch._told[1] == place)
        assert await read_applied(zookeeper, ROOT) == {"server host:1": place}
    assert await read_applied(zookeeper, ROOT) == {}


async def test_a_node_says_it_again_in_another_session(
    server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper
) -> None:
    await put(zookeeper, ENFORCED)
    async with running(server) as node:
        assert node.watch._told is not None
        before = node.watch._told
        client = node.watch._zookeeper
        assert isinstance(client, MemoryZooKeeper)
        server.expire(client)
        await until(lambda: node.watch._told is not None and node.watch._told[0] != before[0])
        assert (await read_applied(zookeeper, ROOT)).keys() == {"server host:1"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "no JSON object"),
        (b'{"version": 1, "mode": "off", "hosts": []}', "unknown field 'hosts'"),
        (write_document(Document(Mode.OFF, rules=(RULE._replace(partitions="10"),))), "there is no partition 10"),
    ],
)
async def test_rules_that_cannot_be_used_leave_the_former_ones(
    server: MemoryZooKeeperServer,
    zookeeper: MemoryZooKeeper,
    data: bytes,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await put(zookeeper, ENFORCED)
    async with running(server) as node:
        row = node.access.rights_of("CN=svc-a")
        await zookeeper.set(PATHS.access_rules, data)
        await until(lambda: node.watch.unusable)
        assert "and version 0 hold on: " in caplog.text
        assert reason in caplog.text
        assert sample(node, "waltz_acl_unusable") == 1
        assert row.refusal(Right.APPEND, 7) is None
        assert row.refusal(Right.APPEND, 6) is not None
        await zookeeper.set(PATHS.access_rules, write_document(Document(Mode.OFF)))
        await until(lambda: row.refusal(Right.APPEND, 6) is None)
        assert sample(node, "waltz_acl_unusable") == 0
        assert sample(node, "waltz_acl_version") == 2


async def test_deleted_rules_hold_on(server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper) -> None:
    await put(zookeeper, ENFORCED)
    async with running(server) as node:
        row = node.access.rights_of("CN=svc-a")
        await zookeeper.delete(PATHS.applied_rules_of(NAME))
        await zookeeper.delete(PATHS.applied_rules)
        await zookeeper.delete(PATHS.access_rules)
        await until(lambda: node.watch.unusable)
        assert row.refusal(Right.APPEND, 7) is None
        assert row.refusal(Right.APPEND, 6) is not None


async def test_the_audit_lets_pass_what_enforcement_refuses(
    server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """The same requests in both modes: equal counts and texts, and nothing else differs."""
    caplog.set_level(logging.WARNING, "waltz.common.acl.refusals")
    requests = [
        (subject, right, partition_id)
        for subject in ("CN=svc-a", "CN=root", "CN=b c", ANONYMOUS)
        for right in Right
        for partition_id in (None, 6, 7, 10)
    ]
    texts, counts = {}, {}
    for mode in (Mode.AUDIT, Mode.ENFORCE):
        await put(zookeeper, ENFORCED._replace(mode=mode))
        caplog.clear()
        async with running(server) as node:
            refusals = [node.access.rights_of(subject).refusal(right, place) for subject, right, place in requests]
            counts[mode] = [sample(node, "waltz_acl_refused_total", right.name.lower(), mode.value) for right in Right]
            other = "enforce" if mode is Mode.AUDIT else "audit"
            assert not any(sample(node, "waltz_acl_refused_total", right.name.lower(), other) for right in Right)
        if mode is Mode.AUDIT:
            assert not any(refusals)
        else:
            assert sum(refusal is not None for refusal in refusals) == sum(counts[mode])
        texts[mode] = [
            record.getMessage().replace("audit: would refuse", "refused").replace("version 0", "version 1")
            for record in caplog.records
            if record.name == "waltz.common.acl.refusals"
        ]
    assert counts[Mode.AUDIT] == counts[Mode.ENFORCE]
    assert texts[Mode.AUDIT] == texts[Mode.ENFORCE] != []


async def test_refusals_are_folded(
    server: MemoryZooKeeperServer,
    zookeeper: MemoryZooKeeper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await put(zookeeper, Document(Mode.ENFORCE))
    async with running(server) as node:
        caplog.clear()
        row = node.access.rights_of("CN=svc-a")
        for right in Right:
            for partition_id in range(COUNT):
                assert row.refusal(right, partition_id) is not None
                assert row.refusal(right, partition_id) is not None
        assert len(caplog.records) == MAX_LINES
        caplog.clear()
        node.access.audit.end_window()
        folded = 2 * len(Right) * COUNT - MAX_LINES
        assert [record.getMessage() for record in caplog.records] == [
            f"{folded} more refusals like these of principal 'svc-a' were left out"
        ]
        assert row.refusal(Right.READ, 0, "10.0.0.1:55") is not None
        assert caplog.records[1].getMessage().endswith("waltz acl grant svc-a read 0 (from 10.0.0.1:55)")


async def test_rows_are_kept_as_long_as_connections(server: MemoryZooKeeperServer) -> None:
    async with running(server) as node:
        row = node.access.rights_of("CN=svc-a")
        assert node.access.rights_of("CN=svc-a") is row
        del row
        assert not node.access._rows


async def test_nobody_overwrites_another_change(zookeeper: MemoryZooKeeper) -> None:
    await put(zookeeper, ENFORCED)
    before = await read_stored(zookeeper, ROOT)
    await put(zookeeper, ENFORCED._replace(mode=Mode.AUDIT))
    with pytest.raises(AclError, match="somebody else has changed the access rules meanwhile: nothing was written"):
        await write_rules(zookeeper, ROOT, ENFORCED, before, COUNT)
    with pytest.raises(AclError, match="somebody else"):
        await write_rules(zookeeper, ROOT, ENFORCED, None, COUNT)
    with pytest.raises(AclError, match="'orders' is neither"):
        await put(zookeeper, Document(Mode.AUDIT, rules=(RULE._replace(partitions="orders"),)))


def test_super_principals() -> None:
    assert super_principals("") == []
    assert super_principals(CONFIG.super_principals or "") == ["CN=root", "CN=spare"]
    with pytest.raises(ConfigError, match="without a certificate"):
        super_principals("a;anonymous")


async def test_the_rules_are_looked_up_once_for_a_peer_s_repeated_requests(
    server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the audit every request without a right takes this way."""
    looked_up: list[tuple[object, ...]] = []
    decide = Rules.decide

    def counted(self: Rules, *words: Any) -> Decision:
        looked_up.append(words)
        return decide(self, *words)

    monkeypatch.setattr(Rules, "decide", counted)
    await put(zookeeper, Document(Mode.AUDIT))
    async with running(server) as node:
        row, other = node.access.rights_of("CN=svc-a"), node.access.rights_of("CN=svc-b")
        for _ in range(1000):
            assert row.refusal(Right.READ, 3) is None
            assert row.refusal(Right.READ, None, count=2) is None
        assert other.refusal(Right.READ, 3) is None
        assert looked_up == [("svc-a", Right.READ, 3), ("svc-a", Right.READ, None), ("svc-b", Right.READ, 3)]
        assert sample(node, "waltz_acl_refused_total", "read", "audit") == 3001
        for partition_id in range(COUNT, COUNT + 500):  # there are none such: a peer may ask for as many as it likes
            assert row.refusal(Right.READ, partition_id) is None
        assert len(row.texts) == 2
        for right, partition_id in itertools.product(Right, range(COUNT)):
            row.refusal(right, partition_id)
            other.refusal(right, partition_id)
            assert len(row.texts) <= MAX_TEXTS
        await put(zookeeper, Document(Mode.ENFORCE))
        await until(lambda: row.refusal(Right.READ, 3) is not None)


async def test_the_audit_log_of_a_node(
    server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper, tmp_path: Path
) -> None:
    """It has refusals, changes of the rules, and rules that cannot be used; its end is written when the node ends."""
    path, registry = tmp_path / "audit.log", Registry()
    await put(zookeeper, ENFORCED)
    config = CONFIG.model_copy(update={"audit_log": str(path)})
    rules = await start_rules(config, zookeeper, ROOT, NAME, COUNT, registry, random.Random(1))
    row = rules.access.rights_of("CN=svc-a")
    for _ in range(3):
        row.refusal(Right.APPEND, 6, "10.0.0.1:5")
    answer = rules.pages[REFUSED_PAGE](Request("GET", "/acl/refused", {}, ""))
    assert isinstance(answer.body, str)
    assert json.loads(answer.body) == {
        "principals": [{"principal": "svc-a", "refused": 3, "would_refuse": 0}],
        "over_quota": [],
    }
    await zookeeper.set(PATHS.access_rules, b"{}", 0)
    await until(lambda: rules.watch.unusable)
    await rules.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [(line["api"]["operation"], line["status"], line["unmapped"]["at"], line["count"]) for line in lines]
    assert told == [
        ("apply access rules", "Success", "node", 1),
        ("append", "Failure", "6", 1),
        ("apply access rules", "Failure", "node", 1),
        ("append", "Failure", "6", 2),
    ]
    assert lines[0]["status_detail"] == "version 0, mode enforce, 1 rules; before: none"
    assert lines[1]["src_endpoint"] == {"ip": "10.0.0.1", "port": 5}
    assert "version 0 hold on" in lines[2]["status_detail"]
    assert {line["api"]["service"]["name"] for line in lines} == {NAME}
    assert dict(registry.readings["waltz_acl_audit_lost_total"]()) == {(): 0}


async def test_a_node_whose_audit_log_cannot_be_opened_does_not_start(
    zookeeper: MemoryZooKeeper, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"audit_log": str(tmp_path)})
    with pytest.raises(ConfigError, match="the audit log .* cannot be opened: Is a directory"):
        await start_rules(config, zookeeper, ROOT, NAME, COUNT, Registry(), random.Random(1))


async def test_metrics_say_what_is_applied(server: MemoryZooKeeperServer, zookeeper: MemoryZooKeeper) -> None:
    async with running(server) as node:
        readings = {name: list(node.registry.readings[name]()) for name in ("waltz_acl_age_seconds", "waltz_acl_mode")}
        assert readings == {"waltz_acl_age_seconds": [], "waltz_acl_mode": []}
        await put(zookeeper, Document(Mode.AUDIT))
        await until(lambda: sample(node, "waltz_acl_version") == 0)
        assert sample(node, "waltz_acl_names_version") == -1
        assert dict(node.registry.readings["waltz_acl_mode"]()) == {("off",): 0, ("audit",): 1, ("enforce",): 0}
        assert 0 <= sample(node, "waltz_acl_age_seconds") < 60
        stored = await read_stored(zookeeper, ROOT)
        assert stored is not None
        await write_partition_names(zookeeper, ROOT, {"orders": "0-3"}, stored, COUNT)
        await put(zookeeper, Document(Mode.ENFORCE))
        await until(lambda: sample(node, "waltz_acl_version") == 1)
        assert sample(node, "waltz_acl_names_version") == 0
        assert dict(node.registry.readings["waltz_acl_mode"]())[("enforce",)] == 1


async def test_a_start_without_zookeeper_leaves_no_audit_log_open(
    server: MemoryZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[AuditFile] = []
    close = AuditFile.close

    def counted(file: AuditFile) -> None:
        close(file)
        closed.append(file)

    monkeypatch.setattr(AuditFile, "close", counted)
    client = await server.connect()
    await client.close()
    config = CONFIG.model_copy(update={"audit_log": str(tmp_path / "audit.log")})
    with pytest.raises(WaltzError):
        await start_rules(config, client, ROOT, NAME, COUNT, Registry(), random.Random(1))
    assert len(closed) == 1
