"""The common part of the commands that move partitions between servers: options, the question, and the output."""

import argparse
import functools

from waltz.cli.output import confirm, show, tell, yes_option
from waltz.cli.session import Session, number
from waltz.common.metrics.registry import Json
from waltz.operations.partition_moves import PartitionMove, PreferenceChange
from waltz.operations.partition_moving import Planner, check_servers, move_partitions, plan_moves


def moving_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that moves partitions."""
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=60,
        metavar="SECONDS",
        help="time limit until a partition is served again (default: 60)",
    )
    yes_option(parser)


async def carry_out(
    options: argparse.Namespace, session: Session, planner: Planner, *, only_plan: bool, question: str, done: str
) -> None:
    """Print the plan of ``planner``, ask ``question``, carry out the plan, and print ``done``.

    Raises:
        WaltzError: The operator does not agree, or a step fails.
    """
    plan = await plan_moves(session.cluster, planner)
    lines = plan.lines()
    if only_plan or not plan.changes:
        document = _document(plan.changes, plan.moves, applied=not plan.changes)
        show(options, document, lines or [f"nothing is to be done: {done}"])
        return
    for line in lines:
        tell(options, line)
    await check_servers(session.cluster, plan, timeout_s=options.timeout)
    confirm(options, question, needs_terminal=True)
    report = functools.partial(tell, options)
    moved = await move_partitions(session.cluster, planner, plan.changes, timeout_s=options.timeout, report=report)
    show(options, _document([], moved, applied=True), [done])


def _document(changes: list[PreferenceChange], moves: list[PartitionMove], *, applied: bool) -> dict[str, Json]:
    planned: list[Json] = []
    for server_id, add, partition_ids in changes:
        planned.append({"server": server_id, "add": add, "partitions": list(partition_ids)})
    moving: list[Json] = []
    for partition_id, source, target in moves:
        moving.append({"partition": partition_id, "from": source, "to": target})
    return {"applied": applied, "steps": planned, "moves": moving}
