"""``waltz storage move``: prints the plan, asks, and moves the replicas."""

import argparse
import asyncio
import functools
import sys

from waltz.cli.output import confirm, show, tell
from waltz.cli.progress import progress
from waltz.cli.session import Session
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.zk.store_admin import read_store_params
from waltz.operations.replica_moves import FILLING
from waltz.operations.replica_moving import (
    MoveOptions,
    ReplicaMover,
    ReplicaPlan,
    locked_moves,
    name_move,
    partitions_of_move,
)


async def move_replicas(options: argparse.Namespace, session: Session) -> None:
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
            print("nothing is lost: run it again to continue, or with --cancel to undo the move", file=sys.stderr)
            raise


async def _carry_out(options: argparse.Namespace, cluster: ClusterHandle) -> None:
    move = await name_move(cluster, options.source_storage, options.destination_storage)
    report = functools.partial(tell, options)
    partition_ids = await partitions_of_move(cluster, move, options.partition, report, back=options.cancel)
    settings = MoveOptions(options.cancel, options.rate * 1_000_000, options.timeout)
    mover = ReplicaMover(cluster, move, settings, report, progress)
    plan = await mover.plan(partition_ids)
    lines = plan.lines()
    if any(step in FILLING for steps in plan.steps.values() for step in steps):
        lines.append(f"copying at most {options.rate} MB/s")
    if options.plan or not plan.steps:
        show(options, _document(plan, [], applied=not plan.steps), lines)
        return
    for line in lines:
        tell(options, line)
    confirm(options, "do this?", needs_terminal=True)
    files_left = await mover.carry_out(plan)
    done = plan.outcome(files_left)
    if files_left and not plan.leaving_was_silent:
        raise WaltzError(done)
    show(options, _document(plan, files_left, applied=True), [done])


def _document(plan: ReplicaPlan, files_left: list[int], *, applied: bool) -> dict[str, Json]:
    partitions: list[Json] = [
        {"partition": partition_id, "steps": [step.name for step in steps]}
        for partition_id, steps in plan.steps.items()
    ]
    return {
        "applied": applied,
        "from": plan.direction.leaving,
        "to": plan.direction.joining,
        "files_left": list(files_left),
        "partitions": partitions,
    }
