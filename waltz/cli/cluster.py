"""``waltz cluster``: the cluster as a whole."""

import argparse
import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection

from waltz.cli.checks import Check, find_disabled_warnings, find_failures, find_session_warnings
from waltz.cli.server_metrics import add_http_option, read_metrics
from waltz.cli.session import Nouns, Session, cluster_command, noun, number, partition_ranges
from waltz.cli.survey import Survey, ask_server, read_survey
from waltz.common.errors import WaltzError
from waltz.common.zk.client import NoNodeError
from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_server_descriptors, read_store_params
from waltz.table.errors import PropertiesError
from waltz.table.properties import read_properties

logger = logging.getLogger(__name__)

CONNECTIVITY_TIMEOUT_S = 60.0
"""For one server. One of the original tries its storages one after the other."""


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "cluster", "the cluster as a whole")
    parser = cluster_command(
        verbs, "create", "create a cluster with its storage nodes, or what is missing of it; may be repeated", _create
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
        verbs, "check-connectivity", "have every server tell which storages it reaches", _check_connectivity
    )
    help_text = "check that ZooKeeper, servers and storages agree on partitions, and that all of them are well"
    parser = cluster_command(verbs, "verify", help_text, _verify)
    parser.add_argument("-p", "--partition", type=number(minimum=0), help="default: all")
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=10,
        metavar="SECONDS",
        help="for each connection and each answer (default: 10)",
    )
    parser.add_argument("-l", "--logger-as-output", action="store_true", help="log the lines instead of printing them")
    parser.add_argument("--exit-code", action="store_true", help="end with 1 when a check fails")
    parser.add_argument(
        "--session-partitions",
        type=partition_ranges,
        default=[],
        metavar="PARTITIONS",
        help="partitions whose clients use write sessions, e.g. 0-6,7: warn where servers know none",
    )
    add_http_option(parser, "metrics there show more partitions whose clients use write sessions")


def _address(text: str) -> StorageAddress:
    try:
        return StorageAddress.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _create(options: argparse.Namespace, session: Session) -> None:
    await ensure_cluster(session.zookeeper, session.root, options.name, options.partitions, options.storage)
    print(f"cluster {options.name} at {session.root}: {options.partitions} partitions, {len(options.storage)} storages")


async def _check_connectivity(_options: argparse.Namespace, session: Session) -> None:
    servers = await read_server_descriptors(session.zookeeper, session.root)
    endpoints = sorted({server.endpoint for server in servers})
    reports = await asyncio.gather(*(ask_server(each, session.tls, CONNECTIVITY_TIMEOUT_S) for each in endpoints))
    for endpoint, report in zip(endpoints, reports, strict=True):
        if isinstance(report.storages, str):
            logger.warning("%s", report.storages)
            status = "UNREACHABLE"
        else:
            reached = (
                f"{storage}={str(is_reached).lower()}" for storage, is_reached in sorted(report.storages.items())
            )
            status = f"{{{', '.join(reached)}}}"
        print(f"Connectivity status of {endpoint} is: {status}")


async def _verify(options: argparse.Namespace, session: Session) -> None:
    output: Callable[[str], None] = print
    if options.logger_as_output:
        logger.setLevel(logging.INFO)
        output = logger.info
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    partition_ids = range(count) if options.partition is None else [options.partition]
    if unknown := [each for each in (*partition_ids, *options.session_partitions) if each >= count]:
        raise WaltzError(f"there is no partition {unknown[0]}; the cluster has {count}")
    survey = await read_survey(
        session.zookeeper, session.root, partition_ids, tls=session.tls, timeout_s=options.timeout
    )
    failed = 0
    for partition_id in partition_ids:
        for check, reasons in find_failures(survey, partition_id).items():
            failed += 1
            output(f"partition {partition_id}: {check.name} failed; expected: {check.value}")
            for reason in reasons:
                output(f"  {reason}")
    for warning in await _session_warnings(options, survey, partition_ids):
        output(f"Warning: {warning}")
    for warning in find_disabled_warnings(survey, await _disabled(session, partition_ids)):
        output(f"Warning: {warning}")
    checks = len(Check) * len(partition_ids)
    output(f"Failed: {failed} of {checks} checks" if failed else f"Passed: all {checks} checks")
    if failed and options.exit_code:
        raise WaltzError(f"{failed} of {checks} checks failed")


async def _disabled(session: Session, partition_ids: Collection[int]) -> list[int]:
    """Those of the partitions that are disabled by their properties; nodes that cannot be read say nothing."""
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
