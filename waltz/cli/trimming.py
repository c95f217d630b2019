"""``waltz partition trim`` and ``waltz cluster features``: taking the oldest transactions away for ever."""

import argparse
import re
from datetime import UTC, datetime, timedelta

from waltz.cli.output import confirm, show, tell, yes_option
from waltz.cli.session import Nouns, Session, check_partition_ids, client_of, cluster_command, number
from waltz.common.zk.features import KNOWN, TRIM, read_features
from waltz.common.zk.store_admin import sync_cluster
from waltz.operations.archived import archived_end
from waltz.operations.features import disable_trim, enable_trim
from waltz.operations.trimming import Plan, first_within, low_water_mark, plan_trim, trim

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def register_trim(verbs: Nouns) -> None:
    """Add the verb to the noun ``partition``."""
    help_text = "take the oldest transactions of a partition away, for ever and on all its storages"
    parser = cluster_command(verbs, "trim", help_text, _trim, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument(
        "--before", type=number(minimum=0), metavar="ID", help="the first transaction that stays, e.g. 1000000"
    )
    to.add_argument(
        "--older-than",
        type=age,
        metavar="AGE",
        help="trim what is known to have been committed before that time, e.g. 30d or 12h",
    )
    to.add_argument(
        "--keep-bytes",
        type=size,
        metavar="SIZE",
        help="trim the oldest segments, as long as at least that many bytes stay on each storage, e.g. 500G or 64M",
    )
    parser.add_argument(
        "--force",
        action="append",
        default=[],
        metavar="NAME",
        help='trim although this reader needs more, e.g. "cursor billing"; may be repeated',
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be trimmed, and whom that hurts")
    yes_option(parser)


def register_features(verbs: Nouns) -> None:
    """Add the verb to the noun ``cluster``."""
    help_text = "print, enable or disable features that nodes of the original cannot live with"
    parser = cluster_command(verbs, "features", help_text, _features, prints=True)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--enable", choices=KNOWN, help="refused while a registered node cannot live with it")
    change.add_argument("--disable", choices=KNOWN, help="refused while a partition is trimmed")


def age(text: str) -> timedelta:
    """Parse an age such as ``30d`` for argparse."""
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"not an age such as 30d, 12h or 2w: {text!r}")
    return timedelta(seconds=int(found[1]) * _UNITS_S[found[2]])


def size(text: str) -> int:
    """Parse a number of bytes such as ``500G`` for argparse."""
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)", text)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"not a size such as 500G, 64M or 1000000: {text!r}")
    return int(found[1]) << (10 * " KMGT".index(found[2] or " "))


async def _trim(options: argparse.Namespace, session: Session) -> None:
    partition_id = options.partition
    await check_partition_ids(session, partition_id)
    first = options.before
    if options.keep_bytes is not None:
        mark = await low_water_mark(session.cluster, partition_id)
        # What is behind the mark stays in any case, and may well be more than the size.
        first = min(await first_within(session.cluster, partition_id, options.keep_bytes), mark + 1)
    elif first is None:
        async with client_of(session) as client:
            first = await client.offset_at(partition_id, datetime.now(UTC) - options.older_than) + 1

    async def end_of(each: int) -> int | None:
        return await archived_end(session.cluster, each)

    plan = await plan_trim(session.cluster, partition_id, first, end_of)
    document = {
        "partition": partition_id,
        "trim_point": plan.before,
        "wanted": plan.first,
        "needed": [{"name": need.name, "first": need.first, "reason": need.reason} for need in plan.needs],
    }
    if options.dry_run or plan.first == plan.before:
        show(options, document, [_would(plan), *(f"  {each.name}: {each.reason}" for each in plan.needs)])
        return
    if not {need.name for need in plan.needs} - set(options.force):
        confirm(options, f"{_would(plan)}. Nobody can read it again. Go on?", needs_terminal=True)
    point = await trim(session.cluster, plan, options.force)
    show(options, document | {"trim_point": point}, [f"partition {partition_id} begins with transaction {point} now"])
    tell(options, "the storages remove whole segments below the low-water mark of the present store session")


def _would(plan: Plan) -> str:
    if plan.first == plan.before:
        return f"partition {plan.partition_id} begins with transaction {plan.before}: nothing is to be trimmed"
    return f"partition {plan.partition_id}: transactions {plan.before} to {plan.first - 1} would be trimmed"


async def _features(options: argparse.Namespace, session: Session) -> None:
    if options.enable == TRIM:
        await enable_trim(session.cluster)
    elif options.disable == TRIM:
        await disable_trim(session.cluster)
    await sync_cluster(session.zookeeper, session.root)
    names = sorted((await read_features(session.zookeeper, session.root)).names)
    show(options, {"features": list(names)}, [f"features: {', '.join(names) or 'none'}"])
