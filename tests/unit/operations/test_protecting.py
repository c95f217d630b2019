"""Walks over a tree that changes, in memory; the rights themselves are tested on a real ZooKeeper."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.zk.client import NoNodeError
from waltz.common.zk.protected import Login, create
from waltz.common.zk.protection import (
    DOCUMENT_PATH,
    OPEN,
    PREPARED,
    Acl,
    AclEntry,
    Protection,
    ProtectionError,
    Role,
    identity_of,
)
from waltz.common.zk.store_admin import StoreAdminError, create_cluster
from waltz.operations.protecting import check, findings, protect, unprotect

ROOT = "/waltz"
LOGIN = Login("ops", SecretStr("password"), ROOT)
PROTECTION = Protection({Role.ADMIN: (LOGIN.identity,), Role.CLIENT: (identity_of("svc", "password"),)})


class WithLists(MemoryZooKeeper):
    """A client of the tree in memory that keeps a list for each node, and refuses nothing."""

    def __init__(self, server: MemoryZooKeeperServer, login: Login | None = LOGIN) -> None:
        super().__init__(server, 10.0)
        self.login = login
        self.lists: dict[str, Acl] = {}
        self.visitors: list[str] = []
        """Nodes that another process without a user creates, one at each change of a list."""

    async def create_with(
        self, path: str, data: bytes | None, acl: Acl, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        created = await self.create(path, data, ephemeral=ephemeral, sequential=sequential)
        self.lists[created] = acl
        return created

    async def acl(self, path: str) -> Acl:
        if await self.exists(path) is None:
            raise NoNodeError(path)
        return self.lists.get(path, OPEN)

    async def set_acl(self, path: str, acl: Acl) -> None:
        if await self.exists(path) is None:
            raise NoNodeError(path)
        self.lists[path] = acl
        if self.visitors:
            await self.create(self.visitors.pop(), None)


async def cluster() -> tuple[MemoryZooKeeperServer, WithLists]:
    server = MemoryZooKeeperServer()
    zookeeper = WithLists(server)
    await create_cluster(zookeeper, ROOT, "name", 2)
    return server, zookeeper


def paths(server: MemoryZooKeeperServer) -> list[str]:
    return [path for path in server.dump() if path == ROOT or path.startswith(f"{ROOT}/")]


async def test_every_node_gets_its_list_and_is_opened_again() -> None:
    server, zookeeper = await cluster()
    await zookeeper.create("/another", None)
    assert [each.path for each in await check(zookeeper, ROOT)] == paths(server)
    before = set(paths(server))
    await protect(zookeeper, ROOT, PROTECTION)
    assert set(paths(server)) - before == {f"{ROOT}/{path}" for path in ("ext", DOCUMENT_PATH, *PREPARED)}
    for path in paths(server):
        assert zookeeper.lists[path] == PROTECTION.acl_of(path.removeprefix(ROOT).removeprefix("/"))
    assert "/another" not in zookeeper.lists
    assert await check(zookeeper, ROOT) == []
    assert await protect(zookeeper, ROOT, PROTECTION) == 0
    await unprotect(zookeeper, ROOT)
    assert {await zookeeper.acl(path) for path in paths(server)} == {OPEN}
    assert await unprotect(zookeeper, ROOT) == 0


async def test_nodes_that_come_during_the_walk() -> None:
    server, zookeeper = await cluster()
    zookeeper.visitors = [f"{ROOT}/serverDescriptors/s_{number:010d}" for number in range(10)]
    await protect(zookeeper, ROOT, PROTECTION)
    assert await check(zookeeper, ROOT) == []
    assert len([path for path in paths(server) if "/s_" in path]) == 10


async def test_a_process_that_never_stops_creating_open_nodes() -> None:
    _, zookeeper = await cluster()
    zookeeper.visitors = [f"{ROOT}/serverDescriptors/s_{number:010d}" for number in range(10_000)]
    with pytest.raises(ProtectionError, match="other processes kept creating nodes"):
        await protect(zookeeper, ROOT, PROTECTION)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_findings_are_exactly_what_was_changed(data: st.DataObject) -> None:
    async def run() -> None:
        server, zookeeper = await cluster()
        await protect(zookeeper, ROOT, PROTECTION)
        less = frozenset({AclEntry("digest", LOGIN.identity, 31)})
        strange = data.draw(st.dictionaries(st.sampled_from(paths(server)), st.sampled_from([OPEN, less])))
        zookeeper.lists.update(strange)
        own = {path: PROTECTION.acl_of(path.removeprefix(ROOT).removeprefix("/")) for path in strange}
        wrong = {path: acl for path, acl in strange.items() if acl != own[path]}
        found = await findings(zookeeper, ROOT, PROTECTION)
        assert {each.path: (each.is_open, each.found, each.wanted) for each in found} == {
            path: (acl == OPEN, acl, own[path]) for path, acl in wrong.items()
        }
        walked = wrong.keys() - {f"{ROOT}/{DOCUMENT_PATH}"}  # its own node comes before the walk
        assert await protect(zookeeper, ROOT, PROTECTION) == len(walked)
        assert await check(zookeeper, ROOT) == []

    asyncio.run(run())


async def test_who_protects_stays_an_admin_of_a_cluster() -> None:
    server, zookeeper = await cluster()
    for login, why in (
        (None, "no zookeeper.user"),
        (Login("svc", SecretStr("password"), ROOT), "svc of this process is no user with the role admin"),
        (Login("ops", SecretStr("other"), ROOT), "has another password there"),
    ):
        with pytest.raises(ProtectionError, match=why):
            await protect(WithLists(server, login), ROOT, PROTECTION)
    with pytest.raises(ProtectionError, match="no user with the role admin"):
        await protect(zookeeper, ROOT, Protection({}))
    with pytest.raises((StoreAdminError, NoNodeError)):
        await protect(zookeeper, "/none", PROTECTION)
    assert zookeeper.lists == {}


async def test_lists_that_are_not_shown_are_no_findings() -> None:
    _, zookeeper = await cluster()
    await protect(zookeeper, ROOT, PROTECTION)
    zookeeper.lists[f"{ROOT}/store"] = frozenset({AclEntry("digest", "ops:x", 31)})
    with pytest.raises(ProtectionError, match="look as an admin"):
        await check(zookeeper, ROOT)


async def test_creations_of_users_need_no_repair() -> None:
    _, zookeeper = await cluster()
    await protect(zookeeper, ROOT, PROTECTION)
    await create(zookeeper, ROOT, f"{ROOT}/ext/cursor/group", None)
    await create(zookeeper, ROOT, f"{ROOT}/serverDescriptors/s_", b"", ephemeral=True, sequential=True)
    assert await check(zookeeper, ROOT) == []
