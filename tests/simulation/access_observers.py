"""Where the checks of access rules learn what happens: at ZooKeeper, and within servers and storages."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from typing import Any
from unittest import mock

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.simulation.access_checks import AccessChecks
from tests.simulation.access_model import Verdict
from tests.simulation.loop import Process, running_process
from waltz.common.access import Right, Rights
from waltz.common.acl.document import RIGHTS
from waltz.common.acl.enforcement import Row, RuleAccess
from waltz.common.acl.refusals import Refusals
from waltz.common.acl.watch import RuleWatch
from waltz.common.ids import ReqId
from waltz.common.zk.client import Stat
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import PartitionAssignment, PartitionGeneration
from waltz.server.partition.fencing import Fencing
from waltz.server.partition.partition import ServerPartition
from waltz.server.process.node import WaltzServer
from waltz.server.requests.appends import AppendCall, data_sizes
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import Pending
from waltz.server.store.log.log import ReplicatedLog
from waltz.storage.node.admin_port import AdminService

_NAMES = {right: name for name, right in RIGHTS.items()}


class Observers:
    """Tell the checks what nodes do."""

    def __init__(self, checks: AccessChecks, fail: Callable[[str], None]) -> None:
        self._checks = checks
        self._fail = fail
        self._runs: dict[Process, str] = {}
        self._counts: Counter[str] = Counter()
        self._noted = 0
        self._holders: dict[Fencing, str] = {}
        self._refused: set[ClientLink] = set()
        self._reader: ContextVar[str | None] = ContextVar("reader", default=None)

    @contextlib.contextmanager
    def observing(self, server: MemoryZooKeeperServer, paths: ClusterPaths) -> Iterator[None]:
        """While this lasts, the checks are told."""
        with contextlib.ExitStack() as stack:
            self._see_changes(stack, server, paths)
            for target, name, replacement in (
                (RuleWatch, "_tell", self._telling()),
                (Row, "refusal", self._judging()),
                (Refusals, "add", self._noting()),
                (WaltzServer, "set_partitions", self._hearing()),
                (RuleAccess, "owns", self._owning()),
                (ReplicatedLog, "append", self._placing()),
                (ServerPartition, "append", self._admitting()),
                (ServerPartition, "transaction_data", self._serving("transaction_data", "the data")),
                (ServerPartition, "transaction_list", self._serving("transaction_list", "a bulk read")),
                (ServerPartition, "rights_lost", self._ending()),
                (ClientLink, "refuse", self._refusing()),
                (Fencing, "store_session_begun", self._beginning()),
                (AdminService, "execute", self._executing()),
                (AdminService, "_read_records", self._reading("_read_records")),
                (AdminService, "_read_range", self._reading("_read_range")),
            ):
                stack.enter_context(mock.patch.object(target, name, replacement))
            yield

    def look(self, server: WaltzServer) -> None:
        """Look at what a server has open; to be called inside of its process."""
        node = self._node()
        for partition in server.partitions.values():
            partition_id = partition.partition_id
            for link, _ in partition._registrations.sessions():
                if not link.channel.closed:
                    principal = _principal(link.rights)
                    self._checks.goes_on(node, principal, partition_id, "a feed", "metadata")
            fencing = partition._fencing
            if fencing.session.holder is not None:
                principal = self._holders[fencing]
                self._checks.goes_on(node, principal, partition_id, "an exclusive write session", "append")

    def _node(self) -> str:
        process = running_process()
        assert process is not None, "only nodes decide"
        if process not in self._runs:
            self._counts[process.host] += 1
            self._runs[process] = f"{process.host} (run {self._counts[process.host]})"
        return self._runs[process]

    # What is written and applied

    def _see_changes(self, stack: contextlib.ExitStack, server: MemoryZooKeeperServer, paths: ClusterPaths) -> None:
        create, write = server.create, server.set

        def changed(path: str, data: bytes | None) -> None:
            if path in (paths.access_rules, paths.partition_names):
                _, stat = server._tree.get(path)
                if path == paths.access_rules:
                    self._checks.rules_written(stat.mzxid, data or b"")
                else:
                    self._checks.names_written(stat.mzxid, data)
            elif path == paths.server_descriptors and data:
                servers = PartitionAssignment.decode(data).servers
                self._checks.assigned({each: dict(owned) for each, owned in servers.items()})

        def created(path: str, data: bytes | None, owner: int, sequential: bool) -> str:
            made = create(path, data, owner, sequential)
            changed(made, data)
            return made

        def written(path: str, data: bytes | None, version: int) -> Stat:
            stat = write(path, data, version)
            changed(path, data)
            return stat

        stack.enter_context(mock.patch.object(server, "create", created))
        stack.enter_context(mock.patch.object(server, "set", written))

    def _telling(self) -> Callable[[RuleWatch], Any]:
        tell = RuleWatch._tell

        async def telling(watch: RuleWatch) -> None:
            node, place = self._node(), watch._place
            if place is not None:
                self._checks.says(node, (place.rules, place.names))
            await tell(watch)
            if place is not None:
                self._checks.has_said(node)

        return telling

    # Decisions

    def _judging(self) -> Callable[..., str | None]:
        refusal = Row.refusal

        def judging(
            row: Row, right: Right, partition_id: int | None, peer: str = "", count: int = 1, *, noted: bool = False
        ) -> str | None:
            node, before = self._node(), self._noted
            text = refusal(row, right, partition_id, peer, count, noted=noted)
            verdict = Verdict.PASSES
            if text is not None:
                verdict = Verdict.REFUSED
            elif self._noted != before:
                verdict = Verdict.NOTED
                if self._noted != before + count:
                    self._fail(f"{node}: the audit has noted {self._noted - before} of {count} requests")
            self._checks.judged(node, row.principal, _NAMES[right], partition_id, noted=noted, verdict=verdict)
            if verdict is Verdict.NOTED and right is Right.APPEND and partition_id is not None:
                self._checks.noted_appends(node, row.principal, partition_id, count)
            return text

        return judging

    def _noting(self) -> Callable[..., None]:
        add = Refusals.add

        def adding(
            refusals: Refusals,
            principal: str,
            right: Right,
            places: Sequence[int | None],
            explain: Callable[[], str],
            peer: str,
            count: int,
            *,
            audited: bool,
        ) -> None:
            add(refusals, principal, right, places, explain, peer, count, audited=audited)
            self._noted += count if audited else 0

        return adding

    def _placing(self) -> Callable[[ReplicatedLog, Sequence[AppendCall]], None]:
        append = ReplicatedLog.append

        def appending(log: ReplicatedLog, appends: Sequence[AppendCall]) -> None:
            principal = _principal(appends[0].run.link.rights)
            req_ids = [bytes(each.req_id) for each in appends]
            self._checks.placed(self._node(), principal, _partition_of(req_ids[0]), req_ids)
            append(log, appends)

        return appending

    def _serving(self, name: str, what: str) -> Callable[[ServerPartition, ClientLink, Any], None]:
        serve = getattr(ServerPartition, name)

        def serving(partition: ServerPartition, link: ClientLink, request: Any) -> None:
            self._checks.served(self._node(), _principal(link.rights), partition.partition_id, what)
            serve(partition, link, request)

        return serving

    def _executing(self) -> Callable[..., Any]:
        execute = AdminService.execute

        async def executing(
            service: AdminService, request: Any, version: int, rights: Rights, peer: str = ""
        ) -> Sequence[bytes]:
            token = self._reader.set(_principal(rights))
            try:
                return await execute(service, request, version, rights, peer)
            finally:
                self._reader.reset(token)

        return executing

    def _reading(self, name: str) -> Callable[[AdminService, Any, int], Any]:
        read = getattr(AdminService, name)

        async def reading(service: AdminService, request: Any, version: int) -> Sequence[bytes]:
            principal = self._reader.get()
            assert principal is not None, "only what is executed reads"
            self._checks.served(self._node(), principal, request.partition_id, "a bulk read")
            frames: Sequence[bytes] = await read(service, request, version)
            return frames

        return reading

    # Ends

    def _ending(self) -> Callable[[ServerPartition, ClientLink], None]:
        rights_lost = ServerPartition.rights_lost

        def ending(partition: ServerPartition, link: ClientLink) -> None:
            open_before = partition._registrations.is_valid(link)
            self._refused.discard(link)
            rights_lost(partition, link)
            ended = open_before and not partition._registrations.is_valid(link)
            if ended and not link.channel.closed and link not in self._refused:
                self._fail(f"{self._node()}: a feed of {_principal(link.rights)} has ended, and nobody has told it")

        return ending

    def _refusing(self) -> Callable[[ClientLink, bytes, str], bool]:
        refuse = ClientLink.refuse

        def refusing(link: ClientLink, req_id: bytes, text: str) -> bool:
            told = refuse(link, req_id, text)
            if told:
                self._refused.add(link)
            return told

        return refusing

    def _beginning(self) -> Callable[[Fencing, int, bool, Pending | None, int], None]:
        begun = Fencing.store_session_begun

        def beginning(fencing: Fencing, session_id: int, unbroken: bool, fence: Pending | None, mark: int) -> None:
            if fence is not None:
                self._holders[fencing] = _principal(fence.link.rights)
            begun(fencing, session_id, unbroken, fence, mark)

        return beginning

    # Quotas

    def _hearing(self) -> Callable[[WaltzServer, list[PartitionGeneration]], None]:
        set_partitions = WaltzServer.set_partitions

        def hearing(server: WaltzServer, partitions: list[PartitionGeneration]) -> None:
            assert server.server_id is not None, "it has joined"
            self._checks.told(self._node(), server.server_id, dict(partitions))
            set_partitions(server, partitions)

        return hearing

    def _owning(self) -> Callable[[RuleAccess, Collection[int]], None]:
        owns = RuleAccess.owns

        def owning(access: RuleAccess, partition_ids: Collection[int]) -> None:
            owns(access, partition_ids)
            self._checks.owns(self._node(), partition_ids)

        return owning

    def _admitting(self) -> Callable[..., None]:
        append = ServerPartition.append

        def appending(
            partition: ServerPartition, link: ClientLink, requests: Sequence[AppendCall], write_session: int = -1
        ) -> None:
            sizes, now_s = data_sizes(requests), asyncio.get_running_loop().time()
            self._checks.admits(self._node(), _principal(link.rights), partition.partition_id, sizes, now_s)
            append(partition, link, requests, write_session)

        return appending


def _principal(rights: Rights) -> str:
    assert isinstance(rights, Row), "all nodes have access rules"
    return rights.principal


def _partition_of(req_id: bytes) -> int:
    return ReqId(req_id).partition_id
