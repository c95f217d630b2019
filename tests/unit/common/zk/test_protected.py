"""Creations while the protection comes, changes and goes, at every moment between the steps of a creation."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from waltz.common.zk.client import NodeExistsError, NoNodeError, NotPermittedError, Stat, Watch
from waltz.common.zk.protected import Login, create, read_protection
from waltz.common.zk.protection import OPEN, Acl, Protection, ProtectionError, Role, identity_of

ROOT = "/waltz"
OPS = identity_of("ops", "password")
PROTECTIONS = (
    None,
    Protection({Role.ADMIN: (OPS,), Role.CLIENT: (identity_of("svc", "password"),)}),
    Protection({Role.ADMIN: (OPS,), Role.CLIENT: (identity_of("svc", "other"),)}, with_original_nodes=True),
)


class Nodes:
    """Nodes whose protection changes at each of the calls, as the test says."""

    def __init__(self, changes: list[Protection | None]) -> None:
        self.protection = changes[0]
        self.shown: Protection | None = None
        self.changes = changes[1:]
        self.lists: dict[str, Acl] = {}
        self.refused: set[str] = set()
        self.calls: list[str] = []

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.changes:
            self.protection = self.changes.pop(0)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        assert path == f"{ROOT}/ext/protection"
        protection = self.shown = self.protection
        self._called("get")
        if protection is None:
            raise NoNodeError(path)
        return protection.encode(), Stat(0, 0, 0, 0, 0, 0, 0)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._called("exists")
        return Stat(0, 0, 0, 0, 0, 0, 0) if path in self.lists else None

    async def create_with(
        self, path: str, data: bytes | None, acl: Acl, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        self._called("create")
        if path in self.refused:
            raise NotPermittedError(path)
        path = f"{path}0000000000" if sequential else path
        if path in self.lists:
            raise NodeExistsError(path)
        self.lists[path] = acl
        return path

    async def acl(self, path: str) -> Acl:
        return self.lists[path]

    async def set_acl(self, path: str, acl: Acl) -> None:
        self._called("set_acl")
        self.lists[path] = acl


@given(st.lists(st.sampled_from(PROTECTIONS), min_size=1, max_size=8), st.booleans())
def test_in_the_end_the_list_is_that_of_the_protection(changes: list[Protection | None], sequential: bool) -> None:
    nodes = Nodes(changes)
    path, kind = ("serverDescriptors/s_", "serverDescriptors/s_0000000000") if sequential else ("ids/client",) * 2
    created = asyncio.run(create(nodes, ROOT, f"{ROOT}/{path}", b"", sequential=sequential))
    assert created == f"{ROOT}/{kind}"
    shown = nodes.shown  # at the last look; whatever comes later is found by the walk of the one who protects
    assert nodes.lists[created] == (OPEN if shown is None else shown.acl_of(kind))
    assert nodes.calls[-1] == "get"


def test_a_stable_protection_costs_two_reads() -> None:
    for protection in PROTECTIONS:
        nodes = Nodes([protection])
        asyncio.run(create(nodes, ROOT, f"{ROOT}/ids/client", b""))
        assert nodes.calls == ["get", "create", "get"]
        assert nodes.lists == {f"{ROOT}/ids/client": OPEN if protection is None else protection.acl_of("ids/client")}


def test_a_protection_that_comes_during_the_creation() -> None:
    for moment in (1, 2):
        nodes = Nodes([None] * moment + [PROTECTIONS[1]])
        asyncio.run(create(nodes, ROOT, f"{ROOT}/ids/client", b""))
        assert nodes.lists[f"{ROOT}/ids/client"] == PROTECTIONS[1].acl_of("ids/client")


def test_a_node_that_is_there_counts_more_than_a_missing_right() -> None:
    nodes = Nodes([PROTECTIONS[1]])
    nodes.refused = {f"{ROOT}/ext/clock", f"{ROOT}/ext/names"}
    nodes.lists[f"{ROOT}/ext/clock"] = OPEN
    with pytest.raises(NodeExistsError, match="ext/clock"):
        asyncio.run(create(nodes, ROOT, f"{ROOT}/ext/clock", b""))
    with pytest.raises(NotPermittedError):
        asyncio.run(create(nodes, ROOT, f"{ROOT}/ext/names", b""))


def test_outside_of_the_cluster_nodes_are_open() -> None:
    nodes = Nodes([PROTECTIONS[1]])
    asyncio.run(create(nodes, ROOT, "/another", None))
    assert nodes.lists["/another"] == OPEN


def test_a_protection_that_cannot_be_understood_lets_nothing_be_created() -> None:
    class Strange(Nodes):
        async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
            return b"{}", Stat(0, 0, 0, 0, 0, 0, 0)

    nodes = Strange([None])
    with pytest.raises(ProtectionError, match="newer version"):
        asyncio.run(create(nodes, ROOT, f"{ROOT}/ids/client", b""))
    assert nodes.lists == {}
    with pytest.raises(ProtectionError):
        asyncio.run(read_protection(nodes, ROOT))


def test_a_login_shows_no_password() -> None:
    login = Login("svc", SecretStr("the password"), ROOT)
    assert login.identity == identity_of("svc", "the password")
    assert "the password" not in repr(login)
