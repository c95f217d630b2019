"""Certificates that change while a process runs: new connections use them, and files that are broken change nothing."""

import asyncio
import logging
import os
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.common.net.peers import FAMILY, Recorder, frame
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConnectFailedError
from waltz.common.ids import Endpoint
from waltz.common.net import followed_files, tls_renewal
from waltz.common.net.channel import Channel, connect
from waltz.common.net.listener import Listener
from waltz.common.net.tls import client_context, server_context
from waltz.common.net.tls_renewal import FollowingContext, StoreFiles, files_of

TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "CHECK_INTERVAL_S", 0.001)


@pytest.fixture(scope="module")
def other_authority() -> Authority:
    return Authority("another authority")


class Stores:
    """A key store and a trust store of one process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self.key_store, self.trust_store = directory / "key.pem", directory / "trust.pem"

    @property
    def config(self) -> TlsConfig:
        stores = {"key_store_location": str(self.key_store), "trust_store_location": str(self.trust_store)}
        return TlsConfig.model_validate(stores | {"check_hostname": False}, by_name=True)

    def write(self, issuer: Authority, trusted: Authority) -> None:
        """Replace both as programs do that hand out certificates."""
        new = self._directory / "new"
        write_pem(new, issuer.issue("node"), [])
        os.replace(new, self.key_store)
        write_pem(new, None, [trusted.certificate])
        os.replace(new, self.trust_store)


def stores_of(directory: Path, authority: Authority) -> Stores:
    stores = Stores(directory)
    stores.write(authority, authority)
    return stores


class Node:
    """Echoes, and counts what is said to it."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.listener: Listener

    @property
    def files(self) -> StoreFiles:
        assert self.listener._acceptor is not None
        files = files_of(self.listener._acceptor._context)
        assert files is not None
        return files

    async def follows(self, condition: Callable[[StoreFiles], bool]) -> None:
        """Wait for its files to be looked at."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition(self.files):
                await asyncio.sleep(0.001)

    async def looked_again(self) -> None:
        """Wait for one more look, and its end."""
        known_s = self.files._next_check_s
        await self.follows(lambda files: files._next_check_s > known_s and not files._checking)

    def unusable(self) -> bool:
        return self.listener.unusable_stores

    @property
    def context(self) -> ssl.SSLContext:
        return self.files.present


@asynccontextmanager
async def node_with(stores: Stores) -> AsyncIterator[Node]:
    node = Node(stores)

    def handler() -> Recorder:
        recorder = Recorder()
        recorder.on_payload = lambda channel, payload: channel.send(frame(payload))
        return recorder

    node.listener = await Listener.open("127.0.0.1", 0, FAMILY, "node", handler, tls=server_context(stores.config))
    try:
        yield node
    finally:
        await node.listener.close()


class Application:
    """Connects with one context all its life."""

    def __init__(self, stores: Stores) -> None:
        self._tls = client_context(stores.config)

    async def connect(self, node: Node) -> tuple[Channel, Recorder]:
        recorder = Recorder()
        endpoint = Endpoint("127.0.0.1", node.listener.port)
        channel = await connect(endpoint, FAMILY, "client", recorder, tls=self._tls, timeout_s=TIMEOUT_S)
        return channel, recorder

    async def works(self, node: Node) -> bool:
        """Whether a connection comes about; what a node refuses in TLS 1.3 shows only when something is said."""
        try:
            channel, recorder = await self.connect(node)
        except ConnectFailedError:
            return False
        channel.send(frame(b"hello"))
        await recorder.until(lambda each: bool(each.payloads or each.closed))
        channel.close()
        await channel.wait_closed()
        return recorder.payloads == [b"hello"]


async def test_new_connections_use_the_new_files_and_old_ones_go_on(
    tmp_path: Path, authority: Authority, other_authority: Authority
) -> None:
    async with node_with(stores_of(tmp_path / "node", authority)) as node:
        before, after = stores_of(tmp_path / "before", authority), stores_of(tmp_path / "after", other_authority)
        renewing = stores_of(tmp_path / "renewing", authority)
        application = Application(renewing)
        channel, recorder = await application.connect(node)
        assert [await Application(each).works(node) for each in (before, after)] == [True, False]
        known = node.context
        node.stores.write(other_authority, other_authority)
        await node.follows(lambda files: files.present is not known and files._versions == files._look())
        assert [await Application(each).works(node) for each in (before, after)] == [False, True]
        assert not await application.works(node)
        renewing.write(other_authority, other_authority)
        await asyncio.sleep(0.002)
        assert await application.works(node), "who connects looks at its files first"
        channel.send(frame(b"old"))
        await recorder.until(lambda each: bool(each.payloads))
        assert recorder.payloads == [b"old"]
        channel.close()
        await channel.wait_closed()


@pytest.mark.parametrize(
    "broken", [b"", b"-----BEGIN CERTIFICATE-----\nnothing\n", None], ids=["empty", "damaged", "gone"]
)
@pytest.mark.parametrize("name", ["key_store", "trust_store"])
async def test_a_broken_file_changes_nothing_and_is_loud(
    tmp_path: Path, authority: Authority, name: str, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, followed_files.__name__)
    stores = stores_of(tmp_path / "node", authority)
    async with node_with(stores) as node:
        application = Application(stores_of(tmp_path / "application", authority))
        known, path = node.context, getattr(stores, name)
        assert not node.unusable()
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        await node.follows(lambda files: files.problem is not None)
        assert node.unusable()
        assert node.context is known
        assert await application.works(node)
        for _ in range(3):
            await node.looked_again()
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1
        assert str(path) in errors[0].getMessage()
        assert "the former certificates stay in use" in errors[0].getMessage()
        stores.write(authority, authority)
        await node.follows(lambda files: files.problem is None)
        assert not node.unusable()
        assert node.context is not known
        assert await application.works(node)
        assert caplog.records[-1].getMessage().startswith(f"TLS: {stores.key_store} or {stores.trust_store} was read")


def plain_context() -> FollowingContext:
    return FollowingContext(ssl.PROTOCOL_TLS_CLIENT)


class Looks:
    """Counts the looks at a file, and holds them up if that is wanted."""

    def __init__(self) -> None:
        self.count = 0
        self.go = threading.Event()
        self.go.set()

    def __call__(self, path: str) -> None:
        self.count += 1
        assert self.go.wait(TIMEOUT_S)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    looks = Looks()
    monkeypatch.setattr(followed_files, "_version", looks)
    yield looks
    looks.go.set()


async def test_files_are_not_looked_at_all_the_time(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "CHECK_INTERVAL_S", 3600.0)
    files = StoreFiles(plain_context, ["one"], what="TLS", held="it holds")
    for _ in range(10):
        await files.check_if_due()
    assert looks.count == 2, "at first, and then once in the interval"


async def test_a_disk_that_hangs_takes_one_thread(looks: Looks) -> None:
    files = StoreFiles(plain_context, ["one"], what="TLS", held="it holds")
    looks.go.clear()
    checking = [asyncio.create_task(files.check_if_due()) for _ in range(10)]
    _, waiting = await asyncio.wait(checking, return_when=asyncio.FIRST_COMPLETED)
    while len(waiting) > 1:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.002)
    await files.check_if_due()
    looks.go.set()
    await asyncio.gather(*checking)
    assert looks.count == 2
    await asyncio.sleep(0.002)
    await files.check_if_due()
    assert looks.count == 3


async def test_without_files_there_is_nothing_to_follow() -> None:
    for context in (server_context(TlsConfig()), client_context(TlsConfig())):
        assert context is not None
        assert files_of(context) is None
        assert tls_renewal.present(context) is context
        await tls_renewal.follow(context)
