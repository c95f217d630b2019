"""``waltz cluster``: the cluster as a whole."""

import argparse
import asyncio
import contextlib
import logging
from collections.abc import Collection

from waltz.cli import replica_rebalancing
from waltz.cli.moving import carry_out, moving_options
from waltz.cli.output import counted, logger_option, show
from waltz.cli.server_metrics import add_http_option, read_metrics
from waltz.cli.session import Nouns, Session, cluster_command, noun, number, partition_ranges
from waltz.cli.trimming import register_features
from waltz.common.consistency import consistency_named
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import check_partition, named_partitions
from waltz.common.replica_states import Remedy
from waltz.common.zk.client import NoNodeError
from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.features import TRIM, read_features
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_server_descriptors, read_store_params
from waltz.operations.features import old_nodes
from waltz.operations.partition_moves import plan_rebalance
from waltz.operations.replica_moving import read_moves
from waltz.operations.survey.checks import (
    Check,
    find_consistency_warnings,
    find_disabled_warnings,
    find_preference_warnings,
    find_session_warnings,
)
from waltz.operations.survey.cluster_state import NO_RECORD, NO_REPLICA, ClusterState, arrange
from waltz.operations.survey.evidence import read_evidence
from waltz.operations.survey.problems import find_problems, find_risks
from waltz.operations.survey.survey import Survey, ask_server
from waltz.table.errors import PropertiesError
from waltz.table.properties import PartitionProperties, read_properties

logger = logging.getLogger(__name__)

CONNECTIVITY_TIMEOUT_S = 60.0
"""Limit for one server. A server of the original tries its storages one after the other."""

NODE_HEALTH = "NODE_HEALTH"
"""The check of a node, besides those of partitions: the node answers, and reports no problem of its own."""

CHECKS = {NO_RECORD: Check.REPLICA_RECOVERY_STATUS.name}
"""The checks of the original that find problems with names of their own."""

MAX_REASONS = 12
"""Maximum number of printed reasons of a check."""


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "cluster")
    parser = cluster_command(
        verbs,
        "create",
        "create a cluster with its storage nodes; may be repeated, and leaves a cluster that has replicas as it is",
        _create,
        prints=True,
    )
    parser.add_argument("-n", "--name", required=True, help="name of the cluster")
    parser.add_argument(
        "-p",
        "--partitions",
        type=number(minimum=1),
        required=True,
        help="number of partitions, which cannot be changed later",
    )
    parser.add_argument(
        "-s",
        "--storage",
        type=_address,
        required=True,
        action="append",
        metavar="HOST:PORT:ADMIN_PORT",
        help="a storage node for all partitions; may be repeated",
    )
    cluster_command(
        verbs,
        "check-connectivity",
        "print which storages each server reaches",
        _check_connectivity,
        prints=True,
    )
    help_text = "check that ZooKeeper, servers and storages agree on partitions, and that all are healthy"
    parser = cluster_command(verbs, "verify", help_text, _verify, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), help="default: all")
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=10,
        metavar="SECONDS",
        help="time limit of each connection and each answer (default: 10)",
    )
    logger_option(parser)
    parser.add_argument("--exit-code", action="store_true", help="end with 1 when a check fails")
    parser.add_argument(
        "--session-partitions",
        type=partition_ranges,
        default=[],
        metavar="PARTITIONS",
        help="partitions whose clients use write sessions, e.g. 0-6,7: warn if servers do not support them",
    )
    add_http_option(parser, "their metrics show more partitions whose clients use write sessions")

    help_text = (
        "even out the number of partitions of the servers, with as few changes of preferences as possible; or, with "
        "--replicas, spread the replicas over zones and even out their number on the storage nodes"
    )
    parser = cluster_command(verbs, "rebalance", help_text, _rebalance, prints=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", action="store_true", help="only print the plan")
    what.add_argument("--apply", action="store_true", help="carry out the plan, one partition after the other")
    moving_options(parser)
    replica_rebalancing.replica_options(parser)
    register_features(verbs)


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
            "the cluster %s exists without the storage node %s; to add the node: waltz zookeeper add-storage-node",
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
    evidence = await read_evidence(session.cluster, partition_ids, timeout_s=options.timeout)
    survey = evidence.survey
    state = await arrange(session.cluster, evidence, partition_ids)
    failures: list[Json] = []
    failing: set[int] = set()
    for partition in state.partitions:
        if NO_REPLICA in partition.reasons:
            raise WaltzError(partition.reasons[NO_REPLICA][0])
        for name, reasons in partition.reasons.items():
            failing.add(partition.partition_id)
            check = CHECKS.get(name, name)
            failures.append({"partition": partition.partition_id, "check": check, "reasons": list(reasons)})
    failures += [{"node": node, "check": NODE_HEALTH, "reasons": list(why)} for node, why in state.node_faults.items()]
    lines = failure_lines(state)
    warnings = await _session_warnings(options, session, survey, partition_ids)
    warnings += await _trim_warnings(session)
    warnings += find_preference_warnings(survey.servers.values(), partition_ids)
    properties = await _properties(session, partition_ids)
    warnings += find_disabled_warnings(survey, [each for each, found in properties.items() if found.disabled])
    warnings += find_consistency_warnings(
        survey,
        {
            partition_id: (consistency_named(found.consistency), found.refuse_legacy_writers)
            for partition_id, found in properties.items()
            if found.require_consistency
        },
    )
    moves, foreign = await read_moves(session.cluster)
    warnings += foreign
    warnings += [
        f"a replica of partition {partition_id} is being moved {moves[partition_id]}: finish the move by waltz storage "
        "move --apply, or undo it by --cancel"
        for partition_id in sorted(moves.keys() & set(partition_ids))
    ]
    warnings += [
        f"it is unknown whether the replicas of partition {partition_id} have all commits: {reason}"
        for partition_id, reason in evidence.unknown_marks.items()
        if partition_id not in failing
    ]
    warnings += [f"{risk.text}: {Remedy(risk.do, risk.section)}" for risk in find_risks(state)]
    lines += [f"Warning: {warning}" for warning in warnings]
    checks, failed = len(Check) * len(partition_ids) + len(state.servers) + len(state.storages), len(failures)
    lines.append(f"Failed: {failed} of {checks} checks" if failed else f"Passed: all {checks} checks")
    show(options, {"checks": checks, "failures": failures, "warnings": warnings}, lines)
    if failed and options.exit_code:
        raise WaltzError(f"{failed} of {checks} checks failed")


def failure_lines(state: ClusterState) -> list[str]:
    """The failures, the worst first, with reasons and remedies. Partitions with the same problem share a line."""
    lines = []
    for problem in find_problems(state, every_check=True):
        check = NODE_HEALTH if problem.check is None else CHECKS.get(problem.check, problem.check)
        lines.append(f"{problem.title}: {check} failed")
        reasons: dict[str, list[int]] = {}
        for partition in state.partitions:
            for reason in partition.reasons.get(problem.check or "", ()):
                reasons.setdefault(reason, []).append(partition.partition_id)
        concerned = {partition_id for partition_ids in reasons.values() for partition_id in partition_ids}
        for reason, partition_ids in list(reasons.items())[:MAX_REASONS]:
            of = "" if len(partition_ids) == len(concerned) else f"{named_partitions(partition_ids)}: "
            lines.append(f"  {of}{reason}")
        if len(reasons) > MAX_REASONS:
            lines.append(f"  and {len(reasons) - MAX_REASONS} more: --json has them all")
        if not reasons and problem.detail:
            lines.append(f"  {problem.detail}")
        lines.append(f"  do: {Remedy(problem.do, problem.section)}")
    return lines


async def _properties(session: Session, partition_ids: Collection[int]) -> dict[int, PartitionProperties]:
    """The properties of the partitions that have any; unreadable ones are skipped."""
    try:
        names = await session.zookeeper.children(ClusterPaths.of(session.root).all_partition_properties)
    except NoNodeError:
        return {}
    properties = {}
    for partition_id in {int(name) for name in names if name.isdecimal()}.intersection(partition_ids):
        with contextlib.suppress(PropertiesError):
            properties[partition_id] = (await read_properties(session.zookeeper, session.root, partition_id)).properties
    return properties


async def _trim_warnings(session: Session) -> list[str]:
    """Warnings for nodes that cannot live with trimmed partitions, in a cluster that may have some."""
    if TRIM not in (await read_features(session.zookeeper, session.root)).names:
        return []
    return [
        f"{node}, although the cluster has the feature {TRIM}: nothing is trimmed until it is taken out of the cluster"
        for node in await old_nodes(session.cluster)
    ]


async def _session_warnings(
    options: argparse.Namespace, session: Session, survey: Survey, partition_ids: Collection[int]
) -> list[str]:
    """Warnings for partitions with write sessions: named by the operator, or known from metrics."""
    endpoints = sorted({server.endpoint for server in survey.servers.values()})
    metrics, unread = await read_metrics(options.http, endpoints, options.timeout, session.http_tls)
    used = set(options.session_partitions)
    for told in metrics.values():
        used |= {partition_id for partition_id, seen in told.sessions.items() if seen.in_use}
    warnings = [f"the metrics at {address} cannot be read: {reason}" for address, reason in unread.items()]
    return warnings + find_session_warnings(survey, used.intersection(partition_ids))


async def _rebalance(options: argparse.Namespace, session: Session) -> None:
    if options.replicas:
        await replica_rebalancing.rebalance(options, session)
        return
    replica_rebalancing.check_options(options)
    await carry_out(
        options,
        session,
        plan_rebalance,
        only_plan=options.plan,
        question="move these partitions?",
        done="each server has the same number of partitions, give or take one",
    )
