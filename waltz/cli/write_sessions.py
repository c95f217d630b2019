"""``waltz session``: shows write sessions of partitions, and fences older writers."""

import argparse

from waltz.cli.output import show
from waltz.cli.server_metrics import SessionMetrics, add_http_option, read_metrics
from waltz.cli.session import Nouns, Session, cluster_command, noun, number, partition_ranges
from waltz.common.cluster.owners import Owner, read_owners
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import check_partition
from waltz.common.wire.write_sessions import NO_WRITE_SESSION
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_partition_metadata, read_store_params, sync_cluster
from waltz.operations.write_sessions import SessionAnswer, ask_owners, fence

METRICS_TIMEOUT_S = 10.0


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "session")
    parser = cluster_command(verbs, "show", "print the write sessions and owners of partitions", _show, prints=True)
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all)")
    add_http_option(parser, "source of the holders of exclusive sessions, fences and refused appends")
    help_text = "raise the write session of a partition: appends under older numbers are then refused"
    parser = cluster_command(verbs, "fence", help_text, _fence, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    safeguard = parser.add_mutually_exclusive_group(required=True)
    safeguard.add_argument(
        "--if-session",
        type=number(minimum=1),
        metavar="W",
        help="the present number, as a safeguard: if the number has changed, nothing is raised",
    )
    safeguard.add_argument("-f", "--force", action="store_true", help="raise the number without this safeguard")


async def _show(options: argparse.Namespace, session: Session) -> None:
    zookeeper, root = session.zookeeper, session.root
    await sync_cluster(zookeeper, root)
    count = (await read_store_params(zookeeper, root)).partition_count
    wanted = range(count) if options.partition is None else options.partition
    for partition_id in wanted:
        check_partition(partition_id, count)
    owners = await read_owners(zookeeper, root)
    answers = await ask_owners({each: owners[each] for each in wanted if each in owners}, session.tls)
    servers = sorted({owner.endpoint for owner in owners.values() if owner.endpoint is not None})
    metrics, unread = await read_metrics(options.http, servers, METRICS_TIMEOUT_S, session.http_tls)
    document: list[Json] = []
    lines = []
    for partition_id in wanted:
        owner = owners.get(partition_id)
        seen = metrics.get(owner.endpoint) if owner is not None and owner.endpoint is not None else None
        session_metrics = None if seen is None else seen.sessions.get(partition_id)
        store_session = await _store_session(zookeeper, root, partition_id)
        answer = answers.get(partition_id, "no server owns it")
        lines.append(describe(partition_id, owner, store_session, answer, session_metrics))
        document.append(_document(partition_id, owner, store_session, answer, session_metrics))
    lines += [f"the metrics at {address} cannot be read: {reason}" for address, reason in unread.items()]
    show(options, document, lines)
    silent = sum(isinstance(answers.get(partition_id, ""), str) for partition_id in wanted)
    if silent:
        raise WaltzError(f"the write sessions of {silent} of {len(wanted)} partitions are not known")
    if unread:
        raise WaltzError(f"the metrics of {len(unread)} servers cannot be read")


async def _store_session(zookeeper: ZooKeeper, root: str, partition_id: int) -> int | None:
    metadata = await read_partition_metadata(zookeeper, root, partition_id)
    return None if metadata is None else metadata.session_id


def describe(
    partition_id: int,
    owner: Owner | None,
    store_session: int | None,
    answer: SessionAnswer | str,
    metrics: SessionMetrics | None,
) -> str:
    """The write session of a partition as lines; ``answer`` may be an error text."""
    fields: dict[str, int | str] = {
        "partition": partition_id,
        "owner": "none" if owner is None else f"{owner.server_id} ({owner.endpoint or 'gone'})",
        "store session": "none" if store_session is None else store_session,
    }
    if isinstance(answer, str):
        fields["write session"] = f"not known: {answer}"
    elif answer.number is None:
        fields["write session"] = f"none: the owner speaks version {answer.version}, which has no write sessions"
        metrics = None
    else:
        fields["write session"] = answer.number
        fields["last transaction"] = answer.last_transaction_id
    if metrics is not None:
        holder = metrics.exclusive_holder
        fields["exclusive holder"] = "none" if holder is None else f"client {holder}"
        fields["fences"] = metrics.fences
        fields["refused appends"] = metrics.fenced_appends + metrics.dropped_appends
    return ", ".join(f"{name}: {value}" for name, value in fields.items())


def _document(
    partition_id: int,
    owner: Owner | None,
    store_session: int | None,
    answer: SessionAnswer | str,
    metrics: SessionMetrics | None,
) -> dict[str, Json]:
    """The write session of a partition as JSON. Unknown values are null; ``version`` is the owner's version."""
    known = answer if isinstance(answer, SessionAnswer) else None
    document: dict[str, Json] = {
        "partition": partition_id,
        "owner": None
        if owner is None
        else {"server": owner.server_id, "endpoint": None if owner.endpoint is None else str(owner.endpoint)},
        "store_session": store_session,
        "write_session": None if known is None else known.number,
        "version": None if known is None else known.version,
        "last_transaction": None if known is None or known.number is None else known.last_transaction_id,
        "error": answer if isinstance(answer, str) else None,
    }
    if metrics is not None and document["write_session"] is not None:
        document["exclusive_holder"] = metrics.exclusive_holder
        document["fences"] = metrics.fences
        document["refused_appends"] = metrics.fenced_appends + metrics.dropped_appends
    return document


async def _fence(options: argparse.Namespace, session: Session) -> None:
    partition_id = options.partition
    expected = NO_WRITE_SESSION if options.force else options.if_session
    await sync_cluster(session.zookeeper, session.root)
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    check_partition(partition_id, count)
    owner = (await read_owners(session.zookeeper, session.root)).get(partition_id)
    if owner is None or owner.endpoint is None:
        gone = "no server owns it" if owner is None else f"its owner, server {owner.server_id}, is gone"
        raise WaltzError(f"the write session of partition {partition_id} was not raised: {gone}; is a server running?")
    response = await fence(owner.endpoint, partition_id, owner.generation, expected, session.tls)
    last = response.transaction_id
    document: Json = {
        "partition": partition_id,
        "write_session": response.write_session,
        "last_transaction": last,
    }
    lines = [
        f"partition: {partition_id}, write session: {response.write_session}, last transaction: {last}",
        f"appends of older write sessions are refused from now on; none can follow transaction {last}",
    ]
    show(options, document, lines)
