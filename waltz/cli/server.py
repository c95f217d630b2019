"""``waltz server``: the partitions of servers, and preferences for partitions."""

import argparse
import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Mapping

from waltz.cli.moving import carry_out, moving_options
from waltz.cli.output import json_option, logger_option, show
from waltz.cli.server_metrics import fetch_metrics
from waltz.cli.session import (
    Nouns,
    Session,
    cluster_command,
    cluster_option,
    endpoint,
    failed,
    http_context,
    noun,
    partition_ranges,
)
from waltz.client.engine.rpc import RpcClient
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import check_partition, named_partitions
from waltz.common.zk.store_admin import read_server_descriptors, read_store_params, sync_cluster
from waltz.operations.partition_moves import plan_drain
from waltz.operations.survey.checks import find_preference_warnings, find_preferences

HTTP_TIMEOUT_S = 10.0


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "server")
    help_text = "print the partitions of a server, and the storages of each"
    parser = verbs.add_parser("list", help=help_text, description=help_text)
    parser.add_argument(
        "-s", "--server", type=endpoint, required=True, metavar="HOST:HTTP_PORT", help="server.jetty.port of the server"
    )
    cluster_option(parser)
    logger_option(parser)
    json_option(parser)
    parser.set_defaults(run=functools.partial(_list, parser))
    for name, help_text, command in (
        ("add-preferred-partition", "let a server own partitions by preference", _add),
        ("remove-preferred-partition", "remove the preference of a server for partitions", _remove),
    ):
        parser = cluster_command(verbs, name, help_text, command, prints=True)
        parser.add_argument(
            "-s", "--server", type=endpoint, required=True, metavar="HOST:PORT", help="server.port of the server"
        )
        parser.add_argument("-p", "--partition", type=partition_ranges, required=True, help="e.g. 0-6,7,10-16")
    help_text = "move all partitions of a server to other servers, one by one, before a stop"
    parser = cluster_command(verbs, "drain", help_text, _drain, prints=True)
    parser.add_argument(
        "-s", "--server", type=endpoint, required=True, metavar="HOST:PORT", help="server.port of the server"
    )
    parser.add_argument("--plan", action="store_true", help="only print the plan")
    moving_options(parser)


def _list(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    tls = http_context(options, parser)
    try:
        text = asyncio.run(fetch_metrics(options.server, HTTP_TIMEOUT_S, tls))
        count, replicas = parse_replicas(text)
    except (WaltzError, OSError, ValueError) as error:
        raise WaltzError(f"the metrics at {options.server} cannot be read: {error}") from error
    by_partition: dict[str, Json] = {str(partition_id): storages for partition_id, storages in replicas.items()}
    lines = [f"There are {count} partitions for current server"]
    for partition_id, storages in replicas.items():
        lines.append(f"partition {partition_id} replicas:")
        lines += [f"  {storage}" for storage in storages]
    show(options, {"partitions": count, "replicas": by_partition}, lines)
    return 0


def parse_replicas(text: str) -> tuple[int, dict[int, list[str]]]:
    """Parse the ``/metrics`` of a server.

    Returns:
        The number of the server's partitions, and the storages of each partition of the cluster.

    Raises:
        WaltzError: The metrics are not a server's.
    """
    try:
        gauges = json.loads(text)["gauges"]
        count = int(gauges["waltz-server.waltz-server-num-partitions"]["value"])
        info: Mapping[str, list[str]] = gauges["waltz-server.replica-info"]["value"]
        return count, {int(each): sorted(map(str, storages)) for each, storages in sorted(info.items(), key=_by_id)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WaltzError(f"these are not the metrics of a server: {error!r}") from None


def _by_id(item: tuple[str, list[str]]) -> int:
    return int(item[0])


async def _add(options: argparse.Namespace, session: Session) -> None:
    await _change(options, session, RpcClient.add_preferred_partitions, "added to")


async def _remove(options: argparse.Namespace, session: Session) -> None:
    await _change(options, session, RpcClient.remove_preferred_partitions, "removed from")


async def _change(
    options: argparse.Namespace,
    session: Session,
    call: Callable[[RpcClient, Endpoint, list[int]], Awaitable[bool]],
    done: str,
) -> None:
    server, partition_ids = options.server, options.partition
    await sync_cluster(session.zookeeper, session.root)
    await check_server(session, server)
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    check_partition(partition_ids[-1], count)
    which = f"the preferences of {server}"
    what = f"{named_partitions(partition_ids)} {'was' if len(partition_ids) == 1 else 'were'} not {done} {which}"
    async with RpcClient(tls=session.tls) as rpc:
        try:
            agreed = await call(rpc, server, partition_ids)
        except WaltzError as error:
            raise failed(what, error) from error
    if not agreed:
        raise WaltzError(f"{what}: the server refused")
    descriptors = await read_server_descriptors(session.zookeeper, session.root)
    others = {
        partition_id: [str(each) for each in endpoints]
        for partition_id, endpoints in find_preferences(descriptors, partition_ids).items()
        if server in endpoints
    }
    lines = [what.replace(" not ", " ", 1)]
    lines += find_preference_warnings(descriptors, others.keys())
    document: dict[str, Json] = {"server": str(server), "partitions": partition_ids}
    if others:
        document["preferred_by"] = {str(partition_id): list(endpoints) for partition_id, endpoints in others.items()}
    show(options, document, lines)


async def _drain(options: argparse.Namespace, session: Session) -> None:
    server_id = await check_server(session, options.server)
    await carry_out(
        options,
        session,
        functools.partial(plan_drain, server_id=server_id),
        only_plan=options.plan,
        question=f"take all partitions from server {options.server}?",
        done=f"server {options.server} has no partitions, and can be stopped",
    )


async def check_server(session: Session, server: Endpoint) -> int:
    """The id of the server at an endpoint.

    Raises:
        WaltzError: The cluster has no server there.
    """
    known = {each.endpoint: each.server_id for each in await read_server_descriptors(session.zookeeper, session.root)}
    if server not in known:
        names = ", ".join(sorted(map(str, known))) or "none"
        raise WaltzError(f"there is no server {server} in the cluster at {session.root}; its servers: {names}")
    return known[server]
