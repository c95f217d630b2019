"""Moves partitions from server to server by preferences, one by one. Each partition is served again before the next one
moves.

Every round is planned from the present state of the cluster, so a further run finishes an interrupted run.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from waltz.client.engine.rpc import RpcClient
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.errors import WaltzError
from waltz.common.partition_ids import named_partitions
from waltz.common.zk.store_admin import (
    read_partition_assignment,
    read_server_descriptors,
    read_store_params,
    sync_cluster,
)
from waltz.operations.partition_moves import Ownership, PartitionMove, PreferenceChange, describe_change, moves_between
from waltz.operations.survey.survey import ask_server

Planner = Callable[[Ownership], list[PreferenceChange]]

FIRST_WITH_PREFERENCES = 2
"""The version of the protocol that introduced preferred partitions."""

LOOK_AGAIN_S = 0.1
MAX_ROUNDS = 10
"""The largest number of rounds. Servers of the original may choose differently where the policy leaves a choice; then
the rest is planned again."""


class PartitionPlan(NamedTuple):
    """The changes of a plan, and the moves that follow from them."""

    ownership: Ownership
    """The state from which the plan was made."""
    changes: list[PreferenceChange]
    moves: list[PartitionMove]

    def lines(self) -> list[str]:
        """The plan as text: a line for each change, and for each move."""
        names = names_of(self.ownership)
        return [
            *(describe_change(change, names) for change in self.changes),
            *(describe_move(move, "moves", names) for move in self.moves),
        ]


async def read_ownership(cluster: ClusterHandle) -> Ownership:
    """The servers, their preferences and their partitions, according to ZooKeeper. Raises ``WaltzError``."""
    zookeeper, root, _ = cluster
    await sync_cluster(zookeeper, root)
    return Ownership(
        await read_partition_assignment(zookeeper, root),
        (await read_store_params(zookeeper, root)).partition_count,
        tuple(await read_server_descriptors(zookeeper, root)),
    )


async def plan_moves(cluster: ClusterHandle, planner: Planner) -> PartitionPlan:
    """Plan from the present state of the cluster. Raises ``WaltzError``, including the errors of the planner."""
    now = await read_ownership(cluster)
    changes = planner(now)
    return PartitionPlan(now, changes, moves_between(now, now.after(changes)))


async def check_servers(cluster: ClusterHandle, plan: PartitionPlan, *, timeout_s: float) -> None:
    """Raise ``WaltzError`` unless every server that gets partitions is healthy and knows preferences.

    Args:
        cluster: The cluster.
        plan: The plan to be carried out.
        timeout_s: Time limit of each connection and each answer.
    """
    takers = {change.server_id for change in plan.changes if change.add}
    takers |= {move.target for move in plan.moves if move.target is not None}
    servers = [server for server in plan.ownership.servers if server.server_id in takers]
    reports = await asyncio.gather(*(ask_server(server.endpoint, cluster.tls, timeout_s) for server in servers))
    for server, report in zip(servers, reports, strict=True):
        name = f"server {server.endpoint}"
        if report.version is None:
            raise WaltzError(f"{name} does not answer: {report.partitions}; nothing was done")
        if report.version < FIRST_WITH_PREFERENCES:
            raise WaltzError(
                f"{name} speaks version {report.version}, which has no preferred partitions; nothing was done"
            )
        healthy = {} if isinstance(report.healthy, str) else report.healthy
        unhealthy = [partition_id for partition_id, is_healthy in healthy.items() if not is_healthy]
        if unhealthy:
            raise WaltzError(
                f"{name} calls {named_partitions(unhealthy)} unhealthy; see waltz cluster verify; nothing was done"
            )


async def move_partitions(
    cluster: ClusterHandle,
    planner: Planner,
    changes: Sequence[PreferenceChange],
    *,
    timeout_s: float,
    report: Callable[[str], None],
) -> list[PartitionMove]:
    """Make ``changes`` one by one, then the changes of further plans, until ``planner`` returns none.

    Args:
        cluster: The cluster.
        planner: Plans again after each round.
        changes: The changes of the first round, see :func:`plan_moves`.
        timeout_s: Time limit until a moved partition is served again.
        report: Called with a line for the operator for each partition that is served again.

    Returns:
        The moves, in their order.

    Raises:
        WaltzError: A server refuses or has left the cluster, or the cluster does not follow in time or does not become
            stable.
    """
    moved: list[PartitionMove] = []
    async with RpcClient(tls=cluster.tls) as rpc:
        for _ in range(MAX_ROUNDS):
            for change in changes:
                moved += await _make(cluster, rpc, change, timeout_s, report)
            if not (changes := planner(await read_ownership(cluster))):
                return moved
    raise WaltzError("the cluster keeps changing; wait until it is stable, and run the command again")


async def _make(
    cluster: ClusterHandle, rpc: RpcClient, change: PreferenceChange, timeout_s: float, report: Callable[[str], None]
) -> list[PartitionMove]:
    """Make one change, and wait until the moved partitions are served again."""
    before = await read_ownership(cluster)
    endpoint = next((server.endpoint for server in before.servers if server.server_id == change.server_id), None)
    if endpoint is None:
        raise WaltzError(f"server {change.server_id} has left the cluster; run the command again, to plan without it")
    call = rpc.add_preferred_partitions if change.add else rpc.remove_preferred_partitions
    if not await call(endpoint, change.partition_ids):
        raise WaltzError(f"server {endpoint} refused; run the command again")
    leaving = [move.partition_id for move in moves_between(before, before.after([change]))]
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    moves: list[PartitionMove] = []
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                now = await read_ownership(cluster)
                moves = moves_between(before, now)
                # The next change is planned on the preferences that this change has made.
                if now.follows(change) and {move.partition_id for move in moves}.issuperset(leaving):
                    break
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise WaltzError(
            f"server {endpoint} has agreed, but within {timeout_s:g} s the cluster has not "
            "followed; see waltz status, and run it again"
        ) from None
    await read_committed_marks(cluster, [move.partition_id for move in moves], deadline_s=began_s + timeout_s)
    for move in moves:
        report(
            f"{describe_move(move, 'has moved', names_of(before))}; served again after {loop.time() - began_s:.2f} s"
        )
    return moves


def names_of(ownership: Ownership) -> dict[int, str]:
    """The endpoints of the servers, by id."""
    return {server.server_id: str(server.endpoint) for server in ownership.servers}


def describe_move(move: PartitionMove, verb: str, names: Mapping[int, str]) -> str:
    """The move as a sentence; ``names`` are the endpoints of the servers by id."""
    source, target = (
        "no server" if server_id is None else f"server {names.get(server_id, server_id)}"
        for server_id in (move.source, move.target)
    )
    return f"partition {move.partition_id} {verb} from {source} to {target}"
