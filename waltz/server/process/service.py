"""The partitions of a server and the requests of its clients to them, and to the server itself."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from waltz.common.access import EVERYTHING, Access, Right, Rights, Throttle
from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import LONG_MIN, PARTITION_PART, ReqId
from waltz.common.net.channel import Channel
from waltz.common.quiet_log import QuietLog
from waltz.common.tasks import owned
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    FeedRequest,
    FlushRequest,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    TransactionDataRequest,
)
from waltz.common.wire.client_times import TimeRequest
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest
from waltz.common.wire.consistency import AppendAckRequest, AppendLevelRequest
from waltz.common.wire.lags import LagsRequest, LagsResponse, PartitionLags
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.partition_properties import (
    SetPropertiesRequest,
    SetPropertiesResponse,
    SetPropertiesStatus,
)
from waltz.common.wire.version5 import AppendFailure, TransactionDataListRequest
from waltz.common.wire.write_sessions import NO_WRITE_SESSION, HeartbeatRequest, LastTransactionIdRequest
from waltz.server.feeding.data_lists import refuse_list
from waltz.server.feeding.transaction_data import NOT_READY_TEXT, error_response
from waltz.server.partition.append_rule import DEFAULT_RULE, AppendRule
from waltz.server.partition.confirmed_marks import refuse_confirmed_mark
from waltz.server.partition.fencing import refuse_heartbeat, refuse_last
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.times import refuse_time
from waltz.server.process.property_setting import PropertiesSet
from waltz.server.requests.appends import AppendCall, AppendLimits, Unacceptable, data_sizes
from waltz.server.requests.connection import ClientConnection
from waltz.server.requests.deadlines import Deadlines
from waltz.server.requests.failures import tell_failed
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import AnyFeedRequest, Pending
from waltz.server.requests.permission import right_of, tells_refusal

logger = logging.getLogger(__name__)

MAX_ADMIN_REQUESTS = 16
"""Requests to the server itself that one connection may have under way."""

MAX_PARKED_QUESTIONS = 1000
"""Questions for marks of partitions that are not here; more are answered "unknown" at once."""

LAGS_PER_TURN = 20
"""Partitions whose lags are read in one turn of the loop: a thousand would block it for tens of milliseconds."""

MAX_ENDED_PER_TURN = 50
"""Feeds without a right that are ended in one turn of the loop."""

PartitionFactory = Callable[[int, int], ServerPartition]
"""Makes the partition of an id and generation, not yet started."""

CheckStorages = Callable[[], Awaitable[Mapping[str, bool]]]
"""Finds out which storages (``host:port``) can be reached; has its own deadlines."""

SetPreferred = Callable[[Sequence[int]], Awaitable[None]]
"""Sets this server's preferred partitions in the cluster, in order of preference; raises ``WaltzError``."""


SetProperties = Callable[[int, int, str], Awaitable[PropertiesSet]]
"""Sets the properties of a partition that have had a number of changes; raises ``WaltzError``."""


_LISTINGS = frozenset({ServerPartitionsHealthStatRequest, LagsRequest})
"""Requests for lists of partitions: answered with those that the client may see."""


class _PartitionRequest(NamedTuple):
    """A kind of request to a partition."""

    here: Callable[[ServerPartition, ClientLink, Any], None]
    """Handles the request at its partition."""
    elsewhere: Callable[[ClientLink, Any], None]
    """Answers the request when the partition is not at this server."""
    refused: Callable[[ClientLink, Any], None]
    """Answers the request when the client lacks the right and its version has no message for that: it gets the answer
    for a partition elsewhere."""


class ServerService:
    """Owns the partitions. The connections' handlers call it, and the cluster manager through the node."""

    def __init__(
        self,
        partition_factory: PartitionFactory,
        *,
        partition_count: int,
        append_limits: AppendLimits,
        question_timeout_s: float,
        check_storages: CheckStorages,
        set_preferred: SetPreferred,
        set_properties: SetProperties,
        access: Access,
    ) -> None:
        self.partitions: dict[int, ServerPartition] = {}
        self.closed = False
        self._partition_factory = partition_factory
        self._partition_count = partition_count
        self._append_limits = append_limits
        self._access = access
        self._log_quietly = QuietLog(logger)
        self._check_storages = check_storages
        self._set_preferred = set_preferred
        self._properties_setter = set_properties
        self._preferred: tuple[int, ...] = ()
        self._preferred_lock = asyncio.Lock()
        self._by_key: dict[bytes, ServerPartition] = {}
        self._in_doubt = False
        self._append_rules: Mapping[int, AppendRule] = {}
        self._taking_appends: dict[bytes, ServerPartition] = {}  # the partitions that are not disabled
        self._link_numbers = itertools.count()
        self.links: dict[ClientLink, int] = {}  # with their numbers of admin requests under way
        self._closing: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._parked = Deadlines(question_timeout_s, self._question_expired)
        kind = _PartitionRequest
        self._at_partition: dict[type[Message], _PartitionRequest] = {
            MountRequest: kind(ServerPartition.mount, self._refuse_mount, self._refuse_mount),
            FeedRequest: kind(ServerPartition.feed, self._drop, self._drop),
            MarkFeedRequest: kind(ServerPartition.feed, self._drop, self._drop),
            FlushRequest: kind(ServerPartition.flush, self._drop, self._drop),
            TransactionDataRequest: kind(ServerPartition.transaction_data, self._refuse_data, self._refuse_data),
            TransactionDataListRequest: kind(ServerPartition.transaction_list, refuse_list, refuse_list),
            HighWaterMarkRequest: kind(ServerPartition.ask_high_water_mark, self._park_question, self._tell_unknown),
            ConfirmedMarkRequest: kind(
                ServerPartition.ask_confirmed_mark, refuse_confirmed_mark, refuse_confirmed_mark
            ),
            TimeRequest: kind(ServerPartition.ask_time, refuse_time, refuse_time),
            HeartbeatRequest: kind(ServerPartition.heartbeat, refuse_heartbeat, refuse_heartbeat),
            LastTransactionIdRequest: kind(ServerPartition.last_transaction_id, refuse_last, refuse_last),
            AppendLevelRequest: kind(ServerPartition.tell_level, self._drop, self._drop),
            AppendOrderRequest: kind(ServerPartition.set_append_order, self._drop, self._drop),
            AppendAckRequest: kind(ServerPartition.ask_acknowledgement, self._drop, self._drop),
            SetPropertiesRequest: kind(self._set_properties_here, self._set_properties, self._drop),
        }
        self._at_server: dict[type[Message], tuple[Right | None, Callable[[ClientLink, Any], None]]] = {
            # No secret: clients know the owners from ZooKeeper, and ask this as a sign of life.
            ServerPartitionsAssignmentRequest: (None, self._tell_assignment),
            ServerPartitionsHealthStatRequest: (Right.DESCRIBE, self._tell_health),
            CheckStorageConnectivityRequest: (Right.DESCRIBE, self._check_connectivity),
            LagsRequest: (Right.DESCRIBE, self._tell_lags),
            AddPreferredPartitionRequest: (Right.ADMIN, self._add_preferred),
            RemovePreferredPartitionRequest: (Right.ADMIN, self._remove_preferred),
        }

    def connection(self) -> ClientConnection:
        """A handler for a new client connection."""
        return ClientConnection(self, self._append_limits)

    # Partitions

    def set_partitions(self, generations: Mapping[int, int]) -> None:
        """Own exactly these partitions (id to generation): open new ones, raise generations, close the others."""
        if self.closed:
            return
        self._access.owns(generations.keys())
        for partition_id, generation in generations.items():
            partition = self.partitions.get(partition_id)
            if partition is None:
                self._open(partition_id, generation)
            else:
                partition.set_generation(generation)
        for partition_id in self.partitions.keys() - generations.keys():
            self._close(partition_id)
        self._ask_parked()

    def set_append_rules(self, rules: Mapping[int, AppendRule]) -> None:
        """Take appends to partitions by these rules, and by the default where there is none, whether the partitions are
        here or not. All other requests continue."""
        before, self._append_rules = self._append_rules, rules
        for partition_id in sorted(before.keys() | rules.keys()):
            rule, former = self._append_rule(partition_id), before.get(partition_id, DEFAULT_RULE)
            if rule.disabled != former.disabled:
                logger.info("partition %d is %s", partition_id, "disabled" if rule.disabled else "enabled")
            if rule.first_available != former.first_available:
                logger.info("partition %d begins with transaction %d now", partition_id, rule.first_available)
            others = former._replace(disabled=rule.disabled, first_available=rule.first_available)
            if rule != others:
                logger.info("partition %d takes appends by other rules: %s", partition_id, rule.describe())
        for partition_id, partition in self.partitions.items():
            partition.set_append_rule(self._append_rule(partition_id))
        self._taking_appends = {
            key: partition
            for key, partition in self._by_key.items()
            if not self._append_rule(partition.partition_id).disabled
        }

    def _append_rule(self, partition_id: int) -> AppendRule:
        return self._append_rules.get(partition_id, DEFAULT_RULE)

    def set_in_doubt(self, in_doubt: bool) -> None:
        """Set whether other servers may own the partitions without this server's knowledge, as after a lost ZooKeeper
        session.

        Appends, feeds and reads continue: the storages admit only one writer. But marks are confirmed.
        """
        self._in_doubt = in_doubt
        for partition in self.partitions.values():
            partition.in_doubt = in_doubt

    async def close(self) -> None:
        """Close all partitions and end all requests. Clients are told "not ready" from now on."""
        self.closed = True
        for partition_id in list(self.partitions):
            self._close(partition_id)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._closing.values(), *self._tasks, return_exceptions=True)
        for pending in self._parked.take():
            self._question_expired(pending)

    def _open(self, partition_id: int, generation: int) -> None:
        logger.info("opening partition %d, generation %d", partition_id, generation)
        partition = self._partition_factory(partition_id, generation)
        partition.in_doubt = self._in_doubt
        partition.set_append_rule(self._append_rule(partition_id))
        self.partitions[partition_id] = partition
        self._by_key[_key(partition_id)] = partition
        if not self._append_rule(partition_id).disabled:
            self._taking_appends[_key(partition_id)] = partition
        predecessor = self._closing.get(partition_id)
        if predecessor is None:
            partition.start()
        else:  # requests wait in the partition meanwhile
            self._own(self._start_after(predecessor, partition), f"the opening of partition {partition_id}")

    def _close(self, partition_id: int) -> None:
        logger.info("closing partition %d", partition_id)
        partition = self.partitions.pop(partition_id)
        del self._by_key[_key(partition_id)]
        self._taking_appends.pop(_key(partition_id), None)
        partition.leave(self._closing_reason)
        predecessor = self._closing.get(partition_id)
        task = asyncio.get_running_loop().create_task(
            self._close_after(predecessor, partition), name=f"closing of partition {partition_id}"
        )
        self._closing[partition_id] = task
        task.add_done_callback(lambda _: self._closed(partition_id, task))

    def _closed(self, partition_id: int, task: asyncio.Task[None]) -> None:
        if self._closing.get(partition_id) is task:
            del self._closing[partition_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("partition %d did not close cleanly", partition_id, exc_info=error)

    async def _start_after(self, predecessor: asyncio.Task[None], partition: ServerPartition) -> None:
        await asyncio.wait([predecessor])
        if not partition.closed:
            partition.start()

    async def _close_after(self, predecessor: asyncio.Task[None] | None, partition: ServerPartition) -> None:
        if predecessor is not None:
            await asyncio.wait([predecessor])
        await partition.close()

    # Requests to partitions

    def link_opened(self, channel: Channel) -> ClientLink:
        """A client has connected."""
        link = ClientLink(channel, next(self._link_numbers), self._access.rights_of(channel.principal, channel.proof))
        self.links[link] = 0
        return link

    def link_closed(self, link: ClientLink) -> None:
        """Its connection is gone."""
        self.links.pop(link, None)
        link.end_delay()
        for partition in link.mounts:
            partition.forget(link)
        link.mounts.clear()

    def append(self, link: ClientLink, requests: Sequence[AppendCall], write_session: int = NO_WRITE_SESSION) -> None:
        """Take appends to one partition; if it is not here, disabled, or the client lacks the right, they are refused,
        silently before version 5. So are those that exceed a quota."""
        if link.rights is not EVERYTHING and self._append_refused(link, [request.req_id for request in requests]):
            return
        partition = self._taking_appends.get(requests[0].req_id[PARTITION_PART])
        if partition is not None:
            throttle = link.rights.throttle
            if throttle is not None:
                requests = _within_quota(throttle, partition, link, requests)
                if not requests:
                    return
            partition.append(link, requests, write_session)
            return
        disabled = self._by_key.get(requests[0].req_id[PARTITION_PART])
        if disabled is not None:
            disabled.refuse_appends(link, requests, "the partition is disabled by its properties")
        else:
            req_ids = [request.req_id for request in requests]
            tell_failed(link, req_ids, self._closing_reason, None, "the partition is not at this server")

    def append_unacceptable(self, link: ClientLink, append: Unacceptable) -> None:
        """Refuse an append. For a client that cannot be told, a closed connection would interrupt all its partitions,
        and it would still send the append again."""
        if link.rights is not EVERYTHING and self._append_refused(link, [append.req_id]):
            return
        self._log_quietly.warning("refused an append of %s: %s", link.channel.peer, append.text)
        if append.failure is not None:
            partition = self._by_key.get(append.req_id[PARTITION_PART])
            mark = None if partition is None else partition.high_water_mark
            tell_failed(link, [append.req_id], append.failure, mark, append.text)

    @property
    def _closing_reason(self) -> AppendFailure:
        """The reason why a partition that is not here, or is leaving, takes no appends."""
        return AppendFailure.STOPPING if self.closed else AppendFailure.MOVED

    def received(self, link: ClientLink, message: Message, *, noted: bool = False) -> None:
        """Take any other message, perhaps ``noted`` by an audit before. Raises ``ProtocolError`` if it closes the
        connection."""
        kind = type(message)
        if kind in self._at_partition:
            here, elsewhere, refused = self._at_partition[kind]
            partition = self._by_key.get(message.req_id[PARTITION_PART])
            if link.rights is EVERYTHING:
                refusal = None
            else:
                refusal = _refusal(link, right_of(message), message.req_id, noted=noted)
            if refusal is not None:
                if not (tells_refusal(message) and link.refuse(message.req_id, refusal)):
                    refused(link, message)
            elif partition is None:
                elsewhere(link, message)
            else:
                here(partition, link, message)
        elif kind in self._at_server:
            right, answer = self._at_server[kind]
            if right is None:
                refusal = None
            elif kind in _LISTINGS:
                refusal = link.rights.refusal_anywhere(right, link.channel.peer)
            else:
                refusal = link.refusal(right, None)
            if refusal is None:
                answer(link, message)
            elif not link.refuse(message.req_id, refusal):
                raise ProtocolError(refusal)
        else:
            self._ignore(link, message)

    def _append_refused(self, link: ClientLink, req_ids: Sequence[bytes]) -> bool:
        """Refuse appends to one partition, silently before version 5, if the client lacks the right."""
        partition_id = ReqId(req_ids[0]).partition_id
        refusal = link.refusal(Right.APPEND, partition_id, len(req_ids))
        if refusal is None:
            return False
        for req_id in req_ids:
            if not link.refuse(req_id, refusal):
                tell_failed(link, [req_id], AppendFailure.MOVED, None, refusal)
        return True

    def rights_lost(self, lost: Collection[Rights]) -> None:
        """Clients with these rights have fewer of them than before. What they lack is refused from now on; their feeds
        and exclusive sessions end within the next turns of the loop."""
        found = frozenset(lost)
        links = [link for link in self.links if link.rights in found]
        if found:
            partitions = list(self.partitions.values())
            self._own(_end_without_right(links, partitions, found), "the end of feeds of clients without a right")

    def _ignore(self, link: ClientLink, message: Message) -> None:
        """Ignore a message that only servers send, as the original does, unless it is for a partition that is here."""
        if message.req_id[PARTITION_PART] in self._by_key:
            raise ProtocolError(f"{type(message).__name__} is not a request")
        self._log_quietly.warning("ignored a %s of %s", type(message).__name__, link.channel.peer)

    def _drop(self, link: ClientLink, request: AnyFeedRequest | FlushRequest | SetPropertiesRequest) -> None:
        """Drop a request as the original does: the client will mount elsewhere."""

    def _refuse_mount(self, link: ClientLink, request: MountRequest) -> None:
        link.send(MountResponse(request.req_id, PartitionState.NOT_READY))

    def _refuse_data(self, link: ClientLink, request: TransactionDataRequest) -> None:
        link.send(error_response(request, NOT_READY_TEXT))

    def _park_question(self, link: ClientLink, request: HighWaterMarkRequest) -> None:
        """Keep a question for a while: the original's client believes every answer, and asks the new owner on its own
        as soon as it knows it."""
        pending = Pending(link, request)
        if self.closed or len(self._parked) >= MAX_PARKED_QUESTIONS:
            self._question_expired(pending)
        else:
            self._parked.add(pending)

    def _tell_unknown(self, link: ClientLink, request: HighWaterMarkRequest) -> None:
        link.send(HighWaterMarkResponse(request.req_id, LONG_MIN))

    def _ask_parked(self) -> None:
        """Ask the kept questions for marks of partitions that have arrived."""
        for pending in self._parked.waiting():
            partition = self._by_key.get(pending.request.req_id[PARTITION_PART])
            if partition is not None and isinstance(pending.request, HighWaterMarkRequest):
                pending.end()
                partition.ask_high_water_mark(pending.link, pending.request)

    def _question_expired(self, pending: Pending) -> None:
        pending.link.send(HighWaterMarkResponse(pending.request.req_id, LONG_MIN))

    # Requests to the server

    def _tell_assignment(self, link: ClientLink, request: ServerPartitionsAssignmentRequest) -> None:
        link.send(ServerPartitionsAssignmentResponse(request.req_id, tuple(sorted(self.partitions))))

    def _tell_health(self, link: ClientLink, request: ServerPartitionsHealthStatRequest) -> None:
        shown = self._shown(link, sorted(self.partitions), "list health")
        health = tuple((partition_id, self.partitions[partition_id].healthy) for partition_id in shown)
        link.send(ServerPartitionsHealthStatResponse(request.req_id, health))

    def _shown(self, link: ClientLink, partition_ids: Iterable[int], operation: str) -> list[int]:
        """The partitions of a list that the client may see."""
        return link.rights.filtered(Right.DESCRIBE, partition_ids, operation, link.channel.peer)

    def _tell_lags(self, link: ClientLink, request: LagsRequest) -> None:
        async def answer() -> Message:
            lags: list[PartitionLags] = []
            shown = [self.partitions[each] for each in self._shown(link, self.partitions, "list lags")]
            for number, partition in enumerate(shown, 1):
                lags.append(partition.lags())
                if number % LAGS_PER_TURN == 0:
                    await asyncio.sleep(0)
            return LagsResponse(request.req_id, lags)

        self._answer_later(link, answer)

    def _check_connectivity(self, link: ClientLink, request: CheckStorageConnectivityRequest) -> None:
        async def answer() -> Message:
            connectivity = await self._check_storages()
            return CheckStorageConnectivityResponse(request.req_id, tuple(sorted(connectivity.items())))

        self._answer_later(link, answer)

    def _add_preferred(self, link: ClientLink, request: AddPreferredPartitionRequest) -> None:
        async def answer() -> Message:
            result = await self._change_preferred(request.partition_ids, add=True)
            _note_preferred(link, "add preferred partitions", request.partition_ids, done=result)
            return AddPreferredPartitionResponse(request.req_id, result)

        self._answer_later(link, answer)

    def _remove_preferred(self, link: ClientLink, request: RemovePreferredPartitionRequest) -> None:
        async def answer() -> Message:
            result = await self._change_preferred(request.partition_ids, add=False)
            _note_preferred(link, "remove preferred partitions", request.partition_ids, done=result)
            return RemovePreferredPartitionResponse(request.req_id, result)

        self._answer_later(link, answer)

    def _set_properties_here(self, _: ServerPartition, link: ClientLink, request: SetPropertiesRequest) -> None:
        self._set_properties(link, request)

    def _set_properties(self, link: ClientLink, request: SetPropertiesRequest) -> None:
        """Every server does it: the properties are in ZooKeeper."""
        partition_id = ReqId(request.req_id).partition_id

        async def answer() -> Message:
            if partition_id >= self._partition_count:
                done = PropertiesSet(SetPropertiesStatus.FAILED, -1, f"there is no partition {partition_id}")
            else:
                try:
                    done = await self._properties_setter(partition_id, request.change, request.properties)
                except WaltzError as error:
                    done = PropertiesSet(SetPropertiesStatus.FAILED, -1, str(error))
            if done.status is not SetPropertiesStatus.CHANGED:
                link.acted("set properties", Right.CONFIGURE, [partition_id], done.error or "")
            return SetPropertiesResponse(request.req_id, *done)

        self._answer_later(link, answer)

    def _answer_later(self, link: ClientLink, answer: Callable[[], Coroutine[None, None, Message]]) -> None:
        """Answer in a task; raises ``ProtocolError`` when the connection has too many requests under way."""
        if self.links.get(link, 0) >= MAX_ADMIN_REQUESTS:
            raise ProtocolError(f"more than {MAX_ADMIN_REQUESTS} administrative requests at a time")
        self.links[link] += 1

        async def work() -> None:
            try:
                link.send(await answer())
            finally:
                if link in self.links:
                    self.links[link] -= 1

        self._own(work(), "an administrative request", link)

    async def _change_preferred(self, partition_ids: Sequence[int], *, add: bool) -> bool:
        if not partition_ids or min(partition_ids) < 0 or max(partition_ids) >= self._partition_count:
            return False
        async with self._preferred_lock:
            changed = set(partition_ids)
            others = [preferred for preferred in self._preferred if preferred not in changed]
            wanted = (*others, *dict.fromkeys(partition_ids)) if add else tuple(others)
            try:
                await self._set_preferred(wanted)
            except WaltzError as error:
                logger.warning("the preferred partitions could not be changed: %s", error)
                return False
            self._preferred = wanted
            return True

    def _own(self, work: Coroutine[None, None, None], what: str, link: ClientLink | None = None) -> None:
        """Run ``work``; a defect closes the connection that it works for, if there is one."""

        def defect(error: Exception) -> None:
            if link is not None:
                link.fail(WaltzError(f"{what} failed: {error!r}"))

        task = owned(work, what, defect)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _refusal(link: ClientLink, right: Right, req_id: bytes, *, noted: bool = False) -> str | None:
    """The reason against a request to the partition of an id."""
    return link.refusal(right, ReqId(req_id).partition_id, noted=noted)


def _within_quota(
    throttle: Throttle, partition: ServerPartition, link: ClientLink, requests: Sequence[AppendCall]
) -> Sequence[AppendCall]:
    """The appends that a quota admits: the first ones. The others are refused; none of them has a place in the order
    yet."""
    now_s = asyncio.get_running_loop().time()
    passage = throttle.take(partition.partition_id, data_sizes(requests), link.channel.peer, now_s)
    if passage is None:
        return requests
    link.delay_appends(requests[0].req_id, passage.delay_s)
    refused = [request.req_id for request in requests[passage.admitted :]]
    tell_failed(link, refused, AppendFailure.MOVED, partition.high_water_mark, passage.text)
    return requests[: passage.admitted]


def _note_preferred(link: ClientLink, operation: str, partition_ids: Sequence[int], *, done: bool) -> None:
    error = "" if done else "the preferred partitions could not be changed"
    link.acted(operation, Right.ADMIN, partition_ids, error)


async def _end_without_right(
    links: Sequence[ClientLink], partitions: Sequence[ServerPartition], lost: Collection[Rights]
) -> None:
    """End the exclusive sessions of partitions, and the feeds of links, that clients may not have any more: a few in
    each turn of the loop."""
    for count, here in enumerate(partitions, 1):
        here.holder_lost_rights(lost)
        if not count % MAX_ENDED_PER_TURN:
            await asyncio.sleep(0)
    for link in links:
        for count, partition in enumerate(list(link.mounts), 1):
            partition.rights_lost(link)
            if not count % MAX_ENDED_PER_TURN:
                await asyncio.sleep(0)
        await asyncio.sleep(0)


def _key(partition_id: int) -> bytes:
    return ReqId.of(0, 0, partition_id, 0)[PARTITION_PART]
