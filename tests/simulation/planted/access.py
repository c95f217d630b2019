"""Bugs to plant in access rules and quotas: what is judged when, what a revocation ends, which rules a node applies."""

import contextlib
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from waltz.common.access import Rights
from waltz.common.acl.document import Document, Mode, Quota
from waltz.common.acl.enforcement import Applied, Row, RuleAccess
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.quotas import Share
from waltz.common.acl.rules import EVERY_RIGHT, Rules, compile_rules
from waltz.common.acl.store import read_stored
from waltz.common.acl.throttling import Throttles
from waltz.common.acl.watch import RuleWatch
from waltz.common.pieces import at_once, in_turns
from waltz.common.wire.version5 import AppendFailure
from waltz.common.zk.client import State
from waltz.server.partition import partition as partition_module
from waltz.server.partition.fencing import Fencing
from waltz.server.partition.partition import ServerPartition
from waltz.server.process import service
from waltz.server.process.service import ServerService
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.failures import tell_failed
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import Pending
from waltz.server.store.log.log import ReplicatedLog
from waltz.storage.node import admin_port

# When a request is judged


def judge_at_arrival(partition: ServerPartition, pending: Pending, count: int = 1) -> str | None:
    """What has waited is not judged again when it gets its place."""
    return None


@contextlib.contextmanager
def keep_rights_of_connections() -> Iterator[None]:
    """Connections keep the rights that they began with."""
    apply = RuleAccess.apply

    def applied(access: RuleAccess, rules: Applied) -> Generator[None, None, Collection[Row]]:
        access._rows.clear()
        return (yield from apply(access, rules))

    with mock.patch.object(RuleAccess, "apply", applied):
        yield


async def tell_before_it_applies(watch: RuleWatch) -> None:
    """A node says that it applies rules, and then does so."""
    stored = await read_stored(watch._zookeeper, watch._root, watch._follower.changed, watch._follower.changed)
    if stored is None:
        raise AclError("there are none")
    if stored.place == watch._place:
        return
    rules = await in_turns(stored.compile(watch._partition_count))
    watch._place = stored.place
    await watch._tell()
    watch.on_lost(await in_turns(watch._access.apply(Applied(stored.place.version, rules))))


@contextlib.contextmanager
def judge_bulk_reads_once() -> Iterator[None]:
    """A bulk read that has begun goes on: a storage judges the first request of a peer only."""
    check = admin_port._check_permission
    permitted: set[tuple[int, Any]] = set()

    def checked(request: Any, rights: Rights, peer: str) -> None:
        key = id(rights), getattr(request, "partition_id", None)
        if key not in permitted:
            check(request, rights, peer)
            permitted.add(key)

    with mock.patch.object(admin_port, "_check_permission", checked):
        yield


@contextlib.contextmanager
def tell_of_refused_flushes() -> Iterator[None]:
    """A flush is refused by a message with its id, which is that of an append."""
    with (
        mock.patch.object(service, "tells_refusal", return_value=True),
        mock.patch.object(partition_module, "tells_refusal", return_value=True),
    ):
        yield


# What a revocation ends


def end_nothing(partition: ServerPartition, link: ClientLink) -> None:
    """Open feeds go on."""


@contextlib.contextmanager
def end_feeds_in_silence() -> Iterator[None]:
    """A feed ends, and its client does not hear of that."""
    rights_lost = ServerPartition.rights_lost

    def silent(partition: ServerPartition, link: ClientLink) -> None:
        with mock.patch.object(ClientLink, "refuse", return_value=True):
            rights_lost(partition, link)

    with mock.patch.object(ServerPartition, "rights_lost", silent):
        yield


@contextlib.contextmanager
def keep_old_connections() -> Iterator[None]:
    """A client without a message for it is not disconnected when its feed ends."""
    rights_lost = ServerPartition.rights_lost

    def kept(partition: ServerPartition, link: ClientLink) -> None:
        with mock.patch.object(ClientLink, "fail"):
            rights_lost(partition, link)

    with mock.patch.object(ServerPartition, "rights_lost", kept):
        yield


@contextlib.contextmanager
def fail_what_is_in_order() -> Iterator[None]:
    """Appends that have their place are said to have failed when their client loses the right."""
    append, rights_lost = ReplicatedLog.append, ServerPartition.rights_lost
    last: dict[tuple[ClientLink, object], AppendCall] = {}

    def appended(log: ReplicatedLog, appends: Sequence[AppendCall]) -> None:
        last[appends[0].run.link, log] = appends[-1]
        append(log, appends)

    def failing(partition: ServerPartition, link: ClientLink) -> None:
        rights_lost(partition, link)
        call, mark = last.get((link, partition._log)), partition.high_water_mark
        if call is None or mark is None or call.transaction_id <= mark:
            return
        if not link.refuse(call.req_id, "the right is gone"):
            tell_failed(link, [call.req_id], AppendFailure.MOVED, mark, "the right is gone")

    with (
        mock.patch.object(ReplicatedLog, "append", appended),
        mock.patch.object(ServerPartition, "rights_lost", failing),
    ):
        yield


def hold_for_ever(partition: ServerPartition, lost: Collection[Rights]) -> None:
    """An exclusive session outlives the right of its holder."""


@contextlib.contextmanager
def judge_fences_before_they_begin() -> Iterator[None]:
    """An exclusive session that begins while its right goes keeps its holder, judged before its store session began."""
    begun = Fencing.store_session_begun

    def unjudged(fencing: Fencing, session_id: int, unbroken: bool, fence: Pending | None, mark: int) -> None:
        with mock.patch.object(Fencing, "judge_holder"):
            begun(fencing, session_id, unbroken, fence, mark)

    with mock.patch.object(Fencing, "store_session_begun", unjudged):
        yield


# Modes


@contextlib.contextmanager
def enforce_for_new_requests() -> Iterator[None]:
    """What an audit has let pass goes on when the rules are enforced."""
    apply = RuleAccess.apply

    def applied(access: RuleAccess, rules: Applied) -> Generator[None, None, Collection[Row]]:
        before = {id(row): row.places for row in access._rows.values()}
        lost = yield from apply(access, rules)
        return [row for row in lost if _lacks(before.get(id(row), b""), row.places)]

    with mock.patch.object(RuleAccess, "apply", applied):
        yield


def _lacks(before: bytes, after: bytes) -> bool:
    return any(had & ~has for had, has in zip(before, after, strict=False))


@contextlib.contextmanager
def audit_by_the_rules_at_arrival() -> Iterator[None]:
    """The audit does not note what has lost its right while it waited."""
    begin = Pending.__init__

    def begun(pending: Pending, *arguments: Any) -> None:
        begin(pending, *arguments)
        pending.noted = True

    with mock.patch.object(Pending, "__init__", begun):
        yield


# Nodes that cannot read the rules


@contextlib.contextmanager
def open_without_usable_rules() -> Iterator[None]:
    """Rules that cannot be used take the place of those before, and nothing is enforced."""
    read = RuleWatch._read

    async def reading(watch: RuleWatch) -> None:
        try:
            await read(watch)
        except AclError:
            rules: Rules = at_once(compile_rules(Document(Mode.OFF), {}, watch._partition_count))
            await in_turns(watch._access.apply(Applied(0, rules)))
            raise

    with mock.patch.object(RuleWatch, "_read", reading):
        yield


@contextlib.contextmanager
def open_before_any_rules() -> Iterator[None]:
    """A node that has never seen any rules permits everything."""
    places_of = RuleAccess._places_of

    def opened(access: RuleAccess, row: Row, applied: Applied | None) -> bytes:
        places = places_of(access, row, applied)
        return bytes([EVERY_RIGHT]) * len(places) if applied is None else places

    with mock.patch.object(RuleAccess, "_places_of", opened):
        yield


@contextlib.contextmanager
def forget_with_the_session() -> Iterator[None]:
    """A node that loses ZooKeeper has no rules until it has read them again."""
    session_changed = RuleWatch._session_changed

    def changed(watch: RuleWatch, state: State) -> None:
        if state is not State.CONNECTED:
            watch._access.applied = watch._place = None
            for row in list(watch._access._rows.values()):
                row.places = row.passing = watch._access._places_of(row, None)
        session_changed(watch, state)

    with mock.patch.object(RuleWatch, "_session_changed", changed):
        yield


# Quotas


def take_the_whole_limit(throttles: Throttles, quota: Quota) -> Share:
    """Each server takes the limit for itself."""
    return Share(1, 1)


@contextlib.contextmanager
def keep_shares_of_lost_partitions() -> Iterator[None]:
    """A server keeps its shares of quotas for partitions that other servers have now."""
    set_partitions = ServerService.set_partitions
    ever: WeakKeyDictionary[ServerService, set[int]] = WeakKeyDictionary()

    def kept(own: ServerService, generations: Mapping[int, int]) -> None:
        set_partitions(own, generations)
        ever.setdefault(own, set()).update(generations)
        own._access.owns(ever[own])

    with mock.patch.object(ServerService, "set_partitions", kept):
        yield


@contextlib.contextmanager
def use_quotas_anew() -> Iterator[None]:
    """Any change of the rules begins the use of all quotas anew."""
    apply = Throttles.apply

    def applied(throttles: Throttles, version: int, rules: Rules) -> None:
        throttles._usages.clear()
        apply(throttles, version, rules)

    with mock.patch.object(Throttles, "apply", applied):
        yield


@contextlib.contextmanager
def take_what_a_quota_refuses() -> Iterator[None]:
    """An append that exceeds a quota is refused, and is in the order all the same."""
    within = service._within_quota

    def taken(throttle: Any, partition: Any, link: ClientLink, requests: Sequence[AppendCall]) -> Sequence[AppendCall]:
        within(throttle, partition, link, requests)
        return requests

    with mock.patch.object(service, "_within_quota", taken):
        yield
