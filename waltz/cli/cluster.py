"""``waltz cluster``: the cluster as a whole."""

import argparse
import asyncio
import contextlib
import logging
from collections.abc import Collection

from waltz.cli.moving import carry_out, moving_options
from waltz.cli.output import counted, logger_option, show
from waltz.cli.server_metrics import add_http_option, read_metrics
from waltz.cli.session import Nouns, Session, cluster_command, noun, number, partition_ranges
from waltz.common.cluster.marks import ask_committed_marks
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import check_partition
from waltz.common.zk.client import NoNodeError
from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_server_descriptors, read_store_params
from waltz.operations.partition_moves import plan_rebalance
from waltz.operations.replica_moving import read_moves
from waltz.operations.survey.checks import (
    Check,
    find_disabled_warnings,
    find_failures,
    find_session_warnings,
    find_stragglers,
)
from waltz.operations.survey.replica_reports import ask_replicas
from waltz.operations.survey.survey import Survey, ask_server, read_survey
from waltz.table.errors import PropertiesError
from waltz.table.properties import read_properties

logger = logging.getLogger(__name__)

CONNECTIVITY_TIMEOUT_S = 60.0
"""Limit for one server. A server of the original tries its storages one after the other."""

MARK_TIMEOUT_S = 1.0
"""How long owners may take to answer with committed marks. A late answer is a warning, not a failure."""

LATE_S = 1.0
"""How much later than committed a transaction may be at a replica that is well."""


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "cluster", "the cluster as a whole")
    parser = cluster_command(
        verbs,
        "create",
        "create a cluster with its storage nodes; may be repeated, and leaves a cluster that has replicas as it is",
        _create,
        prints=True,
    )
    parser.add_argument("-n", "--name", required=True, help="name of the cluster")
    parser.add_argument(
        "-p", "--partitions", type=number(minimum=1), required=True, help="number of partitions, for ever"
    )
    parser.add_argument(
        "-s",
        "--storage",
        type=_address,
        required=True,
        action="append",
        metavar="HOST:PORT:ADMIN_PORT",
        help="a storage node that is to hold every partition; repeat it for each",
    )
    cluster_command(
        verbs,
        "check-connectivity",
        "have every server tell which storages it reaches",
        _check_connectivity,
        prints=True,
    )
    help_text = "check that ZooKeeper, servers and storages agree on partitions, and that all of them are well"
    parser = cluster_command(verbs, "verify", help_text, _verify, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), help="default: all")
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=10,
        metavar="SECONDS",
        help="for each connection and each answer (default: 10)",
    )
    logger_option(parser)
    parser.add_argument("--exit-code", action="store_true", help="end with 1 when a check fails")
    parser.add_argument(
        "--session-partitions",
        type=partition_ranges,
        default=[],
        metavar="PARTITIONS",
        help="partitions whose clients use write sessions, e.g. 0-6,7: warn where servers know none",
    )
    add_http_option(parser, "metrics there show more partitions whose clients use write sessions")

    help_text = "even out how many partitions the servers have, by taking back as few preferences as that needs"
    parser = cluster_command(verbs, "rebalance", help_text, _rebalance, prints=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", action="store_true", help="only print what would be done")
    what.add_argument("--apply", action="store_true", help="do it, one partition after the other")
    moving_options(parser)


def _address(text: str) -> StorageAddress:
    try:
        return StorageAddress.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _create(options: argparse.Namespace, session: Session) -> None:
    name, root, count = options.name, session.root, options.partitions
    strange = await ensure_cluster(session.zookeeper, root, name, count, options.storage)
    for storage in strange:
        logger.warning(
            "the cluster %s exists, and %s is not among its storage nodes; to add it: waltz zookeeper add-storage-node",
            name,
            storage,
        )
    storages = [each.connect_string for each in options.storage if each.connect_string not in strange]
    document: Json = {"name": name, "root": root, "partitions": count, "storages": storages}
    show(
        options,
        document,
        [f"cluster {name} at {root}: {counted(count, 'partition')}, {counted(len(storages), 'storage')}"],
    )


async def _check_connectivity(options: argparse.Namespace, session: Session) -> None:
    servers = await read_server_descriptors(session.zookeeper, session.root)
    endpoints = sorted({server.endpoint for server in servers})
    reports = await asyncio.gather(*(ask_server(each, session.tls, CONNECTIVITY_TIMEOUT_S) for each in endpoints))
    document: dict[str, Json] = {}
    lines = []
    for endpoint, report in zip(endpoints, reports, strict=True):
        if isinstance(report.storages, str):
            logger.warning("%s", report.storages)
            status = "UNREACHABLE"
            document[str(endpoint)] = None
        else:
            reached = (
                f"{storage}={str(is_reached).lower()}" for storage, is_reached in sorted(report.storages.items())
            )
            status = f"{{{', '.join(reached)}}}"
            document[str(endpoint)] = dict(report.storages)
        lines.append(f"Connectivity status of {endpoint} is: {status}")
    show(options, document, lines)


async def _verify(options: argparse.Namespace, session: Session) -> None:
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    partition_ids = range(count) if options.partition is None else [options.partition]
    for partition_id in (*partition_ids, *options.session_partitions):
        check_partition(partition_id, count)
    survey = await read_survey(session.cluster, partition_ids, timeout_s=options.timeout)
    stragglers, unknown_marks = await _stragglers(session, survey, partition_ids, options.timeout)
    failures: list[Json] = []
    failing: set[int] = set()
    lines = []
    for partition_id in partition_ids:
        faults = find_failures(survey, partition_id)
        if stragglers[partition_id]:
            faults.setdefault(Check.REPLICA_RECOVERY_STATUS, []).extend(stragglers[partition_id])
        if faults:
            failing.add(partition_id)
        for check, reasons in faults.items():
            failures.append({"partition": partition_id, "check": check.name, "reasons": reasons})
            lines.append(f"partition {partition_id}: {check.name} failed; expected: {check.value}")
            lines += [f"  {reason}" for reason in reasons]
    warnings = await _session_warnings(options, survey, partition_ids)
    warnings += find_disabled_warnings(survey, await _disabled(session, partition_ids))
    moves, foreign = await read_moves(session.cluster)
    warnings += foreign
    warnings += [
        f"a replica of partition {partition_id} is on its way {moves[partition_id]}: finish it by waltz storage move "
        "--apply, or take it back by --cancel"
        for partition_id in sorted(moves.keys() & set(partition_ids))
    ]
    warnings += [
        f"whether the replicas of partition {partition_id} have what is committed is not known: {reason}"
        for partition_id, reason in unknown_marks.items()
        if partition_id not in failing
    ]
    lines += [f"Warning: {warning}" for warning in warnings]
    checks, failed = len(Check) * len(partition_ids), len(failures)
    lines.append(f"Failed: {failed} of {checks} checks" if failed else f"Passed: all {checks} checks")
    show(options, {"checks": checks, "failures": failures, "warnings": warnings}, lines)
    if failed and options.exit_code:
        raise WaltzError(f"{failed} of {checks} checks failed")


async def _stragglers(
    session: Session, survey: Survey, partition_ids: Collection[int], timeout_s: float
) -> tuple[dict[int, list[str]], dict[int, str]]:
    """Replicas that hold less than the metadata make believe, by partition, and where no owner told what is committed.

    What is only late is given a moment.
    """
    marks, unknown_marks = await ask_committed_marks(
        session.cluster,
        partition_ids,
        deadline_s=asyncio.get_running_loop().time() + min(timeout_s, MARK_TIMEOUT_S),
    )

    async def find() -> dict[int, list[str]]:
        reports = await ask_replicas(session.cluster, survey, partition_ids, marks, timeout_s=timeout_s)
        return {each: find_stragglers(survey, each, reports) for each in partition_ids}

    if any((found := await find()).values()):
        await asyncio.sleep(LATE_S)
        found = await find()
    return found, unknown_marks


async def _disabled(session: Session, partition_ids: Collection[int]) -> list[int]:
    """The partitions that are disabled by their properties; unreadable properties are skipped."""
    try:
        names = await session.zookeeper.children(ClusterPaths.of(session.root).all_partition_properties)
    except NoNodeError:
        return []
    disabled = []
    for partition_id in {int(name) for name in names if name.isdecimal()}.intersection(partition_ids):
        with contextlib.suppress(PropertiesError):
            if (await read_properties(session.zookeeper, session.root, partition_id)).properties.disabled:
                disabled.append(partition_id)
    return disabled


async def _session_warnings(options: argparse.Namespace, survey: Survey, partition_ids: Collection[int]) -> list[str]:
    """Partitions have clients with write sessions when the operator says so, or metrics show it."""
    endpoints = sorted({server.endpoint for server in survey.servers.values()})
    metrics, unread = await read_metrics(options.http, endpoints, options.timeout)
    used = set(options.session_partitions)
    for told in metrics.values():
        used |= {partition_id for partition_id, seen in told.sessions.items() if seen.in_use}
    warnings = [f"the metrics at {address} cannot be read: {reason}" for address, reason in unread.items()]
    return warnings + find_session_warnings(survey, used.intersection(partition_ids))


async def _rebalance(options: argparse.Namespace, session: Session) -> None:
    await carry_out(
        options,
        session,
        plan_rebalance,
        only_plan=options.plan,
        question="move these partitions?",
        done="each server has as many partitions as every other, or one more",
    )
