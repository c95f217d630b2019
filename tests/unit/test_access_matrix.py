"""Every message of every protocol and every HTTP path, in every version, from peers with and without the right.

What the table says is allowed is handed to its handler; what it says is refused is answered so, and no handler hears of
it.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import SecretStr

from tests.unit.access_table import (
    ADMIN_ANSWERS,
    ADMIN_REQUESTS,
    CLIENT_ANSWERS,
    CLIENT_REQUESTS,
    NODE,
    OPEN_VIEW_ROUTES,
    PAGES,
    PARTITION,
    STORAGE_ANSWERS,
    STORAGE_REQUESTS,
    VIEW_ROUTES,
    PageRow,
    Row,
)
from tests.unit.common.net.token_peers import Accepted
from tests.unit.console import fakes as console_fakes
from tests.unit.server.fakes import GENERATION, FakeChannel
from tests.unit.server.process.test_service import Setup, settle
from tests.unit.storage.node_support import SE
from waltz.common.access import ALLOW_ALL, ANONYMOUS, Proof, Right
from waltz.common.acl.document import Document, Mode, Rule
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.node import NodeRules
from waltz.common.acl.rules import compile_rules
from waltz.common.errors import ProtocolError
from waltz.common.ids import LONG_MIN
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import HttpError, HttpServer, Pages, Reader, Request, Response
from waltz.common.net.page_rules import PAGE_RULES, page_rule
from waltz.common.pieces import at_once
from waltz.common.wire import admin, admin_version1, client_server, storage, storage_version1
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.frames import CLIENT_SERVER, STORAGE, STORAGE_ADMIN, FrameSplitter
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.storage_times import CommittedNotice
from waltz.common.wire.structures import RpcException
from waltz.common.wire.version5 import AppendFailed, AppendFailure
from waltz.common.wire.versions import FIRST_WITH_APPEND_FAILED, FIRST_WITH_NOT_AUTHORIZED
from waltz.console.pages import make_pages
from waltz.server.partition.partition import ServerPartition
from waltz.storage.node.admin_port import AdminService
from waltz.storage.node.data_port import DataConnection
from waltz.view import service as view_service
from waltz.view.limits import Limits
from waltz.view.routes import ROUTES

COUNT = 8

HOLDER = "holder"
"""Has the right that the request needs, and no other."""

OTHERS = ("other", "neighbour", ANONYMOUS)
"""Has all other rights; has the right, but only elsewhere; has nothing."""


def access_for(right: Right | None, place: int | None) -> RuleAccess:
    """Rules that give all principals what their names say."""
    rules: list[Rule] = []
    if right is not None:
        elsewhere = f"1-{COUNT - 1}" if place == PARTITION else f"0-{COUNT - 1}"
        rules += [
            Rule(True, HOLDER, (right,), "*"),
            Rule(True, "other", tuple(Right), "*"),
            Rule(False, "other", (right,), "*"),
            Rule(True, "neighbour", (right,), elsewhere),
        ]
    access = RuleAccess(COUNT, lambda subject: subject, [])
    compiled = at_once(compile_rules(Document(Mode.ENFORCE, rules=tuple(rules)), {}, COUNT))
    at_once(access.apply(Applied(1, compiled)))
    return access


def refusal_of(access: RuleAccess, principal: str, row: Row) -> str:
    """The text of the refusal that was counted, once."""
    assert row.right is not None
    counted = {labels: count for labels, count in access.refusals.counts() if count}
    assert counted == {(row.right.name.lower(), "enforce"): 1}
    text = access.rights_of(principal).refusal(row.right, row.place)
    assert text is not None
    assert f"principal {principal!r}" in text
    assert f"may not {row.right} {'this node' if row.place is NODE else f'partition {row.place}'}" in text
    return text


Case = tuple[Row, int, str, bool]


def cases(rows: Sequence[Row], versions: Sequence[int], encode: Callable[[Any, int], bytes]) -> Iterator[Any]:
    """Every row in every version that has its message, from every principal; and whether it is allowed."""
    for row in rows:
        for version in versions:
            try:
                encode(row.request, version)
            except ProtocolError:
                continue
            for principal in (HOLDER, *OTHERS):
                allowed = principal == HOLDER or row.right is None or (row.listing and principal == "neighbour")
                name = type(row.request).__name__
                yield pytest.param(row, version, principal, allowed, id=f"{name}-{row.right}-{version}-{principal}")


class Peer(FakeChannel):
    """A connection of a principal, spoken to in frames."""

    def __init__(self, version: int, principal: str, magic: int) -> None:
        super().__init__(version)
        self.principal = principal
        self._magic = magic

    def allow_large_frames(self) -> None: ...

    def send_keep_alive(self) -> None: ...

    def receive(self, handler: Any, frame: bytes) -> None:
        """Hand a frame to the handler of the connection, as a channel does."""
        try:
            handler.frames_received(self, *self._splitter().feed(frame))
        except ProtocolError as error:
            self.abort(error)

    def answers(self, decode: Callable[[bytes, int, int, int], Any]) -> list[Any]:
        """What was sent since the last call."""
        buffer, bounds = self._splitter().feed(self.take_bytes())
        return [decode(buffer, start, end, self.version) for start, end in bounds]

    def _splitter(self) -> FrameSplitter:
        return FrameSplitter(self._magic, self.version)


CLIENT_CASES = list(cases(CLIENT_REQUESTS, CLIENT_SERVER.versions, client_server.encode))


@pytest.mark.parametrize(("row", "version", "principal", "allowed"), CLIENT_CASES)
async def test_client_port(
    row: Row, version: int, principal: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client before version 6 hears what it would of a partition elsewhere, or is disconnected."""
    executed: list[type] = []

    def note(kind: type) -> Callable[..., None]:
        return lambda *_: executed.append(kind)

    access = access_for(row.right, row.place)
    setup = Setup(access=access)
    service = setup.service
    service.set_partitions({PARTITION: GENERATION})
    setup.made[0].log.open_session()
    monkeypatch.setattr(ServerPartition, "append", note(AppendRequest))
    for kind, handlers in service._at_partition.items():
        service._at_partition[kind] = handlers._replace(here=note(kind))
    for kind, (right, _) in service._at_server.items():
        service._at_server[kind] = (right, note(kind))
    peer, connection = Peer(version, principal, CLIENT_SERVER.magic), service.connection()
    connection.channel_ready(peer)  # type: ignore[arg-type]  # what a handler needs of a channel is there
    peer.receive(connection, client_server.encode(row.request, version))  # type: ignore[arg-type]  # any message
    answers = peer.answers(client_server.decode)
    if allowed:
        assert (executed, answers, peer.closed) == ([type(row.request)], [], False)
    else:
        text, id_ = refusal_of(access, principal, row), row.request.req_id  # type: ignore[attr-defined]  # all have it
        expected = [] if row.older is None else [row.older]
        if version >= FIRST_WITH_NOT_AUTHORIZED and not isinstance(row.request, client_server.FlushRequest):
            expected = [NotAuthorized(id_, text)]
        elif isinstance(row.request, AppendRequest) and version >= FIRST_WITH_APPEND_FAILED:
            expected = [AppendFailed(id_, AppendFailure.MOVED, LONG_MIN, text)]
        assert (executed, answers) == ([], expected)
        disconnects = row.place is NODE and version < FIRST_WITH_NOT_AUTHORIZED
        assert str(peer.error) == (text if disconnects else "None")
    await service.close()


async def test_an_append_that_is_too_large_needs_its_right_too() -> None:
    """It must not tell the mark of its partition."""
    for version in CLIENT_SERVER.versions:
        row = CLIENT_REQUESTS[0]
        access = access_for(Right.APPEND, PARTITION)
        service = Setup(access=access).service
        peer, connection = Peer(version, "other", CLIENT_SERVER.magic), service.connection()
        connection.channel_ready(peer)  # type: ignore[arg-type]  # what a handler needs of a channel is there
        assert isinstance(row.request, AppendRequest)
        peer.receive(connection, client_server.encode(row.request._replace(data=bytes(5000)), version))
        texts = [answer.text for answer in peer.answers(client_server.decode)]
        expected = [refusal_of(access, "other", row)] if version >= FIRST_WITH_APPEND_FAILED else []
        assert texts == expected


class Partition:
    """A partition of a storage that only notes what it is asked."""

    def __init__(self) -> None:
        self.requests: list[object] = []
        self.asked: list[Any] = []

    def receive(self, request: Any) -> None:
        self.asked.append(request)
        self.requests.append(request.message)

    def note_committed(self, *words: int) -> None:
        self.requests.append(words)


STORAGE_CASES = list(cases(STORAGE_REQUESTS, STORAGE.versions, storage_version1.encode))


@pytest.mark.parametrize(("row", "version", "principal", "allowed"), STORAGE_CASES)
async def test_data_port(row: Row, version: int, principal: str, allowed: bool) -> None:
    partition = Partition()

    def check_cluster(*_: object) -> None:
        partition.requests.append(row.request)

    manager: Any = SimpleNamespace(partitions={PARTITION: partition}, check_cluster=check_cluster)
    access = access_for(row.right, row.place)
    peer, connection = Peer(version, principal, STORAGE.magic), DataConnection(manager, access)
    connection.channel_ready(peer)  # type: ignore[arg-type]  # what a handler needs of a channel is there
    peer.receive(connection, storage_version1.encode(row.request, version))  # type: ignore[arg-type]  # any message
    failures = [each for each in peer.answers(storage_version1.decode) if isinstance(each, storage.FailureResponse)]
    assert not peer.closed
    assert len(partition.requests) == int(allowed)
    if allowed or isinstance(row.request, CommittedNotice):  # which is the only message without an answer
        assert failures == []
    else:
        text = f"{SE}{refusal_of(access, principal, row)}"
        assert [failure.error for failure in failures] == [RpcException(text)]


@pytest.mark.parametrize("mode", [Mode.AUDIT, Mode.ENFORCE])
async def test_every_message_to_the_data_port_counts_once(mode: Mode) -> None:
    """Those of version 0 and ours in one read, also those that wait until the peer reads."""
    partition = Partition()
    manager: Any = SimpleNamespace(partitions={PARTITION: partition}, check_cluster=lambda *_: None)
    access = RuleAccess(COUNT, lambda subject: subject, [])
    at_once(access.apply(Applied(1, at_once(compile_rules(Document(mode), {}, COUNT)))))
    peer, connection = Peer(1, "server", STORAGE.magic), DataConnection(manager, access)
    connection.channel_ready(peer)  # type: ignore[arg-type]  # what a handler needs of a channel is there
    requests: Any = [row.request for row in STORAGE_REQUESTS]
    peer.receive(connection, b"".join(storage_version1.encode(request, 1) for request in requests))
    expected = {("cluster", mode.value): len(requests)}
    assert {labels: count for labels, count in access.refusals.counts() if count} == expected
    for request in partition.asked:
        connection.hold_back(request)
    connection.channel_writable(peer)  # type: ignore[arg-type]  # same
    connection.channel_writable(peer)  # type: ignore[arg-type]  # same
    assert {labels: count for labels, count in access.refusals.counts() if count} == expected
    connection.channel_closed(peer, None)  # type: ignore[arg-type]  # same


ADMIN_CASES = list(cases(ADMIN_REQUESTS, STORAGE_ADMIN.versions, admin_version1.encode))


@pytest.mark.parametrize(("row", "version", "principal", "allowed"), ADMIN_CASES)
async def test_admin_port(row: Row, version: int, principal: str, allowed: bool) -> None:
    executed: list[object] = []

    async def answer(request: Any) -> admin.Message:
        executed.append(request)
        return admin.AdminSuccessResponse(1)

    async def read(request: Any, _: int) -> Sequence[bytes]:
        return [admin_version1.encode(await answer(request), version)]

    manager: Any = SimpleNamespace(check_cluster=lambda *_: None)
    access = access_for(row.right, row.place)
    service = AdminService(manager, Registry(), access)
    service._answering = dict.fromkeys(service._answering, answer)
    service._reading = dict.fromkeys(service._reading, read)
    peer, connection = Peer(version, principal, STORAGE_ADMIN.magic), service.connection()
    connection.channel_ready(peer)  # type: ignore[arg-type]  # what a handler needs of a channel is there
    peer.receive(connection, admin_version1.encode(row.request, version))  # type: ignore[arg-type]  # any message
    await settle()
    answers = peer.answers(admin_version1.decode)
    assert not peer.closed
    if allowed:
        assert (executed, answers) == ([row.request], [admin.AdminSuccessResponse(1)])
    else:
        text = f"{SE}{refusal_of(access, principal, row)}"
        assert (executed, answers) == ([], [admin.AdminFailureResponse(1, RpcException(text))])
    connection.channel_closed(peer, None)  # type: ignore[arg-type]  # what a handler needs of a channel is there
    await service.close()


async def test_one_partition_without_the_right_refuses_a_whole_administrative_request() -> None:
    access = access_for(Right.ADMIN, PARTITION)
    manager: Any = None
    service = AdminService(manager, Registry(), access)
    request = admin.PartitionAvailableRequest(1, (1, 2, PARTITION), False)
    (frame,) = await service.execute(request, 0, access.rights_of("neighbour"))
    answer = admin_version1.decode(frame, 7, len(frame), 0)
    assert isinstance(answer, admin.AdminFailureResponse)
    assert f"may not administer partition {PARTITION}: no rule" in str(answer.error.message)


def pages(executed: list[str]) -> Pages:
    """All pages of nodes, archivers and bots, which only note that they were asked for."""
    no_surveyor: Any = None
    console = make_pages(console_fakes.here(console_fakes.cluster()), no_surveyor)
    no_watch: Any = None
    rules = NodeRules(access_for(None, NODE), no_watch, None)
    made = Pages(Registry(), None, None, {**console, **rules.pages, **dict.fromkeys(BOT_PAGES, _nothing)})

    def page(request: Request) -> Response:
        executed.append(f"{request.method} {request.path}")
        return _nothing(request)

    made._pages = dict.fromkeys(made._pages, page)
    return made


def _nothing(_: Request) -> Response:
    return Response(200, "text/plain", "")


BOT_PAGES = ("GET /valid-keys", "GET /invalid-keys", "POST /reset")


class Grant(StrEnum):
    """Where a reader has the right to a page."""

    EVERYWHERE = "everywhere"
    BUT_ONE = "everywhere but at one partition"
    NOWHERE = "nowhere"


DENIED = 3
"""The partition of :attr:`Grant.BUT_ONE`."""


def readers_access(grant: Grant, principal: str, right: Right, mode: Mode = Mode.ENFORCE) -> RuleAccess:
    """Rules that give one principal this right, and all other rights to everybody."""
    others = tuple(each for each in Right if each is not right)
    rules = [Rule(True, "*", others, "*"), Rule(False, "*", (right,), "*")] if grant is Grant.NOWHERE else []
    if grant is not Grant.NOWHERE:
        rules.append(Rule(True, principal, (right,), "*"))
    if grant is Grant.BUT_ONE:
        rules.append(Rule(False, principal, (right,), str(DENIED)))
    access = RuleAccess(COUNT, lambda subject: subject, [])
    at_once(access.apply(Applied(1, at_once(compile_rules(Document(mode, rules=tuple(rules)), {}, COUNT)))))
    return access


class Readers(NamedTuple):
    """A way in which a reader is known, or not."""

    principal: str
    over_tls: bool
    certificate: dict[str, object] | None = None
    token: str | None = None

    @property
    def proof(self) -> Proof:
        return Proof.CERTIFICATE if self.token is None else Proof.TOKEN


SUBJECT: dict[str, object] = {"subject": ((("commonName", "svc"),),)}
READERS = {
    "anonymous over HTTP": Readers(ANONYMOUS, False),
    "anonymous over HTTPS": Readers(ANONYMOUS, True),
    "certificate over HTTPS": Readers("CN=svc", True, SUBJECT),
    "token over HTTPS": Readers("svc-t", True, None, "good"),
    "both over HTTPS": Readers("svc-t", True, SUBJECT, "good"),
    "token over HTTP": Readers("svc-t", False, None, "good"),
    "bad token over HTTPS": Readers("CN=svc", True, SUBJECT, "bad"),
}


def ask(server: HttpServer, page: str, reader: Readers) -> tuple[int, str]:
    """Status and text of the answer to a reader."""
    method, path = page.split(" ")
    token = None if reader.token is None else SecretStr(reader.token)
    try:
        response = server.answer(
            Request(method, path, {}, "", token), Reader("10.0.0.1:5", reader.certificate, reader.over_tls)
        )
    except HttpError as error:
        return error.status, str(error)
    assert isinstance(response.body, str)
    return response.status, response.body


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("grant", Grant)
@pytest.mark.parametrize("name", READERS)
async def test_pages(page: str, grant: Grant, name: str) -> None:
    """A refused token is no reader at all, whatever its certificate may."""
    executed: list[str] = []
    row, reader = PAGES[page], READERS[name]
    access = readers_access(grant, reader.principal, row.right or Right.DESCRIBE)
    server = HttpServer(pages(executed), access, identities=Accepted(good="svc-t").rules)
    refused = reader.token is not None and (reader.token == "bad" or not reader.over_tls)
    lacks = grant is Grant.NOWHERE or (grant is Grant.BUT_ONE and row.everywhere)
    for asked in (page, f"{page}/"):
        status, text = ask(server, asked, reader)
        if row.right is None or (not refused and not lacks):
            assert status == 200
            assert executed.pop() == asked
        elif refused:
            assert (status, str(reader.token) in text) == (401, False)
        else:
            place = DENIED if grant is Grant.BUT_ONE else NODE
            assert (status, text) == (
                403,
                access.rights_of(reader.principal, reader.proof).refusal(row.right, place),
            )
    assert executed == []


@pytest.mark.parametrize("page", PAGES)
async def test_open_paths_are_everybodys(page: str) -> None:
    access = readers_access(Grant.NOWHERE, ANONYMOUS, PAGES[page].right or Right.DESCRIBE)
    for name, reader in READERS.items():
        executed: list[str] = []
        server = HttpServer(
            pages(executed), access, identities=Accepted(good="svc-t").rules, open_paths=("/health", "/metrics")
        )
        status, _ = ask(server, page, reader)
        opened = page in ("GET /ping", "GET /health", "GET /metrics")
        assert ((status == 200), executed) == (opened, [page] if opened else []), name


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("mode", [Mode.OFF, Mode.AUDIT])
async def test_pages_are_shown_while_rules_are_not_enforced(page: str, mode: Mode) -> None:
    access = readers_access(Grant.NOWHERE, ANONYMOUS, PAGES[page].right or Right.DESCRIBE, mode)
    executed: list[str] = []
    server = HttpServer(pages(executed), access, identities=Accepted().rules)
    assert ask(server, page, READERS["anonymous over HTTPS"])[0] == 200
    assert executed == [page]
    noted = mode is Mode.AUDIT and PAGES[page].right is not None
    assert sum(count for _, count in access.refusals.counts()) == noted


async def test_without_access_rules_everybody_reads_every_page_and_tokens_are_not_looked_at() -> None:
    for page in PAGES:
        for name, reader in READERS.items():
            executed: list[str] = []
            assert ask(HttpServer(pages(executed), ALLOW_ALL), page, reader)[0] == 200, name
            assert executed == [page]


async def test_nothing_is_told_about_pages_that_do_not_exist() -> None:
    server = HttpServer(pages([]), access_for(None, NODE))
    with pytest.raises(HttpError, match="may not describe this node"):
        server.answer(Request("GET", "/elsewhere", {}, ""))


def test_the_rules_of_pages_are_those_of_the_table_and_of_the_guide() -> None:
    rules = {page: PageRow(*page_rule(*page.split(" "))) for page in PAGES}
    assert rules == PAGES
    assert PAGE_RULES.keys() == PAGES.keys()
    guide = (Path(__file__).parents[2] / "docs" / "security.md").read_text().partition("\n## HTTP ports\n")[2]
    shown: dict[str, PageRow] = {}
    for paths, needed in re.findall(r"^\| (`/.*?) \| (.*?) \|", guide, re.MULTILINE):
        row = PageRow(
            None if needed == "nothing" else Right.DESCRIBE, "every partition" in needed, "any partition" in needed
        )
        of = ("of the node", "of the node and of every partition", "of the node or of any partition")
        assert needed == "nothing" or needed in [f"`describe` {each}" for each in of]
        shown.update({f"GET {path}": row for path in re.findall(r"`(.*?)`", paths)})
    assert shown == {page: row for page, row in PAGES.items() if page != "POST /reset"}


@pytest.mark.parametrize(
    ("rows", "answers", "message"),
    [
        (CLIENT_REQUESTS, CLIENT_ANSWERS, client_server.Message),
        (STORAGE_REQUESTS, STORAGE_ANSWERS, storage_version1.Message),
        (ADMIN_REQUESTS, ADMIN_ANSWERS, admin_version1.Message),
    ],
    ids=["client", "data", "admin"],
)
def test_the_table_has_every_message(rows: Sequence[Row], answers: frozenset[str], message: object) -> None:
    asked = {type(row.request).__name__ for row in rows}
    assert asked.isdisjoint(answers)
    assert asked | answers == {kind.__name__ for kind in get_args(message)}


async def test_the_table_has_every_handler_and_page() -> None:
    service = Setup().service
    handled = {AppendRequest, *service._at_partition, *service._at_server}
    assert {type(row.request) for row in CLIENT_REQUESTS} == handled
    no_manager: Any = None
    admin_service = AdminService(no_manager, Registry(), access_for(None, NODE))
    assert {type(row.request) for row in ADMIN_REQUESTS} == {*admin_service._answering, *admin_service._reading}
    assert PAGES.keys() == pages([])._pages.keys()


def test_the_table_has_every_path_that_the_code_names() -> None:
    """Of all daemons, also of those that the tests above do not make."""
    named: set[str] = set()
    for path in sorted((Path(__file__).parents[2] / "waltz").rglob("*.py")):
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        found = [text for text in texts if isinstance(text, str)]
        named |= {text for text in found if re.fullmatch(r"(GET|POST|PUT|DELETE|PATCH) /[a-z/.-]+", text)}
    assert named, "pages are named by method and path"
    assert named <= PAGES.keys()


def test_the_table_has_every_request_to_a_view_node() -> None:
    no_metrics: Any = SimpleNamespace()
    exchanges: Any = SimpleNamespace(limits=Limits(1, 1, 1 << 20), metrics=no_metrics, handler=_refuses_to_be_called)
    resources = view_service.make_application(exchanges, set()).router.routes()
    served = {
        f"{route.method} {route.resource.canonical}"
        for route in resources
        if route.resource is not None and route.method != "HEAD"
    }
    assert served == VIEW_ROUTES.keys() | OPEN_VIEW_ROUTES
    assert {f"{route.method} {route.template}": route.right for route in ROUTES} == VIEW_ROUTES


def _refuses_to_be_called(route: object, handle: object) -> Callable[..., Any]:
    async def handler(request: object) -> Any:
        raise AssertionError("nothing is asked")

    return handler
