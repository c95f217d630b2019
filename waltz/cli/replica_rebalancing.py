"""``waltz cluster rebalance --replicas``: prints the plan, asks, and moves the replicas."""

import argparse
import asyncio
import functools
import sys

from waltz.cli.output import confirm, show, tell
from waltz.cli.progress import progress
from waltz.cli.session import Session, endpoint, label_keys, number
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.placement import Move
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.zk.store_admin import read_store_params
from waltz.operations.replica_moving import locked_moves
from waltz.operations.replica_rebalancing import outcome, plan_replicas, rebalance_replicas

DONE = "replicas are spread over all zones, and over storages as evenly as zones, groups and rings allow"


def replica_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--replicas",
        action="store_true",
        help="move replicas between storage nodes instead: to different zones, and evenly",
    )
    parser.add_argument(
        "--spread",
        type=label_keys,
        metavar="KEYS",
        help="with --replicas: labels whose values make a zone, the widest first (default: datacenter,rack, if any "
        "storage node has them)",
    )
    parser.add_argument(
        "--without",
        type=endpoint,
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="with --replicas: a storage node to be emptied, by its data port; may be repeated",
    )
    parser.add_argument(
        "--rate", type=number(minimum=1), metavar="MB/S", help="with --replicas: limit of the copying (default: 20)"
    )


async def rebalance(options: argparse.Namespace, session: Session) -> None:
    """Run the command.

    Raises:
        WaltzError: A step failed; the command may be repeated.
    """
    await read_store_params(session.zookeeper, session.root)  # fails without a cluster, before any znode is made
    if options.plan:
        await _carry_out(options, session.cluster)
        return
    assert session.config is not None
    session_timeout_s = session.config.zookeeper_session_timeout_ms / 1000
    async with locked_moves(session.cluster, session_timeout_s, functools.partial(tell, options)) as cluster:
        try:
            await _carry_out(options, cluster)
        except asyncio.CancelledError:
            print("nothing is lost: run the command again to continue", file=sys.stderr)
            raise


async def _carry_out(options: argparse.Namespace, cluster: ClusterHandle) -> None:
    plan = await plan_replicas(cluster, options.spread, [str(each) for each in options.without])
    rate = options.rate or 20
    lines = plan.lines()
    if options.plan or not lines:
        show(
            options,
            _document([*plan.begun, *plan.moves], {}, applied=not lines),
            lines or [f"nothing is to be done: {DONE}"],
        )
        return
    lines.append(f"one after the other, copying at most {rate} MB/s")
    for line in lines:
        tell(options, line)
    confirm(options, "move these replicas?", needs_terminal=True)
    files_left = await rebalance_replicas(
        cluster,
        plan,
        copy_bytes_per_s=rate * 1_000_000,
        timeout_s=options.timeout,
        report=functools.partial(tell, options),
        progress=progress,
    )
    show(options, _document([*plan.begun, *plan.moves], files_left, applied=True), [*outcome(files_left), DONE])


def _document(moves: list[Move], files_left: dict[str, list[int]], *, applied: bool) -> dict[str, Json]:
    moving: list[Json] = [
        {"partition": partition_id, "from": source, "to": destination} for partition_id, source, destination in moves
    ]
    left: dict[str, Json] = {storage: list(partition_ids) for storage, partition_ids in files_left.items()}
    return {"applied": applied, "moves": moving, "files_left": left}


def check_options(options: argparse.Namespace) -> None:
    """Check the options.

    Raises:
        WaltzError: An option needs ``--replicas``.
    """
    if options.spread or options.without or options.rate:
        raise WaltzError("--spread, --without and --rate are about replicas: add --replicas")
