"""The same run twice over the wire, first in audit mode: its log foretells exactly what the enforced rules refuse.

TLS clients of a server, with rights that become fewer while one has an open feed; a peer of both ports of a storage;
readers of the HTTP port.
"""

import asyncio
import contextlib
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.access_table import ADMIN_REQUESTS, CLIENT_REQUESTS, PAGES, STORAGE_REQUESTS, Row
from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.server.fakes import GENERATION, feed, mount
from tests.unit.server.process.test_service import Setup, settle
from tests.unit.storage.node_support import running_node
from waltz.common.access import Right
from waltz.common.acl.audit import Audit, Outcome
from waltz.common.acl.document import Document, Mode, Rule
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.rules import compile_rules
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ProtocolError
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import HttpServer, Request, Response
from waltz.common.net.limits import ListenerLimits
from waltz.common.net.listener import Listener
from waltz.common.net.tls import client_context, server_context
from waltz.common.pieces import at_once
from waltz.common.wire import admin_version1, client_server, storage_version1
from waltz.common.wire.append_request import APPEND_REQUEST_TYPE
from waltz.common.wire.client_server import ServerPartitionsAssignmentRequest, ServerPartitionsAssignmentResponse
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.versions import FIRST_WITH_NOT_AUTHORIZED
from waltz.server.requests.permission import tells_refusal

COUNT = 8
PRINCIPALS = ("svc-a", "svc-b")
RULES = (
    Rule(True, "svc-a", (Right.APPEND, Right.READ), "0"),
    Rule(True, "*", (Right.DESCRIBE,), "1-7"),
    Rule(True, "svc-b", (Right.DESCRIBE, Right.FENCE, Right.ADMIN), "*"),
    Rule(False, "svc-b", (Right.DESCRIBE,), "0"),
)
FEWER = (Rule(True, "svc-a", (Right.APPEND,), "1"), *RULES[1:])
"""The same after some rights were lost."""

Line = tuple[str, str, str, int]
"""Principal, right, partitions, and number."""


class Stores(NamedTuple):
    server: ssl.SSLContext | None
    clients: Mapping[str, ssl.SSLContext | None]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    directory = tmp_path_factory.mktemp("stores")
    authority = Authority("authority")
    trust = write_pem(directory / "trust.pem", None, [authority.certificate])

    def config(name: str) -> TlsConfig:
        store = write_pem(directory / f"{name}.pem", authority.issue(name), [])
        return TlsConfig(key_store_location=store, trust_store_location=trust, check_hostname=False)

    clients = {name: client_context(config(name)) for name in PRINCIPALS}
    return Stores(server_context(config("localhost")), clients)


class Ruled:
    """The access of a node, and its audit log."""

    def __init__(self, mode: Mode) -> None:
        self.lines: list[dict[str, Any]] = []
        self.mode = mode
        self.audit = Audit("node", COUNT, lambda line: self.lines.append(json.loads(line)))
        self.access = RuleAccess(COUNT, lambda subject: subject.removeprefix("CN="), [], self.audit)

    def apply(self, version: int, rules: tuple[Rule, ...]) -> Any:
        compiled = at_once(compile_rules(Document(self.mode, rules=rules), {}, COUNT))
        return at_once(self.access.apply(Applied(version, compiled)))

    def told(self) -> list[Line]:
        """All refusals so far."""
        self.audit.end_window()
        foretold = (Outcome.WOULD_REFUSE, Outcome.WOULD_FILTER), (Outcome.REFUSED, Outcome.FILTERED)
        refused, filtered = foretold[self.mode is not Mode.AUDIT]
        refusals = [line for line in self.lines if line["unmapped"]["outcome"] == refused]
        others = {line["unmapped"]["outcome"] for line in self.lines} - {refused}
        assert others <= {filtered, Outcome.DONE, Outcome.FAILED}, "a list depends on what is there, and is left out"
        return [
            (line["actor"]["user"]["name"], line["unmapped"]["right"], line["unmapped"]["at"], line["count"])
            for line in refusals
        ]


class Client:
    """A connection of a principal to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader, self._writer, self._version = reader, writer, version

    @classmethod
    @asynccontextmanager
    async def connected(cls, port: int, context: ssl.SSLContext | None, version: int) -> AsyncIterator["Client"]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        hello = (1).to_bytes(4, "big") + version.to_bytes(2, "big") + (0).to_bytes(4, "big")
        writer.write(b"H\0\0" + len(hello).to_bytes(4, "big") + hello)
        client = cls(reader, writer, version)
        await client._frame()
        try:
            yield client
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def ask(self, *requests: Any) -> int:
        """Send requests, and wait until they are handled, or the server ends the connection; the number of those that
        are said to be refused."""
        sign = ServerPartitionsAssignmentRequest(requests[0].req_id)
        for request in (*requests, sign):
            self._writer.write(client_server.encode(request, self._version))
        refused = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await self._frame()
                answer = client_server.decode(frame, FRAME_HEADER.size, len(frame), self._version)
                if isinstance(answer, ServerPartitionsAssignmentResponse):
                    break
                refused += isinstance(answer, NotAuthorized)
        return refused

    async def _frame(self) -> bytes:
        async with asyncio.timeout(60):
            while True:
                head = await self._reader.readexactly(FRAME_HEADER.size)
                payload = await self._reader.readexactly(FRAME_HEADER.unpack(head)[2])
                if payload:
                    return head + payload


def requests_of(version: int) -> list[Row]:
    found = []
    for row in CLIENT_REQUESTS:
        with contextlib.suppress(ProtocolError):
            client_server.encode(row.request, version)  # type: ignore[arg-type]  # any message
            found.append(row)
    return found


async def run_clients(stores: Stores, mode: Mode, version: int, rows: Sequence[Row]) -> tuple[list[Line], Counter[str]]:
    """What the server's audit log says, and how many refusals each principal was told.

    A client before version 6 asks nothing further on a connection with a feed that may have been ended.
    """
    ruled, told = Ruled(mode), Counter[str]()
    setup = Setup(access=ruled.access)
    limits = ListenerLimits(max_payload_bytes=1 << 20, abridged_type=APPEND_REQUEST_TYPE)
    listener = await Listener.open(
        "127.0.0.1", 0, CLIENT_SERVER, "Waltz Server", setup.service.connection, tls=stores.server, limits=limits
    )
    try:
        ruled.apply(1, RULES)
        setup.service.set_partitions({0: GENERATION})
        setup.made[0].log.open_session()
        async with Client.connected(listener.port, stores.clients["svc-a"], version) as fed:
            await fed.ask(mount(1, -1, 7), feed(1, -1))
            for step, rules in enumerate((RULES, FEWER), 2):
                setup.service.rights_lost(ruled.apply(step, rules))
                await settle()
                for principal in PRINCIPALS:
                    for row in rows:
                        context = stores.clients[principal]
                        async with Client.connected(listener.port, context, version) as client:
                            told[principal] += await client.ask(row.request)
            told["svc-a"] += await fed.ask(mount(2, -1, 7)) if version >= FIRST_WITH_NOT_AUTHORIZED else 0
        return ruled.told(), told
    finally:
        await setup.service.close()
        await listener.close()


@pytest.mark.parametrize("version", [2, 4, 5, 6])
async def test_clients(stores: Stores, version: int) -> None:
    rows = requests_of(version)
    foretold, told = await run_clients(stores, Mode.AUDIT, version, rows)
    assert foretold == (await run_clients(stores, Mode.ENFORCE, version, rows))[0]
    assert told.total() == 0
    of_answered = [row for row in rows if tells_refusal(row.request)]
    refused, told_refused = await run_clients(stores, Mode.ENFORCE, version, of_answered)
    assert len(of_answered) == len(rows) - 1  # all but the flush
    counted = Counter[str]()
    for principal, _, _, count in refused:
        counted[principal] += count
    assert set(counted) == set(PRINCIPALS)
    assert told_refused == (counted if version >= FIRST_WITH_NOT_AUTHORIZED else Counter(dict.fromkeys(PRINCIPALS, 0)))


async def run_storage(directory: Path, mode: Mode) -> list[Line]:
    directory.mkdir()
    ruled = Ruled(mode)
    ruled.apply(1, RULES)
    async with running_node(directory, access=ruled.access) as node:
        data = await node.raw(versions=(0, 1))
        requests: Any = [row.request for row in STORAGE_REQUESTS]
        data.send(*(storage_version1.encode(request, 1) for request in requests))
        for _ in range(len(requests) - 1):  # one of them is a notice without an answer
            await data.frame()
        admin = await node.raw(admin=True, versions=(0, 1))
        requests = [row.request for row in ADMIN_REQUESTS]
        admin.send(*(admin_version1.encode(request, 1) for request in requests))
        for _ in requests:
            await admin.frame()
    return ruled.told()


async def test_peers_of_a_storage(tmp_path: Path) -> None:
    foretold = await run_storage(tmp_path / "audit", Mode.AUDIT)
    assert foretold == await run_storage(tmp_path / "enforce", Mode.ENFORCE)
    assert {right for _, right, _, _ in foretold} == {"cluster", "admin", "describe", "read"}
    assert sum(count for _, right, _, count in foretold if right == "cluster") == len(STORAGE_REQUESTS)


async def run_readers(mode: Mode) -> list[Line]:
    ruled = Ruled(mode)
    ruled.apply(1, RULES)

    def page(_: Request) -> Response:
        return Response(200, "text/plain", "")

    server = await HttpServer.open("127.0.0.1", 0, Registry(), more=dict.fromkeys(PAGES, page), access=ruled.access)
    try:
        for name in PAGES:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"{name} HTTP/1.1\r\n\r\n".encode())
            await reader.read()
            writer.close()
    finally:
        await server.close()
    return ruled.told()


async def test_readers_of_pages() -> None:
    foretold = await run_readers(Mode.AUDIT)
    assert foretold == await run_readers(Mode.ENFORCE)
    needing_more = [row for row in PAGES.values() if row.right is not None and not row.filtered]
    assert sum(count for *_, count in foretold) == len(needing_more)
