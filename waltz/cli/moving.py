"""Moving partitions from server to server by preferences, one after the other, each being served again before the next.

What is to be done is planned from what is there, so an interrupted run is finished by another one.
"""

import argparse
import asyncio
from collections.abc import Callable

from waltz.cli.output import confirm, show, tell, yes_option
from waltz.cli.session import Session, number
from waltz.client.engine.rpc import RpcClient
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.zk.store_admin import (
    read_partition_assignment,
    read_server_descriptors,
    read_store_params,
    sync_cluster,
)
from waltz.operations.moves import Move, Ownership, Step, described, moves_between, ranges
from waltz.operations.survey.survey import ask_server

Planner = Callable[[Ownership], list[Step]]

FIRST_WITH_PREFERENCES = 2
"""The version of the protocol that made preferred partitions known."""

_LOOK_AGAIN_S = 0.1
_MAX_ROUNDS = 10
"""Servers of the original may choose differently where the policy leaves a choice: then the rest is planned anew."""


def moving_options(parser: argparse.ArgumentParser) -> None:
    """Those of every command that moves partitions."""
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=60,
        metavar="SECONDS",
        help="how long a partition may take until it is served again (default: 60)",
    )
    yes_option(parser)


async def read_ownership(session: Session) -> Ownership:
    """As ZooKeeper has it now. Raises ``WaltzError``."""
    zookeeper, root = session.zookeeper, session.root
    await sync_cluster(zookeeper, root)
    return Ownership(
        await read_partition_assignment(zookeeper, root),
        (await read_store_params(zookeeper, root)).partition_count,
        tuple(await read_server_descriptors(zookeeper, root)),
    )


async def carry_out(
    options: argparse.Namespace, session: Session, planner: Planner, *, only_plan: bool, question: str, done: str
) -> None:
    """Print what ``planner`` wants, ask whether it is to be done, do it, and say that it is ``done``.

    ``options.timeout`` is how long a partition that has moved may take until it is served. Raises ``WaltzError``.
    """
    now = await read_ownership(session)
    steps = planner(now)
    names = {server.server_id: str(server.endpoint) for server in now.servers}
    moves = moves_between(now, now.after(steps))
    lines = [described(step, names) for step in steps]
    lines += [_sentence(move, "moves") for move in moves]
    if only_plan or not steps:
        show(options, _document(steps, moves, applied=not steps), lines or [f"nothing is to be done: {done}"])
        return
    for line in lines:
        tell(options, line)
    await _check_servers(session, now, steps, options.timeout)
    confirm(options, question, needs_terminal=True)
    moved: list[Move] = []
    async with RpcClient(tls=session.tls) as rpc:
        for _ in range(_MAX_ROUNDS):
            for step in steps:
                moved += await _take(options, session, rpc, step)
            if not (steps := planner(await read_ownership(session))):
                break
        else:
            raise WaltzError("the cluster changes all the time; wait until it is calm, and run it again")
    show(options, _document([], moved, applied=True), [done])


async def _check_servers(session: Session, now: Ownership, steps: list[Step], timeout_s: float) -> None:
    """Raises ``WaltzError`` for a server that is to have partitions and is not well: they might not be served."""
    takers = {step.server_id for step in steps if step.add}
    takers |= {move.target for move in moves_between(now, now.after(steps)) if move.target is not None}
    servers = [server for server in now.servers if server.server_id in takers]
    reports = await asyncio.gather(*(ask_server(each.endpoint, session.tls, timeout_s) for each in servers))
    for server, report in zip(servers, reports, strict=True):
        name = f"server {server.server_id} ({server.endpoint})"
        if report.version is None:
            raise WaltzError(f"{name} does not answer: {report.partitions}; nothing was done")
        if report.version < FIRST_WITH_PREFERENCES:
            raise WaltzError(
                f"{name} speaks version {report.version}, which has no preferred partitions; nothing was done"
            )
        unwell = [] if isinstance(report.healthy, str) else [each for each, well in report.healthy.items() if not well]
        if unwell:
            raise WaltzError(
                f"{name} calls partitions {', '.join(ranges(unwell))} unhealthy; see waltz cluster verify; "
                "nothing was done"
            )


async def _take(options: argparse.Namespace, session: Session, rpc: RpcClient, step: Step) -> list[Move]:
    """One step, until what it moves is served again."""
    before = await read_ownership(session)
    endpoint = next((each.endpoint for each in before.servers if each.server_id == step.server_id), None)
    if endpoint is None:
        raise WaltzError(f"server {step.server_id} is gone; run it again, to plan without it")
    call = rpc.add_preferred_partitions if step.add else rpc.remove_preferred_partitions
    if not await call(endpoint, step.partition_ids):
        raise WaltzError(f"server {step.server_id} ({endpoint}) refused; run it again")
    leaving = [move.partition_id for move in moves_between(before, before.after([step]))]
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    moves: list[Move] = []
    try:
        async with asyncio.timeout(options.timeout):
            while True:
                now = await read_ownership(session)
                moves = moves_between(before, now)
                # The next step is planned on what this one has made of preferences, too.
                if now.follows(step) and {move.partition_id for move in moves}.issuperset(leaving):
                    break
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        raise WaltzError(
            f"server {step.server_id} ({endpoint}) has agreed, but within {options.timeout} s the cluster has not "
            "followed; see waltz status, and run it again"
        ) from None
    deadline_s = began_s + options.timeout
    await read_committed_marks(
        session.zookeeper, session.root, [move.partition_id for move in moves], tls=session.tls, deadline_s=deadline_s
    )
    for move in moves:
        tell(options, f"{_sentence(move, 'has moved')}; served again after {loop.time() - began_s:.2f} s")
    return moves


def _sentence(move: Move, verb: str) -> str:
    source = "no server" if move.source is None else f"server {move.source}"
    target = "no server" if move.target is None else f"server {move.target}"
    return f"partition {move.partition_id} {verb} from {source} to {target}"


def _document(steps: list[Step], moves: list[Move], *, applied: bool) -> dict[str, Json]:
    planned: list[Json] = []
    for server_id, add, partition_ids in steps:
        planned.append({"server": server_id, "add": add, "partitions": list(partition_ids)})
    moving: list[Json] = []
    for partition_id, source, target in moves:
        moving.append({"partition": partition_id, "from": source, "to": target})
    return {"applied": applied, "steps": planned, "moves": moving}
