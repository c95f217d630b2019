"""A protected tree in a real ZooKeeper: what each role may do, and a cluster whose processes have users."""

import asyncio
import contextlib
import itertools
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml
from pydantic import SecretStr

from tests.unit.common.net.certificates import Authority, write_pem
from waltz.common.acl import changes
from waltz.common.acl.store import Place, read_applied, read_stored, write_rules
from waltz.common.wire.partition_properties import SetPropertiesStatus
from waltz.common.zk.client import NodeExistsError, NotPermittedError
from waltz.common.zk.kazoo_client import KazooZooKeeper, connect
from waltz.common.zk.protected import Login, read_protection
from waltz.common.zk.protection import (
    DOCUMENT_PATH,
    OPEN,
    TABLE,
    Acl,
    AclEntry,
    Protection,
    ProtectionError,
    Rights,
    Role,
    identity_of,
)
from waltz.common.zk.store_admin import create_cluster
from waltz.local.ports import free_ports
from waltz.local.zookeeper import LocalZooKeeper
from waltz.operations.protecting import AclZooKeeper, check, protect, unprotect
from waltz.server.process.property_setting import set_properties
from waltz.table.properties import Replaced, change_properties, change_properties_by, read_properties

pytestmark = pytest.mark.integration

PASSWORDS = {role: f"{role.value}-password-of-the-test" for role in Role}
USERS = {role: (identity_of(role.value, password),) for role, password in PASSWORDS.items()}
SUPER = "super-password-of-the-test"


class WithSuperUser(LocalZooKeeper):
    """A ZooKeeper whose super user is ``super``."""

    def _launch(self, command: list[str]) -> None:
        identity = identity_of("super", SUPER)
        java, *others = command
        super()._launch([java, f"-Dzookeeper.DigestAuthenticationProvider.superDigest={identity}", *others])


@pytest.fixture(scope="module")
def server() -> Iterator[LocalZooKeeper]:
    with WithSuperUser() as running:
        yield running


async def opened(server: LocalZooKeeper, root: str, user: str | None, password: str = "") -> KazooZooKeeper:
    login = None if user is None else Login(user, SecretStr(password), root)
    return await connect(server.connect_string, session_timeout_s=10, connect_timeout_s=60, login=login)


@pytest.fixture
async def users(server: LocalZooKeeper, request: pytest.FixtureRequest) -> AsyncIterator["Users"]:
    root = f"/{request.node.name}"
    async with contextlib.AsyncExitStack() as stack:

        async def user(name: str | None, password: str = "") -> KazooZooKeeper:
            client = await opened(server, root, name, password)
            stack.push_async_callback(client.close)
            return client

        roles = {role: await user(role.value, PASSWORDS[role]) for role in Role}
        await create_cluster(roles[Role.ADMIN], root, "name", 2)
        yield Users(root, roles, await user(None), user)


class Users:
    """A cluster's tree, with a client for each role and one without a user."""

    def __init__(
        self,
        root: str,
        roles: dict[Role, KazooZooKeeper],
        nobody: KazooZooKeeper,
        user: Callable[..., Awaitable[KazooZooKeeper]],
    ) -> None:
        self.root = root
        self.roles = roles
        self.nobody = nobody
        self.user = user

    @property
    def admin(self) -> KazooZooKeeper:
        return self.roles[Role.ADMIN]


async def what_is_permitted(zookeeper: KazooZooKeeper, path: str, admin: KazooZooKeeper) -> str:
    """The permissions that a client really has at a node, as letters; leaves the node as it is, but for its data."""

    async def tried(call: Awaitable[object]) -> bool:
        try:
            await call
        except NotPermittedError:
            return False
        return True

    probe = f"{path}/probe-{'-' if zookeeper.login is None else zookeeper.login.user}"
    found = "c" if await tried(zookeeper.create_with(probe, None, OPEN)) else ""
    if not found:
        await admin.create_with(probe, None, OPEN)
    if await tried(zookeeper.delete(probe)):
        found += "d"
    else:
        await admin.delete(probe)
    if await tried(zookeeper.get(path)):
        found += "r"
    assert await tried(zookeeper.children(path)) is ("r" in found)
    if await tried(zookeeper.set(path, b"anything")):
        found += "w"
    if await tried(zookeeper.set_acl(path, await admin.acl(path))):
        found += "a"
    return found


def examples() -> Iterator[tuple[Rights | None, str]]:
    """A path for each line of the table, and some that no line is about."""
    for line in TABLE:
        if line.pattern != DOCUMENT_PATH:  # each probe would write to it
            yield line, line.pattern.replace("*", "7")
    yield None, "ext/unheard"
    yield None, "store/adminLock"


@pytest.mark.parametrize("with_original_nodes", [False, True])
async def test_every_role_at_every_path(users: Users, with_original_nodes: bool) -> None:
    root, admin = users.root, users.admin
    for _, path in examples():
        with contextlib.suppress(NodeExistsError):
            await admin.create(_at(root, path), b"", make_path=True)
    await protect(admin, root, Protection(USERS, with_original_nodes))
    assert await check(admin, root) == []

    async def compare(zookeeper: KazooZooKeeper, path: str, wanted: str) -> None:
        assert await what_is_permitted(zookeeper, _at(root, path), admin) == wanted, (zookeeper.login, path)

    comparisons = []
    for line, path in examples():
        original = line.original if with_original_nodes and line is not None else ""
        comparisons.append(compare(users.nobody, path, original))
        for role, zookeeper in users.roles.items():
            own = "cdrwa" if role is Role.ADMIN else "" if line is None else str(getattr(line, role.value))
            if role is Role.ENFORCER and line is not None:
                own += line.client
            comparisons.append(compare(zookeeper, path, _in_order(own + original)))
    await asyncio.gather(*comparisons)


@pytest.mark.deep
async def test_a_command_that_was_killed_is_repeated(users: Users) -> None:
    root, admin = users.root, users.admin
    wanted = Protection(USERS)
    await admin.create(f"{root}/ext/cursor/group/0", b"1", make_path=True)

    class KilledError(Exception):
        pass

    class Killed:
        """A client whose process is killed at a write of the command."""

        def __init__(self, writes: int) -> None:
            self.left = writes

        def __getattr__(self, name: str) -> object:
            method = getattr(admin, name)
            if name not in ("create_with", "set", "set_acl", "delete"):
                return method

            async def write(*arguments: object) -> object:
                self.left -= 1
                if self.left < 0:
                    raise KilledError
                return await method(*arguments)

            return write

    async def every_role_works() -> None:
        server, client = users.roles[Role.SERVER], users.roles[Role.CLIENT]
        created = await server.create(f"{root}/serverDescriptors/s_", b"", ephemeral=True, sequential=True)
        await server.delete(created)
        await client.set(f"{root}/ids/client", b"\0\0\0\1")
        with contextlib.suppress(NodeExistsError):
            await client.create(f"{root}/ext/election/0", b"", ephemeral=True, make_path=True)
        await client.delete(f"{root}/ext/election/0")
        assert (await users.roles[Role.STORAGE].get(f"{root}/store"))[0] is not None

    async def protect_it(zookeeper: AclZooKeeper) -> int:
        return await protect(zookeeper, root, wanted)

    async def open_it(zookeeper: AclZooKeeper) -> int:
        return await unprotect(zookeeper, root)

    for action, back in ((protect_it, open_it), (open_it, protect_it)):
        await back(admin)
        for writes in itertools.chain(range(8), itertools.count(8, 5)):
            try:
                await action(cast("AclZooKeeper", Killed(writes)))
            except KilledError:
                await every_role_works()
                await action(admin)
                await every_role_works()
                await back(admin)
            else:
                break
        assert writes > 15  # as many as there are nodes
        assert (await check(admin, root) == []) is (action is protect_it)
    assert {(await users.nobody.acl(path)) for path in await tree(users.nobody, root)} == {OPEN}


async def tree(zookeeper: KazooZooKeeper, path: str) -> list[str]:
    found = [path]
    for name in await zookeeper.children(path):
        found += await tree(zookeeper, f"{path}/{name}")
    return found


async def test_what_is_created_has_its_list_at_once(users: Users) -> None:
    root, admin, client = users.root, users.admin, users.roles[Role.CLIENT]
    protection = Protection(USERS)
    await protect(admin, root, protection)
    for path in ("ext/cursor/group/3", "ext/consumer/group/member/name"):
        await client.create(f"{root}/{path}", b"", make_path=True)
    await users.roles[Role.SERVER].create(f"{root}/store/partition/0", b"")
    await users.roles[Role.SERVER].create(f"{root}/serverDescriptors/s_", b"", ephemeral=True, sequential=True)
    await admin.create(f"{root}/ext/partition/0", b"{}", make_path=True)
    assert await check(admin, root) == []
    with pytest.raises(NodeExistsError):
        await client.create(f"{root}/ext/clock", b"")  # a right to create it would not even be needed
    with pytest.raises(NotPermittedError, match="refuses user client: its role may not do this"):
        await client.create(f"{root}/ext/acl", b"{}")


async def test_servers_set_properties_for_clients_that_may_not(users: Users) -> None:
    root, client = users.root, users.roles[Role.CLIENT]
    await protect(users.admin, root, Protection(USERS))
    with pytest.raises(NotPermittedError):
        await change_properties(client, root, 0, {"format": "table"})

    async def replace(partition_id: int, change: int, properties: str) -> Replaced:
        done = await set_properties(users.roles[Role.SERVER], root, partition_id, change, properties)
        return Replaced(done.status is SetPropertiesStatus.DONE, done.change)

    await change_properties_by(client, root, 0, {"format": "table"}, replace)
    await change_properties_by(client, root, 0, {"disabled": True}, replace)
    found = await read_properties(client, root, 0)
    assert (found.change, found.properties.format, found.properties.disabled) == (2, "table", True)
    assert await check(users.admin, root) == []


async def test_nodes_that_are_created_while_the_tree_is_being_protected(users: Users) -> None:
    """Whenever the protection comes: before a creation, during it, after it."""
    root, admin, client = users.root, users.admin, users.roles[Role.CLIENT]
    protection = Protection(USERS)
    await protect(admin, root, protection)
    await unprotect(admin, root)
    names = iter(range(1_000_000))
    is_over = asyncio.Event()

    async def create_all_the_time() -> None:
        while not is_over.is_set():
            await client.create(f"{root}/ext/cursor/group{next(names)}", None)

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(create_all_the_time())
        while next(names) < 20:
            await asyncio.sleep(0)
        await protect(admin, root, protection)
        is_over.set()
    assert await check(admin, root) == []


async def test_other_users_without_an_interruption(users: Users) -> None:
    root, admin = users.root, users.admin
    await protect(admin, root, Protection(USERS))
    second = identity_of("client-2", "another-password-of-the-test")
    await protect(admin, root, Protection({**USERS, Role.CLIENT: (*USERS[Role.CLIENT], second)}))
    client, other = users.roles[Role.CLIENT], await users.user("client-2", "another-password-of-the-test")
    await client.create(f"{root}/ext/cursor/group", None)
    await other.create(f"{root}/ext/cursor/group/1", b"1")
    await client.set(f"{root}/ext/cursor/group/1", b"2")
    await protect(admin, root, Protection({**USERS, Role.CLIENT: (second,)}))
    assert await check(admin, root) == []
    await other.set(f"{root}/ext/cursor/group/1", b"3")
    with pytest.raises(NotPermittedError):
        await client.get(f"{root}/ext/cursor/group/1")


async def test_an_existing_protection_gets_enforcers(users: Users) -> None:
    """As in a cluster that was protected before this role existed."""
    root, admin, enforcer = users.root, users.admin, users.roles[Role.ENFORCER]
    before = Protection({role: ids for role, ids in USERS.items() if role is not Role.ENFORCER})
    await protect(admin, root, before)
    await write_rules(admin, root, changes.initial([], []), None, 2)
    assert await check(admin, root) == []
    for zookeeper in (enforcer, users.roles[Role.CLIENT]):
        with pytest.raises(NotPermittedError):
            await read_stored(zookeeper, root)
    await protect(admin, root, Protection(USERS))
    assert await check(admin, root) == []
    stored = await read_stored(enforcer, root)
    assert stored is not None
    with pytest.raises(NotPermittedError):
        await write_rules(enforcer, root, changes.initial([], ["CN=me"]), stored, 2)
    with pytest.raises(NotPermittedError):
        await enforcer.delete(f"{root}/ext/acl")
    with pytest.raises(NotPermittedError):
        await enforcer.create(f"{root}/ext/names", b"{}")
    with pytest.raises(NotPermittedError):
        await read_stored(users.roles[Role.CLIENT], root)
    await admin.set_acl(f"{root}/ext/acl", Protection(before.users).acl_of("ext/acl"))
    assert [(each.path, each.is_open) for each in await check(admin, root)] == [(f"{root}/ext/acl", False)]


class Enforcers:
    """Processes that judge requests by the access rules, with files for a user."""

    def __init__(self, directory: Path, server: LocalZooKeeper, root: str) -> None:
        self._directory = directory
        self._address = {"zookeeper.connectString": server.connect_string, "cluster.root": root}
        authority = Authority("authority")
        trust = write_pem(directory / "trust.pem", None, [authority.certificate])
        key = write_pem(directory / "key.pem", authority.issue("localhost"), [])
        self._stores = {"keyStore.location": key, "trustStore.location": trust}
        for name in ("archive", "stores"):
            (directory / name).mkdir()
        self.http_port, self.view_port = free_ports(2)

    def command(self, name: str, role: Role) -> list[str]:
        (self._directory / role.value).write_text(PASSWORDS[role])
        own: dict[str, object] = {
            "archive": {
                "archive.url": f"file://{self._directory}/archive",
                "archive.jetty.port": self.http_port,
                "archive.bindAddress": "127.0.0.1",
            },
            "view": {
                "view.port": self.view_port,
                "view.host": "127.0.0.1",
                "view.directory": str(self._directory / "stores"),
                "view.store": "memory",
            },
        }[name]
        config = (
            self._address
            | own
            | {
                f"{name}.acl.enabled": True,
                "zookeeper.user": role.value,
                "zookeeper.passwordFile": str(self._directory / role.value),
                **{f"{name}.ssl.{key}": value for key, value in self._stores.items()},
            }
        )
        path = self._directory / f"{name}-{role.value}.yml"
        path.write_text(yaml.safe_dump(config))
        module = {"archive": "waltz.archive.process", "view": "waltz.view"}[name]
        return [sys.executable, "-m", module, str(path)]


@pytest.fixture
def enforcers(server: LocalZooKeeper, users: Users, tmp_path: Path) -> Enforcers:
    return Enforcers(tmp_path, server, users.root)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["archive", "view"])
@pytest.mark.timeout(300)
async def test_enforcers_are_processes_that_follow_the_rules(users: Users, enforcers: Enforcers, name: str) -> None:
    pytest.importorskip({"archive": "obstore", "view": "aiohttp"}[name])
    root, admin = users.root, users.admin
    await protect(admin, root, Protection(USERS))
    first = await write_rules(admin, root, changes.initial([], []), None, 2)

    def refused() -> str:
        command = enforcers.command(name, Role.CLIENT)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert ended.returncode == 1
        return ended.stderr

    why = "/ext/acl: no permission: .* user client: .*the role of a process with access rules is .*enforcer"
    assert re.search(why, await asyncio.to_thread(refused))
    process = await asyncio.create_subprocess_exec(
        *enforcers.command(name, Role.ENFORCER), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        await _said(process.stderr, f"access rules version {first.version} are applied")
        await _said(process.stderr, " is up")
        stored = await read_stored(admin, root)
        second = await write_rules(admin, root, changes.initial([], ["CN=ops"]), stored, 2)
        await _said(process.stderr, f"access rules version {second.version} are applied")
        if name == "view":
            await _until_told(admin, root, {f"view 127.0.0.1:{enforcers.view_port}": second})
        assert await check(admin, root) == []
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


async def _said(lines: asyncio.StreamReader, text: str) -> None:
    said = []
    while text not in (line := (await lines.readline()).decode()):
        said.append(line)
        assert line, "".join(said)


async def _until_told(admin: KazooZooKeeper, root: str, wanted: dict[str, Place]) -> None:
    while await read_applied(admin, root) != wanted:
        await asyncio.sleep(0.1)


async def test_who_may_not_change_the_tree_afterwards_does_not_protect_it(users: Users) -> None:
    for zookeeper, why in (
        (users.nobody, "this process has no zookeeper.user"),
        (users.roles[Role.CLIENT], "user client of this process is no user with the role admin"),
        (await users.user("admin", "a-wrong-password"), "has another password there"),
    ):
        with pytest.raises(ProtectionError, match=why):
            await protect(zookeeper, users.root, Protection(USERS))
    assert await read_protection(users.admin, users.root) is None
    assert (await check(users.admin, users.root))[0].is_open


async def test_the_super_user_is_the_way_out(users: Users) -> None:
    root = users.root
    await protect(users.admin, root, Protection({**USERS, Role.ADMIN: USERS[Role.ADMIN]}))
    await unprotect(await users.user("super", SUPER), root)
    other = Protection({Role.ADMIN: (identity_of("ops", "the-password-that-nobody-lost"),)})
    await protect(await users.user("ops", "the-password-that-nobody-lost"), root, other)
    with pytest.raises(NotPermittedError):
        await users.admin.get(root)


async def test_a_check_finds_what_is_open_and_what_differs(users: Users) -> None:
    root, admin = users.root, users.admin
    found = await check(admin, root)
    assert [each.path for each in found] == sorted(await tree(admin, root))
    assert all(each.is_open for each in found)
    await protect(admin, root, Protection(USERS))
    await admin.set_acl(f"{root}/store", OPEN)
    less: Acl = frozenset({AclEntry("digest", USERS[Role.ADMIN][0], 31)})
    await admin.set_acl(f"{root}/ids", less)
    assert [(each.path, each.is_open) for each in await check(admin, root)] == [
        (f"{root}/ids", False),
        (f"{root}/store", True),
    ]
    assert [str(each).partition(" has ")[0] for each in await check(admin, root)] == [
        f"differs: {root}/ids",
        f"open: {root}/store",
    ]
    assert await protect(admin, root, Protection(USERS)) == 2
    with pytest.raises(ProtectionError, match="look as an admin"):
        await check(users.roles[Role.CLIENT], root)
    with pytest.raises(NotPermittedError, match="this process, which has no zookeeper.user"):
        await check(users.nobody, root)


async def test_nodes_and_clients_of_the_original_work_on(users: Users) -> None:
    root, original = users.root, users.nobody
    await protect(users.admin, root, Protection(USERS, with_original_nodes=True))
    for path in ("ids/server", "ids/client", "serverDescriptors"):
        data, stat = await original.get(f"{root}/{path}")
        await original.set(f"{root}/{path}", data, stat.version)
    own = await original.create(f"{root}/serverDescriptors/s_", b"", ephemeral=True, sequential=True)
    await original.create(f"{root}/store/partition/0", b"")
    assert await check(users.admin, root) == []  # open, and known to be
    await protect(users.admin, root, Protection(USERS, with_original_nodes=True))
    for path in (own, f"{root}/store/partition/0"):
        await original.set(path, b"anything")
        await users.roles[Role.SERVER].get(path)
    await original.delete(own)
    for path in ("store/assignment", "store/group", "store/connection", "store", ""):
        await original.get(_at(root, path))
        with pytest.raises(NotPermittedError):
            await original.set(_at(root, path), b"")
    for path in ("store/adminLock", "ext/acl"):
        with pytest.raises(NotPermittedError):
            await original.create(f"{root}/{path}", b"")


def _at(root: str, path: str) -> str:
    return f"{root}/{path}" if path else root


def _in_order(permissions: str) -> str:
    return "".join(letter for letter in "cdrwa" if letter in permissions)
